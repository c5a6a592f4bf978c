//! Statistics: what the engine did since it was opened, and how it stands.
//!
//! A [`Statistics`] is a copy taken at one moment; two of them subtract field by field to a rate. Bytes and
//! counts are since opening unless the field says "now". Times are in microseconds.

use super::json::JsonWriter;

/// A histogram, summed up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Distribution {
    /// Events.
    pub count: u64,
    /// Sum of all values, in microseconds.
    pub sum_micros: u64,
    /// Half of all events were at most this, in microseconds.
    pub p50_micros: u64,
    /// 95 % of all events were at most this.
    pub p95_micros: u64,
    /// 99 % of all events were at most this.
    pub p99_micros: u64,
    /// 99.9 % of all events were at most this.
    pub p999_micros: u64,
    /// The largest.
    pub max_micros: u64,
}

/// Bytes written per byte that users wrote, by cause, and blocks read per point read. See [`Statistics::amplification`].
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Amplification {
    /// By the log.
    pub log: f64,
    /// By values kept apart.
    pub blob: f64,
    /// By sealing memtables.
    pub seal: f64,
    /// By flushes to lower nodes.
    pub flush: f64,
    /// By compactions, leaf rewrites included.
    pub compact: f64,
    /// By publications.
    pub publish: f64,
    /// By all of these.
    pub write: f64,
    /// Blocks read per point read, those made by writes included.
    pub read: f64,
}

macro_rules! statistics {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// A copy of all counters, gauges and histograms. See [`crate::Database::statistics`].
        #[derive(Debug, Clone, Default, PartialEq)]
        pub struct Statistics {
            $($(#[$doc])* pub $name: u64,)*
            /// Time of commits, from the call to the acknowledgement.
            pub commit: Distribution,
            /// Time of point reads; one in sixteen is measured.
            pub read: Distribution,
            /// Time that writers were slowed or stopped by admission.
            pub stall: Distribution,
            /// Time of syncs of the log, and of writes that were durable when they returned.
            pub log_sync: Distribution,
        }

        impl Statistics {
            /// All numbers by name, in the order of their declaration, without the histograms.
            pub fn numbers(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name)),*]
            }
        }
    };
}

statistics! {
    /// Time since opening, in microseconds.
    uptime_micros,
    /// Transactions begun.
    begins,
    /// Transactions committed that had written.
    commits,
    /// Transactions committed that had not written.
    commits_read_only,
    /// Transactions rolled back, by their owner or as victims.
    rollbacks,
    /// Point reads.
    gets,
    /// Point reads that found a row.
    gets_found,
    /// Positionings of cursors by key or end.
    cursor_seeks,
    /// Steps of cursors.
    cursor_steps,
    /// Messages written.
    messages,
    /// Bytes of keys and values written by users.
    user_bytes,
    /// Bytes of records put into the log.
    log_bytes,
    /// Bytes written to log files, without the zeros that are written once into each new one.
    log_bytes_written,
    /// Records put into the log.
    log_records,
    /// Syncs of the log, and writes that were durable when they returned.
    log_syncs,
    /// Bytes of values written as blobs.
    blob_bytes,
    /// Bytes written by sealing memtables.
    seal_bytes,
    /// Bytes written by flushes to lower nodes.
    flush_bytes,
    /// Bytes written by compactions, leaf rewrites included, and by bulk loads that become leaves at once.
    compact_bytes,
    /// Bytes written by publications: nodes, space map, statuses, superblocks.
    publish_bytes,
    /// Memtables sealed.
    seals,
    /// Flushes and compactions done.
    compactions,
    /// Of these, those done because readers would have merged what was pending for longer than they took.
    compactions_for_reads,
    /// Publications.
    publications,
    /// Checkpoints by the period.
    checkpoints_by_time,
    /// Checkpoints because level 0 was full.
    checkpoints_by_size,
    /// Checkpoints for the recovery-time target.
    checkpoints_by_target,
    /// Checkpoints on request.
    checkpoints_by_request,
    /// Blocks read from the data file for point reads and scans, with the indexes, filters and range-deletes of all;
    /// those for compactions are not among them. The sum of
    /// `blocks_read_point`, `blocks_read_scan` and `blocks_read_meta`.
    blocks_read,
    /// Bytes read from the data file.
    bytes_read,
    /// Lookups of blocks that found them in memory: in the cache, or, while that has room for all, where an index knew a
    /// block of messages to be.
    cache_hits,
    /// Lookups in the cache that did not.
    cache_misses,
    /// Lookups in the cache that found their block packed and decoded it; hits as well.
    cache_decodes,
    /// Lock requests that had to wait.
    lock_waits,
    /// Lock waits that ended in a timeout.
    lock_timeouts,
    /// Lock waits that ended in a deadlock.
    deadlocks,
    /// Writers slowed or stopped by admission.
    stalls,
    /// Now: limit of the memory budget, in bytes.
    memory_bytes_max,
    /// Now: memory counted for all purposes, in bytes.
    memory_bytes,
    /// Now: memory of level 0 and of what it keeps for the next memtable, in bytes.
    memory_level0_bytes,
    /// Now: memory of nodes and run descriptions, in bytes.
    memory_metadata_bytes,
    /// Now: memory of the cache, in bytes.
    memory_cache_bytes,
    /// Now: memory of the lock table, in bytes.
    memory_lock_bytes,
    /// Now: memory of cursors, transactions and buffers, in bytes.
    memory_work_bytes,
    /// Now: fill of level 0, in bytes of messages.
    level0_bytes,
    /// Now: bytes of messages at which a memtable seals.
    level0_bytes_max,
    /// Now: memtables sealed and not yet in the tree.
    sealed_memtables,
    /// Now: runs in the buffers of the root.
    root_runs,
    /// Now: bytes of messages waiting for a flush or compaction.
    pending_bytes,
    /// Now: height of the tree, in levels.
    height,
    /// Now: transactions open.
    transactions_open,
    /// Now: transactions prepared.
    transactions_prepared,
    /// Now: ids of aborted transactions whose messages are not yet gone.
    aborted_ids,
    /// Now: locks held.
    locks_held,
    /// Now: commit number of the newest commit.
    commit_number,
    /// Now: commit number of the oldest snapshot in use.
    oldest_snapshot,
    /// Now: end of the log, in bytes since creation.
    log_end,
    /// Now: bytes of log that a restart would replay.
    log_live_bytes,
    /// Now: estimated time of a restart, in microseconds.
    recovery_micros,
    /// Now: length of the data file, in bytes.
    file_bytes,
    /// Now: bytes of the data file in use, without what is kept for a full disk.
    file_bytes_used,
    /// Now: bytes of the data file that the newest publication references.
    file_bytes_live,
    /// Now: generation of the newest superblock.
    generation,
    /// Point reads made by writes, besides `gets`: of uniqueness, and whether somebody else changed the row first.
    write_checks,
    /// Of `blocks_read`, those for point reads, with the filters, indexes and range-deletes that these asked for.
    blocks_read_point,
    /// Of `blocks_read`, blocks of rows for scans and estimates.
    blocks_read_scan,
    /// Of `blocks_read`, indexes, filters and range-deletes for scans, compactions and checks.
    blocks_read_meta,
    /// Blocks of rows read for compactions and checks, past the cache, and to warm it; not in `blocks_read`.
    blocks_read_bulk,
    /// Runs whose range of keys holds the key of a point read: how often filters were asked, and runs without one looked into.
    run_lookups,
    /// Of these, answered by the filter: the run has nothing of the key.
    filter_negatives,
    /// Of these, let pass by the filter.
    filter_positives,
    /// Let pass by the filter although the run has nothing of the key.
    filter_false_positives,
}

