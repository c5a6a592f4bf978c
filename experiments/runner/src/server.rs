//! The private server: a stock mariadbd on a data directory of its own, in the run's control group, killed when we end.
//!
//! A start is timed from the launch of the process to the first row that a SELECT returns. Before every start the files of
//! the data directory are written back and dropped from the page cache, so that recovery reads from the disk, as it would
//! after a power failure; what a process had not written stays lost by SIGKILL.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use frond_load::child::dies_with_us;
use frond_load::wire::{Connection, Failure as SqlFailure};
use rustix::fs::{Advice, fadvise};

use crate::cleanup;
use crate::engine::{Engine, Sizes, common_settings};
use crate::failure::{Failure, While};
use crate::limits::{Cage, Limits, Operations};

/// A server that does not answer by then is taken for hung.
const START_SECONDS_MAX: u64 = 900;
/// A server that does not end by then is taken for hung.
const STOP_SECONDS_MAX: u64 = 600;
/// The address of a socket holds 107 bytes.
const SOCKET_PATH_BYTES_MAX: usize = 100;

/// Where the stock server and the plugins are.
#[derive(Clone, Debug)]
pub(crate) struct Installation {
    stock: PathBuf,
    plugins: PathBuf,
}

impl Installation {
    /// `FROND_SERVER_DIR` or the checkout's own fetched server, and the plugin built in this checkout.
    pub(crate) fn find(checkout: &Path) -> Result<Self, Failure> {
        let target = checkout.join("target/mariadb");
        let stock = std::env::var_os("FROND_SERVER_DIR").map_or_else(|| target.join("stock"), PathBuf::from);
        if !stock.join("prefix/usr/sbin/mariadbd").exists() {
            return Err(format!("there is no stock server in {}: run 'make plugin' first", stock.display()));
        }
        let stock = fs::canonicalize(&stock).or_say("cannot find the stock server")?;
        Ok(Installation { stock, plugins: target.join("plugin") })
    }

    /// Puts the engines' plugins into a folder of the run's own, the server's by links: FROND's may be built anew while the
    /// run goes on.
    pub(crate) fn keep_plugins(self, folder: &Path, engines: &[Engine]) -> Result<Self, Failure> {
        let _ = fs::remove_dir_all(folder);
        fs::create_dir_all(folder).or_say("cannot create the folder of plugins")?;
        for plugin in engines.iter().filter_map(|engine| engine.plugin()) {
            let name = format!("{plugin}.so");
            let (built, stock) = (self.plugins.join(&name), self.stock.join("prefix/usr/lib/mysql/plugin").join(&name));
            let kept = if stock.exists() {
                std::os::unix::fs::symlink(&stock, folder.join(&name))
            } else {
                fs::copy(&built, folder.join(&name)).map(|_| ())
            };
            kept.or_say(format!("the plugin is missing: {plugin}; run 'make plugin' first"))?;
        }
        Ok(Installation { plugins: folder.into(), ..self })
    }

    /// Tells builds of FROND's plugin apart; empty where there is none.
    pub(crate) fn plugin_digest(&self) -> String {
        let file = fs::read(self.plugins.join("ha_frond.so"));
        file.map_or(String::new(), |bytes| format!("{:032x}", xxhash_rust::xxh3::xxh3_128(&bytes)))
    }

    pub(crate) fn version(&self) -> String {
        fs::read_to_string(self.stock.join("version")).unwrap_or_default().trim().into()
    }

    fn usr(&self) -> PathBuf {
        self.stock.join("prefix/usr")
    }

