/* Cursors: every move, bounds, batch fetch both ways and into buffers of every size. */
#include <string.h>

#include "test.h"

#define ROWS 2000

static void number(char *out, const char *format, int i)
{
  snprintf(out, 32, format, i);
}

static void moves(frond_txn *txn, frond_tree *tree)
{
  frond_cursor *cursor;
  frond_row row;
  OK(frond_cursor_open(txn, tree, NULL, &cursor));
  OK(frond_cursor_row(cursor, &row));
  CHECK(row.key.data == NULL && row.value.data == NULL);
  OK(frond_cursor_move(cursor, FROND_MOVE_FIRST, none(), &row));
  CHECK(is(row.key, "key0000") && is(row.value, "value 0"));
  OK(frond_cursor_move(cursor, FROND_MOVE_NEXT, none(), &row));
  CHECK(is(row.key, "key0001") && is(row.value, "value 1"));
  OK(frond_cursor_move(cursor, FROND_MOVE_PREV, none(), NULL));
  OK(frond_cursor_row(cursor, &row));
  CHECK(is(row.key, "key0000"));
  OK(frond_cursor_move(cursor, FROND_MOVE_PREV, none(), &row));
  CHECK(row.key.data == NULL);
  OK(frond_cursor_move(cursor, FROND_MOVE_LAST, none(), &row));
  CHECK(is(row.key, "key1999"));
  OK(frond_cursor_move(cursor, FROND_MOVE_SEEK, text("key0100!"), &row));
  CHECK(is(row.key, "key0101"));
  OK(frond_cursor_move(cursor, FROND_MOVE_SEEK_FOR_PREV, text("key0100!"), &row));
  CHECK(is(row.key, "key0100"));
  OK(frond_cursor_move(cursor, FROND_MOVE_SEEK, row.key, &row)); /* to where it is */
  CHECK(is(row.key, "key0100"));
  OK(frond_cursor_move(cursor, FROND_MOVE_SEEK_FOR_PREV, frond_bytes(row.key.data, 6), &row));
  CHECK(is(row.key, "key0099"));
  OK(frond_cursor_move(cursor, FROND_MOVE_SEEK, text("z"), &row));
  CHECK(row.key.data == NULL);
  WRONG(frond_cursor_move(cursor, 0, none(), &row));
  OK(frond_cursor_move(cursor, FROND_MOVE_AGAIN, none(), &row)); /* nothing to take */
  CHECK(row.key.data == NULL);
  WRONG(frond_cursor_move(cursor, 8, none(), &row));
  WRONG(frond_cursor_row(cursor, NULL));
  frond_cursor_close(cursor);
}

/* Of a value that is kept apart only the head is read. */
static void heads(frond_db *db)
{
  static uint8_t large[200000];
  frond_tree *tree;
  frond_txn *txn;
  frond_cursor *cursor;
  frond_cursor_options options;
  frond_row row;
  frond_slice value;
  size_t i;
  for (i= 0; i < sizeof large; i++)
    large[i]= (uint8_t) (i * 7 + i / 256);
  OK(frond_db_create_tree(db, "heads", NULL, &tree));
  OK(frond_db_put(db, tree, text("large"), frond_bytes(large, sizeof large)));
  OK(frond_db_put(db, tree, text("small"), text("whole")));
  txn= begin(db);
  OK(frond_txn_get_head(txn, tree, text("large"), &value));
  CHECK(value.size == 2048 && memcmp(value.data, large, 2048) == 0);
  OK(frond_txn_get_head(txn, tree, text("small"), &value));
  CHECK(is(value, "whole"));
  OK(frond_txn_get_head(txn, tree, text("none"), &value));
  CHECK(value.data == NULL);
  WRONG(frond_txn_get_head(NULL, tree, text("small"), &value));
  memset(&options, 0, sizeof options);
  options.flags= FROND_CURSOR_HEADS_ONLY;
  OK(frond_cursor_open(txn, tree, &options, &cursor));
  OK(frond_cursor_move(cursor, FROND_MOVE_FIRST, none(), &row));
  CHECK(is(row.key, "large") && row.value.size == 2048 && memcmp(row.value.data, large, 2048) == 0);
  OK(frond_cursor_move(cursor, FROND_MOVE_NEXT, none(), &row));
  CHECK(is(row.key, "small") && is(row.value, "whole"));
  OK(frond_cursor_move(cursor, FROND_MOVE_PREV, none(), &row));
  CHECK(is(row.key, "large") && row.value.size == 2048);
  frond_cursor_close(cursor);
  OK(frond_txn_get(txn, tree, text("large"), &value));
  CHECK(value.size == sizeof large && memcmp(value.data, large, sizeof large) == 0);
  OK(frond_txn_rollback(txn));
  frond_tree_close(tree);
}

