/* Waiting for locks: timeouts, deadlocks, and waits that another thread ends. */
#include <pthread.h>

#include "test.h"

static frond_db *db;
static frond_tree *tree;

/* One write in another thread. */
struct work {
  pthread_t thread;
  frond_txn *txn;
  const char *key;
  frond_status status;
};

static void *run(void *argument)
{
  struct work *work = argument;
  work->status = frond_txn_put(work->txn, tree, text(work->key), text("x"));
  return NULL;
}

static void start(struct work *work, frond_txn *txn, const char *key)
{
  work->txn = txn;
  work->key = key;
  CHECK(pthread_create(&work->thread, NULL, run, work) == 0);
}

static frond_status finish(struct work *work)
{
  CHECK(pthread_join(work->thread, NULL) == 0);
  return work->status;
}

/* Waits until `count` lock requests wait; checks what the list says about them. */
static void until_waiting(size_t count)
{
  size_t waiting = 0;
  while (waiting < count) {
    frond_list *list;
    const frond_lock_info *locks;
    size_t locks_count, i;
    OK(frond_db_locks(db, &list, &locks, &locks_count));
    for (waiting = 0, i = 0; i < locks_count; i++) {
      if (locks[i].waits_for_count > 0) {
        CHECK(locks[i].waits_for[0] != 0 && locks[i].waits_for[0] != locks[i].txn);
        CHECK(locks[i].tree == frond_tree_id(tree) && locks[i].mode == FROND_LOCK_EXCLUSIVE);
        CHECK(locks[i].start.size == 1 && locks[i].end.data == NULL);
        waiting++;
      }
    }
    frond_list_free(list);
  }
}

static void timeouts(void)
{
  frond_txn_options options;
  frond_txn *holder = begin(db), *waiter;
  frond_slice value;
  memset(&options, 0, sizeof options);
  options.lock_wait_ms = 20;
  OK(frond_txn_begin(db, &options, &waiter));
  OK(frond_txn_put(holder, tree, text("a"), text("x")));
  IS(FROND_LOCK_TIMEOUT, frond_txn_put(waiter, tree, text("a"), text("y")));
  IS(FROND_LOCK_TIMEOUT,
     frond_txn_get_locked(waiter, tree, text("a"), FROND_LOCK_SHARED, FROND_WAIT_NONE, &value, NULL));
  IS(FROND_LOCK_TIMEOUT, frond_txn_get_locked(waiter, tree, text("a"), FROND_LOCK_SHARED, 5, &value, NULL));
  OK(frond_txn_put(waiter, tree, text("b"), text("y"))); /* still in use */
  IS(FROND_LOCK_TIMEOUT, frond_txn_lock_range(waiter, tree, none(), none(), FROND_LOCK_SHARED, FROND_WAIT_NONE));
  OK(frond_txn_lock_range(waiter, tree, text("c"), text("d"), FROND_LOCK_EXCLUSIVE, FROND_WAIT_NONE));
  WRONG(frond_txn_lock_range(waiter, tree, text("c"), text("d"), FROND_LOCK_EXCLUSIVE, FROND_WAIT_SKIP));
  IS(FROND_LOCK_TIMEOUT,
     frond_txn_get_locked(holder, tree, text("cc"), FROND_LOCK_SHARED, FROND_WAIT_NONE, &value, NULL));
  OK(frond_txn_rollback(holder));
  OK(frond_txn_rollback(waiter));
}

