//! A private stock MariaDB server with the plugin of this checkout, as mariadb/tools/server.sh starts it, but as our own
//! child: so that it can be killed at any moment and its start be timed to the millisecond.
//!
//! Everything of it lies in one directory: data, socket, error log. Dropping the handle kills the process, and so does the
//! end of this one by a signal: the server stands in a process group of its own, which Ctrl-C does not reach.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use frond_load::child::dies_with_us;
use frond_load::wire::{Connection, Failure};

/// A server that does not answer by then is taken for hung.
const START_SECONDS_MAX: u64 = 120;
/// In a directory that a run has made, and a later one may therefore remove.
const MARK: &str = "made-by-frond-client";
/// The address of a socket holds 107 bytes.
const SOCKET_PATH_BYTES_MAX: usize = 100;

/// Where the stock server and the plugin are.
#[derive(Clone, Debug)]
pub(crate) struct Installation {
    prefix: PathBuf,
    plugin_dir: PathBuf,
    /// What is made here and kept between runs.
    out: PathBuf,
}

impl Installation {
    /// `FROND_SERVER_DIR` or the checkout's own fetched server, and the plugin built in this checkout.
    pub(crate) fn find() -> Result<Self, String> {
        let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let out = checkout.join("target/mariadb");
        let stock = std::env::var_os("FROND_SERVER_DIR").map_or_else(|| out.join("stock"), PathBuf::from);
        let installation = Installation { prefix: stock.join("prefix"), plugin_dir: out.join("plugin"), out };
        if !installation.prefix.join("usr/sbin/mariadbd").exists() {
            return Err(format!("there is no stock server in {}: run 'make plugin' first", stock.display()));
        }
        if !installation.plugin_dir.join("ha_frond.so").exists() {
            return Err(format!(
                "the plugin is missing in {}: run 'make plugin' first",
                installation.plugin_dir.display()
            ));
        }
        Ok(installation)
    }

    /// A data directory without tables, made at first use: that takes the server's script seconds, and a copy nothing.
    fn empty_data(&self) -> Result<PathBuf, String> {
        let data = self.out.join("empty-data");
        if data.exists() {
            return Ok(data);
        }
        let making = self.out.join(format!("empty-data-{}", std::process::id()));
        let mut command = Command::new(self.program("mariadb-install-db"));
        command
            .args(["--no-defaults", "--auth-root-authentication-method=normal"])
            .args(["--skip-name-resolve", "--skip-test-db", "--force"])
            .arg(format!("--basedir={}", self.prefix.join("usr").display()))
            .arg(format!("--datadir={}", making.display()));
        as_root(&mut command);
        let output = command.output().map_err(|error| format!("cannot run mariadb-install-db: {error}"))?;
        if !output.status.success() {
            let words = String::from_utf8_lossy(&output.stderr).into_owned();
            let _ = fs::remove_dir_all(&making);
            return Err(format!("the data directory could not be created: {words}"));
        }
        // Somebody else may have been quicker: then theirs is as good.
        if fs::rename(&making, &data).is_err() {
            let _ = fs::remove_dir_all(&making);
        }
        Ok(data)
    }

    /// A program of the stock server.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        let bin = self.prefix.join("usr/bin").join(name);
        if bin.exists() { bin } else { self.prefix.join("usr/sbin").join(name) }
    }
}

/// A data directory, and the server on it while it runs.
pub(crate) struct Server {
    installation: Installation,
    directory: PathBuf,
    options: Vec<String>,
    child: Option<Child>,
}

impl Server {
    /// Creates a data directory in `directory`, which must not hold one yet.
    pub(crate) fn create(installation: &Installation, directory: &Path, options: &[String]) -> Result<Self, String> {
        fs::create_dir_all(directory).map_err(|error| format!("cannot create {}: {error}", directory.display()))?;
        let directory = fs::canonicalize(directory).map_err(|error| error.to_string())?;
        let server = Server { installation: installation.clone(), directory, options: options.to_vec(), child: None };
        if server.data().exists() {
            return Err(format!("{} holds a server's data already", server.directory.display()));
        }
        let template = installation.empty_data()?;
        let copied = Command::new("cp").arg("-a").arg(&template).arg(server.data()).status();
        if !copied.is_ok_and(|status| status.success()) {
            return Err(format!("cannot copy {}", template.display()));
        }
        Ok(server)
    }

    /// The folder of databases.
    pub(crate) fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    /// Beside the data; a deep directory gets one among the temporary files.
    pub(crate) fn socket(&self) -> PathBuf {
        let beside = self.directory.join("socket");
        if beside.as_os_str().len() <= SOCKET_PATH_BYTES_MAX {
            return beside;
        }
        std::env::temp_dir().join(format!("frond-client-{}.socket", std::process::id()))
    }

    pub(crate) fn error_log(&self) -> PathBuf {
        self.directory.join("error.log")
    }

    /// Starts the process and returns at once. It ends with the calling thread.
    pub(crate) fn launch(&mut self) -> Result<(), String> {
        assert!(self.child.is_none(), "it runs already");
        let _ = fs::remove_file(self.socket());
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.error_log())
            .map_err(|error| format!("cannot write {}: {error}", self.error_log().display()))?;
        let errors = log.try_clone().map_err(|error| error.to_string())?;
        let usr = self.installation.prefix.join("usr");
        let mut words = dies_with_us().into_iter().map(PathBuf::from).chain([self.installation.program("mariadbd")]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command
            .args(words)
            .args(["--no-defaults", "--skip-networking", "--plugin-load-add=ha_frond"])
            .args(["--default-storage-engine=FROND", "--max-connections=300", "--innodb-buffer-pool-size=64M"])
            .arg(format!("--basedir={}", usr.display()))
            .arg(format!("--datadir={}", self.data().display()))
            .arg(format!("--lc-messages-dir={}", usr.join("share/mysql").display()))
            .arg(format!("--plugin-dir={}", self.installation.plugin_dir.display()))
            .arg(format!("--socket={}", self.socket().display()))
            .arg(format!("--pid-file={}", self.directory.join("pid").display()))
            .args(&self.options);
        as_root(&mut command);
        let child = command
            .current_dir(&self.directory)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .process_group(0)
            .spawn()
            .map_err(|error| format!("cannot run mariadbd: {error}"))?;
        self.child = Some(child);
        Ok(())
    }

