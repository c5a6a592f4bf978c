/* Looking inside and upkeep: statistics, lists, checkpoints, check, memory. */
#include <time.h>

#include "test.h"

static void nap(void)
{
  struct timespec pause = {0, 10000000};
  (void) nanosleep(&pause, NULL);
}

static uint64_t field(const frond_statistics *statistics, const char *wanted)
{
  const char *name;
  size_t index, offset;
  for (index = 0; frond_statistics_field(index, &name, &offset); index++) {
    if (strcmp(name, wanted) == 0) {
      uint64_t value;
      memcpy(&value, (const char *) statistics + offset, sizeof value);
      return value;
    }
  }
  CHECK(!"a field of this name");
  return 0;
}

static void statistics(frond_db *db)
{
  frond_statistics all, part;
  char *json;
  OK(frond_db_statistics(db, &all, sizeof all));
  CHECK(all.uptime_micros > 0 && all.commits > 0 && all.messages >= 1000 && all.user_bytes > 0);
  CHECK(all.memory_bytes_max == 32 << 20 && all.commit.count > 0 && all.commit.max_micros >= all.commit.p50_micros);
  CHECK(field(&all, "commits") == all.commits && field(&all, "commit_count") == all.commit.count);
  CHECK(field(&all, "generation") == all.generation && field(&all, "log_sync_max_micros") == all.log_sync.max_micros);

  /* A program that knows fewer fields gets these and no byte more; one that knows more gets zeros. */
  memset(&part, 0xee, sizeof part);
  OK(frond_db_statistics(db, &part, sizeof(frond_distribution)));
  CHECK(part.commit.count == all.commit.count && part.read.count == UINT64_C(0xeeeeeeeeeeeeeeee));
  {
    struct {
      frond_statistics known;
      uint64_t future;
    } more;
    memset(&more, 0xee, sizeof more);
    OK(frond_db_statistics(db, &more.known, sizeof more));
    CHECK(more.known.commits == all.commits && more.future == 0);
  }
  WRONG(frond_db_statistics(db, NULL, sizeof all));
  OK(frond_db_statistics_json(db, &json));
  CHECK(json[0] == '{' && strstr(json, "\"amplification\"") != NULL);
  frond_string_free(json);
  WRONG(frond_db_statistics_json(db, NULL));
}

static void lists(frond_db *db, frond_tree *tree)
{
  frond_list *list;
  const frond_tree_info *trees;
  const frond_txn_info *txns;
  const frond_lock_info *locks;
  size_t count, i, found = 0;
  frond_txn *txn = begin(db);

  OK(frond_db_trees(db, &list, &trees, &count));
  for (i = 0; i < count; i++) {
    if (strcmp(trees[i].name, "watched") == 0) {
      CHECK(trees[i].id == frond_tree_id(tree) && trees[i].codec == FROND_CODEC_LZ4 && trees[i].metadata_bytes == 4);
      found++;
    }
  }
  CHECK(found == 1);
  frond_list_free(list);
  WRONG(frond_db_trees(db, NULL, &trees, &count));
  WRONG(frond_db_trees(db, &list, NULL, &count));
  WRONG(frond_db_trees(db, &list, &trees, NULL));
  OK(frond_db_trees_under(db, "watch", &list, &trees, &count));
  CHECK(count == 1 && strcmp(trees[0].name, "watched") == 0 && trees[0].id == frond_tree_id(tree));
  frond_list_free(list);
  OK(frond_db_trees_under(db, "watches", &list, &trees, &count));
  CHECK(count == 0);
  frond_list_free(list);
  WRONG(frond_db_trees_under(db, NULL, &list, &trees, &count));
  WRONG(frond_db_trees_under(db, "watch", NULL, &trees, &count));

  OK(frond_txn_put(txn, tree, text("k"), text("v")));
  OK(frond_txn_lock_range(txn, tree, text("m"), text("n"), FROND_LOCK_SHARED, FROND_WAIT_DEFAULT));
  OK(frond_db_transactions(db, &list, &txns, &count));
  for (found = 0, i = 0; i < count; i++) {
    if (txns[i].id == frond_txn_id(txn)) {
      CHECK(txns[i].txn != 0 && txns[i].isolation == FROND_ISOLATION_REPEATABLE_READ);
      CHECK(txns[i].prepared == 0 && txns[i].messages == 1);
      found++;
    }
  }
  CHECK(found == 1);
  frond_list_free(list);

  OK(frond_db_locks(db, &list, &locks, &count));
  for (found = 0, i = 0; i < count; i++) {
    if (is(locks[i].start, "k"))
      found += locks[i].mode == FROND_LOCK_EXCLUSIVE && locks[i].end.data == NULL && locks[i].waits_for_count == 0;
    if (is(locks[i].start, "m"))
      found += locks[i].mode == FROND_LOCK_SHARED && is(locks[i].end, "n") && locks[i].txn != 0;
  }
  CHECK(found == 2);
  frond_list_free(list);
  OK(frond_txn_rollback(txn));
}

static void finding(void *context, const frond_finding *found)
{
  fprintf(stderr, "finding in %s: %s\n", found->file, found->message);
  ++*(int *) context;
}

