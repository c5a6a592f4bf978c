/* Wrong arguments are statuses and not crashes: every function with NULL handles, NULL results, numbers that name
 * nothing. What can be told without a database is here; the rest is with its subject. */
#include "test.h"

static void null_handles(void)
{
  frond_slice value = none(), xid = text("x");
  frond_row row;
  frond_fetch fetch;
  frond_tree_options tree_options;
  frond_estimate estimate;
  frond_statistics statistics;
  frond_recovery_report report;
  frond_recovery_estimate recovery;
  frond_checkpoint_summary checkpoints;
  frond_list *list;
  const frond_tree_info *trees;
  const frond_lock_info *locks;
  const frond_txn_info *txns;
  const frond_prepared_info *prepared;
  frond_txn *txn;
  frond_tree *tree;
  frond_cursor *cursor;
  frond_db *db;
  bool flag;
  size_t count;
  uint32_t number;
  uint64_t findings;
  char *json;

  memset(&fetch, 0, sizeof fetch);
  memset(&tree_options, 0, sizeof tree_options);

  WRONG(frond_options_set(NULL, FROND_OPTION_READ_ONLY, 1));
  WRONG(frond_options_set_log_dir(NULL, "x"));
  WRONG(frond_options_set_codec(NULL, FROND_CODEC_LZ4, 0));
  WRONG(frond_options_set_progress(NULL, NULL, NULL));

  WRONG(frond_db_open(NULL, NULL, &db));
  WRONG(frond_db_open("x", NULL, NULL));
  WRONG(frond_db_open("", NULL, &db));
  WRONG(frond_db_close(NULL));
  WRONG(frond_db_poisoned(NULL));
  WRONG(frond_db_create_tree(NULL, "t", NULL, &tree));
  WRONG(frond_db_open_tree(NULL, "t", &tree));
  WRONG(frond_db_drop_tree(NULL, "t"));
  WRONG(frond_db_snapshot(NULL, &txn));
  WRONG(frond_db_cancel(NULL, 1));
  WRONG(frond_db_write(NULL, NULL, 0, NULL));
  WRONG(frond_db_put(NULL, NULL, text("k"), none()));
  WRONG(frond_db_delete(NULL, NULL, text("k")));
  WRONG(frond_db_get(NULL, NULL, text("k"), &list, &value));
  WRONG(frond_db_estimate(NULL, NULL, none(), none(), &estimate));
  WRONG(frond_db_commit_prepared(NULL, xid, FROND_DURABILITY_SYNC));
  WRONG(frond_db_rollback_prepared(NULL, xid));
  WRONG(frond_db_prepared(NULL, &list, &prepared, &count));
  WRONG(frond_db_checkpoint(NULL));
  WRONG(frond_db_sync_log(NULL));
  WRONG(frond_db_set_memory_bytes(NULL, 1 << 30));
  WRONG(frond_db_set_checkpoint_interval_ms(NULL, 1));
  WRONG(frond_db_set_recovery_target_ms(NULL, 1));
  WRONG(frond_db_set_log_sync_period_ms(NULL, 1));
  WRONG(frond_db_check(NULL, NULL, NULL, NULL, &findings));
  WRONG(frond_db_compact(NULL, NULL, none(), none(), NULL, NULL));
  WRONG(frond_db_step_background(NULL, &flag));
  WRONG(frond_db_wait_idle(NULL));
  WRONG(frond_db_is_warm(NULL, &flag));
  WRONG(frond_db_tree_shape(NULL, &json));
  WRONG(frond_db_write_batch(NULL, NULL, NULL));
  WRONG(frond_log_events(NULL, NULL, NULL, NULL));
  WRONG(frond_db_trees(NULL, &list, &trees, &count));
  WRONG(frond_db_trees_under(NULL, "t", &list, &trees, &count));
  WRONG(frond_db_transactions(NULL, &list, &txns, &count));
  WRONG(frond_db_locks(NULL, &list, &locks, &count));
  WRONG(frond_db_statistics(NULL, &statistics, sizeof statistics));
  WRONG(frond_db_statistics_json(NULL, &json));
  WRONG(frond_db_recovery_report(NULL, &report));
  WRONG(frond_db_recovery_report_json(NULL, &json));
  WRONG(frond_db_estimated_recovery(NULL, &recovery));
  WRONG(frond_db_checkpoint_summary(NULL, FROND_CHECKPOINT_BY_TIME, &checkpoints));

  WRONG(frond_tree_create(NULL, "t", NULL, &tree));
  WRONG(frond_tree_open(NULL, "t", &tree));
  WRONG(frond_tree_drop(NULL, "t"));
  WRONG(frond_tree_rename(NULL, "t", "u"));
  WRONG(frond_tree_truncate(NULL, NULL));
  WRONG(frond_tree_set_options(NULL, NULL, &tree_options));
  WRONG(frond_tree_get_options(NULL, NULL, &tree_options));
  CHECK(frond_tree_id(NULL) == 0);
  CHECK(strcmp(frond_tree_name(NULL), "") == 0);

  WRONG(frond_txn_begin(NULL, NULL, &txn));
  CHECK(frond_txn_id(NULL) == 0);
  WRONG(frond_txn_commit(NULL));
  WRONG(frond_txn_commit_with(NULL, FROND_DURABILITY_SYNC));
  WRONG(frond_txn_rollback(NULL));
  WRONG(frond_txn_prepare(NULL, xid, FROND_DURABILITY_SYNC));
  WRONG(frond_txn_release_unwritten(NULL));
  WRONG(frond_savepoint_set(NULL, &number));
  WRONG(frond_savepoint_rollback(NULL, 1));
  WRONG(frond_savepoint_release(NULL, 1));

  WRONG(frond_txn_get(NULL, NULL, text("k"), &value));
  WRONG(frond_txn_contains(NULL, NULL, text("k"), &flag));
  WRONG(frond_txn_changed_after_snapshot(NULL, NULL, text("k"), &flag));
  WRONG(frond_txn_get_many(NULL, NULL, &value, 1, &value));
  WRONG(frond_txn_get_locked(NULL, NULL, text("k"), FROND_LOCK_SHARED, FROND_WAIT_DEFAULT, &value, &flag));
  WRONG(frond_txn_lock_range(NULL, NULL, none(), none(), FROND_LOCK_SHARED, FROND_WAIT_DEFAULT));
  WRONG(frond_txn_estimate(NULL, NULL, none(), none(), &estimate));

  WRONG(frond_cursor_open(NULL, NULL, NULL, &cursor));
  WRONG(frond_cursor_move(NULL, FROND_MOVE_FIRST, none(), &row));
  WRONG(frond_cursor_row(NULL, &row));
  WRONG(frond_bulk_begin(NULL, NULL, NULL, NULL));
  WRONG(frond_bulk_add(NULL, text("k"), text("v")));
  WRONG(frond_bulk_finish(NULL, NULL, NULL, NULL));
  WRONG(frond_bulk_now(NULL, NULL));
  CHECK(frond_bulk_duplicate_number(NULL) == UINT64_MAX);
  frond_bulk_free(NULL);
  WRONG(frond_check(NULL, NULL, NULL, NULL));
  WRONG(frond_salvage(NULL, NULL, NULL, NULL, NULL));
  WRONG(frond_options_set_wait_observer(NULL, NULL, NULL));
  WRONG(frond_options_set_wait_end(NULL, NULL, NULL));
  WRONG(frond_options_set_victim_preference(NULL, NULL, NULL));
  WRONG(frond_options_set_log(NULL, NULL, NULL));
  WRONG(frond_cursor_unlock_row(NULL));
  WRONG(frond_txn_unlock(NULL, NULL, text("k")));
  WRONG(frond_txn_set_lock_wait_ms(NULL, FROND_WAIT_NONE));
  WRONG(frond_txn_begin_statement(NULL));
  WRONG(frond_txn_end_statement(NULL));
  WRONG(frond_cursor_lock_row(NULL, FROND_LOCK_SHARED, FROND_WAIT_DEFAULT, &row));
  WRONG(frond_cursor_fetch(NULL, FROND_MOVE_FIRST, none(), &fetch));

  WRONG(frond_txn_write(NULL, NULL, 0, &count));
  CHECK(count == FROND_NONE);
  WRONG(frond_txn_put(NULL, NULL, none(), none()));
  WRONG(frond_txn_insert(NULL, NULL, none(), none()));
  WRONG(frond_txn_insert_if_absent(NULL, NULL, none(), none()));
  WRONG(frond_txn_delete(NULL, NULL, none()));
  WRONG(frond_txn_delete_existing(NULL, NULL, none(), &flag));
  WRONG(frond_txn_single_delete(NULL, NULL, none()));
  WRONG(frond_txn_update(NULL, NULL, none(), none()));
  WRONG(frond_txn_delete_range(NULL, NULL, none(), none()));
  WRONG(frond_batch_add(NULL, NULL, 0, &count));
  WRONG(frond_txn_write_batch(NULL, NULL, &count));
  CHECK(frond_batch_count(NULL) == 0 && frond_batch_bytes(NULL) == 0);
  WRONG(frond_program_encode(NULL, 0, NULL, 0, NULL));

  /* Ending nothing is nothing. */
  frond_options_free(NULL);
  frond_tree_close(NULL);
  frond_cursor_close(NULL);
  frond_batch_clear(NULL);
  frond_batch_free(NULL);
  frond_list_free(NULL);
  frond_string_free(NULL);
}