impl Statistics {
    /// All bytes written to storage.
    pub fn bytes_written(&self) -> u64 {
        self.log_bytes_written
            + self.blob_bytes
            + self.seal_bytes
            + self.flush_bytes
            + self.compact_bytes
            + self.publish_bytes
    }

    /// Bytes written per byte that users wrote.
    pub fn write_amplification(&self) -> f64 {
        self.bytes_written() as f64 / self.user_bytes.max(1) as f64
    }

    /// Blocks read per point read, those made by writes included.
    pub fn read_amplification(&self) -> f64 {
        self.blocks_read_point as f64 / (self.gets + self.write_checks).max(1) as f64
    }

    /// What was written and read for the users' work, by cause.
    pub fn amplification(&self) -> Amplification {
        let per_user_byte = |bytes: u64| bytes as f64 / self.user_bytes.max(1) as f64;
        Amplification {
            log: per_user_byte(self.log_bytes_written),
            blob: per_user_byte(self.blob_bytes),
            seal: per_user_byte(self.seal_bytes),
            flush: per_user_byte(self.flush_bytes),
            compact: per_user_byte(self.compact_bytes),
            publish: per_user_byte(self.publish_bytes),
            write: self.write_amplification(),
            read: self.read_amplification(),
        }
    }

    /// All of it as a JSON object: numbers by name, histograms as objects, amplification figures.
    pub fn to_json(&self) -> String {
        let mut json = JsonWriter::new();
        json.begin_object();
        for (name, value) in self.numbers() {
            json.field(name, value);
        }
        let histograms =
            [("commit", self.commit), ("read", self.read), ("stall", self.stall), ("log_sync", self.log_sync)];
        for (name, histogram) in histograms {
            json.begin_object_field(name);
            json.field("count", histogram.count);
            json.field("sum_micros", histogram.sum_micros);
            json.field("p50_micros", histogram.p50_micros);
            json.field("p95_micros", histogram.p95_micros);
            json.field("p99_micros", histogram.p99_micros);
            json.field("p999_micros", histogram.p999_micros);
            json.field("max_micros", histogram.max_micros);
            json.end_object();
        }
        let Amplification { log, blob, seal, flush, compact, publish, write, read } = self.amplification();
        json.begin_object_field("amplification");
        json.field_f64("log", log);
        json.field_f64("blob", blob);
        json.field_f64("seal", seal);
        json.field_f64("flush", flush);
        json.field_f64("compact", compact);
        json.field_f64("publish", publish);
        json.field_f64("write", write);
        json.field_f64("read", read);
        json.end_object();
        json.end_object();
        json.finish()
    }
}
