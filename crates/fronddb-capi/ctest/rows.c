/* Trees, reading and writing by key, batches, update programs. */
#include "test.h"

static void single_writes(frond_db *db)
{
  frond_tree *tree;
  frond_txn *txn = begin(db);
  frond_slice value, keys[4], values[4];
  frond_estimate estimate;
  bool flag;
  int i;

  OK(frond_tree_create(txn, "rows", NULL, &tree));
  CHECK(frond_tree_id(tree) != 0);
  CHECK(strcmp(frond_tree_name(tree), "rows") == 0);

  OK(frond_txn_put(txn, tree, text("a"), text("1")));
  OK(frond_txn_insert(txn, tree, text("b"), text("2")));
  IS(FROND_KEY_EXISTS, frond_txn_insert(txn, tree, text("b"), text("3")));
  OK(frond_txn_insert_if_absent(txn, tree, text("b"), text("4")));
  OK(frond_txn_insert_if_absent(txn, tree, text("c"), text("")));
  OK(frond_txn_put(txn, tree, none(), text("the empty key")));

  OK(frond_txn_get(txn, tree, text("a"), &value));
  CHECK(is(value, "1"));
  OK(frond_txn_get(txn, tree, text("b"), &value));
  CHECK(is(value, "2"));
  OK(frond_txn_get(txn, tree, text("c"), &value));
  CHECK(value.data != NULL && value.size == 0);
  OK(frond_txn_get(txn, tree, text("d"), &value));
  CHECK(value.data == NULL);
  OK(frond_txn_get(txn, tree, none(), &value));
  CHECK(is(value, "the empty key"));
  OK(frond_txn_contains(txn, tree, text("c"), &flag));
  CHECK(flag && is(value, "the empty key"));
  OK(frond_txn_contains(txn, tree, text("d"), &flag));
  CHECK(!flag);
  OK(frond_txn_changed_after_snapshot(txn, tree, text("a"), &flag));
  CHECK(!flag);

  keys[0] = text("b");
  keys[1] = text("nobody");
  keys[2] = text("a");
  keys[3] = text("c");
  OK(frond_txn_get_many(txn, tree, keys, 4, values));
  CHECK(is(values[0], "2") && values[1].data == NULL && is(values[2], "1") && is(values[3], ""));
  OK(frond_txn_get_many(txn, tree, NULL, 0, NULL));
  /* What was lent may be what is asked for: "1" and "2" are values of keys, and keys of their own. */
  OK(frond_txn_put(txn, tree, text("1"), text("one")));
  OK(frond_txn_put(txn, tree, text("2"), text("two")));
  OK(frond_txn_get_many(txn, tree, keys, 4, values));
  OK(frond_txn_get_many(txn, tree, values, 3, values));
  CHECK(is(values[0], "two") && is(values[1], "the empty key") && is(values[2], "one"));
  OK(frond_txn_get(txn, tree, text("a"), &value));
  OK(frond_txn_get(txn, tree, value, &value));
  CHECK(is(value, "one"));
  WRONG(frond_txn_get_many(txn, tree, keys, 4, NULL));
  WRONG(frond_txn_get_many(txn, tree, NULL, 4, values));

  OK(frond_txn_delete(txn, tree, text("a")));
  OK(frond_txn_single_delete(txn, tree, text("b")));
  OK(frond_txn_delete_existing(txn, tree, text("c"), &flag));
  CHECK(flag);
  OK(frond_txn_delete_existing(txn, tree, text("c"), &flag));
  CHECK(!flag);
  for (i = 0; i < 3; i++) {
    OK(frond_txn_contains(txn, tree, keys[i], &flag));
    CHECK(!flag);
  }

  for (i = 0; i < 1000; i++) {
    char key[16];
    snprintf(key, sizeof key, "%04d", i);
    OK(frond_txn_put(txn, tree, text(key), text("x")));
  }
  OK(frond_txn_delete_range(txn, tree, text("0100"), text("0900")));
  OK(frond_txn_contains(txn, tree, text("0099"), &flag));
  CHECK(flag);
  OK(frond_txn_contains(txn, tree, text("0100"), &flag));
  CHECK(!flag);
  OK(frond_txn_contains(txn, tree, text("0899"), &flag));
  CHECK(!flag);
  OK(frond_txn_contains(txn, tree, text("0900"), &flag));
  CHECK(flag);
  OK(frond_txn_estimate(txn, tree, none(), none(), &estimate));
  OK(frond_txn_commit(txn));

  txn = begin(db);
  WRONG(frond_txn_get(txn, tree, text("a"), NULL));
  WRONG(frond_txn_get(txn, NULL, text("a"), &value));
  WRONG(frond_txn_put(txn, tree, frond_bytes(NULL, 1), text("x")));
  {
    static uint8_t big[FROND_KEY_BYTES_MAX + 1];
    WRONG(frond_txn_put(txn, tree, frond_bytes(big, sizeof big), text("x")));
    OK(frond_txn_put(txn, tree, frond_bytes(big, sizeof big - 1), text("x")));
  }
  OK(frond_txn_rollback(txn));
  frond_tree_close(tree);
}