    /// An empty data directory, made once and copied from then on. InnoDB's redo log in it is as large as in the experiments:
    /// with another size it would begin a new one.
    fn template(&self, out: &Path, redo: u64) -> Result<PathBuf, Failure> {
        let template = out.join(format!("template-{redo}"));
        if template.join("data/mysql").exists() {
            return Ok(template);
        }
        let new = cleanup::Directory::new(out.join("template.new"));
        let _ = fs::remove_dir_all(new.path());
        fs::create_dir_all(new.path()).or_say("cannot create a data directory")?;
        let mut command = Command::new(self.usr().join("bin/mariadb-install-db"));
        command
            .args([
                "--no-defaults",
                "--auth-root-authentication-method=normal",
                "--skip-name-resolve",
                "--skip-test-db",
                "--force",
            ])
            .arg(format!("--innodb-log-file-size={redo}"))
            .arg(format!("--basedir={}", self.usr().display()))
            .arg(format!("--datadir={}", new.path().join("data").display()))
            .args(as_root());
        let output = cleanup::output(&mut command).or_say("cannot run mariadb-install-db")?;
        if !output.status.success() {
            return Err(format!("no data directory could be created: {}", String::from_utf8_lossy(&output.stderr)));
        }
        fs::rename(new.path(), &template).or_say("cannot create a data directory")?;
        Ok(template)
    }

    /// A new server directory in `directory`, which must not exist.
    pub(crate) fn create(&self, out: &Path, directory: &Path, engine: Engine, redo: u64) -> Result<(), Failure> {
        copy(&self.template(out, redo)?, directory)?;
        match engine {
            Engine::Innodb => write_once(&directory.join("data/ib_logfile0")).or_say("cannot write InnoDB's redo log"),
            Engine::Frond | Engine::Rocksdb | Engine::Blackhole => Ok(()),
        }
    }
}

/// Writes every block of a file as it is. Of one that was only made long the file system converts the blocks as they are first
/// written, at each sync; a server that has been at work for a while has that behind it.
fn write_once(path: &Path) -> std::io::Result<()> {
    let file = File::options().read(true).write(true).open(path)?;
    let mut part = vec![0; 1 << 20];
    let (mut at, end) = (0, file.metadata()?.len());
    while at < end {
        let bytes = part.len().min((end - at) as usize);
        file.read_exact_at(&mut part[..bytes], at)?;
        file.write_all_at(&part[..bytes], at)?;
        at += bytes as u64;
    }
    file.sync_all()
}

/// Copies a server directory of a stopped server.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    let mut command = Command::new("cp");
    let mut copying =
        cleanup::spawn(command.arg("-a").arg("--sparse=auto").arg(from).arg(to)).or_say("cannot run cp")?;
    let status = copying.wait().or_say("cannot wait for cp");
    cleanup::forget_process(copying.id());
    let status = status?;
    if status.success() { Ok(()) } else { Err(format!("cannot copy a data directory: cp ended with {status}")) }
}

/// How a server is to run.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) engine: Engine,
    pub(crate) sizes: Sizes,
    pub(crate) limits: Limits,
    /// A TCP port of this machine, for clients that know no socket.
    pub(crate) port: Option<u16>,
}

/// What the process used so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) cpu_seconds: f64,
    pub(crate) bytes_read: u64,
    pub(crate) bytes_written: u64,
    /// Reads and writes that reached the disk, where they are counted.
    pub(crate) operations: Option<(u64, u64)>,
    pub(crate) memory_peak: u64,
}

/// A running server.
pub(crate) struct Server {
    directory: PathBuf,
    pub(crate) settings: Settings,
    child: Option<Child>,
    operations: Option<Operations>,
    /// From the launch to the first answer.
    pub(crate) ready_seconds: f64,
    /// What starting took.
    pub(crate) start: Counters,
}

impl Server {
    /// Starts it on a directory with cold files, and waits until `query` is answered.
    pub(crate) fn start(
        installation: &Installation,
        cage: &Cage,
        directory: &Path,
        settings: &Settings,
        query: &str,
    ) -> Result<Self, Failure> {
        let socket = directory.join("socket");
        if socket.as_os_str().len() > SOCKET_PATH_BYTES_MAX {
            return Err(format!("the path is too long for a socket: {}", socket.display()));
        }
        drop_from_page_cache(directory);
        cage.apply(&settings.limits)?;
        let _ = fs::remove_file(&socket);
        let log = File::options()
            .create(true)
            .append(true)
            .open(directory.join("error.log"))
            .or_say("cannot write the server's error log")?;
        let errors = log.try_clone().or_say("cannot write the server's error log")?;
        let begin = Instant::now();
        let mut command = command(installation, cage, directory, settings);
        command.stdin(Stdio::null()).stdout(log).stderr(errors);
        let child = cleanup::spawn(&mut command).or_say("cannot run mariadbd")?;
        let mut server = Server {
            directory: directory.into(),
            settings: settings.clone(),
            child: Some(child),
            operations: cage.operations(),
            ready_seconds: 0.0,
            start: Counters::default(),
        };
        server.wait_until_ready(query, begin)?;
        server.ready_seconds = begin.elapsed().as_secs_f64();
        server.start = server.counters();
        Ok(server)
    }

