//! Standard output, and files that appear whole or not at all.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Outcome};

const BUFFER_BYTES: usize = 256 << 10;

/// Where a command's result goes: standard output, or a file that gets its name when it is complete. Dropped
/// unfinished, the file is gone.
pub(crate) struct Output {
    writer: Option<BufWriter<Box<dyn Write>>>,
    file: Option<Unfinished>,
}

/// A file under a temporary name beside its own.
struct Unfinished {
    handle: File,
    temporary: PathBuf,
    path: PathBuf,
}

impl Output {
    /// Standard output.
    pub(crate) fn standard() -> Output {
        Output { writer: Some(BufWriter::with_capacity(BUFFER_BYTES, Box::new(std::io::stdout()))), file: None }
    }

    /// A new file; one of that name is replaced when this one is complete. `-` is standard output.
    pub(crate) fn create(path: &Path) -> Outcome<Output> {
        if path.as_os_str() == "-" {
            return Ok(Output::standard());
        }
        let Some(name) = path.file_name() else {
            return Err(Failure::usage(format!("not a file name: {}", path.display())));
        };
        let mut temporary_name = std::ffi::OsString::from(".");
        temporary_name.push(name);
        temporary_name.push(format!(".{}.partial", std::process::id()));
        let temporary = path.with_file_name(temporary_name);
        let failed = |error| Failure::files(format_args!("create {}", temporary.display()), &error);
        let handle = File::create(&temporary).map_err(failed)?;
        let copy = handle.try_clone().map_err(failed)?;
        Ok(Output {
            writer: Some(BufWriter::with_capacity(BUFFER_BYTES, Box::new(copy))),
            file: Some(Unfinished { handle, temporary, path: path.to_path_buf() }),
        })
    }

    /// Writes bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Outcome {
        let result = match &mut self.writer {
            Some(writer) => writer.write_all(bytes),
            None => Ok(()),
        };
        result.map_err(|error| Failure::files(format_args!("write {}", self.name()), &error))
    }

    /// Writes a line.
    pub(crate) fn line(&mut self, line: impl AsRef<[u8]>) -> Outcome {
        self.write(line.as_ref())?;
        self.write(b"\n")
    }

    /// Makes it complete: flushed, and for a file synced and given its name.
    pub(crate) fn finish(mut self) -> Outcome {
        let name = self.name();
        let failed = |error| Failure::files(format_args!("write {name}"), &error);
        if let Some(mut writer) = self.writer.take() {
            writer.flush().map_err(failed)?;
        }
        if let Some(file) = self.file.take() {
            let done = file.handle.sync_all().and_then(|()| std::fs::rename(&file.temporary, &file.path));
            if let Err(error) = done {
                self.file = Some(file);
                return Err(failed(error));
            }
        }
        Ok(())
    }

    fn name(&self) -> String {
        self.file.as_ref().map_or_else(|| "standard output".to_owned(), |file| file.path.display().to_string())
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some(writer) = self.writer.take() {
            // Not finished: what is still buffered must not be written.
            let _ = writer.into_parts();
        }
        if let Some(file) = self.file.take() {
            // The name says that it is partial, should removing it fail.
            let _ = std::fs::remove_file(&file.temporary);
        }
    }
}

/// Writes a whole file.
pub(crate) fn write_file(path: &Path, content: &str) -> Outcome {
    let mut output = Output::create(path)?;
    output.write(content.as_bytes())?;
    output.finish()
}

/// Prints text and a newline to standard output.
pub(crate) fn print(text: &str) -> Outcome {
    let mut output = Output::standard();
    output.line(text)?;
    output.finish()
}

/// Says something on standard error that is no failure.
pub(crate) fn note(text: &str) {
    // Nobody listens: then it need not be said.
    let _ = writeln!(std::io::stderr(), "frond: {text}");
}
