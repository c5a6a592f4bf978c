/* FrondDB: a write-optimised, transactional, embedded storage engine. The C interface.
 *
 * One file on purpose, so that it can be copied and read from top to bottom. Rooms, in reading order:
 *
 *   1 conventions, versions, errors     6 reading                    11 upkeep
 *   2 options                           7 cursors                    12 looking inside
 *   3 the database                      8 writing                    13 statistics and recovery
 *   4 trees                             9 update programs          14 databases that nobody has open
 *   5 transactions, savepoints         10 two-phase commit
 *
 * C99 and C++11. Link with libfronddb.a (and -lgcc_s -lutil -lrt -lpthread -lm -ldl) or libfronddb.so.
 * A guide with an example is docs/c-api.md. SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * CONVENTIONS
 *
 * Status.   Functions that can fail return a frond_status: FROND_OK, or the kind of the failure, sorted by what the
 *           caller can do about it. frond_last_error gives the words. After a failure, results are not written,
 *           except where the function says so.
 * Bytes.    Keys and values are frond_slices: any bytes, compared as unsigned bytes. What does not exist has data
 *           NULL; what exists and is empty has another data and size 0. Passing NULL with size 0 means empty.
 * Arguments. A NULL handle or result, a number that names nothing, an unknown flag, a slice with a size but no data
 *           and a text that is not UTF-8 give FROND_INVALID_ARGUMENT and change nothing. Pointers that are not
 *           NULL must be valid: a handle after its end is not, nor is one handle passed as another's kind.
 *           Reserved fields must be 0. Setting a structure to all zeros gives the defaults.
 * Lending.  A slice or text that a function lends stays valid until the moment which that function names; it may be
 *           passed to the call that ends it (seek to the key of the row). What the caller lends is copied or used up
 *           before the function returns, unless it says otherwise.
 * Threads.  Every handle says who may use it when. "One thread at a time" means that calls must not overlap;
 *           the thread may change between calls. Callbacks must not call back into the same handle, must return
 *           and must not throw.
 * Panics.   A broken invariant inside the engine prints its message to standard error and ends the process with
 *           abort(): nothing half-done is served on, and a restart recovers.
 */
#ifndef FROND_H
#define FROND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------------------------------------
 * 1 Conventions, versions, errors
 */

/* Version of this header. FROND_ABI_VERSION grows when a program compiled before must be compiled again. */
#define FROND_VERSION "0.1.0"
#define FROND_ABI_VERSION 1

/* Limits. */
#define FROND_KEY_BYTES_MAX 32768
#define FROND_VALUE_BYTES_MAX 268435456
#define FROND_UPDATE_REACH_BYTES_MAX 1048576 /* of a value, what update programs may set or add to */
#define FROND_XID_BYTES_MAX 160
#define FROND_TREE_NAME_BYTES_MAX 1024
#define FROND_LOCKS_LISTED_MAX 100000 /* locks held that frond_db_locks lists; all that are waited for it does */
#define FROND_MEMORY_BYTES_MIN 8388608

/* Version of the library, as a text that lives as long as the process; and its FROND_ABI_VERSION, to be compared
 * with that of the header after loading a shared library. Any thread. */
const char *frond_version(void);
uint32_t frond_abi_version(void);

/* What a call came to. The numbers never change. */
typedef int32_t frond_status;
enum {
  FROND_OK = 0,
  FROND_DEADLOCK = 1,           /* this transaction was rolled back so that others go on: retry it */
  FROND_LOCK_TIMEOUT = 2,       /* a lock was not granted in time: the statement had no effect */
  FROND_CONFLICT = 3,           /* another transaction changed the row first: roll back and retry */
  FROND_KEY_EXISTS = 4,         /* the key (or name) is taken */
  FROND_INVALID_ARGUMENT = 5,   /* an argument is wrong or past a limit: nothing changed */
  FROND_NOT_FOUND = 6,          /* no such tree, prepared transaction, savepoint; an absent key is no error */
  FROND_READ_ONLY = 7,          /* the database or the transaction is read-only */
  FROND_ALREADY_OPEN = 8,       /* another process or handle has the database open */
  FROND_NO_SPACE = 9,           /* the disk is full: nothing changed, service resumes when space is back */
  FROND_IO = 10,                /* the operating system reported an I/O error */
  FROND_CORRUPTION = 11,        /* stored data is damaged, or the disk does not give it back; the message names file, offset and
                                 * tree */
  FROND_UNSUPPORTED_FORMAT = 12, /* the files are of a format that this version does not know */
  FROND_POISONED = 13,          /* an earlier failure stopped writing: close and open again to recover */
  FROND_CANCELLED = 14,         /* the wait, or the scan, was ended by frond_db_cancel */
  FROND_CLOSED = 15,            /* the database was closed or the transaction has ended */
  FROND_INTERNAL = 16           /* a bug in FrondDB */
};

/* A short name of a status in words ("deadlock"), "ok" for FROND_OK, "unknown status" for other numbers; lives as
 * long as the process. Any thread. */
const char *frond_status_name(frond_status status);

/* The failure that this thread met last: its status, and its message in *message (may be NULL), lent until the next
 * failure in this thread. FROND_OK and "" when there was none. Success does not clear it. Any thread. */
frond_status frond_last_error(const char **message);

/* Bytes that belong to somebody else. */
typedef struct frond_slice {
  const uint8_t *data;
  size_t size;
} frond_slice;

static inline frond_slice frond_bytes(const void *data, size_t size)
{
  frond_slice slice;
#ifdef __cplusplus
  slice.data = static_cast<const uint8_t *>(data);
#else
  slice.data = data;
#endif
  slice.size = size;
  return slice;
}

/* A row: key.data is NULL when there is none. */
typedef struct frond_row {
  frond_slice key;
  frond_slice value;
} frond_row;

/* Handles. */
typedef struct frond_options frond_options; /* options of a database to be opened; one thread at a time */
typedef struct frond_db frond_db;           /* an open database; any number of threads at once */
typedef struct frond_tree frond_tree;       /* a tree of an open database; any number of threads at once */
typedef struct frond_txn frond_txn;         /* a transaction; one thread at a time, its cursors included */
typedef struct frond_cursor frond_cursor;   /* a cursor of a transaction; in the thread of its transaction */
typedef struct frond_batch frond_batch;     /* writes to be done together; one thread at a time */
typedef struct frond_bulk frond_bulk;       /* a bulk load; in the thread of its transaction */
typedef struct frond_list frond_list;       /* keeps the items of an answer in memory; any thread */

/* Frees an answer; its items are gone. NULL is allowed. */
void frond_list_free(frond_list *list);

/* Frees a text that the library gave away. NULL is allowed. */
void frond_string_free(char *string);

/* ---------------------------------------------------------------------------------------------------------------
 * 2 Options of a database
 */

/* Which option; the defaults and their reasons stand in the engine's Options. */
typedef uint32_t frond_option;
enum {
  FROND_OPTION_CREATE_IF_MISSING = 1,      /* 0/1: makes a new database where there is none. Default 0 */
  FROND_OPTION_ERROR_IF_EXISTS = 2,        /* 0/1: refuses one that exists. Default 0 */
  FROND_OPTION_READ_ONLY = 3,              /* 0/1: writes not a byte; the log is replayed into memory. Default 0 */
  FROND_OPTION_MEMORY_BYTES = 4,           /* the one memory budget, FROND_MEMORY_BYTES_MIN or more. Default 256 MiB */
  FROND_OPTION_LEVEL0_BYTES = 5,           /* bytes at which a memtable seals; 0: derived from the budget. Default 0 */
  FROND_OPTION_LOG_SEGMENT_BYTES = 6,      /* length of a log segment, at most what LEVEL0_BYTES needs: 32 MiB. Default 100 MB */
  FROND_OPTION_LOG_COMPRESSION = 7,        /* 0/1: compresses log records. Default 1 */
  FROND_OPTION_LOG_SYNC_PERIOD_MS = 8,     /* syncs the log this often for commits that did not wait; 0: never */
  FROND_OPTION_CHECKPOINT_INTERVAL_MS = 9, /* a checkpoint at least this often; 0: never by time. Default 60000 */
  FROND_OPTION_RECOVERY_TARGET_MS = 10,    /* keeps a restart below this; 0: no target. Default 200 */
  FROND_OPTION_BACKGROUND_THREADS = 11,    /* threads that seal, flush and compact. Default 2 */
  FROND_OPTION_DIRECT_IO = 12,             /* 0/1: past the operating system's cache. Default 1 */
  FROND_OPTION_BLOCK_BYTES = 13,           /* uncompressed size of a block, 1 to 512 KiB. Default 16 KiB */
  FROND_OPTION_FILTER_BITS_PER_KEY = 14,   /* size of filters of leaf bases; 0: none; buffers have 14. Default 10 */
  FROND_OPTION_BLOB_BYTES_MIN = 15,        /* values from this size go straight to the data file. Default 64 KiB */
  FROND_OPTION_LOCK_TIMEOUT_MS = 16,       /* how long a lock is waited for. Default 50000 */
  FROND_OPTION_MANUAL_BACKGROUND = 17      /* 0/1: no threads, see frond_db_step_background. For tests. Default 0 */
};

