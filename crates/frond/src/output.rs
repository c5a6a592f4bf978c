//! Standard output, and files that appear whole or not at all.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{BufWriter, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Outcome};

const BUFFER_BYTES: usize = 256 << 10;
/// Names of standard output; opening one of the last three anew would begin again at the front of a file behind it.
const STANDARD: [&str; 4] = ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"];
/// Most symbolic links on the way to a file, as in Linux.
const LINKS_MAX: usize = 40;

/// Where a command's result goes: standard output, a file that gets its name when it is complete, or something that is
/// there and is no regular file (a device, a pipe), which is written as it is. Dropped unfinished, the file is gone.
pub(crate) struct Output {
    writer: Option<BufWriter<Box<dyn Write>>>,
    name: String,
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
        Output::new(std::io::stdout(), "standard output".to_owned(), None)
    }

    fn new(to: impl Write + 'static, name: String, file: Option<Unfinished>) -> Output {
        Output { writer: Some(BufWriter::with_capacity(BUFFER_BYTES, Box::new(to))), name, file }
    }

    /// A new file; one of that name is replaced when this one is complete, and keeps its mode. What is there and is no regular
    /// file is opened as it is; a symbolic link stands for what it leads to. `-` is standard output.
    pub(crate) fn create(path: &Path) -> Outcome<Output> {
        if STANDARD.iter().any(|name| path.as_os_str() == *name) {
            return Ok(Output::standard());
        }
        let shown = path.display().to_string();
        let failed = |error| Failure::files(format_args!("create {shown}"), &error);
        let there = match std::fs::metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            there => Some(there.map_err(failed)?),
        };
        if there.as_ref().is_some_and(|there| !there.is_file()) {
            let opened = OpenOptions::new().write(true).open(path).map_err(failed)?;
            return Ok(Output::new(opened, shown, None));
        }
        let path = behind_links(path).map_err(failed)?;
        let Some(name) = path.file_name() else {
            return Err(Failure::usage(format!("not a file name: {shown}")));
        };
        let mut temporary_name = std::ffi::OsString::from(".");
        temporary_name.push(name);
        temporary_name.push(format!(".{}.partial", std::process::id()));
        let temporary = path.with_file_name(temporary_name);
        let failed = |error| Failure::files(format_args!("create {}", temporary.display()), &error);
        let handle = create_like(&temporary, there.as_ref()).map_err(failed)?;
        let copy = handle.try_clone().map_err(failed)?;
        Ok(Output::new(copy, shown, Some(Unfinished { handle, temporary, path })))
    }

    /// Writes bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Outcome {
        let result = match &mut self.writer {
            Some(writer) => writer.write_all(bytes),
            None => Ok(()),
        };
        result.map_err(|error| Failure::files(format_args!("write {}", self.name), &error))
    }

    /// Writes a line.
    pub(crate) fn line(&mut self, line: impl AsRef<[u8]>) -> Outcome {
        self.write(line.as_ref())?;
        self.write(b"\n")
    }

    /// Makes it complete: flushed, and for a file synced and given its name.
    pub(crate) fn finish(mut self) -> Outcome {
        let name = self.name.clone();
        let failed = |error| Failure::files(format_args!("write {name}"), &error);
        if let Some(mut writer) = self.writer.take() {
            writer.flush().map_err(failed)?;
        }
        if let Some(file) = self.file.take() {
            let done = file.handle.sync_all().and_then(|()| give_name(&file.temporary, &file.path));
            if let Err(error) = done {
                self.file = Some(file);
                return Err(failed(error));
            }
        }
        Ok(())
    }
}

/// Gives what is complete its name, so that it has it after a power failure too.
pub(crate) fn give_name(temporary: &Path, path: &Path) -> std::io::Result<()> {
    std::fs::rename(temporary, path)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
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

/// Where the symbolic links from `path` on lead, whether a file is there or not.
fn behind_links(path: &Path) -> std::io::Result<PathBuf> {
    let mut path = path.to_path_buf();
    for _ in 0..LINKS_MAX {
        if !path.is_symlink() {
            return Ok(path);
        }
        // A relative target begins at the link's directory, an absolute one replaces all.
        let target = std::fs::read_link(&path)?;
        path = path.parent().unwrap_or(Path::new("")).join(target);
    }
    Err(std::io::Error::other("too many symbolic links"))
}

/// A new file, with owner and mode of the one that it will replace. Nobody else sees its content before.
fn create_like(path: &Path, replaced: Option<&Metadata>) -> std::io::Result<File> {
    let Some(replaced) = replaced else { return File::create(path) };
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    // Only root may give files away; for others the file is theirs from now on.
    let _ = fchown(&file, Some(replaced.uid()), Some(replaced.gid()));
    file.set_permissions(replaced.permissions())?;
    Ok(file)
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
