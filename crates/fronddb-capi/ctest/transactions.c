/* Transactions: isolation, snapshots, savepoints, read-only, endings. */
#include "test.h"

static frond_txn *begin_with(frond_db *db, frond_isolation isolation, uint32_t flags)
{
  frond_txn_options options;
  frond_txn *txn;
  memset(&options, 0, sizeof options);
  options.isolation = isolation;
  options.flags = flags;
  options.lock_wait_ms = FROND_WAIT_NONE;
  OK(frond_txn_begin(db, &options, &txn));
  return txn;
}

static int sees(frond_txn *txn, frond_tree *tree, const char *value)
{
  frond_slice found;
  OK(frond_txn_get(txn, tree, text("k"), &found));
  return value == NULL ? found.data == NULL : is(found, value);
}

static void isolation(frond_db *db, frond_tree *tree)
{
  frond_txn *dirty = begin_with(db, FROND_ISOLATION_READ_UNCOMMITTED, 0);
  frond_txn *committed = begin_with(db, FROND_ISOLATION_READ_COMMITTED, 0);
  frond_txn *repeatable = begin_with(db, FROND_ISOLATION_REPEATABLE_READ, 0);
  frond_txn *snapshot = begin_with(db, FROND_ISOLATION_DEFAULT, FROND_TXN_CONSISTENT_SNAPSHOT | FROND_TXN_READ_ONLY);
  frond_txn *strict = begin_with(db, FROND_ISOLATION_REPEATABLE_READ, FROND_TXN_FIRST_UPDATER_WINS);
  frond_txn *serial;
  frond_txn *writer = begin(db);
  frond_slice value;
  bool skipped;

  CHECK(sees(repeatable, tree, NULL) && sees(strict, tree, NULL));
  OK(frond_txn_put(writer, tree, text("k"), text("1")));
  CHECK(sees(writer, tree, "1"));
  CHECK(sees(dirty, tree, "1"));
  CHECK(sees(committed, tree, NULL));
  OK(frond_txn_commit(writer));
  CHECK(sees(committed, tree, "1"));
  CHECK(sees(repeatable, tree, NULL));
  CHECK(sees(snapshot, tree, NULL));
  IS(FROND_READ_ONLY, frond_txn_put(snapshot, tree, text("k"), text("2")));

  CHECK(frond_txn_has_snapshot(repeatable) && frond_txn_has_snapshot(strict));
  CHECK(!frond_txn_has_snapshot(committed) && !frond_txn_has_snapshot(dirty) && !frond_txn_has_snapshot(NULL));

  /* Locking reads at repeatable read see the latest row; first-updater-wins refuses it. */
  OK(frond_txn_get_locked(repeatable, tree, text("k"), FROND_LOCK_SHARED, FROND_WAIT_DEFAULT, &value, NULL));
  CHECK(is(value, "1"));
  OK(frond_txn_changed_after_snapshot(repeatable, tree, text("k"), &skipped));
  CHECK(skipped);
  OK(frond_txn_changed_after_snapshot(repeatable, tree, text("l"), &skipped));
  CHECK(!skipped);
  OK(frond_txn_commit(repeatable));
  IS(FROND_CONFLICT, frond_txn_put(strict, tree, text("k"), text("3")));
  OK(frond_txn_rollback(strict));

  /* Reads at serializable lock. */
  serial = begin_with(db, FROND_ISOLATION_SERIALIZABLE, 0);
  CHECK(sees(serial, tree, "1"));
  IS(FROND_LOCK_TIMEOUT, frond_txn_put(committed, tree, text("k"), text("4")));
  OK(frond_txn_commit(serial));
  OK(frond_txn_put(committed, tree, text("k"), text("4")));
  OK(frond_txn_get_locked(dirty, tree, text("k"), FROND_LOCK_EXCLUSIVE, FROND_WAIT_SKIP, &value, &skipped));
  CHECK(skipped && value.data == NULL);
  WRONG(frond_txn_get_locked(dirty, tree, text("k"), FROND_LOCK_EXCLUSIVE, FROND_WAIT_SKIP, &value, NULL));
  WRONG(frond_txn_get_locked(dirty, tree, text("k"), FROND_LOCK_NONE, FROND_WAIT_NONE, &value, NULL));
  WRONG(frond_txn_get_locked(dirty, tree, text("k"), FROND_LOCK_SHARED, -3, &value, NULL));
  OK(frond_txn_rollback(committed));
  OK(frond_txn_get_locked(dirty, tree, text("k"), FROND_LOCK_EXCLUSIVE, FROND_WAIT_SKIP, &value, &skipped));
  CHECK(!skipped && is(value, "1"));
  OK(frond_txn_rollback(dirty));
  OK(frond_txn_commit(snapshot));
}

