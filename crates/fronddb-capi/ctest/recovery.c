/* Opening again: what is there, two-phase commit across it, progress and reports, read-only, a directory in use. */
#include "test.h"

struct seen {
  frond_recovery_phase last;
  int calls;
};

static void progress(void *context, const frond_recovery_progress *now)
{
  struct seen *seen = context;
  CHECK(now->phase >= seen->last && now->phase <= FROND_RECOVERY_DONE);
  CHECK(now->bytes_total == 0 || now->bytes_done <= now->bytes_total);
  seen->last = now->phase;
  seen->calls++;
}

struct told {
  int notes;
  int others;
};

static void take_event(void *context, frond_log_level level, const char *message)
{
  struct told *told = context;
  CHECK(strlen(message) > 0 && level >= FROND_LOG_ERROR && level <= FROND_LOG_NOTE);
  *(level == FROND_LOG_NOTE ? &told->notes : &told->others) += 1;
}

static void take_progress(void *context, const frond_offline_progress *progress)
{
  CHECK(strlen(progress->phase) > 0 && progress->findings == 0);
  *(int *) context += 1;
}

struct heard {
  int puts, ranges, commits, aborted_steps, aborts, prepares;
  uint64_t last_lsn;
  int left;
};

static bool take_log_event(void *context, const frond_log_event *event)
{
  struct heard *heard = context;
  CHECK(event->lsn >= heard->last_lsn && event->txn > 0);
  heard->last_lsn = event->lsn;
  switch (event->action) {
  case FROND_ACTION_WRITE:
    heard->puts += event->op == FROND_OP_PUT && event->tree > 0 && is(event->key, "k") && is(event->value, "v");
    break;
  case FROND_ACTION_DELETE_RANGE:
    heard->ranges += is(event->key, "x") && is(event->value, "y");
    break;
  case FROND_ACTION_COMMIT:
    heard->commits += event->number > 0;
    break;
  case FROND_ACTION_ABORT_STEPS:
    heard->aborted_steps += event->step > 0 && event->step_last >= event->step;
    break;
  case FROND_ACTION_ABORT:
    heard->aborts++;
    break;
  case FROND_ACTION_PREPARE:
    heard->prepares += is(event->key, "xid") && event->number == 1;
    break;
  default:
    CHECK(!"an action");
  }
  return --heard->left > 0;
}

static void log_events(void)
{
  frond_db *db = open_new("told");
  frond_tree *tree;
  frond_txn *txn;
  uint32_t savepoint;
  struct heard heard;
  OK(frond_db_create_tree(db, "t", NULL, &tree));
  txn = begin(db);
  OK(frond_txn_put(txn, tree, text("k"), text("v")));
  OK(frond_savepoint_set(txn, &savepoint));
  OK(frond_txn_delete_range(txn, tree, text("x"), text("y")));
  OK(frond_savepoint_rollback(txn, savepoint));
  OK(frond_txn_commit(txn));
  txn = begin(db);
  OK(frond_txn_put(txn, tree, text("gone"), text("v")));
  OK(frond_txn_rollback(txn));
  txn = begin(db);
  OK(frond_txn_put(txn, tree, text("prepared"), text("v")));
  OK(frond_txn_prepare(txn, text("xid"), FROND_DURABILITY_SYNC));
  frond_tree_close(tree);
  IS(FROND_ALREADY_OPEN, frond_log_events(path_of("told"), NULL, take_log_event, &heard));
  OK(frond_db_close(db));
  memset(&heard, 0, sizeof heard);
  heard.left = 1000;
  OK(frond_log_events(path_of("told"), NULL, take_log_event, &heard));
  CHECK(heard.puts == 1 && heard.ranges == 1 && heard.commits >= 2 && heard.aborted_steps == 1);
  CHECK(heard.aborts == 1 && heard.prepares == 1);
  heard.left = 1;
  heard.last_lsn = 0;
  OK(frond_log_events(path_of("told"), NULL, take_log_event, &heard));
  CHECK(heard.left == 0);
  WRONG(frond_log_events(path_of("told"), NULL, NULL, NULL));
}