/* 3,000 rows that were rolled back lie before one that is there. */
static void giving_up(frond_db *db)
{
  frond_tree *tree;
  frond_txn *txn;
  frond_cursor *cursor;
  frond_cursor_options options;
  frond_row row;
  char key[32];
  int i;
  OK(frond_db_create_tree(db, "giving up", NULL, &tree));
  OK(frond_db_put(db, tree, text("z"), text("row")));
  OK(frond_txn_begin(db, NULL, &txn));
  for (i = 0; i < 3 * FROND_CURSOR_KEYS_BEFORE_GIVING_UP; i++) {
    number(key, "key%04d", i);
    OK(frond_txn_put(txn, tree, text(key), text("gone")));
  }
  OK(frond_txn_rollback(txn));
  OK(frond_txn_begin(db, NULL, &txn));
  memset(&options, 0, sizeof options);
  options.flags = FROND_CURSOR_GIVE_UP;
  OK(frond_cursor_open(txn, tree, &options, &cursor));
  CHECK(!frond_cursor_gave_up(cursor) && !frond_cursor_gave_up(NULL));
  CHECK(frond_cursor_gave_up_at(cursor).data == NULL && frond_cursor_gave_up_at(NULL).data == NULL);
  OK(frond_cursor_move(cursor, FROND_MOVE_LAST, none(), &row));
  CHECK(is(row.key, "z") && !frond_cursor_gave_up(cursor));
  OK(frond_cursor_move(cursor, FROND_MOVE_FIRST, none(), &row));
  CHECK(row.key.data == NULL && frond_cursor_gave_up(cursor));
  /* Some are looked at twice. */
  CHECK(frond_cursor_gave_up_at(cursor).size == 7 && memcmp(frond_cursor_gave_up_at(cursor).data, "key09", 5) == 0);
  OK(frond_cursor_move(cursor, FROND_MOVE_NEXT, none(), &row));
  CHECK(row.key.data == NULL && frond_cursor_gave_up(cursor));
  frond_cursor_close(cursor);
  /* The end of a range is no giving up. */
  options.lower = text("zz");
  OK(frond_cursor_open(txn, tree, &options, &cursor));
  OK(frond_cursor_move(cursor, FROND_MOVE_FIRST, none(), &row));
  CHECK(row.key.data == NULL && !frond_cursor_gave_up(cursor));
  frond_cursor_close(cursor);
  OK(frond_cursor_open(txn, tree, NULL, &cursor));
  OK(frond_cursor_move(cursor, FROND_MOVE_FIRST, none(), &row));
  CHECK(is(row.key, "z") && !frond_cursor_gave_up(cursor));
  frond_cursor_close(cursor);
  OK(frond_txn_rollback(txn));
  frond_tree_close(tree);
}

static void bounds(frond_txn *txn, frond_tree *tree)
{
  static const struct {
    uint32_t flags;
    const char *first, *last;
  } cases[] = {{0, "key0010", "key0019"},
               {FROND_CURSOR_LOWER_EXCLUDED, "key0011", "key0019"},
               {FROND_CURSOR_UPPER_INCLUDED, "key0010", "key0020"},
               {FROND_CURSOR_LOWER_EXCLUDED | FROND_CURSOR_UPPER_INCLUDED | FROND_CURSOR_NO_READ_AHEAD |
                  FROND_CURSOR_NO_FILL_CACHE,
                "key0011", "key0020"}};
  frond_cursor_options options;
  frond_cursor *cursor;
  frond_row row;
  size_t i;
  memset(&options, 0, sizeof options);
  options.lower = text("key0010");
  options.upper = text("key0020");
  for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    options.flags = cases[i].flags;
    OK(frond_cursor_open(txn, tree, &options, &cursor));
    OK(frond_cursor_move(cursor, FROND_MOVE_FIRST, none(), &row));
    CHECK(is(row.key, cases[i].first));
    OK(frond_cursor_move(cursor, FROND_MOVE_LAST, none(), &row));
    CHECK(is(row.key, cases[i].last));
    frond_cursor_close(cursor);
  }
  options.flags = FROND_CURSOR_KEYS_ONLY;
  OK(frond_cursor_open(txn, tree, &options, &cursor));
  OK(frond_cursor_move(cursor, FROND_MOVE_FIRST, none(), &row));
  CHECK(is(row.key, "key0010") && row.value.size == 0);
  frond_cursor_close(cursor);
  options.flags = 4096;
  WRONG(frond_cursor_open(txn, tree, &options, &cursor));
  options.flags = 0;
  options.lock = 3;
  WRONG(frond_cursor_open(txn, tree, &options, &cursor));
  memset(&options, 0, sizeof options);
  options.prefix = text("key01");
  OK(frond_cursor_open(txn, tree, &options, &cursor));
  OK(frond_cursor_move(cursor, FROND_MOVE_FIRST, none(), &row));
  CHECK(is(row.key, "key0100"));
  OK(frond_cursor_move(cursor, FROND_MOVE_LAST, none(), &row));
  CHECK(is(row.key, "key0199"));
  frond_cursor_close(cursor);
}

