//! The open database: gets, maintenance, counters.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char};
use std::sync::Arc;
use std::time::Duration;

use super::cursor::RocksCursor;
use super::options::{Handles, Layout, Settings};
use super::transaction::RocksTransaction;
use super::{checked, ffi, take_pinned};
use crate::engine::{Durability, Engine, OpenOptions, Statistics, TreeIndex};
use crate::{At, Error, Result};

/// An open RocksDB.
#[derive(Clone)]
pub struct Rocks {
    pub(super) inner: Arc<Inner>,
}

/// What the clones share. Closed when the last of them, and the last iterator and transaction, is gone.
pub(super) struct Inner {
    pub(super) db: *mut ffi::Db,
    /// Set where transactions must read their own writes.
    pub(super) transaction_db: *mut ffi::TransactionDb,
    /// The default family first.
    pub(super) columns: Vec<*mut ffi::ColumnFamily>,
    /// Keys carry their tree's number in front.
    pub(super) prefixed: bool,
    pub(super) read_options: *mut ffi::ReadOptions,
    write_options: [*mut ffi::WriteOptions; 3],
    pub(super) transaction_options: *mut ffi::TransactionOptions,
    handles: Handles,
}

// Safety: RocksDB's database, column family, options and cache objects may be used from any thread at once.
unsafe impl Send for Inner {}
// Safety: as above.
unsafe impl Sync for Inner {}

/// Bytes of the tree number in front of a key.
pub(super) const PREFIX_BYTES: usize = 4;

thread_local! {
    static KEY: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static PERF: Cell<*mut ffi::PerfContext> = const { Cell::new(std::ptr::null_mut()) };
}

impl Inner {
    /// Calls `call` with the column family and the stored form of the key.
    pub(super) fn with_key<T>(
        &self,
        tree: TreeIndex,
        key: &[u8],
        call: impl FnOnce(*mut ffi::ColumnFamily, *const c_char, usize) -> T,
    ) -> T {
        if !self.prefixed {
            return call(self.columns[tree], key.as_ptr().cast(), key.len());
        }
        KEY.with_borrow_mut(|stored| {
            stored.clear();
            stored.extend_from_slice(&(tree as u32).to_be_bytes());
            stored.extend_from_slice(key);
            call(self.columns[0], stored.as_ptr().cast(), stored.len())
        })
    }

    pub(super) fn write_options(&self, durability: Durability) -> *mut ffi::WriteOptions {
        self.write_options[match durability {
            Durability::Sync => 0,
            Durability::Write => 1,
            Durability::None => 2,
        }]
    }

    fn property(&self, column: usize, name: &CStr) -> u64 {
        let mut value = 0;
        // Safety: live handles; unknown names leave the value alone.
        unsafe { ffi::rocksdb_property_int_cf(self.db, self.columns[column], name.as_ptr(), &mut value) };
        value
    }

    fn property_text(&self, column: usize, name: &CStr) -> String {
        // Safety: live handles; the answer is null or a string that is ours to free.
        unsafe {
            let text = ffi::rocksdb_property_value_cf(self.db, self.columns[column], name.as_ptr());
            if text.is_null() {
                return String::new();
            }
            let copy = CStr::from_ptr(text).to_string_lossy().into_owned();
            ffi::rocksdb_free(text.cast());
            copy
        }
    }

    fn flush(&self) -> Result<()> {
        // Safety: the options live for the loop; handles are live.
        unsafe {
            let options = ffi::rocksdb_flushoptions_create();
            ffi::rocksdb_flushoptions_set_wait(options, 1);
            let flushed = self
                .columns
                .iter()
                .try_for_each(|&column| checked(|error| ffi::rocksdb_flush_cf(self.db, options, column, error)));
            ffi::rocksdb_flushoptions_destroy(options);
            flushed
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Safety: nothing else refers to the database any more; each object is freed once, families first.
        unsafe {
            for &column in &self.columns {
                ffi::rocksdb_column_family_handle_destroy(column);
            }
            if self.transaction_db.is_null() {
                ffi::rocksdb_close(self.db);
            } else {
                ffi::rocksdb_optimistictransactiondb_close_base_db(self.db);
                ffi::rocksdb_optimistictransactiondb_close(self.transaction_db);
            }
            ffi::rocksdb_readoptions_destroy(self.read_options);
            self.write_options.iter().for_each(|&options| ffi::rocksdb_writeoptions_destroy(options));
            ffi::rocksdb_optimistictransaction_options_destroy(self.transaction_options);
        }
    }
}

/// Column families by layout: the default one first.
fn column_names(settings: &Settings, options: &OpenOptions) -> Vec<String> {
    let named = options.trees.iter().skip(1).cloned();
    match settings.layout {
        Layout::Prefix => vec!["default".to_owned()],
        Layout::Families => std::iter::once("default".to_owned()).chain(named).collect(),
    }
}

fn c_string(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::new(format!("a name may not contain a zero byte: name={text:?}")))
}

