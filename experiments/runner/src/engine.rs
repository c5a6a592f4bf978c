//! The engines and their configurations: the same memory, durable alike, and the same for speed and for recovery.
//!
//! Every option has a sentence, which the report prints.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Engine {
    Frond,
    Innodb,
    Rocksdb,
    /// Throws rows away: what remains is the server's own share.
    #[value(skip)]
    Blackhole,
}

/// An option of mariadbd and why it has that value.
pub(crate) struct Setting {
    pub(crate) option: String,
    pub(crate) why: &'static str,
}

/// Sizes that a configuration depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Memory of the engine.
    pub(crate) cache: u64,
    /// InnoDB's redo log.
    pub(crate) redo: u64,
    /// I/O operations per second that the volume is limited to.
    pub(crate) iops: Option<u64>,
    /// InnoDB keeps changes of secondary indexes back, which is not its default.
    pub(crate) change_buffering: bool,
}

const NO_INNODB: &str = "--innodb=OFF";
const ALONE: &str = "no other engine takes memory or works in the background; InnoDB runs only where it is measured";

impl Engine {
    pub(crate) const RIVALS: [Engine; 2] = [Engine::Innodb, Engine::Rocksdb];

    /// As the report calls it.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Engine::Frond => "FROND",
            Engine::Innodb => "InnoDB",
            Engine::Rocksdb => "MyRocks",
            Engine::Blackhole => "BLACKHOLE (floor)",
        }
    }

    /// As SQL calls it.
    pub(crate) fn sql(self) -> &'static str {
        match self {
            Engine::Frond => "FROND",
            Engine::Innodb => "InnoDB",
            Engine::Rocksdb => "ROCKSDB",
            Engine::Blackhole => "BLACKHOLE",
        }
    }

    pub(crate) fn key(self) -> &'static str {
        match self {
            Engine::Frond => "frond",
            Engine::Innodb => "innodb",
            Engine::Rocksdb => "rocksdb",
            Engine::Blackhole => "blackhole",
        }
    }

    /// The plugin that has to be loaded.
    pub(crate) fn plugin(self) -> Option<&'static str> {
        match self {
            Engine::Frond => Some("ha_frond"),
            Engine::Innodb => None,
            Engine::Rocksdb => Some("ha_rocksdb"),
            Engine::Blackhole => Some("ha_blackhole"),
        }
    }

    /// The engine's own options.
    pub(crate) fn settings(self, sizes: Sizes) -> Vec<Setting> {
        let set = |option: String, why| Setting { option, why };
        let cache = sizes.cache;
        let write_buffers = (cache / 4).max(16 << 20);
        match self {
            Engine::Frond => vec![
                set(format!("--frond-cache-size={cache}"), "all memory of the engine: cache, level 0, working space"),
                set(
                    "--frond-large-pages=ON".into(),
                    "the default: from 256 MiB on its memory asks for large pages; InnoDB has them only where an administrator \
                     reserved some and set large_pages, which was left as Debian has it",
                ),
                set("--frond-commit-sync=SYNC".into(), "every commit is durable before it is acknowledged (the default)"),
                set(NO_INNODB.into(), ALONE),
            ],
            Engine::Innodb => vec![
                set(format!("--innodb-buffer-pool-size={cache}"), "the same memory; InnoDB's other buffers come on top"),
                set(format!("--innodb-log-file-size={}", sizes.redo), "a large redo log spares it checkpoints, which favours its speed"),
                set("--innodb-flush-log-at-trx-commit=1".into(), "every commit is durable before it is acknowledged (the default)"),
                set("--innodb-flush-method=O_DIRECT".into(), "no second copy of pages in the page cache, and I/O that the limit reaches"),
                set("--innodb-doublewrite=ON".into(), "torn pages are repaired (the default); the others need no such thing, but are as safe"),
                set(format!("--innodb-io-capacity={}", sizes.iops.unwrap_or(4_000)), "it may flush at what the volume gives; the default of 200 is for one old disk"),
                set(format!("--innodb-io-capacity-max={}", sizes.iops.map_or(20_000, |iops| iops * 2)), "the same under pressure"),
                set(
                    format!("--innodb-change-buffering={}", if sizes.change_buffering { "all" } else { "none" }),
                    "the default of 10.11, where it is deprecated; experiment 1 has it with 'all' as well, in lines of its own",
                ),
                set("--innodb-buffer-pool-load-at-startup=OFF".into(), "no reading in the background after a start, so that starts compare"),
                set("--innodb-buffer-pool-dump-at-shutdown=OFF".into(), "the same"),
            ],
            Engine::Rocksdb => vec![
                set(
                    format!("--rocksdb-block-cache-size={}", cache.saturating_sub(write_buffers).max(16 << 20)),
                    "three quarters of the same memory for blocks",
                ),
                set(
                    format!("--rocksdb-db-write-buffer-size={write_buffers}"),
                    "a quarter of it for all write buffers together; what it has beside both comes on top",
                ),
                set("--rocksdb-flush-log-at-trx-commit=1".into(), "every commit is durable before it is acknowledged (the default)"),
                set(
                    "--rocksdb-wal-recovery-mode=2".into(),
                    "a record that a kill has cut is the end of its log, as it is for the others; with the default of 1 it may refuse to \
                     start after a kill (\"truncated record body\")",
                ),
                set("--rocksdb-use-direct-reads=ON".into(), "I/O that the limit reaches, no second copy in the page cache"),
                set("--rocksdb-use-direct-io-for-flush-and-compaction=ON".into(), "the same"),
                set("--rocksdb-max-background-jobs=2".into(), "as many as this class of machine has cores (the default)"),
                set("--rocksdb-max-row-locks=1073741824".into(), "the default of 1,048,576 makes large transactions fail"),
                set("--rocksdb-compaction-sequential-deletes=199999".into(), "many deletions in a row have their file compacted: a queue's head stays quick to find"),
                set("--rocksdb-compaction-sequential-deletes-window=200000".into(), "the same"),
                set("--rocksdb-compaction-sequential-deletes-count-sd=ON".into(), "the same: those of indexes count as well"),
                set(
                    "--rocksdb-default-cf-options=block_based_table_factory={cache_index_and_filter_blocks=1;partition_filters=true;\
                     index_type=kTwoLevelIndexSearch;metadata_block_size=4096;pin_l0_filter_and_index_blocks_in_cache=1;\
                     filter_policy=bloomfilter:10:false;block_size=16384;whole_key_filtering=1};level_compaction_dynamic_level_bytes=true;\
                     optimize_filters_for_hits=true;compression=kLZ4Compression;bottommost_compression=kZSTD"
                        .into(),
                    "partitioned filters, because whole ones do not fit a small cache (it falls to 500 rows/s), and none for the last \
                     level, where what is looked for mostly is; the usual pair of fast and dense compression",
                ),
                set(NO_INNODB.into(), ALONE),
            ],
            Engine::Blackhole => vec![set(NO_INNODB.into(), ALONE)],
        }
    }

    /// Statements after which commits are not synced each, but within a second; and those that set it back.
    pub(crate) fn sync(self, on: bool) -> &'static str {
        match (self, on) {
            (Engine::Frond, true) => "SET GLOBAL frond_commit_sync = 'SYNC'",
            (Engine::Frond, false) => "SET GLOBAL frond_commit_sync = 'WRITE'",
            (Engine::Innodb, true) => "SET GLOBAL innodb_flush_log_at_trx_commit = 1",
            (Engine::Innodb, false) => "SET GLOBAL innodb_flush_log_at_trx_commit = 2",
            (Engine::Rocksdb, true) => "SET GLOBAL rocksdb_flush_log_at_trx_commit = 1",
            (Engine::Rocksdb, false) => "SET GLOBAL rocksdb_flush_log_at_trx_commit = 2",
            (Engine::Blackhole, _) => "DO 0",
        }
    }

    /// The statement that makes it write out what it holds back, now.
    pub(crate) fn checkpoint(self) -> &'static str {
        match self {
            Engine::Frond => "SET GLOBAL frond_checkpoint_now = 1",
            Engine::Innodb => "SET GLOBAL innodb_max_dirty_pages_pct = 0",
            Engine::Rocksdb => "SET GLOBAL rocksdb_force_flush_memtable_now = 1",
            Engine::Blackhole => "DO 0",
        }
    }
}

/// Options of the server that all engines run with.
pub(crate) fn common_settings() -> Vec<Setting> {
    let set = |option: &str, why| Setting { option: option.into(), why };
    vec![
        set("--skip-log-bin", "no binary log: the engine's own durability is measured (the default)"),
        set("--performance-schema=OFF", "no instrumentation (the default)"),
        set(
            "--transaction-isolation=REPEATABLE-READ",
            "a snapshot per transaction (the default); MyRocks then answers some write conflicts with errors, which are tried \
             again or counted as aborted",
        ),
        set("--skip-name-resolve", "no waiting for name servers"),
        set("--max-connections=200", "enough for every experiment"),
        set("--max-allowed-packet=64M", "transactions of 10,000 rows are one statement"),
        set("--table-open-cache=2000", "tables stay open"),
        set("--key-buffer-size=8M", "no memory for MyISAM"),
        set("--aria-pagecache-buffer-size=8M", "little memory for Aria"),
    ]
}