/* Fetches everything from `first` on in one direction, and checks that it is what it should be. */
static void fetch_all(frond_txn *txn, frond_tree *tree, frond_move first, size_t capacity, uint32_t rows_max,
                      uint32_t flags)
{
  frond_move onward = first == FROND_MOVE_FIRST ? FROND_MOVE_NEXT : FROND_MOVE_PREV;
  frond_move move = first;
  uint8_t *memory = malloc(capacity + 1);
  frond_cursor *cursor;
  frond_fetch fetch;
  int expected = first == FROND_MOVE_FIRST ? 0 : ROWS - 1;
  int step = first == FROND_MOVE_FIRST ? 1 : -1;
  size_t total = 0;

  OK(frond_cursor_open(txn, tree, NULL, &cursor));
  memset(&fetch, 0, sizeof fetch);
  fetch.buffer = memory + 1; /* any alignment will do */
  fetch.capacity = capacity;
  fetch.rows_max = rows_max;
  fetch.flags = flags;
  do {
    const uint8_t *at = fetch.buffer;
    uint32_t i;
    OK(frond_cursor_fetch(cursor, move, none(), &fetch));
    CHECK(fetch.bytes <= capacity && (rows_max == 0 || fetch.rows <= rows_max));
    CHECK(fetch.rows > 0 || !fetch.more);
    for (i = 0; i < fetch.rows; i++) {
      char key[32], value[32];
      frond_row row;
      at = frond_fetch_row(at, &row);
      number(key, "key%04d", expected);
      number(value, flags == 0 ? "value %d" : "", expected);
      CHECK(is(row.key, key) && is(row.value, value));
      expected += step;
    }
    CHECK(at == fetch.buffer + fetch.bytes);
    total += fetch.rows;
    move = onward;
  } while (fetch.more);
  CHECK(total == ROWS);
  frond_cursor_close(cursor);
  free(memory);
}

static void small_buffers(frond_txn *txn, frond_tree *tree)
{
  uint8_t buffer[64];
  frond_cursor *cursor;
  frond_fetch fetch;
  frond_row row;
  OK(frond_cursor_open(txn, tree, NULL, &cursor));
  memset(&fetch, 0, sizeof fetch);
  /* No room at all: the cursor waits at the row, and says what it takes. */
  OK(frond_cursor_fetch(cursor, FROND_MOVE_SEEK, text("key0500"), &fetch));
  CHECK(fetch.rows == 0 && fetch.more == 1 && fetch.bytes == 0 && fetch.bytes_needed == 24);
  OK(frond_cursor_row(cursor, &row));
  CHECK(is(row.key, "key0500"));
  fetch.buffer = buffer;
  fetch.capacity = fetch.bytes_needed;
  OK(frond_cursor_fetch(cursor, FROND_MOVE_NEXT, none(), &fetch));
  CHECK(fetch.rows == 1 && fetch.more == 1 && fetch.bytes == 24 && fetch.bytes_needed == 24);
  (void) frond_fetch_row(buffer, &row);
  CHECK(is(row.key, "key0500") && is(row.value, "value 500"));
  /* The row that waits is packed first when the direction turns, too. */
  fetch.capacity = sizeof buffer;
  OK(frond_cursor_fetch(cursor, FROND_MOVE_PREV, none(), &fetch));
  CHECK(fetch.rows == 2);
  (void) frond_fetch_row(frond_fetch_row(buffer, &row), &row);
  CHECK(is(row.key, "key0500"));
  /* A move by key forgets it. */
  fetch.rows_max = 1;
  OK(frond_cursor_fetch(cursor, FROND_MOVE_SEEK_FOR_PREV, text("key0700"), &fetch));
  (void) frond_fetch_row(buffer, &row);
  CHECK(fetch.rows == 1 && fetch.bytes_needed == 0 && is(row.key, "key0700"));
  WRONG(frond_cursor_fetch(cursor, FROND_MOVE_NEXT, none(), NULL));
  fetch.flags = 4;
  WRONG(frond_cursor_fetch(cursor, FROND_MOVE_NEXT, none(), &fetch));
  fetch.flags = 0;
  fetch.buffer = NULL;
  WRONG(frond_cursor_fetch(cursor, FROND_MOVE_NEXT, none(), &fetch));
  frond_cursor_close(cursor);
}

