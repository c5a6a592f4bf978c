//! The part of RocksDB 7.8's C API (`rocksdb/c.h`) that the benchmarks call, declared by hand.
//!
//! Every `errptr` is an out-parameter: null on success, else a message to be released with `rocksdb_free`.

use std::ffi::{c_char, c_int, c_uchar, c_void};

macro_rules! opaque {
    ($($name:ident),*) => {$(
        #[repr(C)]
        pub(super) struct $name { _private: [u8; 0] }
    )*};
}

opaque!(Db, TransactionDb, Transaction, TransactionOptions, ColumnFamily, Options, TableOptions, Cache, FilterPolicy);
opaque!(ReadOptions, WriteOptions, FlushOptions, WriteBatch, Iterator, PinnableSlice, PerfContext);

pub(super) type ErrorPointer = *mut *mut c_char;

pub(super) const COMPRESSION_NONE: c_int = 0;
pub(super) const COMPRESSION_LZ4: c_int = 4;
pub(super) const COMPRESSION_ZSTD: c_int = 7;
pub(super) const INDEX_TWO_LEVEL: c_int = 2;
pub(super) const PERF_COUNT: c_int = 2;
pub(super) const METRIC_BLOCK_READ_COUNT: c_int = 2;
pub(super) const RECOVERY_POINT_IN_TIME: c_int = 2;