static void options(void)
{
  frond_options *options = frond_options_new();
  frond_db *db;
  OK(frond_options_set(options, FROND_OPTION_CREATE_IF_MISSING, 1));
  WRONG(frond_options_set(options, FROND_OPTION_CREATE_IF_MISSING, 2));
  WRONG(frond_options_set(options, 0, 1));
  WRONG(frond_options_set(options, 1000, 1));
  WRONG(frond_options_set_codec(options, 7, 0));
  WRONG(frond_options_set_codec(options, FROND_CODEC_ZSTD, 23));
  OK(frond_options_set_codec(options, FROND_CODEC_ZSTD, -7));
  OK(frond_options_set_codec(options, FROND_CODEC_DEFAULT, 0));
  WRONG(frond_options_set_log_dir(options, NULL));
  WRONG(frond_options_set_log_dir(options, "\xff"));
  /* Ranges are checked when the database opens, and the message names the option. */
  OK(frond_options_set(options, FROND_OPTION_MEMORY_BYTES, 1));
  WRONG(frond_db_open(path_of("no-memory"), options, &db));
  {
    const char *message;
    CHECK(frond_last_error(&message) == FROND_INVALID_ARGUMENT);
    CHECK(strstr(message, "memory_bytes=1") != NULL);
  }
  frond_options_free(options);
}

