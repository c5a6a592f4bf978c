//! Puts figures of all layers together: statistics, lists of transactions and locks, the findings of a check.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use super::check::{OnlineCheckCallback, OnlineCheckProgress, finding_in_tree};
use super::checkpoint_times::CheckpointCause;
use super::engine::Engine;
use super::monitor::{Finding, LOCKS_LISTED_MAX, LockInfo, TransactionInfo};
use super::options::LockMode;
use super::statistics::{Distribution, Statistics};
use crate::base::memory::Purpose;
use crate::base::metrics::HistogramSnapshot;
use crate::base::{Error, ErrorKind, Result};
use crate::lock::Mode;
use crate::log::Log;
use crate::store::DATA_FILE;

/// A histogram summed up; `per_micro` of its units are a microsecond.
fn distribution(snapshot: &HistogramSnapshot, per_micro: u64) -> Distribution {
    let micros = |value: u64| value.div_ceil(per_micro);
    Distribution {
        count: snapshot.count(),
        sum_micros: snapshot.sum() / per_micro,
        p50_micros: micros(snapshot.percentile(50.0)),
        p95_micros: micros(snapshot.percentile(95.0)),
        p99_micros: micros(snapshot.percentile(99.0)),
        p999_micros: micros(snapshot.percentile(99.9)),
        max_micros: micros(snapshot.max()),
    }
}

fn public_mode(mode: Mode) -> LockMode {
    match mode {
        Mode::Shared => LockMode::Shared,
        Mode::Exclusive => LockMode::Exclusive,
    }
}

impl Engine {
    /// Everything that is counted, at about one moment.
    pub(crate) fn statistics(&self) -> Statistics {
        let counters = &self.counters;
        let checkpoints = |cause| self.checkpoint_summary(cause).count;
        let tree = self.tree.counters();
        let store = self.store.statistics();
        let cache = self.cache.statistics();
        let locks = self.locks.stats();
        let runs = self.run_counters.statistics();
        let debt = self.tree.debt();
        let version = self.tree.version_guard();
        let recovery = self.estimated_recovery();
        let used = |purpose| self.budget.used(purpose) as u64;
        let log = self.log.as_ref().map(Log::statistics).unwrap_or_default();
        Statistics {
            uptime_micros: self.clock.micros().saturating_sub(self.opened_micros),
            begins: counters.sum(|counts| &counts.begins),
            commits: counters.sum(|counts| &counts.commits),
            commits_read_only: counters.sum(|counts| &counts.commits_read_only),
            rollbacks: counters.sum(|counts| &counts.rollbacks),
            gets: counters.sum(|counts| &counts.gets),
            gets_found: counters.sum(|counts| &counts.gets_found),
            cursor_seeks: counters.sum(|counts| &counts.cursor_seeks),
            cursor_steps: counters.sum(|counts| &counts.cursor_steps),
            messages: counters.sum(|counts| &counts.messages),
            user_bytes: counters.sum(|counts| &counts.user_bytes),
            log_bytes: counters.sum(|counts| &counts.log_bytes),
            log_bytes_written: log.written_bytes,
            log_records: counters.sum(|counts| &counts.log_records),
            log_syncs: log.sync_micros.count(),
            blob_bytes: counters.sum(|counts| &counts.blob_bytes),
            seal_bytes: tree.seal_bytes.get(),
            flush_bytes: tree.flush_bytes.get(),
            compact_bytes: tree.compaction_bytes.get(),
            publish_bytes: store.written_bytes.saturating_sub(
                counters.sum(|counts| &counts.blob_bytes)
                    + tree.seal_bytes.get()
                    + tree.flush_bytes.get()
                    + tree.compaction_bytes.get(),
            ),
            seals: tree.seals.get(),
            compactions: tree.flushes.get() + tree.compactions.get() + tree.drops.get(),
            compactions_for_reads: tree.for_reads.get(),
            publications: counters.sum(|counts| &counts.publications),
            checkpoints_by_time: checkpoints(CheckpointCause::Time),
            checkpoints_by_size: checkpoints(CheckpointCause::Size),
            checkpoints_by_target: checkpoints(CheckpointCause::Target),
            checkpoints_by_request: checkpoints(CheckpointCause::Request),
            blocks_read: runs.block_reads_point + runs.block_reads_scan + runs.block_reads_meta,
            bytes_read: store.read_bytes,
            cache_hits: cache.hits.iter().sum::<u64>() + runs.blocks_remembered,
            cache_misses: cache.misses.iter().sum(),
            cache_decodes: cache.decodes,
            lock_waits: locks.waits,
            lock_timeouts: counters.sum(|counts| &counts.lock_timeouts),
            deadlocks: counters.sum(|counts| &counts.deadlocks),
            stalls: counters.sum(|counts| &counts.stalls),
            memory_bytes_max: self.budget.limit() as u64,
            memory_bytes: self.budget.used_total() as u64,
            memory_level0_bytes: used(Purpose::Level0),
            memory_metadata_bytes: used(Purpose::Metadata),
            memory_cache_bytes: used(Purpose::Cache),
            memory_lock_bytes: used(Purpose::Locks),
            memory_work_bytes: used(Purpose::Work),
            level0_bytes: version.active.bytes() as u64
                + version.sealed.iter().map(|level0| level0.bytes() as u64).sum::<u64>(),
            level0_bytes_max: self.level0_bytes() as u64,
            sealed_memtables: debt.sealed as u64,
            root_runs: version.root.slots().iter().map(|slot| slot.buffer().len() as u64).sum(),
            pending_bytes: debt.pending_bytes,
            height: u64::from(version.root.height()),
            transactions_open: self.sessions.count() as u64,
            transactions_prepared: self.prepared_count() as u64,
            aborted_ids: self.statuses.backlog().aborted as u64,
            locks_held: (locks.points + locks.ranges) as u64,
            commit_number: self.statuses.visible().0,
            oldest_snapshot: self.snapshots.horizon().0,
            log_end: self.log_end().0,
            log_live_bytes: recovery.bytes,
            recovery_micros: recovery.micros,
            file_bytes: store.file_bytes,
            file_bytes_used: store.used_bytes - store.reserve_bytes,
            file_bytes_live: store.image_bytes,
            generation: store.generation,
            write_checks: counters.sum(|counts| &counts.write_checks),
            blocks_read_point: runs.block_reads_point + runs.block_reads_meta_point,
            blocks_read_scan: runs.block_reads_scan,
            blocks_read_meta: runs.block_reads_meta.saturating_sub(runs.block_reads_meta_point),
            blocks_read_bulk: runs.block_reads_bulk,
            run_lookups: runs.point_reads,
            filter_negatives: runs.filter_negatives,
            filter_positives: runs.filter_positives,
            filter_false_positives: runs.filter_false_positives,
            commit: distribution(&counters.commit.snapshot(), 1),
            read: distribution(&counters.read.snapshot(), 1000),
            stall: distribution(&counters.stall.snapshot(), 1),
            log_sync: distribution(&log.sync_micros, 1),
        }
    }