#[link(name = "rocksdb")]
unsafe extern "C" {
    pub(super) fn rocksdb_free(pointer: *mut c_void);

    pub(super) fn rocksdb_open_column_families(
        options: *const Options,
        name: *const c_char,
        count: c_int,
        names: *const *const c_char,
        column_options: *const *const Options,
        handles: *mut *mut ColumnFamily,
        error: ErrorPointer,
    ) -> *mut Db;
    pub(super) fn rocksdb_close(db: *mut Db);
    pub(super) fn rocksdb_column_family_handle_destroy(handle: *mut ColumnFamily);
    pub(super) fn rocksdb_write(db: *mut Db, options: *const WriteOptions, batch: *mut WriteBatch, error: ErrorPointer);
    pub(super) fn rocksdb_get_pinned_cf(
        db: *mut Db,
        options: *const ReadOptions,
        column: *mut ColumnFamily,
        key: *const c_char,
        key_bytes: usize,
        error: ErrorPointer,
    ) -> *mut PinnableSlice;
    pub(super) fn rocksdb_pinnableslice_value(slice: *const PinnableSlice, bytes: *mut usize) -> *const c_char;
    pub(super) fn rocksdb_pinnableslice_destroy(slice: *mut PinnableSlice);
    pub(super) fn rocksdb_flush_cf(
        db: *mut Db,
        options: *const FlushOptions,
        column: *mut ColumnFamily,
        error: ErrorPointer,
    );
    pub(super) fn rocksdb_compact_range_cf(
        db: *mut Db,
        column: *mut ColumnFamily,
        start: *const c_char,
        start_bytes: usize,
        limit: *const c_char,
        limit_bytes: usize,
    );
    pub(super) fn rocksdb_property_value_cf(db: *mut Db, column: *mut ColumnFamily, name: *const c_char)
    -> *mut c_char;
    pub(super) fn rocksdb_property_int_cf(
        db: *mut Db,
        column: *mut ColumnFamily,
        name: *const c_char,
        value: *mut u64,
    ) -> c_int;

    pub(super) fn rocksdb_optimistictransactiondb_open_column_families(
        options: *const Options,
        name: *const c_char,
        count: c_int,
        names: *const *const c_char,
        column_options: *const *const Options,
        handles: *mut *mut ColumnFamily,
        error: ErrorPointer,
    ) -> *mut TransactionDb;
    pub(super) fn rocksdb_optimistictransactiondb_get_base_db(db: *mut TransactionDb) -> *mut Db;
    pub(super) fn rocksdb_optimistictransactiondb_close_base_db(db: *mut Db);
    pub(super) fn rocksdb_optimistictransactiondb_close(db: *mut TransactionDb);
    pub(super) fn rocksdb_optimistictransaction_options_create() -> *mut TransactionOptions;
    pub(super) fn rocksdb_optimistictransaction_options_destroy(options: *mut TransactionOptions);
    pub(super) fn rocksdb_optimistictransaction_begin(
        db: *mut TransactionDb,
        write_options: *const WriteOptions,
        options: *const TransactionOptions,
        reuse: *mut Transaction,
    ) -> *mut Transaction;
    pub(super) fn rocksdb_transaction_commit(transaction: *mut Transaction, error: ErrorPointer);
    pub(super) fn rocksdb_transaction_rollback(transaction: *mut Transaction, error: ErrorPointer);
    pub(super) fn rocksdb_transaction_destroy(transaction: *mut Transaction);
    pub(super) fn rocksdb_transaction_put_cf(
        transaction: *mut Transaction,
        column: *mut ColumnFamily,
        key: *const c_char,
        key_bytes: usize,
        value: *const c_char,
        value_bytes: usize,
        error: ErrorPointer,
    );
    pub(super) fn rocksdb_transaction_delete_cf(
        transaction: *mut Transaction,
        column: *mut ColumnFamily,
        key: *const c_char,
        key_bytes: usize,
        error: ErrorPointer,
    );
    pub(super) fn rocksdb_transaction_get_pinned_cf(
        transaction: *mut Transaction,
        options: *const ReadOptions,
        column: *mut ColumnFamily,
        key: *const c_char,
        key_bytes: usize,
        error: ErrorPointer,
    ) -> *mut PinnableSlice;
    pub(super) fn rocksdb_transaction_get_pinned_for_update_cf(
        transaction: *mut Transaction,
        options: *const ReadOptions,
        column: *mut ColumnFamily,
        key: *const c_char,
        key_bytes: usize,
        exclusive: c_uchar,
        error: ErrorPointer,
    ) -> *mut PinnableSlice;

    pub(super) fn rocksdb_writebatch_create() -> *mut WriteBatch;
    pub(super) fn rocksdb_writebatch_destroy(batch: *mut WriteBatch);
    pub(super) fn rocksdb_writebatch_put_cf(
        batch: *mut WriteBatch,
        column: *mut ColumnFamily,
        key: *const c_char,
        key_bytes: usize,
        value: *const c_char,
        value_bytes: usize,
    );
    pub(super) fn rocksdb_writebatch_delete_cf(
        batch: *mut WriteBatch,
        column: *mut ColumnFamily,
        key: *const c_char,
        key_bytes: usize,
    );
    pub(super) fn rocksdb_writebatch_singledelete_cf(
        batch: *mut WriteBatch,
        column: *mut ColumnFamily,
        key: *const c_char,
        key_bytes: usize,
    );

    pub(super) fn rocksdb_create_iterator_cf(
        db: *mut Db,
        options: *const ReadOptions,
        column: *mut ColumnFamily,
    ) -> *mut Iterator;
    pub(super) fn rocksdb_iter_destroy(iterator: *mut Iterator);
    pub(super) fn rocksdb_iter_valid(iterator: *const Iterator) -> c_uchar;
    pub(super) fn rocksdb_iter_seek_to_last(iterator: *mut Iterator);
    pub(super) fn rocksdb_iter_seek(iterator: *mut Iterator, key: *const c_char, key_bytes: usize);
    pub(super) fn rocksdb_iter_next(iterator: *mut Iterator);
    pub(super) fn rocksdb_iter_prev(iterator: *mut Iterator);
    pub(super) fn rocksdb_iter_key(iterator: *const Iterator, bytes: *mut usize) -> *const c_char;
    pub(super) fn rocksdb_iter_value(iterator: *const Iterator, bytes: *mut usize) -> *const c_char;
    pub(super) fn rocksdb_iter_get_error(iterator: *const Iterator, error: ErrorPointer);

    pub(super) fn rocksdb_options_create() -> *mut Options;
    pub(super) fn rocksdb_options_destroy(options: *mut Options);
    pub(super) fn rocksdb_options_set_create_if_missing(options: *mut Options, on: c_uchar);
    pub(super) fn rocksdb_options_set_create_missing_column_families(options: *mut Options, on: c_uchar);
    pub(super) fn rocksdb_options_set_write_buffer_size(options: *mut Options, bytes: usize);
    pub(super) fn rocksdb_options_set_db_write_buffer_size(options: *mut Options, bytes: usize);
    pub(super) fn rocksdb_options_set_max_write_buffer_number(options: *mut Options, count: c_int);
    pub(super) fn rocksdb_options_set_target_file_size_base(options: *mut Options, bytes: u64);
    pub(super) fn rocksdb_options_set_max_bytes_for_level_base(options: *mut Options, bytes: u64);
    pub(super) fn rocksdb_options_set_level_compaction_dynamic_level_bytes(options: *mut Options, on: c_uchar);
    pub(super) fn rocksdb_options_set_max_background_jobs(options: *mut Options, count: c_int);
    pub(super) fn rocksdb_options_set_max_subcompactions(options: *mut Options, count: u32);
    pub(super) fn rocksdb_options_set_compression(options: *mut Options, codec: c_int);
    pub(super) fn rocksdb_options_set_compression_options(
        options: *mut Options,
        window_bits: c_int,
        level: c_int,
        strategy: c_int,
        dictionary_bytes: c_int,
    );
    pub(super) fn rocksdb_options_set_use_direct_reads(options: *mut Options, on: c_uchar);
    pub(super) fn rocksdb_options_set_use_direct_io_for_flush_and_compaction(options: *mut Options, on: c_uchar);
    pub(super) fn rocksdb_options_compaction_readahead_size(options: *mut Options, bytes: usize);
    pub(super) fn rocksdb_options_set_recycle_log_file_num(options: *mut Options, count: usize);
    pub(super) fn rocksdb_options_set_wal_recovery_mode(options: *mut Options, mode: c_int);
    pub(super) fn rocksdb_options_set_wal_compression(options: *mut Options, codec: c_int);
    pub(super) fn rocksdb_options_set_enable_pipelined_write(options: *mut Options, on: c_uchar);
    pub(super) fn rocksdb_options_set_skip_stats_update_on_db_open(options: *mut Options, on: c_uchar);
    pub(super) fn rocksdb_options_set_skip_checking_sst_file_sizes_on_db_open(options: *mut Options, on: c_uchar);
    pub(super) fn rocksdb_options_set_stats_dump_period_sec(options: *mut Options, seconds: u32);
    pub(super) fn rocksdb_options_set_keep_log_file_num(options: *mut Options, count: usize);
    pub(super) fn rocksdb_options_set_block_based_table_factory(options: *mut Options, table: *mut TableOptions);

    pub(super) fn rocksdb_block_based_options_create() -> *mut TableOptions;
    pub(super) fn rocksdb_block_based_options_destroy(options: *mut TableOptions);
    pub(super) fn rocksdb_block_based_options_set_block_size(options: *mut TableOptions, bytes: usize);
    pub(super) fn rocksdb_block_based_options_set_metadata_block_size(options: *mut TableOptions, bytes: u64);
    pub(super) fn rocksdb_block_based_options_set_block_cache(options: *mut TableOptions, cache: *mut Cache);
    pub(super) fn rocksdb_block_based_options_set_filter_policy(options: *mut TableOptions, policy: *mut FilterPolicy);
    pub(super) fn rocksdb_block_based_options_set_format_version(options: *mut TableOptions, version: c_int);
    pub(super) fn rocksdb_block_based_options_set_index_type(options: *mut TableOptions, kind: c_int);
    pub(super) fn rocksdb_block_based_options_set_partition_filters(options: *mut TableOptions, on: c_uchar);
    pub(super) fn rocksdb_block_based_options_set_cache_index_and_filter_blocks(
        options: *mut TableOptions,
        on: c_uchar,
    );
    pub(super) fn rocksdb_block_based_options_set_cache_index_and_filter_blocks_with_high_priority(
        options: *mut TableOptions,
        on: c_uchar,
    );
    pub(super) fn rocksdb_block_based_options_set_pin_l0_filter_and_index_blocks_in_cache(
        options: *mut TableOptions,
        on: c_uchar,
    );
    pub(super) fn rocksdb_block_based_options_set_pin_top_level_index_and_filter(
        options: *mut TableOptions,
        on: c_uchar,
    );
    pub(super) fn rocksdb_filterpolicy_create_bloom_full(bits_per_key: f64) -> *mut FilterPolicy;
    pub(super) fn rocksdb_cache_create_lru(bytes: usize) -> *mut Cache;
    pub(super) fn rocksdb_cache_destroy(cache: *mut Cache);
    pub(super) fn rocksdb_cache_get_usage(cache: *mut Cache) -> usize;

    pub(super) fn rocksdb_readoptions_create() -> *mut ReadOptions;
    pub(super) fn rocksdb_readoptions_destroy(options: *mut ReadOptions);
    pub(super) fn rocksdb_readoptions_set_iterate_upper_bound(
        options: *mut ReadOptions,
        key: *const c_char,
        bytes: usize,
    );
    pub(super) fn rocksdb_readoptions_set_iterate_lower_bound(
        options: *mut ReadOptions,
        key: *const c_char,
        bytes: usize,
    );
    pub(super) fn rocksdb_writeoptions_create() -> *mut WriteOptions;
    pub(super) fn rocksdb_writeoptions_destroy(options: *mut WriteOptions);
    pub(super) fn rocksdb_writeoptions_set_sync(options: *mut WriteOptions, on: c_uchar);
    pub(super) fn rocksdb_writeoptions_disable_WAL(options: *mut WriteOptions, off: c_int);
    pub(super) fn rocksdb_flushoptions_create() -> *mut FlushOptions;
    pub(super) fn rocksdb_flushoptions_destroy(options: *mut FlushOptions);
    pub(super) fn rocksdb_flushoptions_set_wait(options: *mut FlushOptions, on: c_uchar);

    pub(super) fn rocksdb_set_perf_level(level: c_int);
    pub(super) fn rocksdb_perfcontext_create() -> *mut PerfContext;
    pub(super) fn rocksdb_perfcontext_metric(context: *mut PerfContext, metric: c_int) -> u64;
}