static void rows_with_indexes(frond_db *db)
{
  frond_tree *table, *index;
  frond_txn *txn, *other;
  frond_operation row[3];
  frond_batch *batch;
  frond_slice value;
  frond_txn_options options;
  size_t failed;
  bool flag;

  OK(frond_db_create_tree(db, "table", NULL, &table));
  OK(frond_db_create_tree(db, "index", NULL, &index));
  memset(row, 0, sizeof row);
  row[0].tree = table;
  row[0].op = FROND_OP_INSERT;
  row[0].key = text("1");
  row[0].value = text("red");
  row[1].tree = index;
  row[1].op = FROND_OP_PUT;
  row[1].key = text("red/1");
  row[1].flags = FROND_OPERATION_COVERED;
  row[2] = row[1];
  row[2].key = text("length/3/1");

  txn = begin(db);
  OK(frond_txn_write(txn, row, 3, &failed));
  OK(frond_txn_write(txn, NULL, 0, NULL));
  OK(frond_txn_commit(txn));

  /* A taken key: nothing of the row is there, and the write at fault is named. */
  txn = begin(db);
  row[0].key = text("2");
  row[1].key = text("red/2");
  row[2].tree = table;
  row[2].op = FROND_OP_INSERT;
  row[2].flags = FROND_OPERATION_SHARING;
  row[2].key = text("1");
  failed = 77;
  IS(FROND_KEY_EXISTS, frond_txn_write(txn, row, 3, &failed));
  CHECK(failed == 2);
  /* Another is told so as well, and has what was not written. */
  other = begin(db);
  IS(FROND_KEY_EXISTS, frond_txn_write(other, row + 2, 1, NULL));
  OK(frond_txn_insert(other, table, text("2"), text("white")));
  OK(frond_txn_rollback(other));
  row[2].flags = 0;
  OK(frond_txn_contains(txn, table, text("2"), &flag));
  CHECK(!flag);
  OK(frond_txn_contains(txn, index, text("red/2"), &flag));
  CHECK(!flag);
  row[1].op = 99;
  WRONG(frond_txn_write(txn, row, 3, &failed));
  CHECK(failed == 1);
  row[1].op = FROND_OP_PUT;
  row[1].flags = 4;
  WRONG(frond_txn_write(txn, row, 3, &failed));
  CHECK(failed == 1);
  row[1].flags = FROND_OPERATION_COVERED;

  /* Gathered rows. */
  row[2].key = text("3");
  row[2].value = text("blue");
  batch = frond_batch_new();
  OK(frond_batch_add(batch, row, 2, &failed));
  OK(frond_batch_add(batch, row + 2, 1, &failed));
  CHECK(frond_batch_count(batch) == 3 && frond_batch_bytes(batch) > 0);
  OK(frond_txn_write_batch(txn, batch, &failed));
  frond_batch_clear(batch);
  CHECK(frond_batch_count(batch) == 0);
  frond_batch_free(batch);
  OK(frond_txn_commit(txn));

  /* A whole transaction by one call. */
  memset(&options, 0, sizeof options);
  options.durability = FROND_DURABILITY_WRITE;
  row[0].op = FROND_OP_DELETE;
  row[0].value = none();
  row[1].op = FROND_OP_SINGLE_DELETE;
  OK(frond_db_write(db, row, 2, &options));
  IS(FROND_KEY_EXISTS, frond_db_write(db, row + 2, 1, NULL));

  OK(frond_db_snapshot(db, &txn));
  OK(frond_txn_get(txn, table, text("1"), &value));
  CHECK(is(value, "red"));
  OK(frond_txn_get(txn, table, text("2"), &value));
  CHECK(value.data == NULL);
  OK(frond_txn_get(txn, table, text("3"), &value));
  CHECK(is(value, "blue"));
  OK(frond_txn_contains(txn, index, text("red/1"), &flag));
  CHECK(flag);
  OK(frond_txn_contains(txn, index, text("red/2"), &flag));
  CHECK(!flag);
  IS(FROND_READ_ONLY, frond_txn_put(txn, table, text("4"), text("green")));
  OK(frond_txn_commit(txn));
  frond_tree_close(table);
  frond_tree_close(index);
}