/* Counts how often it is told, and ends the check when that comes to 0. */
static bool checking(void *context, const frond_check_progress *progress)
{
  CHECK(progress->bytes_done <= progress->bytes_total);
  return ++*(int *) context != 0;
}

/* Ends the compaction when it has been told as often as context says. */
static bool compacting(void *context, const frond_compact_progress *progress)
{
  CHECK(progress->bytes_done <= progress->bytes_total);
  return --*(int *) context > 0;
}

static void compaction(frond_db *db)
{
  int often = 1 << 30, once = 1;
  OK(frond_db_compact(db, NULL, none(), none(), NULL, NULL));
  OK(frond_db_compact(db, NULL, none(), none(), compacting, &often));
  CHECK(often < 1 << 30);
  IS(FROND_CANCELLED, frond_db_compact(db, NULL, none(), none(), compacting, &once));
  WRONG(frond_db_compact(db, NULL, text("a"), none(), NULL, NULL));
}

static void upkeep(frond_db *db)
{
  frond_statistics before, after;
  frond_recovery_estimate estimate;
  frond_checkpoint_summary checkpoints;
  uint64_t findings = 99;
  int told = 0;
  bool worked;
  OK(frond_db_statistics(db, &before, sizeof before));
  OK(frond_db_checkpoint(db));
  OK(frond_db_sync_log(db));
  OK(frond_db_wait_idle(db));
  OK(frond_db_step_background(db, &worked));
  OK(frond_db_step_background(db, NULL));
  {
    char *shape;
    bool warm = false;
    int waits;
    OK(frond_db_tree_shape(db, &shape));
    CHECK(strncmp(shape, "level 0: ", 9) == 0 && strstr(shape, "root, height ") != NULL);
    frond_string_free(shape);
    WRONG(frond_db_tree_shape(db, NULL));
    WRONG(frond_db_is_warm(db, NULL));
    for (waits = 0; !warm && waits < 3000; waits++) {
      nap();
      OK(frond_db_is_warm(db, &warm));
    }
    CHECK(warm); /* a new database has nothing to be read again */
  }
  OK(frond_db_statistics(db, &after, sizeof after));
  CHECK(after.generation > before.generation && after.checkpoints_by_request > before.checkpoints_by_request);
  OK(frond_db_estimated_recovery(db, &estimate));
  OK(frond_db_checkpoint_summary(db, FROND_CHECKPOINT_BY_REQUEST, &checkpoints));
  CHECK(checkpoints.count == after.checkpoints_by_request && checkpoints.finished > 0);
  CHECK(checkpoints.finished <= checkpoints.count && checkpoints.age_micros < after.uptime_micros + 1000000);
  CHECK(checkpoints.last_micros <= checkpoints.max_micros && checkpoints.max_micros <= checkpoints.sum_micros);
  OK(frond_db_checkpoint_summary(db, FROND_CHECKPOINT_BY_TARGET, &checkpoints));
  CHECK(checkpoints.count == 0 && checkpoints.finished == 0 && checkpoints.age_micros == UINT64_MAX);
  WRONG(frond_db_checkpoint_summary(db, 0, &checkpoints));
  WRONG(frond_db_checkpoint_summary(db, FROND_CHECKPOINT_BY_TARGET, NULL));
  compaction(db);
  OK(frond_db_check(db, finding, NULL, &told, &findings));
  CHECK(findings == 0 && told == 0);
  OK(frond_db_check(db, NULL, NULL, NULL, NULL));
  told= 0;
  OK(frond_db_check(db, NULL, checking, &told, NULL));
  CHECK(told > 1);
  told= -1;
  IS(FROND_CANCELLED, frond_db_check(db, NULL, checking, &told, NULL));
  CHECK(told == 0);
  OK(frond_db_set_memory_bytes(db, 64 << 20));
  OK(frond_db_statistics(db, &after, sizeof after));
  CHECK(after.memory_bytes_max == 64 << 20);
  WRONG(frond_db_set_memory_bytes(db, FROND_MEMORY_BYTES_MIN - 1));
  OK(frond_db_set_checkpoint_interval_ms(db, 0));
  OK(frond_db_set_recovery_target_ms(db, 500));
  OK(frond_db_set_log_sync_period_ms(db, 1000));
  OK(frond_db_poisoned(db));
}

void test_inside(void)
{
  frond_db *db = open_new("inside");
  frond_tree_options options;
  frond_tree *tree;
  frond_txn *txn;
  int i;
  memset(&options, 0, sizeof options);
  options.codec = FROND_CODEC_LZ4;
  options.metadata = text("four");
  OK(frond_db_create_tree(db, "watched", &options, &tree));
  txn = begin(db);
  for (i = 0; i < 1000; i++) {
    char key[32];
    snprintf(key, sizeof key, "row %d", i);
    OK(frond_txn_put(txn, tree, text(key), text(key)));
  }
  OK(frond_txn_commit(txn));
  statistics(db);
  lists(db, tree);
  upkeep(db);
  frond_tree_close(tree);
  OK(frond_db_close(db));
}