/* How blocks are compressed. */
typedef uint32_t frond_codec;
enum {
  FROND_CODEC_DEFAULT = 0, /* for a tree: as the database says when it is created */
  FROND_CODEC_NONE = 1,
  FROND_CODEC_LZ4 = 2,
  FROND_CODEC_ZSTD = 3 /* level -7 to 22 */
};

/* Why a checkpoint is made. */
typedef uint32_t frond_checkpoint_cause;
enum {
  FROND_CHECKPOINT_BY_TIME = 1,   /* the period is over */
  FROND_CHECKPOINT_BY_SIZE = 2,   /* level 0 is full, or the disk */
  FROND_CHECKPOINT_BY_TARGET = 3, /* a restart would take longer than the recovery-time target */
  FROND_CHECKPOINT_BY_REQUEST = 4
};

/* The phases of recovery, in order. */
typedef uint32_t frond_recovery_phase;
enum {
  FROND_RECOVERY_ROOTS = 1,
  FROND_RECOVERY_LOG = 2,
  FROND_RECOVERY_SORT = 3,
  FROND_RECOVERY_TRANSACTIONS = 4,
  FROND_RECOVERY_DONE = 5
};

/* How far recovery is. */
typedef struct frond_recovery_progress {
  frond_recovery_phase phase;
  uint32_t reserved;
  uint64_t bytes_done;  /* bytes of log read so far */
  uint64_t bytes_total; /* bytes of log to read in all, as far as known */
} frond_recovery_progress;

/* Called while recovery runs, in the thread that opens the database; progress is lent for the call. */
typedef void (*frond_progress_fn)(void *context, const frond_recovery_progress *progress);

/* Called before a transaction waits for a lock, once for each transaction in the way, with their frond_txn_id (a prepared
 * one keeps its number until it is decided; 0 when it was prepared before the database was opened). In the waiting thread,
 * with no latch of the engine held: it may cancel either (frond_db_cancel; the wait then fails at once), end the one in
 * the way, or have its session killed, and must not otherwise use the waiting one. */
typedef void (*frond_wait_observer_fn)(void *context, uint64_t waiter, uint64_t blocker);

/* Called once a wait that the observer was told of, or would have been, is over, granted or not: in the same thread, and bound in
 * the same way. */
typedef void (*frond_wait_end_fn)(void *context, uint64_t waiter);

/* Asked when a deadlock is found, about two of its transactions at a time, by their frond_txn_id: negative, the first is rather
 * the victim; positive, the second; 0, the one that holds fewer locks. From any thread, under a latch of the engine: it must
 * be quick and must not call the library. */
typedef int32_t (*frond_victim_fn)(void *context, uint64_t one, uint64_t other);

/* How grave an event is. */
typedef uint32_t frond_log_level;
enum {
  FROND_LOG_ERROR = 1,   /* something is broken and somebody has to act: poisoned, damaged */
  FROND_LOG_WARNING = 2, /* something goes badly and may pass: the disk is full, writers stopped for long */
  FROND_LOG_NOTE = 3     /* good to know: recovery begins, goes on, is done; space is back */
};

/* Told what a server's error log should hold: rare events, from any thread, also under latches. It must be quick and must
 * not call the library. message is lent for the call. */
typedef void (*frond_log_fn)(void *context, frond_log_level level, const char *message);

/* The defaults; to be freed with frond_options_free. NULL cannot happen: no memory ends the process. */
frond_options *frond_options_new(void);
/* NULL is allowed. */
void frond_options_free(frond_options *options);
/* Sets an option. Whether the value is in range shows when the database opens. */
frond_status frond_options_set(frond_options *options, frond_option option, uint64_t value);
/* Where log segments live; the default is "log" inside the database's directory. */
frond_status frond_options_set_log_dir(frond_options *options, const char *path);
/* Codec of trees that name none; level is for FROND_CODEC_ZSTD. The default is zstd level 1. */
frond_status frond_options_set_codec(frond_options *options, frond_codec codec, int32_t level);
/* Who is told how recovery goes on; NULL: nobody. context must stay valid while the database opens. */
frond_status frond_options_set_progress(frond_options *options, frond_progress_fn progress, void *context);
/* Who is told of waits for locks, of their ends, and of events; NULL: nobody. context must stay valid, and usable from any
 * thread, until frond_db_close has returned or the opening has failed: no call begins or goes on after that, not for transactions and
 * cursors that are still to be ended either. The end of a wait that the closing cancels may so remain untold. */
frond_status frond_options_set_wait_observer(frond_options *options, frond_wait_observer_fn observer, void *context);
frond_status frond_options_set_wait_end(frond_options *options, frond_wait_end_fn observer, void *context);
frond_status frond_options_set_log(frond_options *options, frond_log_fn log, void *context);
/* Who is asked for the victim of a deadlock; NULL: nobody. context as above. */
frond_status frond_options_set_victim_preference(frond_options *options, frond_victim_fn preference, void *context);

/* ---------------------------------------------------------------------------------------------------------------
 * 3 The database. Any number of threads at once, except frond_db_close.
 */

/* Opens the database in the directory path, by recovery. options may be NULL (the defaults) and stays the caller's,
 * to be used again. FROND_NOT_FOUND, FROND_ALREADY_OPEN, FROND_UNSUPPORTED_FORMAT, FROND_CORRUPTION, FROND_IO,
 * FROND_INVALID_ARGUMENT for an option out of range or an empty path. A failed opening leaves nothing behind: try again. */
frond_status frond_db_open(const char *path, const frond_options *options, frond_db **db);

/* Rolls open transactions back, syncs commits that did not wait, stops the threads, gives the directory free and
 * ends the handle, whatever the status: FROND_POISONED when it had been poisoned. Handles of its trees, transactions
 * and cursors remain to be ended; their use is FROND_CLOSED. Waits for callbacks under way in other threads, and none is called
 * any more: so nothing that these wait for may be held. No other call may use db meanwhile. */
frond_status frond_db_close(frond_db *db);

/* FROND_OK, or what poisoned the database, with its message in frond_last_error. */
frond_status frond_db_poisoned(frond_db *db);

/* ---------------------------------------------------------------------------------------------------------------
 * 4 Trees: named ordered maps. Creating, dropping, renaming and truncating happen inside a transaction; others see
 *   it when that commits, and a rollback undoes it. Names are UTF-8, 1 to FROND_TREE_NAME_BYTES_MAX bytes.
 */

/* Options of a tree. All zeros are the defaults. */
typedef struct frond_tree_options {
  frond_codec codec;
  int32_t codec_level;
  frond_slice metadata; /* bytes of the tree's owner (a table definition): the engine only keeps them */
} frond_tree_options;

/* Creates a tree and opens it. options may be NULL. The name is locked until the transaction ends.
 * FROND_KEY_EXISTS, FROND_INVALID_ARGUMENT. */
frond_status frond_tree_create(frond_txn *txn, const char *name, const frond_tree_options *options, frond_tree **tree);
/* Opens a tree as the transaction sees it. FROND_NOT_FOUND. */
frond_status frond_tree_open(frond_txn *txn, const char *name, frond_tree **tree);
/* Frees the handle; the tree stays. Slices of its name are gone. NULL is allowed. No call may use it meanwhile. */
void frond_tree_close(frond_tree *tree);
/* Drops a tree with all its rows, at a cost that does not depend on them. Handles then give FROND_NOT_FOUND, once that is
 * committed also to transactions whose snapshot is older: names and the being of trees follow commits and not snapshots. */
frond_status frond_tree_drop(frond_txn *txn, const char *name);
/* Gives a tree another name. Handles stay valid. FROND_NOT_FOUND, FROND_KEY_EXISTS. */
frond_status frond_tree_rename(frond_txn *txn, const char *old_name, const char *new_name);
/* Removes all rows of a tree, at a cost that does not depend on them. Older snapshots still have them. */
frond_status frond_tree_truncate(frond_txn *txn, const frond_tree *tree);
/* Replaces codec and metadata. Stored blocks follow as they are rewritten. */
frond_status frond_tree_set_options(frond_txn *txn, const frond_tree *tree, const frond_tree_options *options);
/* Codec and metadata as the transaction sees them; metadata is lent until the next call of this function with this
 * transaction, or its end. */
