/* Many threads, one database: transfers between accounts, each row with its index entry, retried when they meet;
 * readers that must see the same sum always; somebody who looks inside and cancels meanwhile. */
#include <pthread.h>

#include "test.h"

#define ACCOUNTS 20
#define START 1000
#define WRITERS 4
#define TRANSFERS 300

static frond_db *db;
static frond_tree *accounts, *by_balance;
static int running;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static int writers_running(int change)
{
  int now;
  CHECK(pthread_mutex_lock(&mutex) == 0);
  now = running += change;
  CHECK(pthread_mutex_unlock(&mutex) == 0);
  return now;
}

static void account_key(char key[32], int account)
{
  snprintf(key, 32, "account %02d", account);
}

static void entry_key(char key[32], int balance, int account)
{
  snprintf(key, 32, "%08d/%02d", balance, account);
}

/* Changes a row and its index entry by one call. */
static frond_status change(frond_txn *txn, int account, int old_balance, int new_balance)
{
  char key[32], old_entry[32], new_entry[32];
  frond_operation operations[3];
  size_t failed;
  memset(operations, 0, sizeof operations);
  account_key(key, account);
  entry_key(old_entry, old_balance, account);
  entry_key(new_entry, new_balance, account);
  operations[0].tree = accounts;
  operations[0].op = FROND_OP_PUT;
  operations[0].key = text(key);
  operations[0].value = frond_bytes(&new_balance, sizeof new_balance);
  operations[1].tree = operations[2].tree = by_balance;
  operations[1].flags = operations[2].flags = FROND_OPERATION_COVERED;
  operations[1].op = FROND_OP_SINGLE_DELETE;
  operations[1].key = text(old_entry);
  operations[2].op = FROND_OP_PUT;
  operations[2].key = text(new_entry);
  return frond_txn_write(txn, operations, 3, &failed);
}

static frond_status balance_of(frond_txn *txn, int account, int *balance)
{
  char key[32];
  frond_slice value;
  frond_status status;
  account_key(key, account);
  status = frond_txn_get_locked(txn, accounts, text(key), FROND_LOCK_EXCLUSIVE, FROND_WAIT_DEFAULT, &value, NULL);
  if (status == FROND_OK) {
    CHECK(value.size == sizeof *balance);
    memcpy(balance, value.data, sizeof *balance);
  }
  return status;
}

static frond_status transfer(frond_txn *txn, int from, int to)
{
  int here, there;
  frond_status status = balance_of(txn, from, &here);
  if (status == FROND_OK)
    status = balance_of(txn, to, &there);
  if (status == FROND_OK)
    status = change(txn, from, here, here - 1);
  if (status == FROND_OK)
    status = change(txn, to, there, there + 1);
  return status;
}

static void *writer(void *argument)
{
  unsigned seed = *(unsigned *) argument;
  int done = 0;
  while (done < TRANSFERS) {
    frond_txn_options options;
    frond_txn *txn;
    frond_status status;
    int from, to;
    seed = seed * 1103515245u + 12345u;
    from = (int) (seed >> 16) % ACCOUNTS;
    to = (from + 1 + (int) (seed >> 8) % (ACCOUNTS - 1)) % ACCOUNTS;
    memset(&options, 0, sizeof options);
    options.durability = FROND_DURABILITY_WRITE;
    OK(frond_txn_begin(db, &options, &txn));
    status = transfer(txn, from, to);
    if (status == FROND_OK && seed % 7 != 0) {
      OK(frond_txn_commit(txn));
      done++;
    } else {
      CHECK(status == FROND_OK || status == FROND_DEADLOCK || status == FROND_CANCELLED);
      OK(frond_txn_rollback(txn));
    }
  }
  writers_running(-1);
  return NULL;
}