    /// Waits until the server answers `query`, and gives the connection with the time since `since`.
    pub(crate) fn wait(&mut self, query: &str, since: Instant) -> Result<(Connection, Duration), String> {
        loop {
            if let Ok(mut connection) = Connection::open(&self.socket(), "") {
                match connection.run(query) {
                    Ok(_) => return Ok((connection, since.elapsed())),
                    Err(Failure::Refused { code, message }) => {
                        return Err(format!("the server refuses {query}: error {code}: {message}"));
                    }
                    Err(Failure::Lost(_)) => {}
                }
            }
            let child = self.child.as_mut().ok_or("the server is not started")?;
            if let Ok(Some(status)) = child.try_wait() {
                self.child = None;
                return Err(format!("the server did not come up: {status}\n{}", self.last_words()));
            }
            if since.elapsed() > Duration::from_secs(START_SECONDS_MAX) {
                return Err(format!("the server does not answer after {START_SECONDS_MAX} s\n{}", self.last_words()));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub(crate) fn start(&mut self) -> Result<Connection, String> {
        let since = Instant::now();
        self.launch()?;
        Ok(self.wait("SELECT 1", since)?.0)
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Whether the process is still there: a server that ends by itself has crashed.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// An orderly end.
    pub(crate) fn stop(&mut self) -> Result<(), String> {
        let mut connection = Connection::open(&self.socket(), "").map_err(|error| error.to_string())?;
        connection.run("SHUTDOWN").map_err(|error| error.to_string())?;
        let Some(mut child) = self.child.take() else { return Ok(()) };
        let status = child.wait().map_err(|error| error.to_string())?;
        if status.success() { Ok(()) } else { Err(format!("the server ended badly: {status}\n{}", self.last_words())) }
    }

    /// The end of the error log.
    pub(crate) fn last_words(&self) -> String {
        let log = fs::read(self.error_log()).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        let _ = fs::remove_file(self.socket());
    }
}

/// Removes what an earlier run left in `directory`.
pub(crate) fn clear_directory(directory: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot clear {}: {error}", directory.display());
    let mark = directory.join(MARK);
    let is_empty = !directory.exists() || fs::read_dir(directory).map_err(failed)?.next().is_none();
    if !is_empty {
        if !mark.exists() {
            return Err(format!(
                "{} is not empty and was not made by this program: name another directory, or remove it",
                directory.display()
            ));
        }
        remove_directory(directory).map_err(failed)?;
    }
    fs::create_dir_all(directory).and_then(|()| File::create(mark)).map_err(failed)?;
    Ok(())
}

/// Removes a directory that a run has made, its mark last: cut short, it is known for what it is.
pub(crate) fn remove_directory(directory: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => fs::remove_dir_all(entry.path())?,
            false if entry.file_name() == MARK => {}
            false => fs::remove_file(entry.path())?,
        }
    }
    fs::remove_dir_all(directory)
}

/// As root the server wants to be told that this is meant.
fn as_root(command: &mut Command) {
    let is_root = fs::metadata("/proc/self").is_ok_and(|metadata| std::os::unix::fs::MetadataExt::uid(&metadata) == 0);
    if is_root {
        command.arg("--user=root");
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn a_directory_is_cleared_only_if_a_run_has_made_it() {
        let directory = tempfile::tempdir().unwrap();
        let files = || fs::read_dir(directory.path()).unwrap().count();
        fs::write(directory.path().join("of the user"), "").unwrap();
        assert!(clear_directory(directory.path()).unwrap_err().contains("not made by this program"));
        fs::remove_file(directory.path().join("of the user")).unwrap();
        for _ in 0..2 {
            clear_directory(directory.path()).unwrap();
            assert_eq!(files(), 1);
            fs::create_dir(directory.path().join("data")).unwrap();
        }
    }

    #[test]
    fn a_server_dies_with_who_started_it_even_when_nobody_drops_it() {
        if dies_with_us().is_empty() {
            println!("there is no setpriv on this machine");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let prefix = directory.path().join("prefix");
        let program = prefix.join("usr/sbin/mariadbd");
        fs::create_dir_all(program.parent().unwrap()).unwrap();
        fs::write(&program, "#!/bin/sh\nexec sleep 20\n").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let out = directory.path().to_owned();
        let installation = Installation { prefix, plugin_dir: out.clone(), out: out.clone() };
        let starter = std::thread::spawn(|| {
            let mut server = Server { installation, directory: out, options: Vec::new(), child: None };
            server.launch().unwrap();
            let child = server.child.take().unwrap();
            // Until then it is the wrapper, which may not have asked for the signal yet.
            while fs::read_to_string(format!("/proc/{}/comm", child.id())).unwrap() != "sleep\n" {
                std::thread::sleep(Duration::from_millis(2));
            }
            child
        });
        let status = starter.join().unwrap().wait().unwrap();
        assert_eq!(status.signal(), Some(9), "{status}");
    }
}
