//! What recovery makes of any records, in right frames behind those of a database with some rows.
//!
//! Whatever they say, opening is an answer or an error; and who opens again, after the rows have gone down into the tree, finds what
//! there was the first time.

use std::path::PathBuf;
use std::sync::OnceLock;

use fronddb::base::Lsn;
use fronddb::format::Kind;
use fronddb::format::record::Record;
use fronddb::io::{MemoryStorage, OpenMode, Storage};
use fronddb::{CursorOptions, Database, Error, ErrorKind, Result, TreeOptions, TxnOptions};

use super::files::append_frames;
use super::operations::{TREE, options};

const PAGE: usize = 4096;
/// Steps of background work are bounded, so that an input takes little time.
const STEPS_MAX: usize = 50;

type Rows = std::result::Result<Vec<(Vec<u8>, Vec<u8>)>, ErrorKind>;

fn open(storage: &MemoryStorage) -> Result<Database> {
    Database::open("/db", options(storage))
}

/// A database whose process has been killed.
fn database() -> MemoryStorage {
    let storage = MemoryStorage::new();
    let made = || -> Result<MemoryStorage> {
        let db = open(&storage)?;
        let tree = db.create_tree(TREE, &TreeOptions::default())?;
        (0..20u8).try_for_each(|row| db.put(&tree, &[b'r', b'o', b'w', row], &[row; 30]))?;
        Ok(storage.snapshot())
    };
    made().expect("a sound disk")
}

/// The segment of the log that holds the rows, up to the end of its last frame.
fn segment(storage: &MemoryStorage) -> (PathBuf, Vec<u8>) {
    let logs = storage.files().into_iter().filter(|(path, _)| path.extension().is_some_and(|name| name == "log"));
    let mut begun = logs.filter_map(|(path, length)| {
        let mode = OpenMode { read_only: true, ..OpenMode::default() };
        let file = storage.open(&path, mode).expect("it is there");
        let mut bytes = vec![0; length as usize];
        file.read_at(&mut bytes, 0).expect("a file in memory");
        let mut end = PAGE;
        while let Some(first) = bytes.get(end..).and_then(<[u8]>::first_chunk::<4>) {
            let stored = (u32::from_le_bytes(*first) & 0x0fff_ffff) as usize;
            if stored == 0 {
                break;
            }
            end += 16 + stored.next_multiple_of(8);
        }
        bytes.truncate(end);
        (end > PAGE).then_some((path, bytes))
    });
    begun.next_back().expect("rows were put")
}

fn rows(db: &Database) -> Rows {
    let read = || -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let tree = db.open_tree(TREE)?;
        let txn = db.begin(TxnOptions { read_only: true, ..TxnOptions::default() })?;
        let mut cursor = txn.cursor(&tree, CursorOptions::default())?;
        let mut rows = Vec::new();
        while cursor.next()? {
            rows.push((cursor.key().to_vec(), cursor.value().to_vec()));
        }
        Ok(rows)
    };
    read().map_err(|error: Error| error.kind())
}

/// Whether a key may have been put twice before it is deleted as if once: then nobody promises what is found.
fn may_delete_once((codec, record): &(u8, Vec<u8>)) -> bool {
    let Ok(Record::Messages(mut messages) | Record::CommitWithMessages { mut messages, .. }) =
        Record::decode(Lsn(8), record)
    else {
        return *codec != 0;
    };
    let mut found = false;
    while let Ok(Some(message)) = messages.next() {
        found |= message.kind == Kind::SingleDelete;
    }
    found
}

/// Frames as those of `log_frames`.
pub fn replay(bytes: &[u8]) {
    static DATABASE: OnceLock<MemoryStorage> = OnceLock::new();
    let storage = DATABASE.get_or_init(database).snapshot();
    let (path, mut file) = segment(&storage);
    let end = file.len();
    let records = append_frames(&mut file, bytes);
    storage.overwrite(&path, end as u64, &file[end..]).expect("room in the segment");
    let Ok(db) = open(&storage) else { return };
    let once = rows(&db);
    for _ in 0..STEPS_MAX {
        if !db.step_background().is_ok_and(|worked| worked) {
            break;
        }
    }
    if db.poisoned().is_some() {
        return;
    }
    drop(db);
    let again = rows(&open(&storage.crash(0)).expect("what was opened once is opened again"));
    assert!(again == once || records.iter().any(may_delete_once), "{once:?} {again:?}");
}