frond_status frond_tree_get_options(frond_txn *txn, const frond_tree *tree, frond_tree_options *options);

/* Its number, never used again after it is dropped; 0 for NULL. Its name when it was opened, lent until the handle
 * is closed; "" for NULL. */
uint32_t frond_tree_id(const frond_tree *tree);
const char *frond_tree_name(const frond_tree *tree);

/* The same, each a transaction of its own, durable on return. */
frond_status frond_db_create_tree(frond_db *db, const char *name, const frond_tree_options *options, frond_tree **tree);
frond_status frond_db_open_tree(frond_db *db, const char *name, frond_tree **tree);
frond_status frond_db_drop_tree(frond_db *db, const char *name);

/* ---------------------------------------------------------------------------------------------------------------
 * 5 Transactions and savepoints. One thread at a time, cursors of the transaction included.
 *
 * An error leaves the transaction usable and the failed call without effect, except FROND_DEADLOCK (it has been rolled
 * back; all that is left is to end the handle) and FROND_POISONED.
 */

/* What a transaction sees of others. */
typedef uint32_t frond_isolation;
enum {
  FROND_ISOLATION_DEFAULT = 0, /* repeatable read */
  FROND_ISOLATION_READ_UNCOMMITTED = 1,
  FROND_ISOLATION_READ_COMMITTED = 2,  /* each call, or each statement, sees what was committed when it began */
  FROND_ISOLATION_REPEATABLE_READ = 3, /* plain reads see one snapshot; locking reads and writes the latest rows */
  FROND_ISOLATION_SERIALIZABLE = 4     /* plain reads take shared locks and see the latest rows */
};

/* What a returned commit promises. */
typedef uint32_t frond_durability;
enum {
  FROND_DURABILITY_DEFAULT = 0, /* sync */
  FROND_DURABILITY_SYNC = 1,    /* it survives power loss */
  FROND_DURABILITY_WRITE = 2,   /* it survives the end of the process; power loss after anybody's later sync */
  FROND_DURABILITY_NONE = 3     /* nothing yet; a crash leaves a consistent earlier state */
};

enum {
  FROND_TXN_READ_ONLY = 1,          /* writes are FROND_READ_ONLY */
  FROND_TXN_FIRST_UPDATER_WINS = 2, /* writing a row that changed after the snapshot is FROND_CONFLICT */
  FROND_TXN_CONSISTENT_SNAPSHOT = 4 /* the snapshot is taken at once and not at the first read */
};

/* How long to wait for a lock: a number of milliseconds, or one of these. */
#define FROND_WAIT_DEFAULT 0 /* as the transaction, or else the database, says */
#define FROND_WAIT_NONE (-1) /* FROND_LOCK_TIMEOUT at once */
#define FROND_WAIT_SKIP (-2) /* leave the row out; for locking reads */

typedef struct frond_txn_options {
  frond_isolation isolation;
  frond_durability durability;
  uint32_t flags; /* FROND_TXN_* */
  uint32_t reserved;
  int64_t lock_wait_ms; /* milliseconds, FROND_WAIT_DEFAULT or FROND_WAIT_NONE */
} frond_txn_options;

/* Begins a transaction. options may be NULL. Touches nothing shared until its first read or write. */
frond_status frond_txn_begin(frond_db *db, const frond_txn_options *options, frond_txn **txn);
/* A read-only transaction that sees what is committed now, until it ends. */
frond_status frond_db_snapshot(frond_db *db, frond_txn **snapshot);

/* Its number among the sessions of this process, for frond_db_cancel; never 0, and 0 for NULL. */
uint64_t frond_txn_id(const frond_txn *txn);

/* From now on it waits so long for locks: lock_wait_ms as in frond_txn_options. */
frond_status frond_txn_set_lock_wait_ms(frond_txn *txn, int64_t lock_wait_ms);

/* Makes everything visible and durable as asked, and ends the handle, whatever the status. Time does not depend on the
 * number of rows. FROND_POISONED: whether the commit survives shows after opening again. */
frond_status frond_txn_commit(frond_txn *txn);
/* The same, durable as asked now, whatever the transaction was begun with: for who learns only in the end what it has written. */
frond_status frond_txn_commit_with(frond_txn *txn, frond_durability durability);
/* Undoes everything and ends the handle, whatever the status. Time does not depend on the number of rows. */
frond_status frond_txn_rollback(frond_txn *txn);

/* Ends the wait that transaction id is in, for a lock or for room in level 0, or the next one that it enters, with
 * FROND_CANCELLED; also a cursor's step over many keys without rows (deleted, or not committed yet). For threads that kill
 * sessions: any thread, at any time. A long scan of rows is its caller's to stop between two calls. Point reads and waits
 * for the log go on to their end, and so does a batch of which a part is written; bulk loads and compactions are given up
 * by their callbacks. FROND_NOT_FOUND when no such transaction is open. */
frond_status frond_db_cancel(frond_db *db, uint64_t id);

/* Marks to roll back to, nested to any depth. *savepoint is a number that means something to this transaction only, and never
 * UINT32_MAX. */
frond_status frond_savepoint_set(frond_txn *txn, uint32_t *savepoint);
/* Undoes everything since the mark, in constant time. The mark stays, later ones are gone; locks are kept.
 * FROND_NOT_FOUND when it is gone. */
frond_status frond_savepoint_rollback(frond_txn *txn, uint32_t savepoint);
/* Forgets the mark and all later ones; what was done since stays. FROND_NOT_FOUND when it is gone. */
frond_status frond_savepoint_release(frond_txn *txn, uint32_t savepoint);

/* Begins a statement, and ends the one before. At FROND_ISOLATION_READ_COMMITTED plain reads and cursors until the next
 * call see one snapshot, taken at the first of them; without this call each takes its own. At other levels reads are as
 * always. A frond_db_cancel that met no wait is forgotten. Touches nothing shared. */
frond_status frond_txn_begin_statement(frond_txn *txn);
/* Ends the statement and releases its snapshot (a cursor keeps what it reads until it is positioned anew or closed). Locks
 * are kept. The transaction's end does the same. */
frond_status frond_txn_end_statement(frond_txn *txn);

/* ---------------------------------------------------------------------------------------------------------------
 * 6 Reading. Values are lent until the next call of a function of this section with the same transaction, or its end.
 *   An absent key is FROND_OK with value.data NULL.
 */

typedef uint32_t frond_lock_mode;
enum {
  FROND_LOCK_NONE = 0,
  FROND_LOCK_SHARED = 1,
  FROND_LOCK_EXCLUSIVE = 2
};

frond_status frond_txn_get(frond_txn *txn, const frond_tree *tree, frond_slice key, frond_slice *value);
/* The same; of a value of 64 KiB and more, which is kept apart (FROND_OPTION_BLOB_BYTES_MIN), no more than its head where it has one: its first 2 KiB, or
 * a sixteenth of it where that is less. */
frond_status frond_txn_get_head(frond_txn *txn, const frond_tree *tree, frond_slice key, frond_slice *value);
/* Whether key has a value; does not load it and leaves values lent before valid. */
frond_status frond_txn_contains(frond_txn *txn, const frond_tree *tree, frond_slice key, bool *found);
/* Whether others have committed a change of key after the snapshot that the transaction's plain reads see, which at
 * FROND_ISOLATION_READ_COMMITTED is the statement's: then a locking read or a write of it meets another row than they do.
 * Stays so as long as key is locked and the snapshot lasts. False where no such snapshot was taken. */
frond_status frond_txn_changed_after_snapshot(frond_txn *txn, const frond_tree *tree, frond_slice key, bool *changed);
/* Whether the transaction has taken a snapshot that lasts until its end: it does at its first plain read at
 * FROND_ISOLATION_REPEATABLE_READ, and at once with FROND_TXN_CONSISTENT_SNAPSHOT. False for NULL, and after its end. */
bool frond_txn_has_snapshot(const frond_txn *txn);
/* Many keys by one call: values[i] answers keys[i], for i below count. On an error no value is written. */
frond_status frond_txn_get_many(frond_txn *txn, const frond_tree *tree, const frond_slice *keys, size_t count,
                                frond_slice *values);
/* Locks key and reads its latest committed value, or what the transaction wrote. Where there is none, the place is
 * locked. *skipped (may be NULL unless wait_ms is FROND_WAIT_SKIP) says that another transaction holds the lock. */
frond_status frond_txn_get_locked(frond_txn *txn, const frond_tree *tree, frond_slice key, frond_lock_mode mode,
                                  int64_t wait_ms, frond_slice *value, bool *skipped);