static void locking_cursors(void)
{
  frond_cursor_options options;
  frond_txn *reader = begin(db), *other = begin(db);
  frond_cursor *cursor;
  frond_fetch fetch;
  frond_row row;
  uint8_t buffer[256];
  int i;
  for (i = 0; i < 3; i++) {
    static const char *const keys[] = {"p", "q", "r"};
    OK(frond_txn_put(reader, tree, text(keys[i]), text("1")));
  }
  OK(frond_txn_commit(reader));
  OK(frond_txn_put(other, tree, text("q"), text("2")));

  reader = begin(db);
  memset(&options, 0, sizeof options);
  options.lower = text("p");
  options.lock = FROND_LOCK_EXCLUSIVE;
  options.wait_ms = FROND_WAIT_SKIP;
  OK(frond_cursor_open(reader, tree, &options, &cursor));
  OK(frond_cursor_move(cursor, FROND_MOVE_FIRST, none(), &row));
  CHECK(is(row.key, "p"));
  OK(frond_cursor_move(cursor, FROND_MOVE_NEXT, none(), &row));
  CHECK(is(row.key, "r"));
  frond_cursor_close(cursor);

  memset(&options, 0, sizeof options);
  OK(frond_cursor_open(reader, tree, &options, &cursor));
  OK(frond_cursor_move(cursor, FROND_MOVE_SEEK, text("q"), &row));
  CHECK(is(row.key, "q") && is(row.value, "1"));
  IS(FROND_LOCK_TIMEOUT, frond_cursor_lock_row(cursor, FROND_LOCK_EXCLUSIVE, FROND_WAIT_NONE, &row));
  /* The same at a row that a fetch found too long for its buffer: the cursor stands nowhere then, and there is no row. */
  memset(&fetch, 0, sizeof fetch);
  OK(frond_cursor_fetch(cursor, FROND_MOVE_SEEK, text("q"), &fetch));
  CHECK(fetch.rows == 0 && fetch.bytes_needed > 0);
  IS(FROND_LOCK_TIMEOUT, frond_cursor_lock_row(cursor, FROND_LOCK_EXCLUSIVE, FROND_WAIT_NONE, &row));
  fetch.buffer = buffer;
  fetch.capacity = sizeof buffer;
  OK(frond_cursor_fetch(cursor, FROND_MOVE_NEXT, none(), &fetch));
  CHECK(fetch.rows > 0);
  frond_fetch_row(buffer, &row);
  CHECK(is(row.key, "r") && is(row.value, "1"));
  OK(frond_txn_commit(other));
  OK(frond_cursor_move(cursor, FROND_MOVE_SEEK, text("q"), &row));
  OK(frond_cursor_lock_row(cursor, FROND_LOCK_EXCLUSIVE, FROND_WAIT_NONE, &row));
  CHECK(is(row.key, "q") && is(row.value, "2"));
  WRONG(frond_cursor_lock_row(cursor, FROND_LOCK_NONE, FROND_WAIT_NONE, &row));
  frond_cursor_close(cursor);
  OK(frond_txn_rollback(reader));
}

/* Expects a batch of these keys, the last of them peeked at or not, and says whether there are more rows. */
static uint32_t fetch_peeking(frond_cursor *cursor, frond_move move, const char *keys, size_t capacity, uint32_t peeked)
{
  uint8_t buffer[256];
  const uint8_t *at = buffer;
  frond_fetch fetch;
  uint32_t i;
  memset(&fetch, 0, sizeof fetch);
  fetch.buffer = buffer;
  fetch.capacity = capacity;
  fetch.peeked = 7;
  OK(frond_cursor_fetch(cursor, move, none(), &fetch));
  CHECK(fetch.rows == strlen(keys) && fetch.peeked == peeked);
  for (i = 0; i < fetch.rows; i++) {
    frond_row row;
    at = frond_fetch_row(at, &row);
    CHECK(row.key.size == 1 && row.key.data[0] == (uint8_t) keys[i]);
  }
  return fetch.more;
}

