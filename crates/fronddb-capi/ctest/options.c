/* Every option of a database does what it says, as far as statistics and waiting show it. */
#include <time.h>

#include "test.h"

enum { ROWS = 2000 };

static frond_statistics now_of(frond_db *db)
{
  frond_statistics now;
  OK(frond_db_statistics(db, &now, sizeof now));
  return now;
}

/* A new database without threads, with one more option. */
static frond_db *manual(const char *name, frond_option option, uint64_t value)
{
  frond_db *db = NULL;
  frond_options *options = frond_options_new();
  OK(frond_options_set(options, FROND_OPTION_CREATE_IF_MISSING, 1));
  OK(frond_options_set(options, FROND_OPTION_MEMORY_BYTES, 32 << 20));
  OK(frond_options_set(options, FROND_OPTION_LOG_SEGMENT_BYTES, 4 << 20));
  OK(frond_options_set(options, FROND_OPTION_MANUAL_BACKGROUND, 1));
  OK(frond_options_set(options, option, value));
  OK(frond_db_open(path_of(name), options, &db));
  frond_options_free(options);
  return db;
}

static frond_tree *new_tree(frond_db *db)
{
  frond_tree *tree;
  OK(frond_db_create_tree(db, "t", NULL, &tree));
  return tree;
}

/* Rows of 200 random bytes with every second number, all in leaves. */
static void fill(frond_db *db, frond_tree *tree)
{
  frond_txn *txn = begin(db);
  uint32_t i, noise = 1;
  for (i = 0; i < ROWS; i++) {
    char key[32];
    uint8_t value[200];
    size_t at;
    for (at = 0; at < sizeof value; at++) {
      noise = noise * 1664525u + 1013904223u;
      value[at] = (uint8_t) (noise >> 24);
    }
    snprintf(key, sizeof key, "%08u", (unsigned) (2 * i));
    OK(frond_txn_put(txn, tree, text(key), frond_bytes(value, sizeof value)));
  }
  OK(frond_txn_commit(txn));
  OK(frond_db_compact(db, NULL, none(), none(), NULL, NULL));
}

static void level0_and_manual_background(void)
{
  frond_db *db = manual("level0", FROND_OPTION_LEVEL0_BYTES, 64 << 10);
  frond_tree *tree = new_tree(db);
  frond_statistics now = now_of(db);
  uint32_t i;
  bool worked;
  CHECK(now.level0_bytes_max == 64 << 10);
  for (i = 0; i < 100; i++) {
    static const uint8_t value[1000];
    char key[32];
    snprintf(key, sizeof key, "%08u", (unsigned) i);
    OK(frond_db_put(db, tree, text(key), frond_bytes(value, sizeof value)));
  }
  now = now_of(db);
  CHECK(now.sealed_memtables == 1 && now.seals == 0); /* nobody works unasked */
  OK(frond_db_step_background(db, &worked));
  CHECK(worked);
  OK(frond_db_wait_idle(db));
  now = now_of(db);
  CHECK(now.sealed_memtables == 0 && now.seals == 1);
  OK(frond_db_step_background(db, &worked));
  CHECK(!worked);
  frond_tree_close(tree);
  OK(frond_db_close(db));
}

static uint64_t log_bytes_of_zeros(const char *name, uint64_t compresses)
{
  static const uint8_t zeros[20000];
  frond_db *db = manual(name, FROND_OPTION_LOG_COMPRESSION, compresses);
  frond_tree *tree = new_tree(db);
  uint64_t before = now_of(db).log_bytes_written, after;
  OK(frond_db_put(db, tree, text("k"), frond_bytes(zeros, sizeof zeros)));
  after = now_of(db).log_bytes_written;
  frond_tree_close(tree);
  OK(frond_db_close(db));
  return after - before;
}

static void log_compression(void)
{
  CHECK(log_bytes_of_zeros("plain-log", 0) >= 20000);
  CHECK(log_bytes_of_zeros("packed-log", 1) < 10000);
}