/* What was encoded comes back. */
static void decoding(void)
{
  frond_step steps[4];
  const frond_step *decoded;
  frond_list *list;
  uint8_t buffer[64];
  size_t size, count = 0;
  memset(steps, 0, sizeof steps);
  steps[0].kind = FROND_STEP_SET_BYTES;
  steps[0].offset = 3;
  steps[0].bytes = text("abc");
  steps[1].kind = FROND_STEP_ADD;
  steps[1].offset = 8;
  steps[1].width = 4;
  steps[1].flags = FROND_STEP_BIG_ENDIAN | FROND_STEP_SATURATE;
  steps[1].delta = -5;
  steps[2].kind = FROND_STEP_IF_NULL;
  steps[2].bytes = text("new");
  steps[3].kind = FROND_STEP_APPEND;
  steps[3].bytes = text("!");
  OK(frond_program_encode(steps, 4, buffer, sizeof buffer, &size));
  OK(frond_program_decode(frond_bytes(buffer, size), &list, &decoded, &count));
  CHECK(count == 4);
  CHECK(decoded[0].kind == FROND_STEP_SET_BYTES && decoded[0].offset == 3 && is(decoded[0].bytes, "abc"));
  CHECK(decoded[1].kind == FROND_STEP_ADD && decoded[1].offset == 8 && decoded[1].width == 4);
  CHECK(decoded[1].flags == (FROND_STEP_BIG_ENDIAN | FROND_STEP_SATURATE) && decoded[1].delta == -5);
  CHECK(decoded[2].kind == FROND_STEP_IF_NULL && is(decoded[2].bytes, "new"));
  CHECK(decoded[3].kind == FROND_STEP_APPEND && is(decoded[3].bytes, "!"));
  {
    /* They are steps to be encoded again. */
    uint8_t again[64];
    size_t size_again;
    OK(frond_program_encode(decoded, count, again, sizeof again, &size_again));
    CHECK(size_again == size && memcmp(again, buffer, size) == 0);
  }
  frond_list_free(list);
  OK(frond_program_decode(none(), &list, &decoded, &count));
  CHECK(count == 0);
  frond_list_free(list);
  WRONG(frond_program_decode(text("nonsense"), &list, &decoded, &count));
  WRONG(frond_program_decode(frond_bytes(buffer, size), NULL, &decoded, &count));
}

