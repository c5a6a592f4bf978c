//! What a script can do: a database on a simulated disk, and named transactions in it.
//!
//! A command with a prefix (`t1: put a=1`) belongs to that transaction, one without is a transaction of its own or
//! looks at the whole database. Where keys are given, `tree=name` may come in front of them; without it the tree is `t`.
//! No lock is waited for: a conflict shows as `lock timeout`. What succeeds and has nothing to tell prints nothing.
//!
//! | command | with a prefix: in the transaction | without |
//! |---|---|---|
//! | `begin [LEVEL] [read-only] [first-updater-wins] [consistent-snapshot]`, `commit`, `rollback`, `prepare XID` | yes | |
//! | `savepoint NAME`, `rollback-to NAME`, `release NAME` | yes | |
//! | `put K=V…`, `insert K=V…` (all or none), `insert-if-absent K=V…`, `delete K…`, `single-delete K…` | yes | yes |
//! | `update K [if-null=V] [set=OFFSET/BYTES] [add=OFFSET/WIDTH/DELTA] [saturate=…] [append=BYTES]` | yes | yes |
//! | `delete-range LOW HIGH`, `lock K [shared] [skip]`, `lock-range LOW HIGH`, `delete-existing K` | yes | |
//! | `get K…`, `scan [LOW HIGH] [back] [locked]`, `count`, `estimate [LOW HIGH]`, `fill FROM TO BYTES` | yes | yes |
//! | `create NAME`, `drop NAME`, `rename OLD NEW`, `truncate NAME` | yes | yes |
//! | `commit-prepared XID`, `rollback-prepared XID`, `prepared`, `locks`, `trees` | | yes |
//! | `checkpoint`, `step`, `idle`, `shape`, `log`, `report`, `reopen`, `crash` | | yes |

use std::collections::BTreeMap;
use std::error::Error as AnyError;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use fronddb::io::{CrashMode, MemoryStorage};
use fronddb::tree::TreeTuning;
use fronddb::{
    CheckOptions, Codec, CursorOptions, Database, Error, ErrorKind, Isolation, LockMode, Locked, Op, Overflow, Program,
    Result, Savepoint, Transaction, Tree, TreeOptions, TxnOptions, Wait, WriteBatch, log_records,
};
use goldenscript::{Argument, Command, Context, Runner};

use crate::support::{DIRECTORY, Random, collect, collect_backward, options};

/// The tree of commands that name none.
const DEFAULT_TREE: &str = "t";

struct Named {
    txn: Transaction,
    savepoints: BTreeMap<String, Savepoint>,
}

pub(crate) struct Session {
    storage: MemoryStorage,
    db: Option<Database>,
    named: BTreeMap<String, Named>,
}

/// The arguments of a command, by kind.
struct Arguments {
    tree: String,
    words: Vec<String>,
    pairs: Vec<(String, String)>,
}

impl Arguments {
    fn of(command: &Command) -> Arguments {
        let mut arguments = Arguments { tree: DEFAULT_TREE.to_owned(), words: Vec::new(), pairs: Vec::new() };
        for (index, argument) in command.args.iter().enumerate() {
            match argument {
                Argument::KeyValue(key, value) if index == 0 && key == "tree" => arguments.tree = value.clone(),
                Argument::KeyValue(key, value) => arguments.pairs.push((key.clone(), value.clone())),
                Argument::Positional(word) => arguments.words.push(word.clone()),
                _ => unreachable!("no other kind"),
            }
        }
        arguments
    }

    fn word(&self, index: usize) -> Result<&str> {
        self.words.get(index).map(String::as_str).ok_or_else(|| wrong("an argument is missing"))
    }

    /// Takes a word out of the arguments, if it is there.
    fn flag(&mut self, word: &str) -> bool {
        let before = self.words.len();
        self.words.retain(|given| given != word);
        self.words.len() < before
    }

    /// Two words as bounds; without them, everything.
    fn bounds(&self) -> (&[u8], &[u8]) {
        let bound = |index: usize| self.words.get(index).map_or(&[][..], |word| word.as_bytes());
        (bound(0), bound(1))
    }
}

fn wrong(what: &str) -> Error {
    Error::new(ErrorKind::Internal, format!("script: {what}"))
}

