//! Compacting a tree, or a range of keys, on request: what a server's `OPTIMIZE TABLE` does.
//!
//! Everything written before goes down to the leaves, leaves that hold dead space are written again, small neighbours are
//! joined, and what was freed goes back to the file system. It runs in the caller's thread, beside all other work and
//! behind it: it pauses while level 0 waits or regular flushes and compactions are behind.

use std::ops::ControlFlow;

use super::checkpoint_times::CheckpointCause;
use super::engine::Engine;
use crate::base::{Error, ErrorKind, Result};
use crate::store::ShrinkLimits;
use crate::tree::CompactStep;

/// How far a compaction on request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CompactProgress {
    /// Stored bytes of the leaves that are done.
    pub bytes_done: u64,
    /// Stored bytes that the range had when it began, at least `bytes_done`.
    pub bytes_total: u64,
}

/// Told of progress; breaks to end the compaction.
pub type CompactCallback<'a> = &'a mut dyn FnMut(CompactProgress) -> ControlFlow<()>;

/// Urgency of regular work from which on it goes first.
const GIVE_WAY_URGENCY: f32 = 2.0;
/// How often it looks again whether regular work is still behind before it goes on nevertheless: each is 10 ms at most.
const GIVE_WAY_LOOKS: usize = 20;
/// Publications after which freed space may be used again, and given back.
const PUBLICATIONS: usize = 3;

impl Engine {
    /// Compacts the inner keys in `[lower, upper)`; `None`: no upper bound.
    pub(crate) fn compact(&self, lower: Vec<u8>, upper: Option<Vec<u8>>, told: CompactCallback<'_>) -> Result<()> {
        self.checkpoint(CheckpointCause::Request)?;
        let whole = self.tree.estimate(&self.tree.version(), &lower, upper.as_deref())?;
        let mut pass = self.tree.compact_pass(lower, upper, self.log_end().0);
        // Large values stay where they are.
        let bytes_to_do = whole.bytes - whole.blob_bytes;
        let mut bytes_done = 0;
        let mut tell = |bytes_done: u64| {
            let progress = CompactProgress { bytes_done, bytes_total: bytes_to_do.max(bytes_done) };
            match told(progress) {
                ControlFlow::Continue(()) => Ok(()),
                ControlFlow::Break(()) => Err(Error::new(ErrorKind::Cancelled, "compaction ended by its caller")),
            }
        };
        tell(0)?;
        loop {
            self.check_writable()?;
            let guard = self.poison_on_panic();
            let stepped = self.whole(self.tree.compact_step(&self.retention(), &mut pass));
            guard.done();
            match stepped? {
                CompactStep::Done => break,
                CompactStep::Busy if self.step_by_hand()? => {}
                CompactStep::Busy => self.wake.wait_for_progress(),
                CompactStep::Worked | CompactStep::Passed => {
                    self.wake.progress();
                    self.give_way()?;
                }
            }
            if pass.bytes_done() > bytes_done {
                bytes_done = pass.bytes_done();
                tell(bytes_done)?;
            }
        }
        for _ in 0..PUBLICATIONS {
            self.publish()?;
        }
        while !self.shrink_step(ShrinkLimits::default())?.is_done {
            self.check_writable()?;
        }
        tell(bytes_to_do.max(pass.bytes_done()))
    }