/* Long values and short ones, some of them newer than what the checkpoint brought into the tree. */
static void lent_value(char *out, int i)
{
  int size = sprintf(out, "value %d", i);
  if (i % 3 != 0)
    memset(out + size, 'x', (size_t) (i % 500)), out[size + i % 500] = 0;
}

/* Lent rows stay until the next call, all of a batch at once, wherever their blocks end. */
static void lent(frond_db *db)
{
  static frond_row rows[300];
  static uint8_t buffer[1 << 16];
  frond_move move;
  frond_tree *tree;
  frond_txn *txn;
  int i;
  OK(frond_db_create_tree(db, "lent", NULL, &tree));
  for (i = 0; i < 2 * ROWS; i++) {
    char key[32], value[600];
    if (i == ROWS)
      OK(frond_db_checkpoint(db));
    if (i >= ROWS && i % 50 != 0)
      continue;
    number(key, "key%04d", i % ROWS);
    lent_value(value, i % ROWS);
    OK(frond_db_put(db, tree, text(key), text(value)));
  }
  for (move = FROND_MOVE_FIRST; move <= FROND_MOVE_LAST; move++) {
    int expected = move == FROND_MOVE_FIRST ? 0 : ROWS - 1, step = move == FROND_MOVE_FIRST ? 1 : -1, total = 0;
    frond_cursor *cursor;
    frond_fetch fetch;
    txn = begin(db);
    OK(frond_cursor_open(txn, tree, NULL, &cursor));
    memset(&fetch, 0, sizeof fetch);
    fetch.buffer = buffer;
    fetch.capacity = sizeof buffer;
    fetch.rows_max = 300;
    fetch.flags = FROND_FETCH_LENT;
    fetch.more = 1;
    for (i = 0; fetch.more; i++) {
      const uint8_t *at = buffer;
      uint32_t row;
      OK(frond_cursor_fetch(cursor, i > 0 ? (step > 0 ? FROND_MOVE_NEXT : FROND_MOVE_PREV) : move, none(), &fetch));
      for (row = 0; row < fetch.rows; row++)
        at = frond_fetch_lent(at, &rows[row]);
      CHECK(at == buffer + fetch.bytes);
      for (row = 0; row < fetch.rows; row++, expected += step) {
        char key[32], value[600];
        number(key, "key%04d", expected);
        lent_value(value, expected);
        CHECK(is(rows[row].key, key) && is(rows[row].value, value));
      }
      total += (int) fetch.rows;
    }
    CHECK(total == ROWS);
    frond_cursor_close(cursor);
    OK(frond_txn_commit(txn));
  }
  frond_tree_close(tree);
}

/* A row of FAR_ROWS: its value begins with the key of another. */
#define FAR_ROWS 60000
#define FAR_BYTES 400

static void far_value(char *out, uint32_t i)
{
  uint32_t state = i * 2654435761u + 1, at;
  for (at = 0; at < FAR_BYTES; at++) {
    state = state * 1664525u + 1013904223u;
    out[at] = (char) (state >> 24);
  }
  number(out, "far%05d", (int) (i * 7919u % FAR_ROWS));
}

static uint32_t take_far(frond_cursor *cursor, frond_move move, frond_slice key, frond_row *rows)
{
  static uint8_t buffer[1 << 12];
  const uint8_t *at = buffer;
  frond_fetch fetch;
  uint32_t row;
  memset(&fetch, 0, sizeof fetch);
  fetch.buffer = buffer;
  fetch.capacity = sizeof buffer;
  fetch.rows_max = 20;
  fetch.flags = FROND_FETCH_LENT;
  OK(frond_cursor_fetch(cursor, move, key, &fetch));
  for (row = 0; row < fetch.rows; row++)
    at = frond_fetch_lent(at, &rows[row]);
  return fetch.rows;
}