static void batches_and_programs(void)
{
  frond_batch *batch = frond_batch_new();
  frond_operation operation;
  frond_step step;
  uint8_t buffer[64];
  size_t failed = 7, size = 0;

  memset(&operation, 0, sizeof operation);
  WRONG(frond_batch_add(batch, &operation, 1, &failed));
  CHECK(failed == 0);
  operation.op = FROND_OP_PUT; /* still without a tree */
  WRONG(frond_batch_add(batch, &operation, 1, NULL));
  WRONG(frond_batch_add(batch, NULL, 1, &failed));
  CHECK(failed == FROND_NONE);
  OK(frond_batch_add(batch, NULL, 0, &failed));
  CHECK(frond_batch_count(batch) == 0);
  frond_batch_free(batch);

  memset(&step, 0, sizeof step);
  WRONG(frond_program_encode(&step, 1, buffer, sizeof buffer, &size));
  step.kind = FROND_STEP_ADD;
  step.width = 9;
  WRONG(frond_program_encode(&step, 1, buffer, sizeof buffer, &size));
  step.width = 4;
  step.flags = 8;
  WRONG(frond_program_encode(&step, 1, buffer, sizeof buffer, &size));
  step.kind = FROND_STEP_APPEND;
  step.flags = FROND_STEP_SIGNED;
  WRONG(frond_program_encode(&step, 1, buffer, sizeof buffer, &size));
  step.flags = 0;
  step.bytes.size = 1;
  WRONG(frond_program_encode(&step, 1, buffer, sizeof buffer, &size));
  decoding();
}

static void names(void)
{
  const char *name;
  size_t index, offset;
  CHECK(strcmp(frond_version(), FROND_VERSION) == 0);
  CHECK(frond_abi_version() == FROND_ABI_VERSION);
  CHECK(strcmp(frond_status_name(FROND_OK), "ok") == 0);
  CHECK(strcmp(frond_status_name(FROND_DEADLOCK), "deadlock") == 0);
  CHECK(strcmp(frond_status_name(-1), "unknown status") == 0);
  CHECK(strcmp(frond_status_name(17), "unknown status") == 0);
  CHECK(strcmp(frond_recovery_phase_name(FROND_RECOVERY_LOG), "log") == 0);
  CHECK(strcmp(frond_recovery_phase_name(9), "unknown phase") == 0);
  for (index = 0; frond_statistics_field(index, &name, &offset); index++) {
    CHECK(offset + sizeof(uint64_t) <= sizeof(frond_statistics));
    CHECK(name[0] != '\0');
  }
  CHECK(index * sizeof(uint64_t) == sizeof(frond_statistics));
}

void test_arguments(void)
{
  const char *message;
  CHECK(frond_last_error(&message) == FROND_OK);
  CHECK(strcmp(message, "") == 0);
  null_handles();
  CHECK(frond_last_error(NULL) == FROND_INVALID_ARGUMENT);
  options();
  batches_and_programs();
  names();
}
