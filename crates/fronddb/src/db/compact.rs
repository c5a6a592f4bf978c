//! Compacting a tree, or a range of keys, on request: what a server's `OPTIMIZE TABLE` does.
//!
//! Everything written before goes down to the leaves, leaves that hold dead space are written again, small neighbours are
//! joined, and what was freed goes back to the file system. It runs in the caller's thread, beside all other work and
//! behind it: it pauses while level 0 waits or regular flushes and compactions are behind.

use std::ops::ControlFlow;

use super::checkpoint::Cause;
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
        self.checkpoint(Cause::Request)?;
        let whole = self.tree.estimate(&self.tree.version(), &lower, upper.as_deref())?;
        let mut pass = self.tree.compact_pass(lower, upper, self.log_end().0);
        let mut bytes_done = 0;
        let mut tell = |bytes_done: u64| {
            let progress = CompactProgress { bytes_done, bytes_total: whole.bytes.max(bytes_done) };
            match told(progress) {
                ControlFlow::Continue(()) => Ok(()),
                ControlFlow::Break(()) => Err(Error::new(ErrorKind::Cancelled, "compaction ended by its caller")),
            }
        };
        tell(0)?;
        loop {
            self.check_writable()?;
            match self.tree.compact_step(&self.retention(), &mut pass)? {
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
        while !self.store.shrink_step(ShrinkLimits::default())?.is_done {
            self.check_writable()?;
        }
        tell(whole.bytes.max(pass.bytes_done()))
    }

    /// Lets regular work go first for a while, if it is behind.
    fn give_way(&self) -> Result<()> {
        for _ in 0..GIVE_WAY_LOOKS {
            let debt = self.tree.debt();
            if self.options.manual_background || (debt.sealed == 0 && debt.urgency < GIVE_WAY_URGENCY) {
                break;
            }
            self.check_writable()?;
            self.wake.wait_for_progress();
        }
        Ok(())
    }
}