/* Rows that another transaction holds end a batch. They are taken by a move that waits. */
static void peeking(void)
{
  const size_t two_rows = 32, any = 256;
  frond_txn_options committed;
  frond_cursor_options options;
  frond_txn *holder, *reader;
  frond_cursor *cursor;
  frond_row row;
  const char *key;
  frond_tree *own;
  OK(frond_db_create_tree(db, "peeking", NULL, &own));
  for (key = "ABCDEF"; *key; key++)
    OK(frond_db_put(db, own, frond_bytes(key, 1), text("old")));
  holder = begin(db);
  OK(frond_txn_put(holder, own, text("C"), text("new")));
  OK(frond_txn_put(holder, own, text("E"), text("new")));
  OK(frond_txn_put(holder, own, text("EE"), text("new")));

  memset(&committed, 0, sizeof committed);
  committed.isolation = FROND_ISOLATION_READ_COMMITTED;
  OK(frond_txn_begin(db, &committed, &reader));
  memset(&options, 0, sizeof options);
  options.lock = FROND_LOCK_EXCLUSIVE;
  options.wait_ms = FROND_WAIT_NONE;
  options.flags = FROND_CURSOR_PEEK;
  OK(frond_cursor_open(reader, own, &options, &cursor));
  CHECK(!frond_cursor_is_peeked(cursor) && !frond_cursor_is_peeked(NULL));
  CHECK(fetch_peeking(cursor, FROND_MOVE_FIRST, "ABC", any, 1) == 1);
  CHECK(frond_cursor_is_peeked(cursor));
  OK(frond_cursor_row(cursor, &row));
  CHECK(is(row.value, "old"));
  CHECK(fetch_peeking(cursor, FROND_MOVE_NEXT, "DE", any, 1) == 1);
  CHECK(fetch_peeking(cursor, FROND_MOVE_NEXT, "F", any, 0) == 0);
  /* A row that waits for a larger buffer is not the one that the fetch tells of. */
  CHECK(fetch_peeking(cursor, FROND_MOVE_FIRST, "AB", two_rows, 0) == 1);
  CHECK(frond_cursor_is_peeked(cursor));
  CHECK(fetch_peeking(cursor, FROND_MOVE_NEXT, "C", two_rows, 1) == 1);

  IS(FROND_LOCK_TIMEOUT, frond_cursor_move(cursor, FROND_MOVE_AGAIN, none(), &row));
  CHECK(!frond_cursor_is_peeked(cursor));
  frond_cursor_close(cursor);
  options.wait_ms = FROND_WAIT_SKIP;
  OK(frond_cursor_open(reader, own, &options, &cursor));
  OK(frond_cursor_move(cursor, FROND_MOVE_SEEK, text("C"), &row));
  CHECK(is(row.key, "C") && frond_cursor_is_peeked(cursor));
  OK(frond_cursor_move(cursor, FROND_MOVE_AGAIN, none(), &row));
  CHECK(is(row.key, "D") && !frond_cursor_is_peeked(cursor));
  /* And on from there, as the walk went. */
  CHECK(fetch_peeking(cursor, FROND_MOVE_LAST, "FE", any, 1) == 1);
  CHECK(fetch_peeking(cursor, FROND_MOVE_AGAIN, "DC", any, 1) == 1);
  OK(frond_txn_commit(holder));
  CHECK(fetch_peeking(cursor, FROND_MOVE_AGAIN, "CBA", any, 0) == 0);
  CHECK(fetch_peeking(cursor, FROND_MOVE_FIRST, "ABCDE", 16 * 5, 0) == 1);
  OK(frond_cursor_move(cursor, FROND_MOVE_SEEK, text("C"), &row));
  CHECK(is(row.value, "new"));
  frond_cursor_close(cursor);
  OK(frond_txn_rollback(reader));
  frond_tree_close(own);
}

/* At READ COMMITTED a row that was locked and not wanted is given back; a statement has one snapshot. */
static void statements(void)
{
  frond_txn_options options;
  frond_cursor_options range;
  frond_txn *txn, *other;
  frond_cursor *cursor;
  frond_slice value;
  frond_row row;
  OK(frond_db_put(db, tree, text("s"), text("1")));
  memset(&options, 0, sizeof options);
  options.isolation = FROND_ISOLATION_READ_COMMITTED;
  options.lock_wait_ms = FROND_WAIT_NONE;
  OK(frond_txn_begin(db, &options, &txn));
  OK(frond_txn_begin(db, &options, &other));

  OK(frond_txn_begin_statement(txn));
  OK(frond_txn_get(txn, tree, text("s"), &value));
  OK(frond_db_put(db, tree, text("s"), text("2")));
  OK(frond_txn_get(txn, tree, text("s"), &value));
  CHECK(is(value, "1"));
  OK(frond_txn_begin_statement(txn));
  OK(frond_txn_get(txn, tree, text("s"), &value));
  CHECK(is(value, "2"));

  OK(frond_txn_get_locked(txn, tree, text("s"), FROND_LOCK_EXCLUSIVE, FROND_WAIT_NONE, &value, NULL));
  IS(FROND_LOCK_TIMEOUT, frond_txn_put(other, tree, text("s"), text("3")));
  OK(frond_txn_unlock(txn, tree, text("s")));
  OK(frond_txn_put(other, tree, text("s"), text("3")));
  OK(frond_txn_rollback(other));

  OK(frond_txn_begin(db, &options, &other));
  memset(&range, 0, sizeof range);
  range.lower = text("s");
  range.lock = FROND_LOCK_EXCLUSIVE;
  OK(frond_cursor_open(txn, tree, &range, &cursor));
  OK(frond_cursor_unlock_row(cursor));
  OK(frond_cursor_move(cursor, FROND_MOVE_FIRST, none(), &row));
  CHECK(is(row.key, "s"));
  IS(FROND_LOCK_TIMEOUT, frond_txn_put(other, tree, text("s"), text("3")));
  OK(frond_cursor_unlock_row(cursor));
  OK(frond_txn_put(other, tree, text("s"), text("3")));
  frond_cursor_close(cursor);
  OK(frond_txn_end_statement(txn));
  OK(frond_txn_rollback(other));
  OK(frond_txn_rollback(txn));
}

