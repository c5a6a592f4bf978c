//! FrondDB itself, through its public interface.
//!
//! Where a run needs neither rollback nor its own writes, a transaction is a `WriteBatch`: one call, one log record.
//! Otherwise it is a transaction of the engine.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::sync::Arc;

use fronddb::{CursorOptions, Database, ErrorKind, Isolation, Options, Tree, TreeOptions, TxnOptions, WriteBatch};

use super::{Codec, Cursor, Durability, Engine, OpenOptions, Statistics, Transaction, TreeIndex};
use crate::{Error, Result};

/// An open FrondDB.
#[derive(Clone)]
pub struct Frond {
    database: Database,
    trees: Arc<[Tree]>,
    transactional: bool,
}

const NAMES: [&str; 9] = [
    "level0_bytes",
    "log_segment_bytes",
    "log_compression",
    "checkpoint_interval_ms",
    "recovery_target_ms",
    "background_threads",
    "direct_io",
    "block_bytes",
    "filter_bits_per_key",
];

/// The engine's defaults but for what the run asks.
fn options(options: &OpenOptions) -> Result<Options> {
    if let Some(name) = options.tuning.keys().find(|name| !NAMES.contains(&name.as_str())) {
        return Err(Error::usage(format!("frond has no setting name={name}; it has {}", NAMES.join(", "))));
    }
    let mut chosen =
        Options::new().create_if_missing(true).memory_bytes(options.memory_bytes as usize).default_codec(match options
            .codec
        {
            Codec::None => fronddb::Codec::None,
            Codec::Lz4 => fronddb::Codec::Lz4,
            Codec::Zstd(level) => fronddb::Codec::Zstd { level },
        });
    for (name, value) in &options.tuning {
        let bad = || Error::usage(format!("bad setting {name}={value}"));
        let number = || value.parse::<u64>().map_err(|_| bad());
        let switch = || value.parse::<bool>().map_err(|_| bad());
        chosen = match name.as_str() {
            "level0_bytes" => chosen.level0_bytes(number()? as usize),
            "log_segment_bytes" => chosen.log_segment_bytes(number()?),
            "log_compression" => chosen.log_compression(switch()?),
            "checkpoint_interval_ms" => chosen.checkpoint_interval_ms(number()?),
            "recovery_target_ms" => chosen.recovery_target_ms(number()?),
            "background_threads" => chosen.background_threads(number()? as usize),
            "direct_io" => chosen.direct_io(switch()?),
            "block_bytes" => chosen.block_bytes(number()? as usize),
            _ => chosen.filter_bits_per_key(number()?.min(u64::from(u8::MAX)) as u8),
        };
    }
    Ok(chosen)
}

fn open_or_create(database: &Database, name: &str) -> Result<Tree> {
    match database.open_tree(name) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(database.create_tree(name, &TreeOptions::default())?),
        opened => Ok(opened?),
    }
}

impl From<Durability> for fronddb::Durability {
    fn from(durability: Durability) -> fronddb::Durability {
        match durability {
            Durability::Sync => fronddb::Durability::Sync,
            Durability::Write => fronddb::Durability::Write,
            Durability::None => fronddb::Durability::None,
        }
    }
}

fn durable(durability: Durability) -> TxnOptions {
    TxnOptions { durability: durability.into(), ..TxnOptions::default() }
}

impl Engine for Frond {
    type Transaction = FrondTransaction;
    type Cursor = FrondCursor;

    const NAME: &'static str = "frond";

    fn open(open_options: &OpenOptions) -> Result<Frond> {
        let database = Database::open(&open_options.directory, options(open_options)?)?;
        let trees = open_options.trees.iter().map(|name| open_or_create(&database, name)).collect::<Result<_>>()?;
        Ok(Frond { database, trees, transactional: open_options.transactional })
    }

    fn close(self) -> Result<()> {
        Ok(self.database.close()?)
    }

    fn begin(&self) -> Result<FrondTransaction> {
        let kind = if self.transactional {
            // The engine fixes the durability of a transaction when it begins; the common one is used.
            Kind::Full(self.database.begin(durable(Durability::Sync))?)
        } else {
            Kind::Batch(SPARE.with_borrow_mut(Vec::pop).unwrap_or_default())
        };
        Ok(FrondTransaction { engine: self.clone(), kind })
    }

    fn get(&self, tree: TreeIndex, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        Ok(take(self.database.get(&self.trees[tree], key)?, value))
    }

    fn cursor(&self, tree: TreeIndex) -> Result<FrondCursor> {
        // As RocksDB's iterators: one snapshot, no locks.
        let reader = TxnOptions { isolation: Isolation::RepeatableRead, read_only: true, ..TxnOptions::default() };
        let transaction = self.database.begin(reader)?;
        let cursor = transaction.cursor(&self.trees[tree], CursorOptions::default())?;
        Ok(FrondCursor { cursor, _transaction: transaction })
    }

    fn checkpoint(&self) -> Result<()> {
        Ok(self.database.checkpoint()?)
    }

    fn settle(&self) -> Result<()> {
        Ok(self.database.wait_idle()?)
    }

    /// With a checkpoint before, for what is still in memory, and one after, which gives the old extents back.
    fn compact(&self) -> Result<()> {
        self.checkpoint()?;
        self.database.compact(None, b"", b"", &mut |_| ControlFlow::Continue(()))?;
        self.checkpoint()
    }