    fn wait_until_ready(&mut self, query: &str, begin: Instant) -> Result<(), Failure> {
        loop {
            if let Ok(mut connection) = Connection::open(&self.socket(), "") {
                match connection.run(query) {
                    Ok(_) => return Ok(()),
                    Err(SqlFailure::Refused { code, message }) => {
                        return Err(format!(
                            "the server refuses the first query: error {code}: {message}\n{}",
                            self.last_words()
                        ));
                    }
                    Err(SqlFailure::Lost(_)) => {}
                }
            }
            if let Some(status) = self.ended() {
                return Err(format!("the server did not come up: {status}\n{}", self.last_words()));
            }
            if begin.elapsed() > Duration::from_secs(START_SECONDS_MAX) {
                return Err(format!("the server does not answer after {START_SECONDS_MAX} s\n{}", self.last_words()));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// How it ended, if it did by itself.
    pub(crate) fn ended(&mut self) -> Option<String> {
        match self.child.as_mut()?.try_wait() {
            Ok(Some(status)) => Some(status.to_string()),
            _ => None,
        }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.join("socket")
    }

    /// The number of its process; 0 when it has ended.
    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// A connection as root.
    pub(crate) fn connect(&self, database: &str) -> Result<Connection, Failure> {
        Connection::open(&self.socket(), database).map_err(|error| format!("{error}\n{}", self.last_words()))
    }

    /// Runs one statement on a connection of its own.
    pub(crate) fn run(&self, database: &str, statement: &str) -> Result<(), Failure> {
        let answer = self.connect(database)?.run(statement);
        answer.map(|_| ()).map_err(|error| match error.is_lost() {
            true => format!("{statement}: {error}\n{}", self.last_words()),
            false => format!("{statement}: {error}"),
        })
    }

    pub(crate) fn counters(&self) -> Counters {
        let operations = self.operations.as_ref().and_then(Operations::count);
        Counters { operations, ..counters_of(self.pid()) }
    }

    /// SIGKILL; gives the counters of the moment before. The files it leaves are dropped from memory by the next start.
    pub(crate) fn kill(mut self) -> Counters {
        let counters = self.counters();
        self.end();
        counters
    }

    fn end(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
            cleanup::forget_process(child.id());
        }
    }

    /// An orderly end, without limits.
    pub(crate) fn stop(mut self, cage: &Cage) -> Result<(), Failure> {
        cage.apply(&Limits { memory: self.settings.limits.memory, ..Limits::default() })?;
        self.run("", "SHUTDOWN")?;
        let begin = Instant::now();
        loop {
            if let Some(status) = self.ended() {
                let child = self.child.take().map_or(0, |child| child.id());
                cleanup::forget_process(child);
                let well = status.ends_with(": 0");
                return if well {
                    Ok(())
                } else {
                    Err(format!("the server ended badly: {status}\n{}", self.last_words()))
                };
            }
            if begin.elapsed() > Duration::from_secs(STOP_SECONDS_MAX) {
                return Err(format!("the server does not end after {STOP_SECONDS_MAX} s\n{}", self.last_words()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The end of the error log.
    pub(crate) fn last_words(&self) -> String {
        let log = fs::read(self.directory.join("error.log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// A shell joins the control group and becomes the server; the kernel kills it when this process dies.
fn command(installation: &Installation, cage: &Cage, directory: &Path, settings: &Settings) -> Command {
    let mut script = String::from("set -e; ");
    let doors = cage.doors();
    for at in 0..doors.len() {
        script.push_str(&format!("echo $$ > \"${{{}}}\"; ", at + 1));
    }
    script.push_str(&format!("shift {}; exec \"$@\"", doors.len()));
    let usr = installation.usr();
    let mut command = Command::new("sh");
    command.arg("-c").arg(script).arg("sh").args(&doors).args(dies_with_us());
    command
        .arg(usr.join("sbin/mariadbd"))
        .args(["--no-defaults", "--plugin-maturity=unknown"])
        .arg(format!("--basedir={}", usr.display()))
        .arg(format!("--datadir={}", directory.join("data").display()))
        .arg(format!("--lc-messages-dir={}", usr.join("share/mysql").display()))
        .arg(format!("--plugin-dir={}", installation.plugins.display()))
        .arg(format!("--socket={}", directory.join("socket").display()))
        .arg(format!("--pid-file={}", directory.join("pid").display()))
        .args(as_root())
        .args(settings.engine.plugin().map(|plugin| format!("--plugin-load-add={plugin}")))
        .arg(format!("--default-storage-engine={}", settings.engine.sql()));
    match settings.port {
        None => command.arg("--skip-networking"),
        Some(port) => command.args(["--bind-address=127.0.0.1".into(), format!("--port={port}")]),
    };
    let own = settings.engine.settings(settings.sizes);
    command.args(common_settings().iter().chain(&own).map(|setting| &setting.option));
    command.current_dir(directory).process_group(0);
    command
}

/// As root the server wants to be told that this is meant.
fn as_root() -> Option<&'static str> {
    rustix::process::geteuid().is_root().then_some("--user=root")
}

fn counters_of(pid: u32) -> Counters {
    let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let field = |text: &str, name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0)
    };
    let (io, status, stat) = (read("io"), read("status"), read("stat"));
    let after_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let fields: Vec<&str> = after_name.split(' ').collect();
    let ticks = |at: usize| fields.get(at).and_then(|word| word.parse::<f64>().ok()).unwrap_or(0.0);
    Counters {
        cpu_seconds: (ticks(11) + ticks(12)) / 100.0,
        bytes_read: field(&io, "read_bytes:"),
        bytes_written: field(&io, "write_bytes:"),
        operations: None,
        memory_peak: field(&status, "VmHWM:") * 1024,
    }
}

/// Writes every file below `directory` back and drops its cached pages.
pub(crate) fn drop_from_page_cache(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() {
            drop_from_page_cache(&entry.path());
        } else if kind.is_file()
            && let Ok(file) = File::open(entry.path())
        {
            let _ = file.sync_all();
            let _ = fadvise(&file, 0, None, Advice::DontNeed);
        }
    }
}

/// Bytes on disk of all files below `directory` but transaction logs, which FROND and RocksDB name `*.log`.
pub(crate) fn size_on_disk(directory: &Path) -> u64 {
    let mut bytes = 0;
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let (path, Ok(metadata)) = (entry.path(), entry.metadata()) else { continue };
        bytes += if metadata.is_dir() {
            size_on_disk(&path)
        } else if path.extension().is_some_and(|extension| extension == "log") {
            0
        } else {
            std::os::unix::fs::MetadataExt::blocks(&metadata) * 512
        };
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_that_is_built_anew_does_not_change_the_run() {
        let root = tempfile::tempdir().unwrap();
        let (stock, built) = (root.path().join("stock"), root.path().join("built"));
        let own = stock.join("prefix/usr/lib/mysql/plugin");
        [&own, &built].iter().for_each(|folder| fs::create_dir_all(folder).unwrap());
        fs::write(own.join("ha_rocksdb.so"), "stock").unwrap();
        fs::write(built.join("ha_frond.so"), "one").unwrap();
        let found = Installation { stock, plugins: built.clone() };
        let kept = root.path().join("kept");
        let engines = [Engine::Frond, Engine::Innodb, Engine::Rocksdb];
        let installation = found.clone().keep_plugins(&kept, &engines).unwrap();
        let digest = installation.plugin_digest();
        assert_eq!(digest, found.plugin_digest());
        fs::write(built.join("ha_frond.so"), "two").unwrap();
        assert_ne!(digest, found.plugin_digest());
        assert_eq!(digest, installation.plugin_digest());
        assert_eq!(fs::read(installation.plugins.join("ha_rocksdb.so")).unwrap(), b"stock");
        assert!(found.keep_plugins(&kept, &[Engine::Blackhole]).unwrap_err().contains("ha_blackhole"));
    }
}