type Opened = (*mut ffi::Db, *mut ffi::TransactionDb, Vec<*mut ffi::ColumnFamily>);

fn open_columns(handles: &Handles, names: &[String], options: &OpenOptions) -> Result<Opened> {
    let directory = c_string(&options.directory.to_string_lossy())?;
    let names: Vec<CString> = names.iter().map(|name| c_string(name)).collect::<Result<_>>()?;
    let names: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
    let column_options = vec![handles.options.cast_const(); names.len()];
    let mut columns = vec![std::ptr::null_mut(); names.len()];
    let count = names.len() as i32;
    let path = directory.as_ptr();
    let (names, each, out) = (names.as_ptr(), column_options.as_ptr(), columns.as_mut_ptr());
    // Safety: the arrays hold `count` entries and live across the call.
    unsafe {
        if !options.transactional {
            let db = checked(|error| {
                ffi::rocksdb_open_column_families(handles.options, path, count, names, each, out, error)
            })?;
            return Ok((db, std::ptr::null_mut(), columns));
        }
        let transaction_db = checked(|error| {
            ffi::rocksdb_optimistictransactiondb_open_column_families(
                handles.options,
                path,
                count,
                names,
                each,
                out,
                error,
            )
        })?;
        Ok((ffi::rocksdb_optimistictransactiondb_get_base_db(transaction_db), transaction_db, columns))
    }
}

/// Write options of `Sync`, `Write` and `None`.
fn write_options() -> [*mut ffi::WriteOptions; 3] {
    [(1, 0), (0, 0), (0, 1)].map(|(sync, without_log)| {
        // Safety: plain setters on an object made here.
        unsafe {
            let options = ffi::rocksdb_writeoptions_create();
            ffi::rocksdb_writeoptions_set_sync(options, sync);
            ffi::rocksdb_writeoptions_disable_WAL(options, without_log);
            options
        }
    })
}

impl Engine for Rocks {
    type Transaction = RocksTransaction;
    type Cursor = RocksCursor;

    const NAME: &'static str = "rocksdb";

    fn open(options: &OpenOptions) -> Result<Rocks> {
        std::fs::create_dir_all(&options.directory).at_path(&options.directory)?;
        let settings = Settings::new(options)?;
        let handles = Handles::new(&settings);
        let (db, transaction_db, columns) = open_columns(&handles, &column_names(&settings, options), options)?;
        // Safety: plain constructors and setters.
        let (read_options, transaction_options) =
            unsafe { (ffi::rocksdb_readoptions_create(), ffi::rocksdb_optimistictransaction_options_create()) };
        let inner = Inner {
            db,
            transaction_db,
            columns,
            prefixed: settings.layout == Layout::Prefix && options.trees.len() > 1,
            read_options,
            write_options: write_options(),
            transaction_options,
            handles,
        };
        Ok(Rocks { inner: Arc::new(inner) })
    }

    /// Flushes first: a clean start then finds an empty log, which is the best RocksDB can do.
    fn close(self) -> Result<()> {
        self.inner.flush()
    }

    fn begin(&self) -> Result<RocksTransaction> {
        Ok(RocksTransaction::new(self.inner.clone()))
    }

    fn get(&self, tree: TreeIndex, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let inner = &self.inner;
        let slice = inner.with_key(tree, key, |column, start, bytes| {
            // Safety: live handles, and a key that lives across the call.
            checked(|error| unsafe {
                ffi::rocksdb_get_pinned_cf(inner.db, inner.read_options, column, start, bytes, error)
            })
        })?;
        Ok(take_pinned(slice, value))
    }