/* Gives back the lock of key, for a row that was locked, looked at and not wanted: only if a locking read of this statement
 * newly took it (the transaction did not hold it before, in whatever mode) and nothing was written to the row since.
 * Otherwise, at FROND_ISOLATION_REPEATABLE_READ and FROND_ISOLATION_SERIALIZABLE, and beyond the last 256 rows locked,
 * it does nothing. Index entries written with FROND_OPERATION_COVERED count as written with the row that covers them. */
frond_status frond_txn_unlock(frond_txn *txn, const frond_tree *tree, frond_slice key);
/* Locks the keys from lower (included) to upper (excluded; empty: to the end), also those that do not exist.
 * wait_ms must not be FROND_WAIT_SKIP. */
frond_status frond_txn_lock_range(frond_txn *txn, const frond_tree *tree, frond_slice lower, frond_slice upper,
                                  frond_lock_mode mode, int64_t wait_ms);

typedef struct frond_estimate {
  uint64_t rows;
  uint64_t bytes;      /* as stored; what is in memory alone, as it was given */
  uint64_t blob_bytes; /* of bytes: of values kept apart as blobs; of such as are gone, until they are given back */
} frond_estimate;

/* About how much lies from lower (included) to upper (excluded; empty: to the end), without reading it. */
frond_status frond_txn_estimate(frond_txn *txn, const frond_tree *tree, frond_slice lower, frond_slice upper,
                                frond_estimate *estimate);

/* About the latest committed rows, without a transaction: as frond_txn_get and frond_txn_estimate. The value is lent
 * until frond_list_free of *list. Any thread. */
frond_status frond_db_get(frond_db *db, const frond_tree *tree, frond_slice key, frond_list **list, frond_slice *value);
frond_status frond_db_estimate(frond_db *db, const frond_tree *tree, frond_slice lower, frond_slice upper,
                               frond_estimate *estimate);

/* ---------------------------------------------------------------------------------------------------------------
 * 7 Cursors: ordered reading both ways. In the thread of their transaction.
 *
 * A cursor is at a row or at none; a new one is at none, and so is one after an error. It sees its transaction's writes
 * up to its last positioning by key or end. After the transaction's end it gives FROND_CLOSED and remains to be closed.
 */

enum {
  FROND_CURSOR_LOWER_EXCLUDED = 1, /* lower itself is out; without it, in */
  FROND_CURSOR_UPPER_INCLUDED = 2, /* upper itself is in; without it, out */
  FROND_CURSOR_KEYS_ONLY = 4,      /* values kept apart as blobs are not loaded; all values are empty */
  FROND_CURSOR_NO_READ_AHEAD = 8,
  FROND_CURSOR_NO_FILL_CACHE = 16, /* for one-off scans of large trees */
  FROND_CURSOR_COMMITTED = 32, /* without lock: at read uncommitted sees what read committed sees; at both not by the snapshot of plain reads */
  FROND_CURSOR_LATEST = 64,    /* without lock: sees what is committed when it is moved by key or to an end */
  FROND_CURSOR_ADDED = 128,    /* the same, and with it what others have written since or not committed, but not what they have
                                * deleted since or not committed: for who locks what it finds and looks again then */
  FROND_CURSOR_OTHERS = 256,   /* without lock: as plain reads, at read uncommitted as FROND_CURSOR_COMMITTED, but for what its
                                * transaction has written */
  FROND_CURSOR_PEEK = 512,     /* with lock, at read committed and below: stops at rows that others hold without waiting, shows them as
                                * they were committed last and does not lock them. FROND_MOVE_AGAIN takes one */
  FROND_CURSOR_HEADS_ONLY = 2048, /* without lock: values as frond_txn_get_head gives them */
  FROND_CURSOR_GIVE_UP = 1024  /* without lock, for samples: gives up once it has passed over more than 1,000 keys without a row in all
                                * (deleted, rolled back), and is at no row; frond_cursor_gave_up tells that from an end */
};
#define FROND_CURSOR_KEYS_BEFORE_GIVING_UP 1000

/* What a cursor ranges over. All zeros: everything, without locks. */
typedef struct frond_cursor_options {
  frond_slice lower;  /* data NULL: from the beginning */
  frond_slice upper;  /* data NULL: to the end */
  frond_slice prefix; /* only keys that begin with this, inside the bounds */
  uint32_t flags;     /* FROND_CURSOR_* */
  frond_lock_mode lock; /* locks each row that it stops at, from repeatable read on also the gaps it passes, and sees
                         * the latest rows */
  int64_t wait_ms;      /* with lock: milliseconds or FROND_WAIT_* */
  uint64_t read_ahead_bytes; /* 0: the default */
} frond_cursor_options;

/* Where to go. First, seek and next go forward, the others backward. */
typedef uint32_t frond_move;
enum {
  FROND_MOVE_FIRST = 1,
  FROND_MOVE_LAST = 2,
  FROND_MOVE_SEEK = 3,          /* the first row at or after key */
  FROND_MOVE_SEEK_FOR_PREV = 4, /* the last row at or before key */
  FROND_MOVE_NEXT = 5,          /* at no row: as first for a new cursor, otherwise none */
  FROND_MOVE_PREV = 6,          /* at no row: as last for a new cursor, otherwise none */
  FROND_MOVE_AGAIN = 7          /* from a row that was peeked at: locks it, waiting, and reads it as it is then; where it is gone, goes
                                 * on as the walk went, and may peek. At any other row, or none: stays */
};

/* Opens a cursor. options may be NULL. */
frond_status frond_cursor_open(frond_txn *txn, const frond_tree *tree, const frond_cursor_options *options,
                               frond_cursor **cursor);
/* NULL is allowed. */
void frond_cursor_close(frond_cursor *cursor);
/* Moves to a row and lends it in *row until the next call with this cursor; row->key.data is NULL when there is none.
 * row may be NULL. key is looked at by the two seeks only. */
frond_status frond_cursor_move(frond_cursor *cursor, frond_move move, frond_slice key, frond_row *row);
/* The row that it is at, lent as by frond_cursor_move. */
frond_status frond_cursor_row(const frond_cursor *cursor, frond_row *row);
/* Whether another transaction holds the row that it is at, which is not locked then (FROND_CURSOR_PEEK). */
bool frond_cursor_is_peeked(const frond_cursor *cursor);
/* Whether it has given up (FROND_CURSOR_GIVE_UP): it stays at no row. */
bool frond_cursor_gave_up(const frond_cursor *cursor);
/* The key at which it did: from where it began to this one there is no row that it sees. data NULL where it has not given up. Lent until the cursor
 * is moved or closed. */
frond_slice frond_cursor_gave_up_at(const frond_cursor *cursor);
/* Locks the row that it is at and reads it again as it is now; row->key.data is NULL when it is gone, or held by
 * another and skipped: the cursor is then between its neighbours. row may be NULL. */
frond_status frond_cursor_lock_row(frond_cursor *cursor, frond_lock_mode mode, int64_t wait_ms, frond_row *row);
/* Gives back the lock of the row that it is at, as frond_txn_unlock; the cursor stays there. At no row: does nothing. */
frond_status frond_cursor_unlock_row(frond_cursor *cursor);

enum {
  FROND_FETCH_KEYS_ONLY = 1, /* packs empty values */
  FROND_FETCH_LENT = 2       /* lends values from the cache until the next call with this cursor, rather than copying them, where it can;
                              * frond_fetch_lent reads the rows */
};

/* Many rows by one call. */
typedef struct frond_fetch {
  uint8_t *buffer;     /* in: the caller's memory, of any alignment */
  size_t capacity;     /* in: its length, in bytes */
  uint32_t rows_max;   /* in: 0: as many as fit */
  uint32_t flags;      /* in: FROND_FETCH_* */
  uint32_t rows;       /* out: rows packed, also after an error */
  uint32_t more;       /* out: 1 unless the end of the range was met */
  size_t bytes;        /* out: bytes of the buffer that they take */
  size_t bytes_needed; /* out: capacity that the next row needs, if it did not fit; otherwise 0 */
  uint32_t peeked;     /* out: 1 where the last row packed is another transaction's (FROND_CURSOR_PEEK); otherwise 0 */
} frond_fetch;

/* Moves as frond_cursor_move, packs that row into the buffer, and goes on in the same direction until rows_max rows are
 * packed, the next one does not fit, or the range ends; also behind a row that is peeked at. The cursor is then at the
 * last row packed; if a row did not fit it is at that row, which a following NEXT or PREV packs first. With locks,
 * exactly the rows packed and that one are locked, but for what is peeked at. A buffer too small for one row is no error: rows is 0 and
 * bytes_needed says how much it takes. With FROND_FETCH_LENT it ends also when 256 KiB of values are lent: more says whether there is more.
 *
 * Packed layout: for each row its key's length and its value's length (uint32_t, in the machine's byte order), the key,
 * the value, and zeros up to a multiple of 8 bytes, counted from the start of the buffer. */