static void without_transactions(frond_db *db)
{
  frond_tree *tree;
  frond_list *list;
  frond_slice value;
  frond_estimate estimate;
  char key[16];
  int i;
  OK(frond_db_create_tree(db, "plain", NULL, &tree));
  for (i = 0; i < 10; i++) {
    snprintf(key, sizeof key, "%d", i);
    OK(frond_db_put(db, tree, text(key), text("v")));
  }
  OK(frond_db_delete(db, tree, text("0")));
  OK(frond_db_get(db, tree, text("1"), &list, &value));
  OK(frond_db_delete(db, tree, text("1"))); /* what is lent stays */
  CHECK(is(value, "v"));
  frond_list_free(list);
  OK(frond_db_get(db, tree, text("1"), &list, &value));
  CHECK(value.data == NULL);
  frond_list_free(list);
  WRONG(frond_db_get(db, tree, text("1"), NULL, &value));
  OK(frond_db_checkpoint(db));
  OK(frond_db_estimate(db, tree, text("2"), text("6"), &estimate));
  CHECK(estimate.rows <= 10);
  OK(frond_db_get(db, tree, text("2"), &list, &value)); /* now from a block of the cache */
  CHECK(is(value, "v"));
  frond_list_free(list);
  frond_tree_close(tree);
}

static void update_programs(frond_db *db)
{
  frond_tree *tree;
  frond_txn *txn;
  frond_step steps[3];
  frond_slice value;
  frond_operation operation;
  uint8_t program[128];
  size_t size;

  OK(frond_db_create_tree(db, "counters", NULL, &tree));
  memset(steps, 0, sizeof steps);
  steps[0].kind = FROND_STEP_IF_NULL;
  steps[0].bytes = frond_bytes("\0\0\0\0name", 8);
  steps[1].kind = FROND_STEP_ADD;
  steps[1].width = 4;
  steps[1].flags = FROND_STEP_BIG_ENDIAN;
  steps[1].delta = 258;
  steps[2].kind = FROND_STEP_SET_BYTES;
  steps[2].offset = 4;
  steps[2].bytes = text("N");
  WRONG(frond_program_encode(steps, 3, NULL, 0, &size));
  CHECK(size > 0 && size <= sizeof program);
  WRONG(frond_program_encode(steps, 3, program, size - 1, &size));
  OK(frond_program_encode(steps, 3, program, size, &size));

  txn = begin(db);
  OK(frond_txn_update(txn, tree, text("c"), frond_bytes(program, size)));
  memset(&operation, 0, sizeof operation);
  operation.tree = tree;
  operation.op = FROND_OP_UPDATE;
  operation.key = text("c");
  operation.value = frond_bytes(program, size);
  OK(frond_txn_write(txn, &operation, 1, NULL));
  OK(frond_txn_commit(txn));
  txn = begin(db);
  OK(frond_txn_get(txn, tree, text("c"), &value));
  CHECK(value.size == 8 && memcmp(value.data, "\0\0\2\4Name", 8) == 0);
  WRONG(frond_txn_update(txn, tree, text("c"), text("\xff no program")));
  OK(frond_txn_rollback(txn));
  frond_tree_close(tree);
}