static void savepoints(frond_db *db, frond_tree *tree)
{
  frond_txn *txn = begin(db);
  uint32_t outer, inner;
  OK(frond_txn_put(txn, tree, text("k"), text("a")));
  OK(frond_savepoint_set(txn, &outer));
  OK(frond_txn_put(txn, tree, text("k"), text("b")));
  OK(frond_savepoint_set(txn, &inner));
  OK(frond_txn_put(txn, tree, text("k"), text("c")));
  OK(frond_savepoint_rollback(txn, inner));
  CHECK(sees(txn, tree, "b"));
  OK(frond_txn_delete(txn, tree, text("k")));
  OK(frond_savepoint_rollback(txn, outer));
  CHECK(sees(txn, tree, "a"));
  IS(FROND_NOT_FOUND, frond_savepoint_rollback(txn, inner));
  OK(frond_txn_put(txn, tree, text("k"), text("d")));
  OK(frond_savepoint_release(txn, outer));
  IS(FROND_NOT_FOUND, frond_savepoint_release(txn, outer));
  CHECK(sees(txn, tree, "d"));
  OK(frond_txn_commit(txn));
  txn = begin(db);
  CHECK(sees(txn, tree, "d"));
  OK(frond_txn_rollback(txn));
}

static void wrong_options(frond_db *db)
{
  frond_txn_options options;
  frond_txn *txn;
  memset(&options, 0, sizeof options);
  options.isolation = 5;
  WRONG(frond_txn_begin(db, &options, &txn));
  options.isolation = 0;
  options.durability = 4;
  WRONG(frond_txn_begin(db, &options, &txn));
  options.durability = 0;
  options.flags = 8;
  WRONG(frond_txn_begin(db, &options, &txn));
  options.flags = 0;
  options.lock_wait_ms = FROND_WAIT_SKIP;
  WRONG(frond_txn_begin(db, &options, &txn));
  options.lock_wait_ms = 0;
  options.reserved = 1;
  WRONG(frond_txn_begin(db, &options, &txn));
  WRONG(frond_txn_begin(db, NULL, NULL));
}

void test_transactions(void)
{
  frond_db *db = open_new("transactions");
  frond_tree *tree;
  frond_txn *left;
  frond_slice value;
  OK(frond_db_create_tree(db, "t", NULL, &tree));
  isolation(db, tree);
  savepoints(db, tree);
  wrong_options(db);
  left = begin(db);
  OK(frond_txn_put(left, tree, text("k"), text("left open")));
  OK(frond_db_close(db));
  IS(FROND_CLOSED, frond_txn_get(left, tree, text("k"), &value));
  IS(FROND_CLOSED, frond_txn_commit(left));
  frond_tree_close(tree);

  db = open_again("transactions");
  OK(frond_db_open_tree(db, "t", &tree));
  left = begin(db);
  CHECK(sees(left, tree, "d"));
  OK(frond_txn_rollback(left));
  frond_tree_close(tree);
  OK(frond_db_close(db));
}