frond_status frond_cursor_fetch(frond_cursor *cursor, frond_move move, frond_slice key, frond_fetch *fetch);

#define FROND_FETCH_HEADER_BYTES 8

/* Reads the packed row at at and returns where the next one begins. The row points into the buffer. */
static inline const uint8_t *frond_fetch_row(const uint8_t *at, frond_row *row)
{
  uint32_t key_bytes, value_bytes;
  size_t size = FROND_FETCH_HEADER_BYTES;
  memcpy(&key_bytes, at, sizeof key_bytes);
  memcpy(&value_bytes, at + sizeof key_bytes, sizeof value_bytes);
  row->key.data = at + size;
  row->key.size = key_bytes;
  size += key_bytes;
  row->value.data = at + size;
  row->value.size = value_bytes;
  size += value_bytes;
  return at + ((size + 7) & ~(sizeof(uint64_t) - 1));
}

/* The same of a row packed with FROND_FETCH_LENT, whose value is where the pointer between the lengths and the key says: it may be in
 * the buffer, behind the key. Count the rows: what this returns means nothing after the last. */
static inline const uint8_t *frond_fetch_lent(const uint8_t *at, frond_row *row)
{
  uint32_t key_bytes, value_bytes;
  size_t size = FROND_FETCH_HEADER_BYTES + sizeof row->value.data;
  memcpy(&key_bytes, at, sizeof key_bytes);
  memcpy(&value_bytes, at + sizeof key_bytes, sizeof value_bytes);
  memcpy(&row->value.data, at + FROND_FETCH_HEADER_BYTES, sizeof row->value.data);
  row->key.data = at + size;
  row->key.size = key_bytes;
  row->value.size = value_bytes;
  size += key_bytes;
  if (row->value.data == at + size)
    size += value_bytes;
  return at + ((size + 7) & ~(sizeof(uint64_t) - 1));
}

/* ---------------------------------------------------------------------------------------------------------------
 * 8 Writing. Each write takes an exclusive lock on its key. FROND_INVALID_ARGUMENT (limits), FROND_NOT_FOUND (dropped
 *   tree), FROND_READ_ONLY, lock errors, FROND_CONFLICT, FROND_NO_SPACE, FROND_POISONED, FROND_CLOSED. What begins with
 *   frond_db: any thread.
 */

/* What a write does. Only FROND_OP_INSERT reads, and FROND_OP_INSERT_IF_ABSENT of a value from FROND_OPTION_BLOB_BYTES_MIN
 * on; filters answer most of that. */
typedef uint32_t frond_op;
enum {
  FROND_OP_PUT = 1,              /* key gets value */
  FROND_OP_INSERT = 2,           /* key gets value; FROND_KEY_EXISTS if it already has one */
  FROND_OP_INSERT_IF_ABSENT = 3, /* key gets value unless it already has one; reads for a value that becomes a blob */
  FROND_OP_DELETE = 4,           /* key gets no value */
  FROND_OP_SINGLE_DELETE = 5,    /* the same for a key put exactly once since it last had none: the cheapest. For keys
                                  * that never, not even before, see FROND_OP_DELETE (nor frond_txn_delete_existing),
                                  * FROND_OP_UPDATE or FROND_OP_INSERT_IF_ABSENT; range-deletes are no harm. Otherwise
                                  * undefined for that key: an older value may be there again, at once or later */
  FROND_OP_UPDATE = 6            /* the value changes by the update program in value (section 9) */
};

enum {
  FROND_OPERATION_COVERED = 1, /* takes no lock where nobody locks ranges: the caller's lock on another key keeps other
                               * writers away. Cursors that lock, and range locks, see it all the same */
  FROND_OPERATION_SHARING = 2  /* of FROND_OP_INSERT: a key that has a value is left locked shared and not exclusive, for who
                               * is told so and does not go on to write it. No matter for the others */
};

typedef struct frond_operation {
  const frond_tree *tree;
  frond_slice key;
  frond_slice value; /* empty for deletes */
  frond_op op;
  uint32_t flags; /* FROND_OPERATION_* */
} frond_operation;

/* All writes as one, in order, in one log record (one for each MiB), whatever their number and trees: the fast way, meant
 * for a row and all its index entries. On an error none of them has happened; *failed (may be NULL) is then the index of the one at
 * fault, or FROND_NONE when it was no single one. Where one is at fault, the keys of those before it are locked no more
 * than they were (at FROND_ISOLATION_SERIALIZABLE they stay locked shared); its own key is, unless it was waited for in vain. */
#define FROND_NONE SIZE_MAX
frond_status frond_txn_write(frond_txn *txn, const frond_operation *operations, size_t count, size_t *failed);
/* The same as a transaction of its own: one wait. options may be NULL. */
frond_status frond_db_write(frond_db *db, const frond_operation *operations, size_t count,
                            const frond_txn_options *options);

/* Single writes; those of frond_db are transactions of their own, durable on return. */
frond_status frond_db_put(frond_db *db, const frond_tree *tree, frond_slice key, frond_slice value);
frond_status frond_db_delete(frond_db *db, const frond_tree *tree, frond_slice key);
frond_status frond_txn_put(frond_txn *txn, const frond_tree *tree, frond_slice key, frond_slice value);
frond_status frond_txn_insert(frond_txn *txn, const frond_tree *tree, frond_slice key, frond_slice value);
frond_status frond_txn_insert_if_absent(frond_txn *txn, const frond_tree *tree, frond_slice key, frond_slice value);
frond_status frond_txn_delete(frond_txn *txn, const frond_tree *tree, frond_slice key);
/* Whether key had a value; reads. */
frond_status frond_txn_delete_existing(frond_txn *txn, const frond_tree *tree, frond_slice key, bool *existed);
frond_status frond_txn_single_delete(frond_txn *txn, const frond_tree *tree, frond_slice key);
frond_status frond_txn_update(frond_txn *txn, const frond_tree *tree, frond_slice key, frond_slice program);
/* All keys from lower (included) to upper (excluded; empty: to the end) get no value, at a cost that does not depend on
 * their number. Locks the range. */
frond_status frond_txn_delete_range(frond_txn *txn, const frond_tree *tree, frond_slice lower, frond_slice upper);

/* Writes gathered over several calls (rows of a bulk insert), to be done as one. The batch copies what it is given. */
frond_batch *frond_batch_new(void);
/* NULL is allowed. */
void frond_batch_free(frond_batch *batch);
/* Adds writes; on an error none of these is added, and *failed (may be NULL) is the index of the one at fault. */
frond_status frond_batch_add(frond_batch *batch, const frond_operation *operations, size_t count, size_t *failed);
/* Removes all writes and keeps the memory. NULL is allowed. */
void frond_batch_clear(frond_batch *batch);
/* Number of writes, and memory that they take; 0 for NULL. */
size_t frond_batch_count(const frond_batch *batch);
size_t frond_batch_bytes(const frond_batch *batch);
/* As frond_txn_write and frond_db_write; the batch keeps its writes. */
frond_status frond_txn_write_batch(frond_txn *txn, const frond_batch *batch, size_t *failed);
frond_status frond_db_write_batch(frond_db *db, const frond_batch *batch, const frond_txn_options *options);

/* Bulk loads: rows in any order into a tree that has none. They are sorted outside of the tree, in bounded memory, and then
 * written in key order, without locks or lookups for each row: a large load into a tree that was never written to as leaves
 * at once (a graft), else through the log. A rollback or a crash before the commit undoes them in constant time, as always. */
enum {
  FROND_BULK_FIRST_DUPLICATE = 1, /* of keys added twice, the first that came again is told; without it, the lowest */
  FROND_BULK_GIVE_UP = 2          /* a tree of which the first row lies behind more than 1,000 keys without one (deleted, rolled back) counts
                                   * as one with rows: they need not be passed over to say that it is empty */
};

typedef struct frond_bulk_options {
  const char *temporary_dir; /* where rows are spilled that do not fit; NULL: "tmp" in the database's directory */
  uint64_t memory_bytes;     /* to sort in, part of the database's budget; 0: an eighth of it, at most 64 MiB */
  uint32_t flags;            /* FROND_BULK_* */
  uint32_t reserved;         /* 0 */
} frond_bulk_options;

typedef struct frond_bulk_progress {
  uint64_t rows_added;
  uint64_t bytes_added;   /* of keys and values */
  uint64_t bytes_spilled; /* written to temporary files */
  uint64_t rows_written;  /* merged and written to the tree */
} frond_bulk_progress;

/* Called in the thread that finishes a load, every 128 KiB of rows; progress is lent for the call. false gives the load
 * up (a statement that was killed). */
typedef bool (*frond_bulk_progress_fn)(void *context, const frond_bulk_progress *progress);