/* How long a transaction waits may change while it is open. */
static void another_wait(void)
{
  frond_txn_options options;
  frond_txn *holder = begin(db), *txn;
  OK(frond_txn_put(holder, tree, text("w"), text("1")));
  memset(&options, 0, sizeof options);
  options.lock_wait_ms = INT64_MAX;
  OK(frond_txn_begin(db, &options, &txn));
  OK(frond_txn_set_lock_wait_ms(txn, FROND_WAIT_NONE));
  IS(FROND_LOCK_TIMEOUT, frond_txn_put(txn, tree, text("w"), text("2")));
  OK(frond_txn_set_lock_wait_ms(txn, 1));
  IS(FROND_LOCK_TIMEOUT, frond_txn_put(txn, tree, text("w"), text("2")));
  WRONG(frond_txn_set_lock_wait_ms(txn, FROND_WAIT_SKIP));
  OK(frond_txn_rollback(holder));
  OK(frond_txn_set_lock_wait_ms(txn, FROND_WAIT_DEFAULT));
  OK(frond_txn_put(txn, tree, text("w"), text("2")));
  OK(frond_txn_rollback(txn));
}

static void cancelled_waits(void)
{
  frond_txn *holder = begin(db), *waiter = begin(db);
  struct work work;
  OK(frond_txn_put(holder, tree, text("a"), text("x")));
  start(&work, waiter, "a");
  until_waiting(1);
  OK(frond_db_cancel(db, frond_txn_id(waiter)));
  CHECK(finish(&work) == FROND_CANCELLED);
  OK(frond_txn_put(waiter, tree, text("b"), text("y"))); /* still in use */
  OK(frond_txn_rollback(waiter));
  OK(frond_txn_commit(holder));
  IS(FROND_NOT_FOUND, frond_db_cancel(db, 123456789));
}

static void granted_waits(void)
{
  frond_txn *holder = begin(db), *waiter = begin(db);
  struct work work;
  OK(frond_txn_put(holder, tree, text("a"), text("x")));
  start(&work, waiter, "a");
  until_waiting(1);
  OK(frond_txn_commit(holder));
  OK(finish(&work));
  OK(frond_txn_commit(waiter));
}

static void deadlocks(void)
{
  frond_txn *one = begin(db), *other = begin(db);
  struct work work;
  frond_status mine, theirs;
  OK(frond_txn_put(one, tree, text("a"), text("1")));
  OK(frond_txn_put(other, tree, text("b"), text("2")));
  start(&work, other, "a");
  until_waiting(1);
  mine = frond_txn_put(one, tree, text("b"), text("1"));
  theirs = finish(&work);
  CHECK((mine == FROND_OK && theirs == FROND_DEADLOCK) || (mine == FROND_DEADLOCK && theirs == FROND_OK));
  if (mine == FROND_DEADLOCK) {
    frond_txn *victim = one;
    one = other;
    other = victim;
  }
  IS(FROND_CLOSED, frond_txn_put(other, tree, text("c"), text("2")));
  IS(FROND_CLOSED, frond_txn_commit(other));
  OK(frond_txn_commit(one));
}

/* Names the victim. */
static int32_t prefer(void *context, uint64_t one, uint64_t other)
{
  const uint64_t *victim = context;
  CHECK(one != 0 && other != 0 && one != other);
  return one == *victim ? -1 : other == *victim ? 1 : 0;
}