    /// Open and prepared transactions.
    pub(crate) fn transactions(&self) -> Vec<TransactionInfo> {
        let now = self.clock.micros();
        let open = self.sessions.all().into_iter().map(|core| TransactionInfo {
            id: core.id,
            txn: core.txn(),
            isolation: core.options.isolation,
            age_ms: now.saturating_sub(core.began_micros) / 1000,
            messages: core.messages(),
            prepared: false,
        });
        open.chain(self.prepared_transactions()).collect()
    }

    /// Locks held and waited for.
    pub(crate) fn lock_list(&self) -> Vec<LockInfo> {
        let snapshot = self.locks.snapshot(LOCKS_LISTED_MAX);
        let held = snapshot.locks.into_iter().map(|info| (info.owner, info.lock, Vec::new(), 0));
        let waiting = snapshot.waits.into_iter().map(|info| (info.owner, info.lock, info.blockers, info.micros));
        let info = |(txn, lock, waits_for, waited_micros): (_, crate::lock::HeldLock, _, _)| LockInfo {
            txn,
            tree: lock.tree,
            start: lock.low,
            end: lock.high,
            mode: public_mode(lock.mode),
            waits_for,
            waited_micros,
        };
        held.chain(waiting).map(info).collect()
    }

    /// Gives the memory budget another size; level 0 seals when it has become too small for what it holds.
    pub(crate) fn set_memory_bytes(&self, bytes: usize) {
        self.budget.set_limit(bytes);
        self.locks.set_bytes_max(super::recovery::lock_bytes(bytes));
        self.cache.trim();
        self.after_write();
    }

    /// Reads and checks everything stored.
    pub(crate) fn check(
        &self,
        report: &mut dyn FnMut(Finding),
        mut told: Option<OnlineCheckCallback<'_>>,
    ) -> Result<()> {
        self.check_open()?;
        let bytes = self.store.statistics().image_bytes;
        let found = self.tree.verify(&mut |walked| match &mut told {
            Some(told) => told(OnlineCheckProgress { bytes_done: walked.bytes, bytes_total: bytes.max(walked.bytes) }),
            None => ControlFlow::Continue(()),
        });
        for problem in &found.problems {
            let mut finding = finding_in_tree(problem);
            finding.tree_name = self.tree_name(problem.tree);
            report(finding);
        }
        let damage = |error: &Error| Finding {
            file: DATA_FILE.to_owned(),
            offset: None,
            tree: None,
            tree_last: None,
            tree_name: None,
            message: error.to_string(),
        };
        if found.ended {
            return Err(Error::new(ErrorKind::Cancelled, "check ended by its caller"));
        }
        self.store.map_damage().iter().for_each(|error| report(damage(error)));
        if let Some(first) = self.poison.get() {
            report(damage(first));
        }
        // Ordering: whoever closes meanwhile has made the reads above fail, which is no damage.
        if self.closed.load(Ordering::Acquire) { self.check_open() } else { Ok(()) }
    }
}