fn shown(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

fn rows(rows: Vec<(Vec<u8>, Vec<u8>)>) -> String {
    let rows: Vec<String> = rows.iter().map(|(key, value)| format!("{}={}", shown(key), shown(value))).collect();
    if rows.is_empty() { "none".to_owned() } else { rows.join(" ") }
}

/// `OFFSET/WIDTH/DELTA`, big endian and signed.
fn addition(text: &str, overflow: Overflow) -> Op {
    let parts: Vec<i64> = text.split('/').map(|part| part.parse().unwrap()).collect();
    let [offset, width, delta] = parts[..] else { panic!("add wants OFFSET/WIDTH/DELTA, got {text}") };
    Op::Add { offset: offset as u32, width: width as u8, big_endian: true, signed: true, delta, overflow }
}

fn program(pairs: &[(String, String)]) -> Vec<u8> {
    let operation = |(name, value): &(String, String)| match name.as_str() {
        "if-null" => Op::IfNull { value: value.clone().into_bytes() },
        "append" => Op::Append { bytes: value.clone().into_bytes() },
        "set" => {
            let (offset, bytes) = value.split_once('/').unwrap();
            Op::SetBytes { offset: offset.parse().unwrap(), bytes: bytes.as_bytes().to_vec() }
        }
        "add" => addition(value, Overflow::Wrap),
        "saturate" => addition(value, Overflow::Saturate),
        other => panic!("unknown operation {other}"),
    };
    let mut bytes = Vec::new();
    Program { ops: pairs.iter().map(operation).collect() }.encode(&mut bytes);
    bytes
}

fn begin_options(arguments: &mut Arguments) -> Result<TxnOptions> {
    let mut options = TxnOptions {
        lock_timeout: Some(Duration::ZERO),
        read_only: arguments.flag("read-only"),
        first_updater_wins: arguments.flag("first-updater-wins"),
        consistent_snapshot: arguments.flag("consistent-snapshot"),
        ..TxnOptions::default()
    };
    options.isolation = match arguments.words.first().map(String::as_str) {
        Some("read-uncommitted") => Isolation::ReadUncommitted,
        Some("read-committed") => Isolation::ReadCommitted,
        Some("repeatable-read") | None => Isolation::RepeatableRead,
        Some("serializable") => Isolation::Serializable,
        Some(_) => return Err(wrong("unknown isolation level")),
    };
    Ok(options)
}

impl Session {
    /// A new database with an empty tree `t`.
    pub(crate) fn new() -> Session {
        let mut session = Session { storage: MemoryStorage::new(), db: None, named: BTreeMap::new() };
        session.open();
        session.db().create_tree(DEFAULT_TREE, &TreeOptions::default()).unwrap();
        session
    }

    fn open(&mut self) {
        // Sizes must not depend on how well a codec does.
        let tuning = TreeTuning { leaf_runs: 2, ..TreeTuning::tiny() };
        let options =
            options(&self.storage).default_codec(Codec::None).log_compression(false).tree_tuning(Some(tuning));
        self.db = Some(Database::open(DIRECTORY, options.lock_timeout(Duration::ZERO)).unwrap());
    }

    fn db(&self) -> &Database {
        self.db.as_ref().expect("open between commands")
    }

    /// Runs a command that belongs to the whole database; `None` when there is no such command.
    fn whole(&mut self, name: &str, arguments: &mut Arguments) -> Result<Option<String>> {
        let told = match name {
            "commit-prepared" => self.db().commit_prepared(arguments.word(0)?.as_bytes()).map(|()| String::new())?,
            "rollback-prepared" => {
                self.db().rollback_prepared(arguments.word(0)?.as_bytes()).map(|()| String::new())?
            }
            "prepared" => {
                let told = |info: &fronddb::PreparedInfo| {
                    format!("{}{}", shown(&info.xid), if info.recovered { " (recovered)" } else { "" })
                };
                let list: Vec<String> = self.db().prepared()?.iter().map(told).collect();
                if list.is_empty() { "none".to_owned() } else { list.join(", ") }
            }
            "trees" => {
                let names: Vec<String> = self.db().trees()?.into_iter().map(|info| info.name).collect();
                names.join(", ")
            }
            "locks" => self.locks()?,
            "checkpoint" => self.db().checkpoint().map(|()| String::new())?,
            "step" => if self.db().step_background()? { "more" } else { "nothing to do" }.to_owned(),
            "idle" => self.db().wait_idle().map(|()| String::new())?,
            "shape" => format!("\n{}", self.db().tree_shape()?),
            "log" => self.log()?,
            "report" => {
                let report = self.db().recovery_report()?;
                let (committed, aborted, prepared) = (report.committed, report.aborted, report.prepared);
                format!("messages={} committed={committed} aborted={aborted} prepared={prepared}", report.messages)
            }
            "reopen" => {
                self.named.clear();
                self.db.take().map_or(Ok(()), Database::close)?;
                self.open();
                String::new()
            }
            "crash" => {
                let storage = self.storage.crash_with(CrashMode::Lost, 1);
                self.named.clear();
                self.db = None;
                self.storage = storage;
                self.open();
                String::new()
            }
            _ => return Ok(None),
        };
        Ok(Some(told))
    }

    fn locks(&self) -> Result<String> {
        let mut told = Vec::new();
        for lock in self.db().locks()? {
            let mode = if lock.mode == LockMode::Shared { "shared" } else { "exclusive" };
            let end = lock.end.map_or_else(String::new, |end| format!("..{}", shown(&end)));
            told.push(format!("\ntxn={} {mode} {}/{}{end}", lock.txn, lock.tree, shown(&lock.start)));
        }
        told.sort();
        Ok(if told.is_empty() { "none".to_owned() } else { told.concat() })
    }

    /// The records of the log as `frond log` prints them.
    fn log(&self) -> Result<String> {
        self.db().sync_log()?;
        let copy = self.storage.crash_with(CrashMode::Kept, 1);
        let options = CheckOptions { storage: Some(Arc::new(copy)), memory_bytes: 8 << 20, ..CheckOptions::default() };
        let mut told = Vec::new();
        log_records(DIRECTORY, &options, &mut |event| {
            told.push(b'\n');
            let mut encode = |bytes: &[u8], line: &mut Vec<u8>| line.extend(bytes.escape_ascii());
            told.extend(event.line(&mut encode));
            true
        })?;
        Ok(if told.is_empty() { "none".to_owned() } else { String::from_utf8(told).expect("escaped") })
    }

    /// Runs a command in a transaction of its own.
    fn alone(&mut self, name: &str, arguments: &mut Arguments) -> Result<String> {
        let options = TxnOptions { lock_timeout: Some(Duration::ZERO), ..TxnOptions::default() };
        let mut named = Named { txn: self.db().begin(options)?, savepoints: BTreeMap::new() };
        let told = within(&mut named, name, arguments)?;
        named.txn.commit()?;
        Ok(told)
    }

    fn begin(&mut self, prefix: &str, arguments: &mut Arguments) -> Result<String> {
        let txn = self.db().begin(begin_options(arguments)?)?;
        if self.named.insert(prefix.to_owned(), Named { txn, savepoints: BTreeMap::new() }).is_some() {
            return Err(wrong("the transaction is open already"));
        }
        Ok(String::new())
    }

    fn tell(&mut self, command: &Command, context: &Context) -> Result<String> {
        let (name, mut arguments) = (command.name.as_str(), Arguments::of(command));
        let Some(prefix) = &context.prefix else {
            return match self.whole(name, &mut arguments)? {
                Some(told) => Ok(told),
                None => self.alone(name, &mut arguments),
            };
        };
        if name == "begin" {
            return self.begin(prefix, &mut arguments);
        }
        if matches!(name, "commit" | "rollback" | "prepare") {
            let ended = self.named.remove(prefix).ok_or_else(|| wrong("no such transaction"))?;
            let end = match name {
                "commit" => ended.txn.commit(),
                "rollback" => ended.txn.rollback(),
                _ => ended.txn.prepare(arguments.word(0)?.as_bytes()),
            };
            return end.map(|()| String::new());
        }
        within(self.named.get_mut(prefix).ok_or_else(|| wrong("no such transaction"))?, name, &mut arguments)
    }
}

/// Runs a command in an open transaction.
fn within(named: &mut Named, name: &str, arguments: &mut Arguments) -> Result<String> {
    let txn = &named.txn;
    let silent = |result: Result<()>| result.map(|()| String::new());
    match name {
        "savepoint" => {
            named.savepoints.insert(arguments.word(0)?.to_owned(), txn.savepoint()?);
            return Ok(String::new());
        }
        "rollback-to" | "release" => {
            let savepoint = *named.savepoints.get(arguments.word(0)?).ok_or_else(|| wrong("no such savepoint"))?;
            return silent(if name == "release" { txn.release(savepoint) } else { txn.rollback_to(savepoint) });
        }
        "create" => return txn.create_tree(arguments.word(0)?, &TreeOptions::default()).map(|_| String::new()),
        "trees" => return Err(wrong("trees are listed without a transaction")),
        "drop" => return silent(txn.drop_tree(arguments.word(0)?)),
        "rename" => return silent(txn.rename_tree(arguments.word(0)?, arguments.word(1)?)),
        "truncate" => return silent(txn.truncate_tree(&txn.open_tree(arguments.word(0)?)?)),
        _ => {}
    }
    let tree = txn.open_tree(&arguments.tree)?;
    match name {
        "put" | "insert" | "insert-if-absent" | "delete" | "single-delete" | "fill" => {
            silent(txn.write(&batch(&tree, name, arguments)?))
        }
        "update" => silent(txn.update(&tree, arguments.word(0)?.as_bytes(), &program(&arguments.pairs))),
        "delete-range" => {
            let (lower, upper) = arguments.bounds();
            silent(txn.delete_range(&tree, lower, upper))
        }
        "delete-existing" => txn.delete_existing(&tree, arguments.word(0)?.as_bytes()).map(|had| had.to_string()),
        "lock" => {
            let mode = if arguments.flag("shared") { LockMode::Shared } else { LockMode::Exclusive };
            let wait = if arguments.flag("skip") { Wait::SkipLocked } else { Wait::NoWait };
            Ok(match txn.get_locked(&tree, arguments.word(0)?.as_bytes(), mode, wait)? {
                Locked::Row(value) => shown(&value),
                Locked::Absent => "none".to_owned(),
                Locked::Skipped => "skipped".to_owned(),
            })
        }
        "lock-range" => {
            let mode = if arguments.flag("shared") { LockMode::Shared } else { LockMode::Exclusive };
            let (lower, upper) = arguments.bounds();
            silent(txn.lock_range(&tree, lower, upper, mode, Wait::NoWait))
        }
        "get" => {
            let get = |key: &String| -> Result<String> {
                Ok(txn.get(&tree, key.as_bytes())?.map_or_else(|| "none".to_owned(), |value| shown(&value)))
            };
            Ok(arguments.words.iter().map(get).collect::<Result<Vec<_>>>()?.join(" "))
        }
        "scan" | "count" => scan(txn, &tree, name == "count", arguments),
        "estimate" => {
            let (lower, upper) = arguments.bounds();
            txn.estimate(&tree, lower, upper).map(|estimate| format!("{} rows", estimate.rows))
        }
        other => Err(wrong(&format!("no such command, name={other}"))),
    }
}

fn batch(tree: &Tree, name: &str, arguments: &Arguments) -> Result<WriteBatch> {
    let mut batch = WriteBatch::new();
    for (key, value) in &arguments.pairs {
        let (key, value) = (key.as_bytes(), value.as_bytes());
        match name {
            "put" => batch.put(tree, key, value)?,
            "insert" => batch.insert(tree, key, value)?,
            "insert-if-absent" => batch.insert_if_absent(tree, key, value)?,
            _ => return Err(wrong("a value for something without")),
        }
    }
    if name == "fill" {
        let number = |index| arguments.word(index).map(|word| word.parse::<usize>().expect("a number"));
        for row in number(0)?..number(1)? {
            let mut random = Random::new(row as u64);
            let value: Vec<u8> = (0..number(2)?).map(|_| b'a' + random.below(26) as u8).collect();
            batch.put(tree, format!("{row:05}").as_bytes(), &value)?;
        }
        return Ok(batch);
    }
    for key in &arguments.words {
        match name {
            "delete" => batch.delete(tree, key.as_bytes())?,
            "single-delete" => batch.single_delete(tree, key.as_bytes())?,
            _ => return Err(wrong("a value is missing")),
        }
    }
    Ok(batch)
}

fn scan(txn: &Transaction, tree: &Tree, count: bool, arguments: &mut Arguments) -> Result<String> {
    let back = arguments.flag("back");
    let lock = arguments.flag("locked").then_some(LockMode::Shared);
    let (lower, upper) = arguments.bounds();
    let mut options = if upper.is_empty() { CursorOptions::default() } else { CursorOptions::range(lower, upper) };
    options.lock = lock;
    let mut cursor = txn.cursor(tree, options)?;
    let found = if back { collect_backward(&mut cursor)? } else { collect(&mut cursor)? };
    Ok(if count { format!("{} rows", found.len()) } else { rows(found) })
}

impl Runner for Session {
    type Command = Command;

    fn run(&mut self, command: &Command, context: &Context) -> std::result::Result<String, Box<dyn AnyError>> {
        let told = match self.tell(command, context) {
            Ok(told) => told,
            Err(error) if error.kind() == ErrorKind::Internal => return Err(error.into()),
            Err(error) => error.kind().name().to_owned(),
        };
        let mut output = String::new();
        if told.starts_with('\n') {
            write!(output, "{command}:{told}")?;
        } else if !told.is_empty() {
            write!(output, "{command} → {told}")?;
        }
        Ok(output)
    }

    /// After every script the database must be sound.
    fn end_script(&mut self) -> std::result::Result<(), Box<dyn AnyError>> {
        self.named.clear();
        let mut findings = Vec::new();
        self.db().check(&mut |finding| findings.push(finding), None)?;
        if findings.is_empty() { Ok(()) } else { Err(format!("{findings:?}").into()) }
    }
}