/* Begins a load and locks the whole tree. options may be NULL. FROND_INVALID_ARGUMENT when the tree has rows: nothing is locked then, unless another
 * transaction was about to write such rows, or has written them while the lock was waited for; lock errors, FROND_CANCELLED. */
frond_status frond_bulk_begin(frond_txn *txn, const frond_tree *tree, const frond_bulk_options *options,
                              frond_bulk **bulk);
/* FROND_NO_SPACE and FROND_IO of the temporary files, FROND_CANCELLED: the load can only be freed then. */
frond_status frond_bulk_add(frond_bulk *bulk, frond_slice key, frond_slice value);
/* Writes all rows. FROND_KEY_EXISTS when a key was added twice: *duplicate (may be NULL) is then the row that came again,
 * of the lowest such key or the first of all, lent until frond_bulk_free, and otherwise none; FROND_CANCELLED when progress
 * (may be NULL) gave up. After an error nothing is written and the transaction is as it was before. The load can only be freed
 * afterwards. */
frond_status frond_bulk_finish(frond_bulk *bulk, frond_bulk_progress_fn progress, void *context,
                               frond_row *duplicate);
/* Which of the rows added the duplicate of frond_bulk_finish is, from 0; UINT64_MAX when there was none, or for NULL. */
uint64_t frond_bulk_duplicate_number(const frond_bulk *bulk);
/* How far it is. */
frond_status frond_bulk_now(const frond_bulk *bulk, frond_bulk_progress *progress);
/* Frees it; what was not finished is not written. NULL is allowed. */
void frond_bulk_free(frond_bulk *bulk);

/* ---------------------------------------------------------------------------------------------------------------
 * 9 Update programs: changes of a stored value that need not read it. Any thread. One that sets or adds to bytes beyond
 * FROND_UPDATE_REACH_BYTES_MAX is refused when it is written (FROND_INVALID_ARGUMENT).
 */

typedef uint32_t frond_step_kind;
enum {
  FROND_STEP_SET_BYTES = 1, /* bytes replace what is at offset; a shorter value is extended with zeros */
  FROND_STEP_ADD = 2,       /* delta is added to the integer of width bytes (1 to 8) at offset */
  FROND_STEP_IF_NULL = 3,   /* a key without a value gets bytes as its value */
  FROND_STEP_APPEND = 4     /* bytes are appended, as many as FROND_VALUE_BYTES_MAX leaves room for */
};

enum {
  FROND_STEP_BIG_ENDIAN = 1, /* the integer's byte order; without it, little endian */
  FROND_STEP_SIGNED = 2,     /* two's complement */
  FROND_STEP_SATURATE = 4    /* stays at the nearest number that fits; without it, wraps */
};

typedef struct frond_step {
  frond_step_kind kind;
  uint32_t offset;
  uint32_t width;
  uint32_t flags; /* FROND_STEP_* */
  int64_t delta;
  frond_slice bytes;
} frond_step;

/* Writes the program that does the steps in order into buffer, and its length to *size. When capacity is too small, it
 * is FROND_INVALID_ARGUMENT and *size says what it takes. buffer may be NULL with capacity 0. */
frond_status frond_program_encode(const frond_step *steps, size_t count, uint8_t *buffer, size_t capacity,
                                  size_t *size);
/* The steps of a program, as frond_program_encode took them; lent until frond_list_free of *list. FROND_INVALID_ARGUMENT
 * for bytes that are no program. */
frond_status frond_program_decode(frond_slice program, frond_list **list, const frond_step **steps, size_t *count);

/* ---------------------------------------------------------------------------------------------------------------
 * 10 Two-phase commit. External ids are 1 to FROND_XID_BYTES_MAX bytes. Any thread, but for the first two functions.
 */

/* Gives back the locks of keys that the transaction has not written: shared ones, and exclusive ones of points and
 * ranges but for the keys in them that it has changed. For one that is about to be prepared, which may wait for long.
 * After frond_txn_delete_range, or where it has created, dropped or changed trees, all stay; so do those beyond a
 * million keys or half a second, and ranges once 65,536 written keys were found in them. After an error all stay. */
frond_status frond_txn_release_unwritten(frond_txn *txn);
/* First phase: from now on the transaction survives crashes, with its locks, until one of the functions below decides
 * it. As durable on return as asked: with less than FROND_DURABILITY_SYNC a crash may lose it, as it may lose a commit.
 * Ends the handle, whatever the status; after an error it is rolled back. FROND_KEY_EXISTS when the id is in use.
 * What fails as FROND_POISONED may have reached the log: then the next opening finds it prepared. */
frond_status frond_txn_prepare(frond_txn *txn, frond_slice xid, frond_durability durability);
/* Second phase. FROND_NOT_FOUND when no such transaction waits. Until the commit is durable, a restart may find the
 * transaction prepared again: less than FROND_DURABILITY_SYNC is for who keeps the decision elsewhere until
 * frond_db_sync_log. */
frond_status frond_db_commit_prepared(frond_db *db, frond_slice xid, frond_durability durability);
frond_status frond_db_rollback_prepared(frond_db *db, frond_slice xid);

typedef struct frond_prepared_info {
  frond_slice xid;
  uint64_t txn;       /* its id in the database */
  uint32_t recovered; /* 1 when it was prepared before the database was last opened */
  uint32_t reserved;
} frond_prepared_info;

/* Prepared transactions that wait for a decision. Items are lent until frond_list_free. */
frond_status frond_db_prepared(frond_db *db, frond_list **list, const frond_prepared_info **items, size_t *count);

/* ---------------------------------------------------------------------------------------------------------------
 * 11 Upkeep. Any thread.
 */

/* Writes level 0 into the tree and publishes: after it, a restart replays almost nothing. Others go on meanwhile. */
frond_status frond_db_checkpoint(frond_db *db);
/* Makes every commit so far durable. */
frond_status frond_db_sync_log(frond_db *db);
/* Gives the memory budget another size; all parts follow within a moment. */
frond_status frond_db_set_memory_bytes(frond_db *db, uint64_t bytes);
/* Period of checkpoints; 0: none by time. */
frond_status frond_db_set_checkpoint_interval_ms(frond_db *db, uint64_t interval_ms);
/* Recovery-time target; 0: none. */
frond_status frond_db_set_recovery_target_ms(frond_db *db, uint64_t target_ms);
/* Period after which commits that did not wait are made durable; 0: none by time. */
frond_status frond_db_set_log_sync_period_ms(frond_db *db, uint64_t period_ms);

/* One thing that a check found. */
typedef struct frond_finding {
  const char *file;    /* relative to the database's directory; of a log elsewhere, with its directory's name alone */
  const char *message; /* what is wrong, in words */
  uint64_t offset;     /* in the file, in bytes; UINT64_MAX when not known */
  uint32_t tree;       /* the tree concerned, of several the first; 0 when not known */
  uint32_t tree_last;  /* the last that may be concerned: tree again, or a later one; 0 when not known */
  const char *tree_name; /* the first one's; NULL when not known */
} frond_finding;

/* Told of each finding in the thread that checks; finding is lent for the call. New fields come last. */
typedef void (*frond_finding_fn)(void *context, const frond_finding *finding);

/* How far a check is, in stored bytes. */
typedef struct frond_check_progress {
  uint64_t bytes_done;
  uint64_t bytes_total;
} frond_check_progress;

/* Told now and then in the thread that checks; progress is lent for the call. False ends the check. */
typedef bool (*frond_check_fn)(void *context, const frond_check_progress *progress);

/* Reads and checks all trees and large values; frond_check, of a database that is not open, also the log, the superblocks and the
 * space map. *findings (may be NULL) is the number of damages; damage is no error. report and progress may be NULL, context is for both. Others go on meanwhile. FROND_CANCELLED when progress ended it; what was
 * found until then has been reported, and *findings is left alone. */
frond_status frond_db_check(frond_db *db, frond_finding_fn report, frond_check_fn progress, void *context,
                            uint64_t *findings);

/* How far a compaction is, in stored bytes. */
typedef struct frond_compact_progress {
  uint64_t bytes_done;
  uint64_t bytes_total;
} frond_compact_progress;

/* Told now and then in the thread that compacts; progress is lent for the call. False ends the compaction. */
typedef bool (*frond_compact_fn)(void *context, const frond_compact_progress *progress);

/* Brings everything from lower (included) to upper (excluded; empty: to the end) of a tree down to its leaves, writes away
 * dead space, and gives it back to the file system; tree NULL, with empty bounds: all trees. Others go on meanwhile, and
 * first. Row counts are exact afterwards, but for what is written meanwhile and what open transactions keep alive.
 * progress may be NULL. FROND_CANCELLED when progress ended it; what is done stays. */