/* What is lent stays while the cache gives up its blocks for others, and may be what is looked for next. */
static void lent_beyond_the_cache(void)
{
  frond_db *db = open_new("far");
  frond_tree *tree;
  frond_txn *txn;
  frond_cursor *cursor, *other;
  frond_row rows[20], row;
  uint32_t expected = 0, count, i, round;
  OK(frond_db_set_memory_bytes(db, FROND_MEMORY_BYTES_MIN));
  OK(frond_db_create_tree(db, "far", NULL, &tree));
  txn = begin(db);
  for (i = 0; i < FAR_ROWS; i++) {
    char key[32], value[FAR_BYTES];
    number(key, "far%05d", (int) i);
    far_value(value, i);
    OK(frond_txn_put(txn, tree, text(key), frond_bytes(value, sizeof value)));
  }
  OK(frond_txn_commit(txn));
  OK(frond_db_checkpoint(db));
  txn = begin(db);
  OK(frond_cursor_open(txn, tree, NULL, &cursor));
  count = take_far(cursor, FROND_MOVE_FIRST, none(), rows);
  for (round = 0; round < 4; round++) {
    OK(frond_cursor_open(txn, tree, NULL, &other));
    OK(frond_cursor_move(other, FROND_MOVE_FIRST, none(), &row));
    for (i = 1; i < FAR_ROWS; i++)
      OK(frond_cursor_move(other, FROND_MOVE_NEXT, none(), &row));
    frond_cursor_close(other);
    CHECK(count == 20);
    for (i = 0; i < count; i++) {
      char key[32], value[FAR_BYTES];
      number(key, "far%05d", (int) (expected + i));
      far_value(value, expected + i);
      CHECK(is(rows[i].key, key) && rows[i].value.size == FAR_BYTES &&
            memcmp(rows[i].value.data, value, FAR_BYTES) == 0);
    }
    expected = (expected + 3) * 7919u % FAR_ROWS;
    count = take_far(cursor, FROND_MOVE_SEEK, frond_bytes(rows[3].value.data, 8), rows);
  }
  frond_cursor_close(cursor);
  OK(frond_txn_commit(txn));
  frond_tree_close(tree);
  OK(frond_db_close(db));
}

static void after_the_end(frond_db *db, frond_tree *tree)
{
  frond_txn *txn = begin(db);
  frond_cursor *cursor;
  frond_row row;
  OK(frond_cursor_open(txn, tree, NULL, &cursor));
  OK(frond_cursor_move(cursor, FROND_MOVE_FIRST, none(), &row));
  OK(frond_txn_commit(txn));
  IS(FROND_CLOSED, frond_cursor_move(cursor, FROND_MOVE_NEXT, none(), &row));
  frond_cursor_close(cursor);
  /* The row that did not fit is nobody's any more, either. */
  uint8_t buffer[64];
  frond_fetch fetch;
  txn = begin(db);
  OK(frond_cursor_open(txn, tree, NULL, &cursor));
  memset(&fetch, 0, sizeof fetch);
  OK(frond_cursor_fetch(cursor, FROND_MOVE_FIRST, none(), &fetch));
  CHECK(fetch.rows == 0 && fetch.bytes_needed > 0);
  OK(frond_txn_rollback(txn));
  IS(FROND_CLOSED, frond_cursor_row(cursor, &row));
  fetch.buffer = buffer;
  fetch.capacity = sizeof buffer;
  IS(FROND_CLOSED, frond_cursor_fetch(cursor, FROND_MOVE_NEXT, none(), &fetch));
  CHECK(fetch.rows == 0);
  frond_cursor_close(cursor);
}