static void blobs(void)
{
  static const uint8_t value[5000];
  frond_db *db = manual("blobs", FROND_OPTION_BLOB_BYTES_MIN, 4096);
  frond_estimate estimate;
  frond_tree *tree = new_tree(db);
  OK(frond_db_put(db, tree, text("short"), frond_bytes(value, 4095)));
  CHECK(now_of(db).blob_bytes == 0);
  OK(frond_db_put(db, tree, text("long"), frond_bytes(value, 4096)));
  CHECK(now_of(db).blob_bytes >= 4096);
  OK(frond_db_estimate(db, tree, text(""), text(""), &estimate));
  CHECK(estimate.rows == 2 && estimate.blob_bytes >= 4096 && estimate.bytes >= estimate.blob_bytes + 4095);
  frond_tree_close(tree);
  OK(frond_db_close(db));
}

/* Blocks that a scan of the same rows reads after opening again. */
static uint64_t blocks_of_a_scan(const char *name, uint64_t block_bytes)
{
  frond_db *db = manual(name, FROND_OPTION_BLOCK_BYTES, block_bytes);
  frond_tree *tree = new_tree(db);
  frond_txn *txn;
  frond_cursor *cursor;
  frond_row row;
  uint64_t before, after;
  uint32_t rows = 0;
  fill(db, tree);
  frond_tree_close(tree);
  OK(frond_db_close(db));
  db = open_again(name);
  OK(frond_db_open_tree(db, "t", &tree));
  before = now_of(db).blocks_read_scan;
  txn = begin(db);
  OK(frond_cursor_open(txn, tree, NULL, &cursor));
  OK(frond_cursor_move(cursor, FROND_MOVE_FIRST, none(), &row));
  while (row.key.data != NULL) {
    rows++;
    OK(frond_cursor_move(cursor, FROND_MOVE_NEXT, none(), &row));
  }
  CHECK(rows == ROWS);
  after = now_of(db).blocks_read_scan;
  frond_cursor_close(cursor);
  OK(frond_txn_commit(txn));
  frond_tree_close(tree);
  OK(frond_db_close(db));
  return after - before;
}

static void block_bytes(void)
{
  CHECK(blocks_of_a_scan("small-blocks", 4 << 10) > 2 * blocks_of_a_scan("large-blocks", 32 << 10));
}

/* Whether filters of leaves answer reads of keys that are not there. */
static uint64_t answered_by_filters(const char *name, uint64_t bits)
{
  frond_db *db = manual(name, FROND_OPTION_FILTER_BITS_PER_KEY, bits);
  frond_tree *tree = new_tree(db);
  uint64_t before, after;
  uint32_t i;
  fill(db, tree);
  before = now_of(db).filter_negatives;
  for (i = 0; i < 100; i++) {
    frond_list *list;
    frond_slice value;
    char key[32];
    snprintf(key, sizeof key, "%08u", (unsigned) (2 * i + 1));
    OK(frond_db_get(db, tree, text(key), &list, &value));
    CHECK(value.data == NULL);
    frond_list_free(list);
  }
  after = now_of(db).filter_negatives;
  frond_tree_close(tree);
  OK(frond_db_close(db));
  return after - before;
}

static void filters(void)
{
  CHECK(answered_by_filters("filters", 10) > 90);
  CHECK(answered_by_filters("no-filters", 0) == 0);
}

static void lock_timeout(void)
{
  frond_db *db = manual("lock-timeout", FROND_OPTION_LOCK_TIMEOUT_MS, 1);
  frond_tree *tree = new_tree(db);
  frond_txn *one = begin(db), *two = begin(db);
  OK(frond_txn_put(one, tree, text("k"), text("1")));
  IS(FROND_LOCK_TIMEOUT, frond_txn_put(two, tree, text("k"), text("2")));
  CHECK(now_of(db).lock_timeouts == 1);
  OK(frond_txn_rollback(two));
  OK(frond_txn_commit(one));
  frond_tree_close(tree);
  OK(frond_db_close(db));
}