    fn cursor(&self, tree: TreeIndex) -> Result<RocksCursor> {
        Ok(RocksCursor::new(self.inner.clone(), tree))
    }

    fn checkpoint(&self) -> Result<()> {
        self.inner.flush()
    }

    fn settle(&self) -> Result<()> {
        const BUSY: [&CStr; 4] = [
            c"rocksdb.mem-table-flush-pending",
            c"rocksdb.num-running-flushes",
            c"rocksdb.compaction-pending",
            c"rocksdb.num-running-compactions",
        ];
        let mut quiet = 0;
        while quiet < 3 {
            let columns = 0..self.inner.columns.len();
            let busy = columns.into_iter().any(|at| BUSY.iter().any(|name| self.inner.property(at, name) > 0));
            quiet = if busy { 0 } else { quiet + 1 };
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn compact(&self) -> Result<()> {
        self.inner.flush()?;
        for &column in &self.inner.columns {
            // Safety: live handles; null bounds mean everything.
            unsafe {
                let none = std::ptr::null();
                ffi::rocksdb_compact_range_cf(self.inner.db, column, none, 0, none, 0);
            }
        }
        self.settle()
    }

    fn statistics(&self) -> Result<Statistics> {
        let inner = &self.inner;
        let families = 0..inner.columns.len();
        let text: Vec<String> =
            families.clone().map(|at| inner.property_text(at, c"rocksdb.cfstats-no-file-histogram")).collect();
        let database = inner.property_text(0, c"rocksdb.dbstats");
        let flush: f64 = text.iter().filter_map(|text| number_after(text, "Flush(GB): cumulative ")).sum();
        let all: f64 = text.iter().filter_map(|text| number_after(text, "Cumulative compaction: ")).sum();
        // RocksDB counts flushes among its compactions.
        let compaction = (all - flush).max(0.0);
        let sum = |name: &CStr| families.clone().map(|at| inner.property(at, name)).sum();
        let mut memory_bytes = BTreeMap::new();
        memory_bytes.insert("write buffers".to_owned(), sum(c"rocksdb.cur-size-all-mem-tables"));
        memory_bytes.insert("table readers".to_owned(), sum(c"rocksdb.estimate-table-readers-mem"));
        // Safety: the cache lives as long as `handles`.
        let cached = unsafe { ffi::rocksdb_cache_get_usage(inner.handles.cache) };
        memory_bytes.insert("block cache".to_owned(), cached as u64);
        let log = number_after(&line_with(&database, "Cumulative WAL"), "written: ").unwrap_or(0.0);
        let written = [("log", log), ("flush", flush), ("compaction", compaction)];
        Ok(Statistics {
            written_bytes: written.map(|(cause, count)| (cause.to_owned(), gigabytes(count))).into(),
            block_reads: Some(block_reads()),
            stall_us: None,
            commits: None,
            log_syncs: None,
            memory_bytes,
            all: serde_json::Value::Null,
        })
    }
}

fn gigabytes(count: f64) -> u64 {
    (count * (1u64 << 30) as f64) as u64
}

fn line_with(text: &str, label: &str) -> String {
    text.lines().find(|line| line.contains(label)).unwrap_or_default().to_owned()
}

/// The number that follows `label`.
fn number_after(text: &str, label: &str) -> Option<f64> {
    let rest = &text[text.find(label)? + label.len()..];
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// Block reads of this thread since its first call, from RocksDB's per-thread counters; the first call switches them on.
fn block_reads() -> u64 {
    PERF.with(|context| {
        // Safety: the context belongs to this thread and is never freed before it ends (one small object per thread).
        unsafe {
            if context.get().is_null() {
                ffi::rocksdb_set_perf_level(ffi::PERF_COUNT);
                context.set(ffi::rocksdb_perfcontext_create());
            }
            ffi::rocksdb_perfcontext_metric(context.get(), ffi::METRIC_BLOCK_READ_COUNT)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_in_rocksdbs_text() {
        let text =
            "Flush(GB): cumulative 1.250, interval 0.1\nCumulative WAL: 12 writes, 12 syncs, written: 0.58 GB, 1 MB/s";
        assert_eq!(number_after(text, "Flush(GB): cumulative "), Some(1.25));
        assert_eq!(number_after(&line_with(text, "Cumulative WAL"), "written: "), Some(0.58));
        assert_eq!(number_after(text, "nothing "), None);
    }
}