/* What a cursor sees that is not as old as its transaction's snapshot, and one that sees less. */
static void committed_and_latest(frond_db *db)
{
  frond_txn_options uncommitted;
  frond_cursor_options options;
  frond_cursor *cursor;
  frond_tree *tree;
  frond_row row;
  frond_txn *reader, *writer;
  OK(frond_db_create_tree(db, "seen", NULL, &tree));
  OK(frond_db_put(db, tree, text("a"), text("old")));

  memset(&options, 0, sizeof options);
  reader = begin(db);
  OK(frond_cursor_open(reader, tree, NULL, &cursor));
  OK(frond_cursor_move(cursor, FROND_MOVE_FIRST, none(), &row));
  OK(frond_db_put(db, tree, text("a"), text("new")));
  OK(frond_cursor_move(cursor, FROND_MOVE_FIRST, none(), &row));
  CHECK(is(row.value, "old")); /* its snapshot */
  frond_cursor_close(cursor);
  options.flags = FROND_CURSOR_LATEST;
  OK(frond_cursor_open(reader, tree, &options, &cursor));
  OK(frond_cursor_move(cursor, FROND_MOVE_FIRST, none(), &row));
  CHECK(is(row.value, "new"));
  OK(frond_db_put(db, tree, text("a"), text("newest")));
  OK(frond_cursor_move(cursor, FROND_MOVE_FIRST, none(), &row));
  CHECK(is(row.value, "newest"));
  frond_cursor_close(cursor);
  OK(frond_txn_commit(reader));

  writer = begin(db);
  OK(frond_txn_put(writer, tree, text("a"), text("not committed")));
  memset(&uncommitted, 0, sizeof uncommitted);
  uncommitted.isolation = FROND_ISOLATION_READ_UNCOMMITTED;
  OK(frond_txn_begin(db, &uncommitted, &reader));
  OK(frond_cursor_open(reader, tree, NULL, &cursor));
  OK(frond_cursor_move(cursor, FROND_MOVE_FIRST, none(), &row));
  CHECK(is(row.value, "not committed"));
  frond_cursor_close(cursor);
  options.flags = FROND_CURSOR_COMMITTED;
  OK(frond_cursor_open(reader, tree, &options, &cursor));
  OK(frond_cursor_move(cursor, FROND_MOVE_FIRST, none(), &row));
  CHECK(is(row.value, "newest"));
  frond_cursor_close(cursor);
  options.flags = FROND_CURSOR_ADDED;
  OK(frond_cursor_open(reader, tree, &options, &cursor));
  OK(frond_cursor_move(cursor, FROND_MOVE_FIRST, none(), &row));
  CHECK(is(row.value, "not committed"));
  frond_cursor_close(cursor);
  OK(frond_txn_commit(reader));
  options.flags = FROND_CURSOR_OTHERS;
  OK(frond_cursor_open(writer, tree, &options, &cursor));
  OK(frond_cursor_move(cursor, FROND_MOVE_FIRST, none(), &row));
  CHECK(is(row.value, "newest"));
  frond_cursor_close(cursor);
  OK(frond_txn_rollback(writer));
  frond_tree_close(tree);
}

void test_cursors(void)
{
  frond_db *db = open_new("cursors");
  frond_tree *tree;
  frond_txn *txn;
  int i;
  OK(frond_db_create_tree(db, "t", NULL, &tree));
  txn = begin(db);
  for (i = 0; i < ROWS; i++) {
    char key[32], value[32];
    number(key, "key%04d", i);
    number(value, "value %d", i);
    OK(frond_txn_put(txn, tree, text(key), text(value)));
  }
  OK(frond_txn_commit(txn));
  for (i = 0; i < 2; i++) {
    txn = begin(db);
    moves(txn, tree);
    bounds(txn, tree);
    fetch_all(txn, tree, FROND_MOVE_FIRST, 1 << 20, 0, 0);
    fetch_all(txn, tree, FROND_MOVE_FIRST, 100, 0, 0);
    fetch_all(txn, tree, FROND_MOVE_FIRST, 1000, 7, 0);
    fetch_all(txn, tree, FROND_MOVE_FIRST, 32, 0, 0);
    fetch_all(txn, tree, FROND_MOVE_FIRST, 1000, 0, FROND_FETCH_KEYS_ONLY);
    fetch_all(txn, tree, FROND_MOVE_LAST, 1 << 20, 0, 0);
    fetch_all(txn, tree, FROND_MOVE_LAST, 100, 0, 0);
    fetch_all(txn, tree, FROND_MOVE_LAST, 1000, ROWS, 0);
    small_buffers(txn, tree);
    OK(frond_txn_commit(txn));
    after_the_end(db, tree);
    OK(frond_db_checkpoint(db)); /* and once more from the tree on disk */
  }
  heads(db);
  giving_up(db);
  committed_and_latest(db);
  lent(db);
  lent_beyond_the_cache();
  frond_tree_close(tree);
  OK(frond_db_close(db));
}
