//! RocksDB's settings for the comparison: chosen to be the best RocksDB we can run inside the same memory budget,
//! with one sentence each. What MyRocks sets by default is kept unless a measurement spoke against it; measured
//! alternatives stay reachable by `--set name=value`.

use std::ffi::c_int;

use super::ffi;
use crate::engine::{Codec, OpenOptions};
use crate::{Error, Result};

/// Where the trees live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// One column family per tree. The default: measured on iiBench (4 M rows, 64 MiB) it writes 323 bytes per row at
    /// 14 µs of CPU where the shared family writes 511 at 18 µs, because the primary key's files, which never overlap,
    /// are moved down without being rewritten.
    Families,
    /// All trees in the default column family, keys prefixed by the tree's number, as MyRocks keeps its indexes.
    Prefix,
}

/// Settings in plain values.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) layout: Layout,
    pub(super) write_buffer_bytes: u64,
    pub(super) write_buffers: u64,
    pub(super) cache_bytes: u64,
    pub(super) block_bytes: u64,
    pub(super) partitioned: bool,
    pub(super) pipelined: bool,
    pub(super) level_base_bytes: u64,
    pub(super) file_bytes: u64,
    pub(super) background_jobs: i32,
    pub(super) subcompactions: u32,
    pub(super) wal_compression: bool,
    pub(super) bloom_bits: f64,
    codec: Codec,
}

/// RocksDB's default.
const LEVEL_BASE_BYTES: u64 = 256 << 20;

const NAMES: [&str; 11] = [
    "layout",
    "write_buffer_share",
    "write_buffers",
    "block_bytes",
    "partitioned",
    "pipelined",
    "level_base_bytes",
    "file_bytes",
    "background_jobs",
    "subcompactions",
    "wal_compression",
];

impl Settings {
    pub(super) fn new(options: &OpenOptions) -> Result<Settings> {
        if let Some(name) = options.tuning.keys().find(|name| !NAMES.contains(&name.as_str())) {
            return Err(Error::new(format!("rocksdb has no setting name={name}; it has {}", NAMES.join(", "))));
        }
        let layout = match options.tuning.get("layout").map(String::as_str) {
            None | Some("families") => Layout::Families,
            Some("prefix") => Layout::Prefix,
            Some(other) => return Err(Error::new(format!("layouts are families and prefix; got layout={other}"))),
        };
        // The C API of 7.8 cannot charge write buffers to the block cache, so the budget is split up front.
        let write_buffers = options.tuned("write_buffers", 2)?;
        let buffers = options.memory_bytes as f64 * options.tuned("write_buffer_share", 0.25)?;
        let families = if layout == Layout::Families { options.trees.len().max(1) as u64 } else { 1 };
        Ok(Settings {
            layout,
            write_buffers,
            write_buffer_bytes: buffers as u64 / write_buffers,
            cache_bytes: options.memory_bytes - buffers as u64,
            block_bytes: options.tuned("block_bytes", 16 << 10)?,
            partitioned: options.tuned("partitioned", true)?,
            pipelined: options.tuned("pipelined", false)?,
            level_base_bytes: options.tuned("level_base_bytes", LEVEL_BASE_BYTES / families)?,
            file_bytes: options.tuned("file_bytes", 64 << 20)?,
            background_jobs: options.tuned("background_jobs", 2)?,
            subcompactions: options.tuned("subcompactions", 1)?,
            wal_compression: options.tuned("wal_compression", false)?,
            bloom_bits: 10.0,
            codec: options.codec,
        })
    }
}

/// Options handed to RocksDB, and the cache they share. Freed on drop; RocksDB keeps its own references.
pub(super) struct Handles {
    pub(super) options: *mut ffi::Options,
    table: *mut ffi::TableOptions,
    pub(super) cache: *mut ffi::Cache,
}

impl Handles {
    pub(super) fn new(settings: &Settings) -> Handles {
        // Safety: plain C calls on objects made here; the filter policy's ownership passes to the table options.
        unsafe {
            let options = ffi::rocksdb_options_create();
            let table = ffi::rocksdb_block_based_options_create();
            let cache = ffi::rocksdb_cache_create_lru(settings.cache_bytes as usize);
            set_database(options, settings);
            set_columns(options, settings);
            set_table(table, cache, settings);
            ffi::rocksdb_options_set_block_based_table_factory(options, table);
            Handles { options, table, cache }
        }
    }
}