/* A new database with threads, and what they do with a commit that does not wait. */
static void in_the_background(void)
{
  frond_options *options = frond_options_new();
  frond_txn_options lazy;
  frond_db *db;
  frond_tree *tree;
  frond_operation operation;
  frond_statistics before, now;
  int waits = 0;
  OK(frond_options_set(options, FROND_OPTION_CREATE_IF_MISSING, 1));
  OK(frond_options_set(options, FROND_OPTION_MEMORY_BYTES, 32 << 20));
  OK(frond_options_set(options, FROND_OPTION_LOG_SEGMENT_BYTES, 4 << 20));
  OK(frond_options_set(options, FROND_OPTION_BACKGROUND_THREADS, 1));
  OK(frond_options_set(options, FROND_OPTION_DIRECT_IO, 0));
  OK(frond_options_set(options, FROND_OPTION_LOG_SYNC_PERIOD_MS, 10));
  OK(frond_options_set(options, FROND_OPTION_CHECKPOINT_INTERVAL_MS, 20));
  OK(frond_options_set(options, FROND_OPTION_RECOVERY_TARGET_MS, 0));
  OK(frond_db_open(path_of("background"), options, &db));
  tree = new_tree(db);
  before = now_of(db);
  memset(&lazy, 0, sizeof lazy);
  lazy.durability = FROND_DURABILITY_NONE;
  memset(&operation, 0, sizeof operation);
  operation.op = FROND_OP_PUT;
  operation.tree = tree;
  operation.key = text("k");
  operation.value = text("v");
  OK(frond_db_write(db, &operation, 1, &lazy));
  do {
    struct timespec pause = {0, 10000000};
    (void) nanosleep(&pause, NULL);
    now = now_of(db);
    CHECK(++waits < 3000);
  } while (now.log_syncs == before.log_syncs || now.checkpoints_by_time == before.checkpoints_by_time);
  frond_tree_close(tree);
  OK(frond_db_close(db));
  OK(frond_options_set(options, FROND_OPTION_BACKGROUND_THREADS, 0));
  WRONG(frond_db_open(path_of("background"), options, &db));
  frond_options_free(options);
}

static void recovery_target(void)
{
  frond_options *options = frond_options_new();
  frond_db *db;
  frond_tree *tree;
  uint32_t i = 0;
  OK(frond_options_set(options, FROND_OPTION_CREATE_IF_MISSING, 1));
  OK(frond_options_set(options, FROND_OPTION_CHECKPOINT_INTERVAL_MS, 0));
  OK(frond_options_set(options, FROND_OPTION_RECOVERY_TARGET_MS, 1));
  OK(frond_db_open(path_of("target"), options, &db));
  frond_options_free(options);
  tree = new_tree(db);
  while (now_of(db).checkpoints_by_target == 0) {
    frond_txn_options lazy;
    frond_txn *txn;
    uint32_t end = i + 1000;
    memset(&lazy, 0, sizeof lazy);
    lazy.durability = FROND_DURABILITY_NONE;
    OK(frond_txn_begin(db, &lazy, &txn));
    for (; i < end; i++) {
      char key[32];
      snprintf(key, sizeof key, "%08u", (unsigned) i);
      OK(frond_txn_put(txn, tree, text(key), text("some bytes to be replayed after a crash")));
    }
    OK(frond_txn_commit(txn));
    CHECK(i < 2000000);
  }
  CHECK(now_of(db).checkpoints_by_size == 0);
  frond_tree_close(tree);
  OK(frond_db_close(db));
}

void test_options(void)
{
  level0_and_manual_background();
  log_compression();
  blobs();
  block_bytes();
  filters();
  lock_timeout();
  in_the_background();
  recovery_target();
}
