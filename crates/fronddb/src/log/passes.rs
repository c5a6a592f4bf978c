//! Passes: who waits for what was appended, and who writes and syncs for all who wait.
//!
//! There are two roles, held by at most one thread each: of the syncs, which writes what is to be synced first, and of writes for those who wait for
//! the write alone. Whoever finds a role free takes it and makes one pass; others sleep until a pass has served them, or left the
//! role to them ([`super::waiters`]). Which files a pass writes, and how, is for [`super::writer`].
//!
//! Where more threads commit than there are processors, who finds the role of the syncs free and few others waiting *gathers* first: the processor that
//! it uses is one that a thread which has yet to commit waits for, so it lets that have it, once. Meanwhile whoever comes waits as well, until they are two
//! thirds of those who were there when the last sync ended: whoever is that one begins the next, whether or not the one that gathers has got a processor
//! again. So most syncs serve half of them or more, and the disk does not rest until all of them have come. With fewer threads nobody waits for a
//! processor, and nobody gathers. Figures: `docs/decisions/0006-commit-waits.md`.
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
        let is_lost = || self.durable.load(Ordering::Acquire) < end.0;
        let mut turn = self.wait_sync.turn(&self.durable);
        let mut has_gathered = false;
        while is_lost() {
            self.check_poison()?;
            if has_gathered || !self.expects_more() {
                if let Some(role) = self.sync_role.try_lock() {
                    turn.begin();
                    let result = self.write_up_to(end, Wanted::Sync).and_then(|()| self.sync_pass());
                    drop(role);
                    turn.end();
                    result?;
                    continue;
                }
            } else if !self.sync_role.is_locked() && !self.gathering.swap(true, Ordering::AcqRel) {
                turn.begin();
                crate::base::sync::yield_now();
                self.gathering.store(false, Ordering::Release);
                has_gathered = true;
                continue;
            }
            let is_led = || self.sync_role.is_locked() || self.gathering.load(Ordering::Acquire);
            turn.wait(end.0, || is_lost() && is_led());
        }
        Ok(())
    }

    /// Whether more threads commit than there are processors, of whom less than two thirds wait for the next sync.
    fn expects_more(&self) -> bool {
        let crowd = self.wait_sync.crowd();
        crowd > self.options.processors && 3 * (self.wait_sync.count() + 1) < 2 * crowd
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