static void trees(frond_db *db)
{
  frond_tree *tree, *again;
  frond_txn *txn;
  frond_tree_options options, found;
  bool flag;

  memset(&options, 0, sizeof options);
  options.codec = FROND_CODEC_ZSTD;
  options.codec_level = 5;
  options.metadata = text("columns");
  OK(frond_db_create_tree(db, "first", &options, &tree));
  IS(FROND_KEY_EXISTS, frond_db_create_tree(db, "first", NULL, &again));
  IS(FROND_NOT_FOUND, frond_db_open_tree(db, "nobody", &again));
  WRONG(frond_db_create_tree(db, "", NULL, &again));
  WRONG(frond_db_create_tree(db, "\xff\xfe", NULL, &again));
  options.codec_level = 99;
  WRONG(frond_db_create_tree(db, "second", &options, &again));

  txn = begin(db);
  OK(frond_tree_get_options(txn, tree, &found));
  CHECK(found.codec == FROND_CODEC_ZSTD && found.codec_level == 5 && is(found.metadata, "columns"));
  options.codec = FROND_CODEC_LZ4;
  options.metadata = text("more columns");
  OK(frond_tree_set_options(txn, tree, &options));
  WRONG(frond_tree_set_options(txn, tree, NULL));
  OK(frond_txn_put(txn, tree, text("k"), text("v")));
  OK(frond_tree_rename(txn, "first", "renamed"));
  OK(frond_txn_commit(txn));

  txn = begin(db);
  IS(FROND_NOT_FOUND, frond_tree_open(txn, "first", &again));
  OK(frond_tree_open(txn, "renamed", &again));
  CHECK(frond_tree_id(again) == frond_tree_id(tree));
  OK(frond_tree_get_options(txn, again, &found));
  CHECK(found.codec == FROND_CODEC_LZ4 && is(found.metadata, "more columns"));
  OK(frond_tree_truncate(txn, again));
  OK(frond_txn_contains(txn, again, text("k"), &flag));
  CHECK(!flag);
  OK(frond_txn_rollback(txn));

  txn = begin(db);
  OK(frond_txn_contains(txn, tree, text("k"), &flag));
  CHECK(flag);
  OK(frond_tree_drop(txn, "renamed"));
  OK(frond_txn_commit(txn));
  txn = begin(db);
  IS(FROND_NOT_FOUND, frond_txn_contains(txn, tree, text("k"), &flag));
  IS(FROND_NOT_FOUND, frond_tree_open(txn, "renamed", &again));
  OK(frond_txn_rollback(txn));
  IS(FROND_NOT_FOUND, frond_db_drop_tree(db, "renamed"));
  frond_tree_close(tree);
  frond_tree_close(again);
}

static bool count_calls(void *context, const frond_bulk_progress *progress)
{
  int *calls = context;
  CHECK(progress->rows_written > 0 && progress->rows_written <= progress->rows_added);
  return ++*calls != 3; /* gives up at the third */
}

static void add_rows(frond_bulk *bulk, uint32_t count)
{
  uint32_t i;
  for (i = 0; i < count; i++) {
    char key[16];
    snprintf(key, sizeof key, "%08x", (unsigned) (i * 2654435761u));
    OK(frond_bulk_add(bulk, text(key), text("a row of some bytes, so that there are several mebibytes")));
  }
}

/* Of keys added twice, the lowest is told, or the first that came again. */
static void duplicates(frond_db *db)
{
  static const char *const keys[] = {"m", "z", "a", "z", "b", "a"};
  frond_bulk_options options;
  frond_tree *tree;
  frond_row duplicate;
  frond_bulk *bulk;
  frond_txn *txn = begin(db);
  size_t i;
  OK(frond_tree_create(txn, "duplicates", NULL, &tree));
  memset(&options, 0, sizeof options);
  for (options.flags = 0; options.flags <= FROND_BULK_FIRST_DUPLICATE; options.flags++) {
    OK(frond_bulk_begin(txn, tree, &options, &bulk));
    for (i = 0; i < sizeof keys / sizeof keys[0]; i++)
      OK(frond_bulk_add(bulk, text(keys[i]), text("v")));
    IS(FROND_KEY_EXISTS, frond_bulk_finish(bulk, NULL, NULL, &duplicate));
    CHECK(is(duplicate.key, options.flags == FROND_BULK_FIRST_DUPLICATE ? "z" : "a"));
    CHECK(frond_bulk_duplicate_number(bulk) == (options.flags == FROND_BULK_FIRST_DUPLICATE ? 3 : 5));
    frond_bulk_free(bulk);
  }
  options.flags = 4;
  WRONG(frond_bulk_begin(txn, tree, &options, &bulk));
  OK(frond_txn_rollback(txn));
  frond_tree_close(tree);
}