/* The sum by the rows and by the index, in one snapshot, row by row and by batches. */
static void check_sums(void)
{
  frond_txn *txn;
  frond_cursor *cursor;
  frond_row row;
  frond_fetch fetch;
  uint8_t buffer[256];
  int sum = 0, entries = 0;
  frond_move move = FROND_MOVE_LAST;
  OK(frond_db_snapshot(db, &txn));
  OK(frond_cursor_open(txn, accounts, NULL, &cursor));
  OK(frond_cursor_move(cursor, FROND_MOVE_FIRST, none(), &row));
  while (row.key.data != NULL) {
    int balance;
    memcpy(&balance, row.value.data, sizeof balance);
    sum += balance;
    OK(frond_cursor_move(cursor, FROND_MOVE_NEXT, none(), &row));
  }
  frond_cursor_close(cursor);
  CHECK(sum == ACCOUNTS * START);
  OK(frond_cursor_open(txn, by_balance, NULL, &cursor));
  memset(&fetch, 0, sizeof fetch);
  fetch.buffer = buffer;
  fetch.capacity = sizeof buffer;
  for (sum = 0; move != 0; move = fetch.more ? FROND_MOVE_PREV : 0) {
    const uint8_t *at = buffer;
    uint32_t i;
    OK(frond_cursor_fetch(cursor, move, none(), &fetch));
    for (i = 0; i < fetch.rows; i++, entries++) {
      at = frond_fetch_row(at, &row);
      sum += atoi((const char *) row.key.data);
    }
  }
  CHECK(sum == ACCOUNTS * START && entries == ACCOUNTS);
  frond_cursor_close(cursor);
  OK(frond_txn_commit(txn));
}

static void *reader(void *unused)
{
  (void) unused;
  while (writers_running(0) > 0)
    check_sums();
  return NULL;
}

/* Looks at everything, and cancels a transaction now and then. */
static void *watcher(void *unused)
{
  size_t turn = 0;
  (void) unused;
  while (writers_running(0) > 0) {
    frond_list *list;
    const frond_txn_info *txns;
    const frond_lock_info *locks;
    frond_statistics statistics;
    size_t count;
    OK(frond_db_statistics(db, &statistics, sizeof statistics));
    OK(frond_db_locks(db, &list, &locks, &count));
    frond_list_free(list);
    OK(frond_db_transactions(db, &list, &txns, &count));
    /* Not the reader, which has neither written nor locked: its scan may end, too, where it passes many keys without rows. */
    if (count > 0 && turn++ % 16 == 0 && txns[turn % count].txn != 0) {
      frond_status status = frond_db_cancel(db, txns[turn % count].id);
      CHECK(status == FROND_OK || status == FROND_NOT_FOUND);
    }
    frond_list_free(list);
    if (turn % 64 == 0)
      OK(frond_db_checkpoint(db));
  }
  return NULL;
}

void test_threads(void)
{
  pthread_t threads[WRITERS + 2];
  unsigned seeds[WRITERS];
  frond_txn *txn;
  uint64_t findings;
  int i;
  db = open_new("threads");
  OK(frond_db_create_tree(db, "accounts", NULL, &accounts));
  OK(frond_db_create_tree(db, "by balance", NULL, &by_balance));
  txn = begin(db);
  for (i = 0; i < ACCOUNTS; i++) {
    char key[32], entry[32];
    int balance = START;
    account_key(key, i);
    entry_key(entry, balance, i);
    OK(frond_txn_insert(txn, accounts, text(key), frond_bytes(&balance, sizeof balance)));
    OK(frond_txn_insert(txn, by_balance, text(entry), none()));
  }
  OK(frond_txn_commit(txn));
  running = WRITERS;
  for (i = 0; i < WRITERS; i++) {
    seeds[i] = (unsigned) i + 1;
    CHECK(pthread_create(&threads[i], NULL, writer, &seeds[i]) == 0);
  }
  CHECK(pthread_create(&threads[WRITERS], NULL, reader, NULL) == 0);
  CHECK(pthread_create(&threads[WRITERS + 1], NULL, watcher, NULL) == 0);
  for (i = 0; i < WRITERS + 2; i++)
    CHECK(pthread_join(threads[i], NULL) == 0);
  check_sums();
  OK(frond_db_check(db, NULL, NULL, NULL, &findings));
  CHECK(findings == 0);
  frond_tree_close(accounts);
  frond_tree_close(by_balance);
  OK(frond_db_close(db));
}