    fn statistics(&self) -> Result<Statistics> {
        let numbers = self.database.statistics()?;
        let named = |pairs: &[(&str, u64)]| pairs.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        Ok(Statistics {
            written_bytes: named(&[
                ("log", numbers.log_bytes_written),
                ("seal", numbers.seal_bytes),
                ("flush", numbers.flush_bytes),
                ("compaction", numbers.compact_bytes),
                ("publication", numbers.publish_bytes),
                ("blobs", numbers.blob_bytes),
            ]),
            block_reads: Some(numbers.blocks_read),
            stall_us: Some(numbers.stall.sum_micros),
            commits: Some(numbers.commits),
            log_syncs: Some(numbers.log_syncs),
            memory_bytes: named(&[
                ("level 0", numbers.memory_level0_bytes),
                ("metadata", numbers.memory_metadata_bytes),
                ("cache", numbers.memory_cache_bytes),
                ("locks", numbers.memory_lock_bytes),
                ("work", numbers.memory_work_bytes),
            ]),
            all: serde_json::from_str(&numbers.to_json())?,
        })
    }
}

fn take(found: Option<fronddb::Value>, value: &mut Vec<u8>) -> bool {
    value.clear();
    found.inspect(|found| value.extend_from_slice(found)).is_some()
}

thread_local! {
    /// Batches whose memory the next transaction of this thread uses again.
    static SPARE: RefCell<Vec<WriteBatch>> = const { RefCell::new(Vec::new()) };
}

/// Changes not yet committed.
pub struct FrondTransaction {
    engine: Frond,
    kind: Kind,
}

enum Kind {
    Batch(WriteBatch),
    Full(fronddb::Transaction),
}

impl Transaction for FrondTransaction {
    fn put(&mut self, tree: TreeIndex, key: &[u8], value: &[u8]) -> Result<()> {
        let tree = &self.engine.trees[tree];
        match &mut self.kind {
            Kind::Batch(batch) => batch.put(tree, key, value)?,
            Kind::Full(transaction) => transaction.put(tree, key, value)?,
        }
        Ok(())
    }

    fn put_entry(&mut self, tree: TreeIndex, key: &[u8]) -> Result<()> {
        let tree = &self.engine.trees[tree];
        match &mut self.kind {
            Kind::Batch(batch) => {
                batch.set_covered(true);
                let put = batch.put(tree, key, &[]);
                batch.set_covered(false);
                put?;
            }
            Kind::Full(transaction) => transaction.put(tree, key, &[])?,
        }
        Ok(())
    }

    /// In a batch the check happens at commit, which then fails as a whole.
    fn insert(&mut self, tree: TreeIndex, key: &[u8], value: &[u8]) -> Result<bool> {
        let tree = &self.engine.trees[tree];
        let inserted = match &mut self.kind {
            Kind::Batch(batch) => batch.insert(tree, key, value),
            Kind::Full(transaction) => transaction.insert(tree, key, value),
        };
        match inserted {
            Err(error) if error.kind() == ErrorKind::KeyExists => Ok(false),
            inserted => Ok(inserted.map(|()| true)?),
        }
    }

    fn delete(&mut self, tree: TreeIndex, key: &[u8]) -> Result<()> {
        let tree = &self.engine.trees[tree];
        match &mut self.kind {
            Kind::Batch(batch) => batch.delete(tree, key)?,
            Kind::Full(transaction) => transaction.delete(tree, key)?,
        }
        Ok(())
    }

    fn single_delete(&mut self, tree: TreeIndex, key: &[u8]) -> Result<()> {
        let tree = &self.engine.trees[tree];
        match &mut self.kind {
            Kind::Batch(batch) => batch.single_delete(tree, key)?,
            Kind::Full(transaction) => transaction.single_delete(tree, key)?,
        }
        Ok(())
    }

    fn get(&mut self, tree: TreeIndex, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        match &self.kind {
            Kind::Batch(_) => self.engine.get(tree, key, value),
            Kind::Full(transaction) => Ok(take(transaction.get(&self.engine.trees[tree], key)?, value)),
        }
    }

    fn commit(self, durability: Durability) -> Result<()> {
        match self.kind {
            Kind::Batch(mut batch) => {
                self.engine.database.write(&batch, durable(durability))?;
                batch.clear();
                SPARE.with_borrow_mut(|spare| spare.push(batch));
                Ok(())
            }
            Kind::Full(transaction) => Ok(transaction.commit()?),
        }
    }

    fn rollback(self) -> Result<()> {
        match self.kind {
            Kind::Batch(_) => Ok(()),
            Kind::Full(transaction) => Ok(transaction.rollback()?),
        }
    }
}

/// A cursor and the read-only transaction that holds its snapshot.
pub struct FrondCursor {
    cursor: fronddb::Cursor,
    _transaction: fronddb::Transaction,
}

impl Cursor for FrondCursor {
    fn seek_first(&mut self) -> Result<bool> {
        Ok(self.cursor.first()?)
    }

    fn seek_last(&mut self) -> Result<bool> {
        Ok(self.cursor.last()?)
    }

    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        Ok(self.cursor.seek(key)?)
    }

    fn next(&mut self) -> Result<bool> {
        Ok(self.cursor.next()?)
    }

    fn previous(&mut self) -> Result<bool> {
        Ok(self.cursor.prev()?)
    }

    fn key(&self) -> &[u8] {
        self.cursor.key()
    }

    fn value(&self) -> &[u8] {
        self.cursor.value()
    }
}