/* A batch as a transaction of its own. */
static void whole_batches(frond_db *db)
{
  frond_batch *batch = frond_batch_new();
  frond_operation operations[2];
  frond_txn_options options;
  frond_tree *tree;
  frond_list *list;
  frond_slice value;
  OK(frond_db_create_tree(db, "batches", NULL, &tree));
  memset(operations, 0, sizeof operations);
  operations[0].op = operations[1].op = FROND_OP_INSERT;
  operations[0].tree = operations[1].tree = tree;
  operations[0].key = text("one");
  operations[1].key = text("two");
  operations[0].value = operations[1].value = text("v");
  OK(frond_batch_add(batch, operations, 2, NULL));
  memset(&options, 0, sizeof options);
  options.durability = FROND_DURABILITY_WRITE;
  OK(frond_db_write_batch(db, batch, &options));
  CHECK(frond_batch_count(batch) == 2);
  IS(FROND_KEY_EXISTS, frond_db_write_batch(db, batch, NULL));
  OK(frond_db_get(db, tree, text("two"), &list, &value));
  CHECK(is(value, "v"));
  frond_list_free(list);
  WRONG(frond_db_write_batch(db, NULL, NULL));
  frond_batch_free(batch);
  /* Of keys that may be there, those that are not. */
  batch = frond_batch_new();
  operations[0].op = operations[1].op = FROND_OP_INSERT_IF_ABSENT;
  operations[1].key = text("three");
  operations[0].value = operations[1].value = text("w");
  OK(frond_batch_add(batch, operations, 2, NULL));
  OK(frond_db_write_batch(db, batch, NULL));
  OK(frond_db_get(db, tree, text("one"), &list, &value));
  CHECK(is(value, "v"));
  frond_list_free(list);
  OK(frond_db_get(db, tree, text("three"), &list, &value));
  CHECK(is(value, "w"));
  frond_list_free(list);
  frond_batch_free(batch);
  frond_tree_close(tree);
}

static void bulk_loads(frond_db *db)
{
  enum { COUNT = 40000 };
  frond_bulk_options options;
  frond_bulk_progress progress;
  frond_estimate estimate;
  frond_tree *tree;
  frond_row duplicate;
  frond_bulk *bulk;
  frond_txn *txn = begin(db);
  int calls = 3;
  OK(frond_tree_create(txn, "bulk", NULL, &tree));

  OK(frond_bulk_begin(txn, tree, NULL, &bulk));
  add_rows(bulk, 10);
  OK(frond_bulk_add(bulk, text("twice"), text("value")));
  OK(frond_bulk_add(bulk, text("twice"), text("value")));
  IS(FROND_KEY_EXISTS, frond_bulk_finish(bulk, NULL, NULL, &duplicate));
  CHECK(is(duplicate.key, "twice") && is(duplicate.value, "value"));
  frond_bulk_free(bulk);

  memset(&options, 0, sizeof options);
  options.temporary_dir = path_of("sorted");
  options.memory_bytes = 1 << 20;
  OK(frond_bulk_begin(txn, tree, &options, &bulk));
  add_rows(bulk, COUNT);
  OK(frond_bulk_finish(bulk, count_calls, &calls, &duplicate));
  CHECK(calls > 6 && duplicate.key.data == NULL && frond_bulk_duplicate_number(bulk) == UINT64_MAX);
  IS(FROND_CLOSED, frond_bulk_add(bulk, text("late"), none()));
  OK(frond_bulk_now(bulk, &progress));
  CHECK(progress.rows_written == COUNT && progress.rows_added == COUNT && progress.bytes_spilled > 0);
  frond_bulk_free(bulk);
  WRONG(frond_bulk_begin(txn, tree, NULL, &bulk)); /* it has rows */
  OK(frond_txn_commit(txn));
  OK(frond_db_estimate(db, tree, none(), none(), &estimate));
  CHECK(estimate.rows > COUNT / 2 && estimate.rows < 2 * COUNT);

  txn = begin(db);
  OK(frond_tree_truncate(txn, tree));
  OK(frond_bulk_begin(txn, tree, NULL, &bulk));
  add_rows(bulk, COUNT);
  calls = 0;
  IS(FROND_CANCELLED, frond_bulk_finish(bulk, count_calls, &calls, NULL));
  frond_bulk_free(bulk);
  OK(frond_txn_rollback(txn));
  frond_tree_close(tree);
}

void test_rows(void)
{
  frond_db *db = open_new("rows");
  single_writes(db);
  rows_with_indexes(db);
  without_transactions(db);
  update_programs(db);
  trees(db);
  bulk_loads(db);
  duplicates(db);
  whole_batches(db);
  OK(frond_db_poisoned(db));
  OK(frond_db_close(db));
}