    /// Lets regular work go first for a while, if it is behind. Returns how often it has waited for it.
    fn give_way(&self) -> Result<usize> {
        for looks in 0..GIVE_WAY_LOOKS {
            let debt = self.tree.debt();
            if self.options.manual_background || (debt.sealed == 0 && debt.urgency < GIVE_WAY_URGENCY) {
                return Ok(looks);
            }
            self.check_writable()?;
            self.wake.wait_for_progress();
        }
        Ok(GIVE_WAY_LOOKS)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::base::BlockPtr;
    use crate::base::sync::Mutex;
    use crate::db::batch::WriteBatch;
    use crate::db::database::Database;
    use crate::db::options::{Options, TreeOptions, TxnOptions};
    use crate::io::{CallClass, Fault, FaultPlan, FaultRule, FaultStorage, MemoryStorage};
    use crate::store::DATA_FILE;

    type Told = Arc<Mutex<Vec<String>>>;

    fn open(memory: &MemoryStorage, told: &Told) -> Result<Database> {
        let options = Options::new().create_if_missing(true).storage(Some(Arc::new(memory.clone())));
        let told = told.clone();
        let options = options.on_log(Some(Arc::new(move |_, text: &str| told.lock().push(text.to_owned()))));
        Database::open("/db", options.manual_background(true).memory_bytes(8 << 20))
    }

    fn compact(db: &Database) -> Result<()> {
        db.compact(None, b"", b"", &mut |_| ControlFlow::Continue(()))
    }

    #[test]
    fn it_waits_a_while_for_regular_work_that_is_behind() -> Result<()> {
        let plan = FaultPlan::new();
        let storage = FaultStorage::new(Arc::new(MemoryStorage::new()), plan.clone());
        let db = Database::open("/db", Options::new().create_if_missing(true).storage(Some(Arc::new(storage))))?;
        let tree = db.create_tree("t", &TreeOptions::default())?;
        db.checkpoint()?;
        assert_eq!(db.engine().give_way()?, 0, "nothing to wait for");
        plan.add(FaultRule::from(CallClass::Write, 1, Fault::NoSpace).on(DATA_FILE));
        db.put(&tree, b"key", b"value")?;
        assert_eq!(db.checkpoint().map_err(|error| error.kind()), Err(ErrorKind::NoSpace));
        assert_eq!(db.engine().give_way()?, GIVE_WAY_LOOKS, "level 0 waits for space");
        plan.clear();
        db.checkpoint()?;
        db.wait_idle()?;
        assert_eq!(db.engine().give_way()?, 0);
        db.close()
    }

    /// The filters of all bases, which the root's slots have.
    fn filters(db: &Database) -> Vec<BlockPtr> {
        let root = db.engine().tree.version().root.clone();
        root.slots().iter().flat_map(|slot| slot.runs().map(|run| run.meta().filter).collect::<Vec<_>>()).collect()
    }

    fn findings(db: &Database) -> Result<Vec<String>> {
        let mut found = Vec::new();
        db.check(&mut |finding| found.push(finding.message), None)?;
        Ok(found)
    }

    #[test]
    fn leaves_whose_filter_is_damaged_are_read_told_of_once_and_made_whole_by_a_compaction() -> Result<()> {
        for is_read in [true, false] {
            let (memory, told) = (MemoryStorage::new(), Told::default());
            let db = open(&memory, &told)?;
            let tree = db.create_tree("t", &TreeOptions::default())?;
            let mut batch = WriteBatch::new();
            (0..1000u16).try_for_each(|row| batch.put(&tree, &row.to_be_bytes(), b"value"))?;
            db.write(&batch, TxnOptions::default())?;
            compact(&db)?;
            let damaged = filters(&db);
            db.close()?;
            for filter in &damaged {
                memory.flip_bit(&Path::new("/db").join(DATA_FILE), filter.offset + 100, 3)?;
            }
            let db = open(&memory, &told)?;
            let tree = db.open_tree("t")?;
            if is_read {
                for row in 0..1000u16 {
                    assert_eq!(db.get(&tree, &row.to_be_bytes())?.as_deref(), Some(&b"value"[..]));
                }
                assert_eq!(db.get(&tree, b"another")?, None);
            }
            assert_eq!(findings(&db)?.len(), damaged.len());
            let told = told.lock().iter().filter(|text| text.contains("filter")).count();
            assert_eq!(told, damaged.len());
            compact(&db)?;
            assert_eq!(findings(&db)?, [""; 0]);
            assert!(filters(&db).iter().all(|filter| !damaged.contains(filter)));
            db.close()?;
        }
        Ok(())
    }
}