/// Database-wide options.
unsafe fn set_database(options: *mut ffi::Options, settings: &Settings) {
    // Safety: the caller passes a live options object.
    unsafe {
        ffi::rocksdb_options_set_create_if_missing(options, 1);
        ffi::rocksdb_options_set_create_missing_column_families(options, 1);
        // All write buffers together, over all column families, stay in their share of the budget.
        ffi::rocksdb_options_set_db_write_buffer_size(
            options,
            (settings.write_buffer_bytes * settings.write_buffers) as usize,
        );
        // Two cores: one flush and one compaction at a time leaves the second core to the writer.
        ffi::rocksdb_options_set_max_background_jobs(options, settings.background_jobs);
        // Direct I/O both ways: no block is cached twice, and the memory budget is the whole truth.
        ffi::rocksdb_options_set_use_direct_reads(options, 1);
        ffi::rocksdb_options_set_use_direct_io_for_flush_and_compaction(options, 1);
        // Direct reads have no kernel read-ahead, so compaction brings its own.
        ffi::rocksdb_options_compaction_readahead_size(options, 2 << 20);
        // Recycled log files: a commit writes into blocks that exist, and fdatasync has no metadata to write.
        ffi::rocksdb_options_set_recycle_log_file_num(options, 4);
        // The default; named because recycling needs it (the stricter modes refuse recycled logs).
        ffi::rocksdb_options_set_wal_recovery_mode(options, ffi::RECOVERY_POINT_IN_TIME);
        ffi::rocksdb_options_set_enable_pipelined_write(options, u8::from(settings.pipelined));
        // Off by default, as RocksDB has it: its header calls it work in progress. zstd is the only codec.
        if settings.wal_compression {
            ffi::rocksdb_options_set_wal_compression(options, ffi::COMPRESSION_ZSTD);
        }
        // Neither is needed for correctness, and both make opening slower.
        ffi::rocksdb_options_set_skip_stats_update_on_db_open(options, 1);
        ffi::rocksdb_options_set_skip_checking_sst_file_sizes_on_db_open(options, 1);
        // No periodic dump in the middle of a measurement; statistics tickers stay off, as they cost CPU.
        ffi::rocksdb_options_set_stats_dump_period_sec(options, 0);
        ffi::rocksdb_options_set_keep_log_file_num(options, 2);
    }
}

/// Column-family options.
unsafe fn set_columns(options: *mut ffi::Options, settings: &Settings) {
    let (codec, level): (c_int, c_int) = match settings.codec {
        Codec::None => (ffi::COMPRESSION_NONE, 0),
        Codec::Lz4 => (ffi::COMPRESSION_LZ4, 0),
        Codec::Zstd(level) => (ffi::COMPRESSION_ZSTD, c_int::from(level)),
    };
    // Safety: the caller passes a live options object.
    unsafe {
        ffi::rocksdb_options_set_write_buffer_size(options, settings.write_buffer_bytes as usize);
        ffi::rocksdb_options_set_max_write_buffer_number(options, settings.write_buffers as c_int);
        // RocksDB's default sizes, the base level shared among the families: it holds what level 0 gathers in four
        // flushes, as its tuning guide asks.
        ffi::rocksdb_options_set_target_file_size_base(options, settings.file_bytes);
        ffi::rocksdb_options_set_max_bytes_for_level_base(options, settings.level_base_bytes);
        // Levels sized from the last one upwards: 1.1 × space at most, and the fewest levels.
        ffi::rocksdb_options_set_level_compaction_dynamic_level_bytes(options, 1);
        // One codec on all levels, the same as the other engine's. Raw deflate window, no dictionary: the defaults.
        ffi::rocksdb_options_set_compression(options, codec);
        ffi::rocksdb_options_set_compression_options(options, -14, level, 0, 0);
        // One thread per compaction, RocksDB's default: on iiBench (4 M rows, 64 MiB, two cores, five runs each) two wrote as
        // much, 368 to 378 bytes per row, and were no faster beyond the scatter of the runs.
        ffi::rocksdb_options_set_max_subcompactions(options, settings.subcompactions);
    }
}

/// Block format.
unsafe fn set_table(table: *mut ffi::TableOptions, cache: *mut ffi::Cache, settings: &Settings) {
    // Safety: the caller passes live objects.
    unsafe {
        // As MyRocks advises for compressed tables: 4 KiB blocks compress a quarter worse.
        ffi::rocksdb_block_based_options_set_block_size(table, settings.block_bytes as usize);
        ffi::rocksdb_block_based_options_set_block_cache(table, cache);
        // Newest format of this release: the fast Bloom filter, and indexes that are delta-coded.
        ffi::rocksdb_block_based_options_set_format_version(table, 5);
        // Ten bits: 1 % false positives; Ribbon filters save memory but cost three times the CPU to build.
        ffi::rocksdb_block_based_options_set_filter_policy(
            table,
            ffi::rocksdb_filterpolicy_create_bloom_full(settings.bloom_bits),
        );
        // Indexes and filters count against the budget, and what every read needs stays resident.
        ffi::rocksdb_block_based_options_set_cache_index_and_filter_blocks(table, 1);
        ffi::rocksdb_block_based_options_set_cache_index_and_filter_blocks_with_high_priority(table, 1);
        ffi::rocksdb_block_based_options_set_pin_l0_filter_and_index_blocks_in_cache(table, 1);
        ffi::rocksdb_block_based_options_set_pin_top_level_index_and_filter(table, 1);
        if settings.partitioned {
            // A whole filter of a 64 MiB file does not fit a shard of a small cache; partitions of 4 KiB do.
            ffi::rocksdb_block_based_options_set_index_type(table, ffi::INDEX_TWO_LEVEL);
            ffi::rocksdb_block_based_options_set_partition_filters(table, 1);
            ffi::rocksdb_block_based_options_set_metadata_block_size(table, 4096);
        }
    }
}

impl Drop for Handles {
    fn drop(&mut self) {
        // Safety: made in `new`, freed once; RocksDB copies options and shares the cache by reference count.
        unsafe {
            ffi::rocksdb_options_destroy(self.options);
            ffi::rocksdb_block_based_options_destroy(self.table);
            ffi::rocksdb_cache_destroy(self.cache);
        }
    }
}