frond_status frond_db_compact(frond_db *db, const frond_tree *tree, frond_slice lower, frond_slice upper,
                              frond_compact_fn progress, void *context);

/* Does one step of background work in this thread; *worked (may be NULL) is false when there was none. With
 * FROND_OPTION_MANUAL_BACKGROUND the only source of it, besides writers that cannot go on. */
frond_status frond_db_step_background(frond_db *db, bool *worked);
/* Waits until no background work is left. */
frond_status frond_db_wait_idle(frond_db *db);
/* *warm is true once the blocks that were hot before the start have been read again, as far as the cache has room. In a database that is
 * open read-only, or with FROND_OPTION_MANUAL_BACKGROUND, none are, and it is true from the start. */
frond_status frond_db_is_warm(frond_db *db, bool *warm);

/* ---------------------------------------------------------------------------------------------------------------
 * 12 Looking inside. Any thread. Items are lent until frond_list_free of *list.
 */

typedef struct frond_tree_info {
  const char *name;
  uint32_t id;
  frond_codec codec;
  int32_t codec_level;
  uint32_t reserved;
  uint64_t metadata_bytes;
  /* Since opening. Divided, they are the tree's write amplification but for the log and publications, which are of no tree. */
  uint64_t user_bytes;    /* keys and values that left level 0 or were loaded, as their user gave them */
  uint64_t bytes_written; /* to storage for it: sealing, loads, flushes, compactions, large values */
} frond_tree_info;

typedef struct frond_txn_info {
  uint64_t id;  /* for frond_db_cancel; 0 for prepared ones, which have no session */
  uint64_t txn; /* its id in the database, once it has written or locked; 0 before */
  frond_isolation isolation;
  uint32_t prepared; /* 1 when it is */
  /* Since it began. Of a prepared one by the wall clock, over restarts too: 0 where that was set back to before then. */
  uint64_t age_ms;
  uint64_t messages; /* that it has written */
  /* Of one prepared by a version that did not keep this: repeatable read, since the database was first opened by one that does, and 0. */
} frond_txn_info;

typedef struct frond_lock_info {
  uint64_t txn;   /* the owner, or who waits: frond_txn_info.txn */
  uint32_t tree;  /* frond_tree_info.id */
  frond_lock_mode mode;
  frond_slice start;         /* the key, or the lowest key of the range */
  frond_slice end;           /* for a range the lowest key above it, empty without end; data NULL for a key */
  const uint64_t *waits_for; /* whom it waits for */
  size_t waits_for_count;    /* 0 for a lock that is held */
  uint64_t waited_ms;        /* for how long; 0 for a lock that is held */
} frond_lock_info;

/* Committed trees; open transactions; locks held and waited for. FROND_CORRUPTION or FROND_UNSUPPORTED_FORMAT when the rows of
 * some trees cannot be read: the results are written all the same, with the other trees, and the list is to be freed. */
frond_status frond_db_trees(frond_db *db, frond_list **list, const frond_tree_info **items, size_t *count);
/* Of the trees those whose names begin with `prefix`, in time that depends on their number and not on that of all. */
frond_status frond_db_trees_under(frond_db *db, const char *prefix, frond_list **list, const frond_tree_info **items,
                                  size_t *count);
frond_status frond_db_transactions(frond_db *db, frond_list **list, const frond_txn_info **items, size_t *count);
frond_status frond_db_locks(frond_db *db, frond_list **list, const frond_lock_info **items, size_t *count);
/* The shape of the tree as text, for people: memtables, nodes, runs, leaves. Its form may change. To be freed with
 * frond_string_free. FROND_IO, FROND_CORRUPTION when a node cannot be loaded. */
frond_status frond_db_tree_shape(frond_db *db, char **text);

/* ---------------------------------------------------------------------------------------------------------------
 * 13 Statistics and recovery. Any thread. Counts and bytes are since opening unless they say "now".
 */

/* A histogram, summed up. */
typedef struct frond_distribution {
  uint64_t count;
  uint64_t sum_micros;
  uint64_t p50_micros; /* half of all events were at most this */
  uint64_t p95_micros;
  uint64_t p99_micros;
  uint64_t p999_micros;
  uint64_t max_micros;
} frond_distribution;

/* New fields come last, so that frond_db_statistics serves programs compiled before. */
typedef struct frond_statistics {
  frond_distribution commit;   /* time of commits, from the call to the acknowledgement */
  frond_distribution read;     /* time of point reads; one in sixteen is measured */
  frond_distribution stall;    /* time that writers were slowed or stopped by admission */
  frond_distribution log_sync; /* time of syncs of the log, and of durable writes to it */
  uint64_t uptime_micros;          /* time since opening, in microseconds */
  uint64_t begins;                 /* transactions begun */
  uint64_t commits;                /* transactions committed that had written */
  uint64_t commits_read_only;      /* transactions committed that had not written */
  uint64_t rollbacks;              /* transactions rolled back, by their owner or as victims */
  uint64_t gets;                   /* point reads */
  uint64_t gets_found;             /* point reads that found a row */
  uint64_t cursor_seeks;           /* positionings of cursors by key or end */
  uint64_t cursor_steps;           /* steps of cursors */
  uint64_t messages;               /* messages written */
  uint64_t user_bytes;             /* bytes of keys and values written by users */
  uint64_t log_bytes;              /* bytes of records put into the log */
  uint64_t log_bytes_written;      /* bytes written to log files, but for the zeros that fill new ones */
  uint64_t log_records;            /* records put into the log */
  uint64_t log_syncs;              /* syncs of the log, and durable writes to it */
  uint64_t blob_bytes;             /* bytes of values written as blobs */
  uint64_t seal_bytes;             /* bytes written by sealing memtables */
  uint64_t flush_bytes;            /* bytes written by flushes to lower nodes */
  uint64_t compact_bytes;          /* bytes written by compactions, leaf rewrites included, and grafts */
  uint64_t publish_bytes;          /* bytes written by publications: nodes, space map, statuses, superblocks */
  uint64_t seals;                  /* memtables sealed */
  uint64_t compactions;            /* flushes and compactions done */
  uint64_t compactions_for_reads;  /* of these, those that readers had paid for by merging */
  uint64_t publications;           /* publications */
  uint64_t checkpoints_by_time;    /* checkpoints by the period */
  uint64_t checkpoints_by_size;    /* checkpoints because level 0 was full */
  uint64_t checkpoints_by_target;  /* checkpoints for the recovery-time target */
  uint64_t checkpoints_by_request; /* checkpoints on request */
  uint64_t blocks_read;            /* blocks read from the data file, but for blocks_read_bulk */
  uint64_t bytes_read;             /* bytes read from the data file */
  uint64_t cache_hits;             /* lookups of blocks that found them in memory */
  uint64_t cache_misses;           /* lookups in the cache that did not */
  uint64_t cache_decodes;          /* lookups in the cache that decoded a packed block; hits as well */
  uint64_t lock_waits;             /* lock requests that had to wait */
  uint64_t lock_timeouts;          /* lock waits that ended in a timeout */
  uint64_t deadlocks;              /* lock waits that ended in a deadlock */
  uint64_t stalls;                 /* writers slowed or stopped by admission */
  uint64_t memory_bytes_max;       /* now: limit of the memory budget, in bytes */
  uint64_t memory_bytes;           /* now: memory counted for all purposes, in bytes */
  uint64_t memory_level0_bytes;    /* now: memory of level 0 and of what it keeps for the next memtable, in bytes */
  uint64_t memory_metadata_bytes;  /* now: memory of nodes and run descriptions, in bytes */
  uint64_t memory_cache_bytes;     /* now: memory of the cache, in bytes */
  uint64_t memory_lock_bytes;      /* now: memory of the lock table, in bytes */
  uint64_t memory_work_bytes;      /* now: memory of cursors, transactions and buffers, in bytes */
  uint64_t level0_bytes;           /* now: fill of level 0, in bytes of messages */
  uint64_t level0_bytes_max;       /* now: bytes of messages at which a memtable seals */
  uint64_t sealed_memtables;       /* now: memtables sealed and not yet in the tree */
  uint64_t root_runs;              /* now: runs in the buffers of the root */
  uint64_t pending_bytes;          /* now: bytes of messages waiting for a flush or compaction */
  uint64_t height;                 /* now: height of the tree, in levels */
  uint64_t transactions_open;      /* now: transactions open */
  uint64_t transactions_prepared;  /* now: transactions prepared */
  uint64_t aborted_ids;            /* now: ids of aborted transactions whose messages are not yet gone */
  uint64_t locks_held;             /* now: locks held */
  uint64_t commit_number;          /* now: commit number of the newest commit */
  uint64_t oldest_snapshot;        /* now: commit number of the oldest snapshot in use */
  uint64_t log_end;                /* now: end of the log, in bytes since creation */
  uint64_t log_live_bytes;         /* now: bytes of log that a restart would replay */
  uint64_t recovery_micros;        /* now: estimated time of a restart, in microseconds */
  uint64_t file_bytes;             /* now: length of the data file, in bytes */
  uint64_t file_bytes_used;        /* now: bytes of the data file in use, without what is kept for a full disk */
  uint64_t file_bytes_live;        /* now: bytes of the data file that the newest publication references */
  uint64_t generation;             /* now: generation of the newest superblock */
  uint64_t write_checks;           /* point reads made by writes, besides gets: of uniqueness, of conflicts */
  uint64_t blocks_read_point;      /* of blocks_read: for point reads, with the filters and indexes they asked for */
  uint64_t blocks_read_scan;       /* of blocks_read: blocks of rows for scans and estimates */
  uint64_t blocks_read_meta;       /* of blocks_read: indexes, filters, range-deletes for all but point reads */
  uint64_t blocks_read_bulk;       /* blocks of rows read for compactions and checks, and to warm the cache */
  uint64_t run_lookups;            /* runs whose range of keys holds the key of a point read */
  uint64_t filter_negatives;       /* of these, answered by the filter: nothing of the key is there */
  uint64_t filter_positives;       /* of these, let pass by the filter */
  uint64_t filter_false_positives; /* let pass by the filter although nothing of the key was there */
} frond_statistics;

