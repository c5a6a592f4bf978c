//! Passes: who waits for what was appended, and who writes and syncs for all who wait.
//!
//! There are two roles, held by at most one thread each: of the syncs, which writes what is to be synced first, and of writes for those who wait for
//! the write alone. Whoever finds a role free takes it and makes one pass; others sleep until a pass has served them, or left the
//! role to them ([`super::waiters`]). Which files a pass writes, and how, is for [`super::writer`].
//!
//! - G3 of the log lies here: `durable` is moved by [`Log::synced`] alone.

use std::sync::Arc;

use super::segment::Segment;
use super::writer::Writer;
use super::{Log, Wanted};
use crate::base::sync::atomic::Ordering;
use crate::base::{Error, Lsn, Result};

impl Log {
    /// Waits until everything below `end` is handed to the operating system: it then survives the process.
    ///
    /// # Errors
    /// `Poisoned`; `InvalidArgument` for a position above the end.
    pub fn wait_written(&self, end: Lsn) -> Result<()> {
        let mut turn = self.wait_write.turn(&self.written);
        while self.is_unwritten(end)? {
            match self.write_role.try_lock() {
                Some(role) => {
                    turn.begin();
                    let result = self.write_pass(Wanted::Write);
                    drop(role);
                    turn.end();
                    result?;
                    if self.is_unwritten(end)? {
                        crate::base::sync::yield_now();
                    }
                }
                None => {
                    let is_unwritten = || self.written.load(Ordering::Acquire) < end.0;
                    turn.wait(end.0, || is_unwritten() && self.write_role.is_locked());
                }
            }
        }
        Ok(())
    }

    /// Whether something below `end` is still in the ring.
    fn is_unwritten(&self, end: Lsn) -> Result<bool> {
        if self.written.load(Ordering::Acquire) >= end.0 {
            return Ok(false);
        }
        self.check_poison()?;
        if end > self.end_lsn() {
            return Err(Error::invalid(format!("nothing was appended there, lsn={end} end={}", self.end_lsn())));
        }
        Ok(true)
    }

    /// Waits until everything below `end` is durable.
    ///
    /// # Errors
    /// `Poisoned`: whether it is durable is then not known.
    pub fn wait_durable(&self, end: Lsn) -> Result<()> {
        let mut turn = self.wait_sync.turn(&self.durable);
        while self.durable.load(Ordering::Acquire) < end.0 {
            self.check_poison()?;
            match self.sync_role.try_lock() {
                Some(role) => {
                    turn.begin();
                    self.let_others_come();
                    let result = self.write_up_to(end, Wanted::Sync).and_then(|()| self.sync_pass());
                    drop(role);
                    turn.end();
                    result?;
                }
                None => {
                    let is_lost = || self.durable.load(Ordering::Acquire) < end.0;
                    turn.wait(end.0, || is_lost() && self.sync_role.is_locked());
                }
            }
        }
        Ok(())
    }

    /// A processor that a leader uses while more threads commit than there are processors is one that a thread which has yet to commit
    /// waits for. It is let have it, and is then served by this sync instead of waiting for the next. With fewer
    /// threads nobody waits for a processor, and the leader loses no time.
    fn let_others_come(&self) {
        if self.wait_sync.crowd() > self.processors {
            crate::base::sync::yield_now();
        }
    }

    /// Writes everything below `end`, beside whoever else writes.
    pub(super) fn write_up_to(&self, end: Lsn, wanted: Wanted) -> Result<()> {
        while self.is_unwritten(end)? {
            self.write_pass(wanted)?;
            if self.is_unwritten(end)? {
                crate::base::sync::yield_now();
            }
        }
        Ok(())
    }

    /// Makes everything appended so far durable, and returns its end.
    ///
    /// # Errors
    /// `Poisoned`.
    pub fn sync(&self) -> Result<Lsn> {
        let end = self.end_lsn();
        self.wait_durable(end)?;
        Ok(end)
    }

    fn write_pass(&self, wanted: Wanted) -> Result<()> {
        let mut writer = self.writer.lock();
        writer.choose_way(wanted);
        self.drain(&mut writer)
    }

    pub(super) fn drain(&self, writer: &mut Writer) -> Result<()> {
        self.check_poison()?;
        let limit = self.tail.load(Ordering::Relaxed);
        self.or_poison(writer.drain(self, limit))
    }

    /// Syncs what is written and was not written durably; under the sync role.
    pub(super) fn sync_pass(&self) -> Result<()> {
        let (segments, written) = {
            let writer = self.writer.lock();
            (writer.unsynced(), self.written.load(Ordering::Acquire))
        };
        if self.durable.load(Ordering::Acquire) >= written {
            return Ok(());
        }
        self.sync_segments(&segments, written)?;
        self.writer.lock().forget_synced(&segments);
        Ok(())
    }

    /// Syncs `segments`, which are all that hold bytes below `written` that are not durable (G3). One thread at a time,
    /// because the system reports a lost write to one sync only: the other must not believe its own success.
    pub(super) fn sync_segments(&self, segments: &[Arc<Segment>], written: u64) -> Result<()> {
        let _syncing = self.syncing.lock();
        self.check_poison()?;
        let start = self.options.clock.micros();
        for segment in segments {
            self.or_poison(segment.file.sync_data())?;
        }
        self.synced(written, start);
        Ok(())
    }

    /// After a sync, or a durable write, that began at `start`: everything below `durable` is that (G3).
    pub(super) fn synced(&self, durable: u64, start: u64) {
        let micros = self.options.clock.micros().saturating_sub(start);
        self.counters.sync_micros.record(micros);
        self.durable.fetch_max(durable, Ordering::Release);
    }
}