/* Check and salvage of a database that nobody has open. */
static void offline(void)
{
  frond_offline_options options;
  frond_db *db;
  frond_tree *tree;
  frond_list *list;
  frond_slice value;
  uint64_t findings = 99, rows = 0;
  char from[4096], *json;
  int calls = 0;
  db = open_new("damaged");
  OK(frond_db_create_tree(db, "t", NULL, &tree));
  OK(frond_db_put(db, tree, text("k"), text("v")));
  OK(frond_db_checkpoint(db));
  frond_tree_close(tree);
  IS(FROND_ALREADY_OPEN, frond_check(path_of("damaged"), NULL, &findings, NULL));
  OK(frond_db_close(db));
  IS(FROND_NOT_FOUND, frond_check(path_of("nobody"), NULL, NULL, NULL));
  memset(&options, 0, sizeof options);
  options.progress = take_progress;
  options.context = &calls;
  options.memory_bytes = 16 << 20;
  OK(frond_check(path_of("damaged"), &options, &findings, &json));
  CHECK(findings == 0 && calls > 0 && strstr(json, "\"clean\":true") != NULL);
  frond_string_free(json);
  strcpy(from, path_of("damaged"));
  OK(frond_salvage(from, path_of("salvaged"), &options, &rows, &json));
  CHECK(rows == 1 && strstr(json, "\"name\":\"t\"") != NULL);
  frond_string_free(json);
  IS(FROND_INVALID_ARGUMENT, frond_salvage(from, path_of("salvaged"), NULL, NULL, NULL));
  db = open_again("salvaged");
  OK(frond_db_open_tree(db, "t", &tree));
  OK(frond_db_get(db, tree, text("k"), &list, &value));
  CHECK(is(value, "v"));
  frond_list_free(list);
  frond_tree_close(tree);
  OK(frond_db_close(db));
}

static void prepare(frond_db *db, frond_tree *tree, const char *key, const char *xid)
{
  frond_txn *txn = begin(db);
  OK(frond_txn_put(txn, tree, text(key), text("prepared")));
  OK(frond_txn_lock_range(txn, tree, text("seen"), text("seen~"), FROND_LOCK_SHARED, FROND_WAIT_DEFAULT));
  OK(frond_txn_release_unwritten(txn));
  OK(frond_txn_prepare(txn, text(xid), FROND_DURABILITY_SYNC));
}

static size_t count_prepared(frond_db *db, uint32_t recovered)
{
  frond_list *list;
  const frond_prepared_info *items;
  size_t count, i;
  OK(frond_db_prepared(db, &list, &items, &count));
  for (i = 0; i < count; i++) {
    CHECK(items[i].txn != 0 && items[i].recovered == recovered);
    CHECK(is(items[i].xid, "x1") || is(items[i].xid, "x2"));
  }
  frond_list_free(list);
  return count;
}