/* Fills the first size bytes of *statistics; pass sizeof(frond_statistics). Fields that the library does not have are
 * 0. */
frond_status frond_db_statistics(frond_db *db, frond_statistics *statistics, size_t size);
/* The names of the fields, all of them uint64_t, for front ends that show them all: false past the last. Fields inside
 * distributions are named as "commit_count". *name lives as long as the process. */
bool frond_statistics_field(size_t index, const char **name, size_t *offset);
/* All of it, with amplification figures, as a JSON object; to be freed with frond_string_free. */
frond_status frond_db_statistics_json(frond_db *db, char **json);

/* What the opening of the database found and did. */
typedef struct frond_recovery_report {
  uint32_t created;             /* 1 when the database was made by this opening */
  uint32_t superblocks_skipped; /* slots that were damaged or older than the newest */
  uint64_t generation;          /* of the superblock that was opened */
  uint64_t segments;            /* log segments read */
  uint64_t bytes_read;          /* bytes of log read */
  uint64_t bytes_replayed;      /* bytes of log records replayed */
  uint64_t records;             /* log records replayed */
  uint64_t messages;            /* messages put into memtables */
  uint64_t log_end;             /* where the log ended */
  uint64_t committed;           /* transactions whose commit was replayed */
  uint64_t aborted;             /* unfinished transactions that were aborted */
  uint64_t prepared;            /* prepared transactions that wait for a decision */
  uint64_t roots_micros;        /* time per phase */
  uint64_t log_micros;
  uint64_t sort_micros;
  uint64_t transactions_micros;
  uint64_t total_micros; /* time in all until the database served */
} frond_recovery_report;

frond_status frond_db_recovery_report(frond_db *db, frond_recovery_report *report);
/* The same as a JSON object; to be freed with frond_string_free. */
frond_status frond_db_recovery_report_json(frond_db *db, char **json);
/* The name of a phase ("log"), "unknown phase" for other numbers; lives as long as the process. */
const char *frond_recovery_phase_name(frond_recovery_phase phase);

/* The checkpoints of one cause since opening. */
typedef struct frond_checkpoint_summary {
  uint64_t count;       /* begun */
  uint64_t finished;    /* of these, those that had something to write, and are durable; the times below are theirs */
  uint64_t age_micros;  /* time since the last one began; UINT64_MAX when there was none */
  uint64_t last_micros; /* time that the last one took, from the seal of a memtable until it was durable in the tree */
  uint64_t max_micros;  /* that the longest took */
  uint64_t sum_micros;  /* of all together */
} frond_checkpoint_summary;

/* FROND_INVALID_ARGUMENT for an unknown cause. */
frond_status frond_db_checkpoint_summary(frond_db *db, frond_checkpoint_cause cause, frond_checkpoint_summary *summary);

/* What a restart would take if the process ended now. */
typedef struct frond_recovery_estimate {
  uint64_t bytes;    /* of log to be read */
  uint64_t messages; /* to be sorted */
  uint64_t micros;
} frond_recovery_estimate;

frond_status frond_db_estimated_recovery(frond_db *db, frond_recovery_estimate *estimate);

/* ---------------------------------------------------------------------------------------------------------------
 * 14 Databases that nobody has open. Any thread. FROND_NOT_FOUND, FROND_ALREADY_OPEN, FROND_UNSUPPORTED_FORMAT, FROND_IO.
 */

/* How far a check or a salvage is. */
typedef struct frond_offline_progress {
  const char *phase; /* in a word: log, tree, space, rows */
  uint64_t done;     /* bytes read, or rows written */
  uint64_t total;    /* how many there will be; 0 when that is not known */
  uint64_t findings; /* so far */
} frond_offline_progress;

/* Called in the thread that checks or salvages; progress is lent for the call. */
typedef void (*frond_offline_progress_fn)(void *context, const frond_offline_progress *progress);

/* All zeros are the defaults. */
typedef struct frond_offline_options {
  const char *log_dir;    /* where log segments live; NULL: "log" inside the directory */
  uint64_t memory_bytes;  /* that it may take, FROND_MEMORY_BYTES_MIN or more; 0: 64 MiB */
  frond_finding_fn finding; /* told of every finding in the end; may be NULL */
  frond_offline_progress_fn progress; /* may be NULL */
  void *context; /* for both */
} frond_offline_options;

/* Reads and checks everything stored in the directory path, and writes nothing. *findings is the number of damages; damage is
 * no error, also when it keeps the database from opening. *json is all of it as a JSON object, to be freed with
 * frond_string_free. options, findings and json may be NULL. */
frond_status frond_check(const char *path, const frond_offline_options *options, uint64_t *findings, char **json);
/* Writes what is readable of the database in from to a new one in to, where no files may be: the newest committed state of
 * every row that no damage hides. *rows is how many. from is only read. options, rows and json may be NULL.
 * FROND_CORRUPTION when nothing at all can be read. When it fails, what it made in to is removed but for empty directories; a process
 * that is killed leaves there a database that opens and is not complete. */
frond_status frond_salvage(const char *from, const char *to, const frond_offline_options *options, uint64_t *rows,
                           char **json);

/* What an event of the log says. */
typedef uint32_t frond_log_action;
enum {
  FROND_ACTION_WRITE = 1,        /* one key was changed */
  FROND_ACTION_DELETE_RANGE = 2, /* an interval of keys was deleted */
  FROND_ACTION_COMMIT = 3,
  FROND_ACTION_ABORT = 4,
  FROND_ACTION_ABORT_STEPS = 5, /* steps of the transaction were rolled back */
  FROND_ACTION_PREPARE = 6,
  FROND_ACTION_LOCKS = 7 /* locks of a prepare that follows, where they are many */
};

enum {
  FROND_LOG_EVENT_BLOB = 1 /* the value lies in the data file: value refers to it */
};

/* One thing that a log record says; a record with many writes is told as many events with one lsn. */
typedef struct frond_log_event {
  uint64_t lsn;  /* position of the record */
  uint64_t txn;  /* the transaction's id in the database */
  uint32_t step; /* which of its steps; the first of those rolled back; 0 where that does not matter */
  uint32_t step_last; /* the same, but the last of those rolled back */
  frond_log_action action;
  frond_op op;       /* of a write: any but FROND_OP_INSERT, which is logged as a put */
  uint32_t flags;    /* FROND_LOG_EVENT_* */
  uint32_t tree;     /* of a write or an interval */
  frond_slice key;   /* of a write; the lowest key of an interval; the external id of a prepare */
  frond_slice value; /* value or program of a write; the lowest key above an interval, empty: to the end of the tree */
  uint64_t number;   /* of a commit: its place in their order; of a prepare or locks: locks that it names */
} frond_log_event;

/* Told of each event in the thread that reads; event is lent for the call. False ends the reading. */
typedef bool (*frond_log_event_fn)(void *context, const frond_log_event *event);

/* Tells visit everything that the live segments of the log of the database in path say, oldest first; writes nothing. options
 * may be NULL; of them log_dir and memory_bytes count. FROND_CORRUPTION where the log is damaged, after what comes before. */
frond_status frond_log_events(const char *path, const frond_offline_options *options, frond_log_event_fn visit,
                              void *context);

#ifdef __cplusplus
}
#endif

#endif /* FROND_H */