static void preferences(void)
{
  frond_options *options = frond_options_new();
  frond_db *outer_db = db;
  frond_tree *outer_tree = tree;
  frond_txn *one, *other;
  struct work work;
  uint64_t victim = 0;
  OK(frond_options_set(options, FROND_OPTION_CREATE_IF_MISSING, 1));
  OK(frond_options_set_victim_preference(options, prefer, &victim));
  OK(frond_db_open(path_of("preference"), options, &db));
  frond_options_free(options);
  OK(frond_db_create_tree(db, "t", NULL, &tree));
  one = begin(db);
  other = begin(db);
  victim = frond_txn_id(one);
  OK(frond_txn_put(one, tree, text("a"), text("1")));
  OK(frond_txn_put(one, tree, text("c"), text("1")));
  OK(frond_txn_put(other, tree, text("b"), text("2")));
  start(&work, other, "a");
  until_waiting(1);
  IS(FROND_DEADLOCK, frond_txn_put(one, tree, text("b"), text("1"))); /* though it holds more locks */
  OK(finish(&work));
  OK(frond_txn_commit(other));
  IS(FROND_CLOSED, frond_txn_commit(one));
  frond_tree_close(tree);
  OK(frond_db_close(db));
  db = outer_db;
  tree = outer_tree;
}

/* Puts a key with itself as its value, as an array of one. */
static frond_status write_row(frond_txn *txn, const frond_tree *to, const char *key)
{
  frond_operation operation;
  memset(&operation, 0, sizeof operation);
  operation.tree = to;
  operation.key = operation.value = text(key);
  operation.op = FROND_OP_PUT;
  return frond_txn_write(txn, &operation, 1, NULL);
}

struct watch {
  frond_db *db;
  frond_tree *tree;
  frond_txn *blocker, *other;
  uint64_t waiter;
  int calls, ends;
};

/* Writes in another transaction, in the thread whose write is about to wait, and ends who is in the way. */
static void observe(void *context, uint64_t waiter, uint64_t blocker)
{
  struct watch *watch = context;
  OK(write_row(watch->other, watch->tree, "b"));
  CHECK(blocker == frond_txn_id(watch->blocker));
  watch->waiter = waiter;
  watch->calls++;
  OK(frond_txn_rollback(watch->blocker));
}

static void waited(void *context, uint64_t waiter)
{
  struct watch *watch = context;
  CHECK(watch->calls == 1 && watch->waiter == waiter);
  watch->ends++;
}

static void observers(void)
{
  frond_options *options = frond_options_new();
  struct watch watch = {NULL, NULL, NULL, NULL, 0, 0, 0};
  frond_tree *own;
  frond_txn *waiter;
  frond_slice value;
  OK(frond_options_set(options, FROND_OPTION_CREATE_IF_MISSING, 1));
  OK(frond_options_set_wait_observer(options, observe, &watch));
  OK(frond_options_set_wait_end(options, waited, &watch));
  OK(frond_db_open(path_of("observer"), options, &watch.db));
  frond_options_free(options);
  OK(frond_db_create_tree(watch.db, "t", NULL, &own));
  watch.tree = own;
  watch.blocker = begin(watch.db);
  watch.other = begin(watch.db);
  waiter = begin(watch.db);
  OK(frond_txn_put(watch.blocker, own, text("a"), text("1")));
  OK(write_row(waiter, own, "a"));
  CHECK(watch.calls == 1 && watch.ends == 1 && watch.waiter == frond_txn_id(waiter));
  OK(frond_txn_commit(waiter));
  OK(frond_txn_commit(watch.other));
  waiter = begin(watch.db);
  OK(frond_txn_get(waiter, own, text("a"), &value));
  CHECK(is(value, "a"));
  OK(frond_txn_get(waiter, own, text("b"), &value));
  CHECK(is(value, "b"));
  OK(frond_txn_rollback(waiter));
  frond_tree_close(own);
  OK(frond_db_close(watch.db));
}

void test_locks(void)
{
  db = open_new("locks");
  OK(frond_db_create_tree(db, "t", NULL, &tree));
  timeouts();
  locking_cursors();
  peeking();
  statements();
  another_wait();
  cancelled_waits();
  granted_waits();
  deadlocks();
  preferences();
  observers();
  frond_tree_close(tree);
  OK(frond_db_close(db));
}