void test_recovery(void)
{
  frond_db *db, *second;
  frond_options *options;
  frond_tree *tree;
  frond_txn *txn;
  frond_slice value;
  frond_recovery_report report;
  frond_recovery_estimate estimate;
  struct seen seen = {0, 0};
  struct told told = {0, 0};
  frond_list *list;
  const frond_txn_info *txns;
  size_t count, i;
  char *json;
  bool found;

  IS(FROND_NOT_FOUND, frond_db_open(path_of("nobody"), NULL, &db));
  db = open_new("recovery");
  OK(frond_db_recovery_report(db, &report));
  CHECK(report.created == 1);
  options = frond_options_new();
  OK(frond_options_set(options, FROND_OPTION_CREATE_IF_MISSING, 1));
  OK(frond_options_set(options, FROND_OPTION_ERROR_IF_EXISTS, 1));
  OK(frond_options_set_log(options, take_event, &told));
  IS(FROND_ALREADY_OPEN, frond_db_open(path_of("recovery"), NULL, &second));

  OK(frond_db_create_tree(db, "t", NULL, &tree));
  txn = begin(db);
  OK(frond_txn_put(txn, tree, text("k"), text("v")));
  OK(frond_txn_commit(txn));
  prepare(db, tree, "p1", "x1");
  prepare(db, tree, "p2", "x2");
  txn = begin(db);
  OK(frond_txn_put(txn, tree, text("other"), text("v")));
  IS(FROND_KEY_EXISTS, frond_txn_prepare(txn, text("x1"), FROND_DURABILITY_SYNC));
  txn = begin(db);
  WRONG(frond_txn_prepare(txn, none(), FROND_DURABILITY_SYNC));
  CHECK(count_prepared(db, 0) == 2);
  OK(frond_db_estimated_recovery(db, &estimate));
  CHECK(estimate.messages > 0);
  frond_tree_close(tree);
  OK(frond_db_close(db));
  WRONG(frond_db_open(path_of("recovery"), options, &db)); /* it exists */
  frond_options_free(options);

  options = frond_options_new();
  CHECK(told.notes == 0 && told.others == 0);
  OK(frond_options_set_progress(options, progress, &seen));
  OK(frond_options_set_log(options, take_event, &told));
  OK(frond_db_open(path_of("recovery"), options, &db));
  CHECK(told.notes == 2 && told.others == 0); /* begun, done */
  CHECK(seen.calls > 0 && seen.last == FROND_RECOVERY_DONE);
  OK(frond_db_recovery_report(db, &report));
  CHECK(report.created == 0 && report.prepared == 2 && report.messages > 0 && report.total_micros > 0);
  OK(frond_db_recovery_report_json(db, &json));
  CHECK(strstr(json, "\"prepared\":2") != NULL);
  frond_string_free(json);
  OK(frond_db_open_tree(db, "t", &tree));

  /* Undecided: unseen and locked. What they were in their sessions is known. */
  CHECK(count_prepared(db, 1) == 2);
  OK(frond_db_transactions(db, &list, &txns, &count));
  CHECK(count == 2);
  for (i = 0; i < count; i++)
    CHECK(txns[i].id == 0 && txns[i].prepared == 1 && txns[i].isolation == FROND_ISOLATION_REPEATABLE_READ && txns[i].messages == 1);
  frond_list_free(list);
  txn = begin(db);
  OK(frond_txn_get(txn, tree, text("k"), &value));
  CHECK(is(value, "v"));
  OK(frond_txn_contains(txn, tree, text("p1"), &found));
  CHECK(!found);
  OK(frond_txn_contains(txn, tree, text("other"), &found));
  CHECK(!found);
  IS(FROND_LOCK_TIMEOUT, frond_txn_get_locked(txn, tree, text("p1"), FROND_LOCK_SHARED, FROND_WAIT_NONE, &value, NULL));
  OK(frond_txn_rollback(txn));
  OK(frond_db_commit_prepared(db, text("x1"), FROND_DURABILITY_NONE));
  OK(frond_db_rollback_prepared(db, text("x2")));
  IS(FROND_NOT_FOUND, frond_db_commit_prepared(db, text("x1"), FROND_DURABILITY_SYNC));
  IS(FROND_NOT_FOUND, frond_db_rollback_prepared(db, text("x2")));
  WRONG(frond_db_commit_prepared(db, text("x1"), 9));
  CHECK(count_prepared(db, 1) == 0);
  frond_tree_close(tree);
  OK(frond_db_close(db));

  OK(frond_options_set(options, FROND_OPTION_READ_ONLY, 1));
  OK(frond_options_set_progress(options, NULL, NULL));
  OK(frond_options_set_log(options, NULL, NULL));
  OK(frond_db_open(path_of("recovery"), options, &db));
  frond_options_free(options);
  OK(frond_db_open_tree(db, "t", &tree));
  OK(frond_db_snapshot(db, &txn));
  OK(frond_txn_get(txn, tree, text("p1"), &value));
  CHECK(is(value, "prepared"));
  OK(frond_txn_get(txn, tree, text("p2"), &value));
  CHECK(value.data == NULL);
  OK(frond_txn_commit(txn));
  IS(FROND_READ_ONLY, frond_db_checkpoint(db));
  frond_tree_close(tree);
  OK(frond_db_close(db));
  offline();
  log_events();
}
