/* Statuses of bad days: damage, a newer format, a full disk, a disk that fails. The program's own pwrite64, pwritev64v2 and
 * pread64 take the place of the system's, and fail when a test says so. */
#ifdef __linux__
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "open_file.h"
#endif

#include "test.h"

#ifdef __linux__

/* Calls on files whose path contains part fail with the error number; 0: none does. */
static struct {
  volatile int error;
  const char *part;
  int writes;
} failing;

static int fails(int fd, int writes)
{
  if (failing.error == 0 || failing.writes != writes || !is_open_file(fd, failing.part))
    return 0;
  errno = failing.error;
  return 1;
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset)
{
  return fails(fd, 1) ? -1 : syscall(SYS_pwrite64, fd, data, size, offset);
}

ssize_t pwritev64v2(int fd, const struct iovec *pieces, int count, off64_t offset, int flags)
{
  return fails(fd, 1) ? -1 : syscall(SYS_pwritev2, fd, pieces, count, offset, 0L, flags);
}

ssize_t pread64(int fd, void *data, size_t size, off64_t offset)
{
  return fails(fd, 0) ? -1 : syscall(SYS_pread64, fd, data, size, offset);
}

static void fail(const char *part, int writes, int error)
{
  failing.part = part;
  failing.writes = writes;
  failing.error = error;
}

enum { ROWS = 4000 };

static void put_row(frond_txn *txn, frond_tree *tree, int i)
{
  char key[32], value[64];
  snprintf(key, sizeof key, "%08d", i);
  snprintf(value, sizeof value, "%x of a row that fills blocks %x", (unsigned) i * 2654435761u, (unsigned) i * 40503u);
  OK(frond_txn_put(txn, tree, text(key), text(value)));
}

/* A database with a tree whose rows lie in the data file. */
static void make(const char *name)
{
  frond_db *db = open_new(name);
  frond_tree *tree;
  frond_txn *txn;
  int i;
  OK(frond_db_create_tree(db, "t", NULL, &tree));
  txn = begin(db);
  for (i = 0; i < ROWS; i++)
    put_row(txn, tree, i);
  OK(frond_txn_commit(txn));
  OK(frond_db_compact(db, NULL, none(), none(), NULL, NULL));
  OK(frond_db_checkpoint(db));
  frond_tree_close(tree);
  OK(frond_db_close(db));
}

/* Flips bits of one byte of the data file, or flips them back. */
static void flip(const char *name, long at)
{
  char path[4096];
  FILE *file;
  int byte;
  snprintf(path, sizeof path, "%s/data.frond", path_of(name));
  file = fopen(path, "r+b");
  CHECK(file != NULL);
  CHECK(fseek(file, at, SEEK_SET) == 0);
  byte = fgetc(file);
  CHECK(byte != EOF && fseek(file, at, SEEK_SET) == 0);
  CHECK(fputc(byte ^ 0x10, file) != EOF && fclose(file) == 0);
}

struct found {
  int in_tree;
  int in_all;
};

static void finding(void *context, const frond_finding *finding)
{
  struct found *found = context;
  CHECK(strlen(finding->message) > 0 && finding->tree_last >= finding->tree);
  found->in_all++;
  found->in_tree += strcmp(finding->file, "data.frond") == 0 && finding->offset != UINT64_MAX && finding->tree != 0 &&
                    finding->tree_name != NULL && strcmp(finding->tree_name, "t") == 0;
}

/* Damages a block of the user's tree: pages hold all kinds of things, so it is tried out. */
static void damage(const char *name)
{
  long at;
  for (at = (64 << 10) + 100; at < 64 << 20; at += 4096) {
    frond_offline_options options;
    struct found found = {0, 0};
    uint64_t findings = 0;
    char *json;
    int done;
    flip(name, at);
    memset(&options, 0, sizeof options);
    options.finding = finding;
    options.context = &found;
    OK(frond_check(path_of(name), &options, &findings, &json));
    done = findings == 1 && found.in_all == 1 && found.in_tree == 1 && strstr(json, "\"clean\":false") != NULL;
    CHECK((uint64_t) found.in_all == findings);
    frond_string_free(json);
    if (done)
      return;
    flip(name, at);
  }
  CHECK(!"a block of the tree");
}

static void damaged(void)
{
  frond_db *db;
  frond_tree *tree;
  frond_offline_options options;
  struct found found = {0, 0};
  frond_status status = FROND_OK;
  uint64_t findings = 0, rows = 0;
  char from[4096], *json;
  int i;
  make("one-byte");
  damage("one-byte");
  db = open_again("one-byte");
  OK(frond_db_open_tree(db, "t", &tree));
  for (i = 0; i < ROWS && status == FROND_OK; i++) {
    frond_list *list;
    frond_slice value;
    char key[32];
    snprintf(key, sizeof key, "%08d", i);
    status = frond_db_get(db, tree, text(key), &list, &value);
    if (status == FROND_OK)
      frond_list_free(list);
  }
  IS(FROND_CORRUPTION, status);
  {
    const char *message;
    CHECK(frond_last_error(&message) == FROND_CORRUPTION);
    CHECK(strstr(message, "data.frond") != NULL && strstr(message, "offset=") != NULL);
  }
  OK(frond_db_check(db, finding, NULL, &found, &findings));
  CHECK(findings == 1 && found.in_all == 1);
  frond_tree_close(tree);
  OK(frond_db_close(db));
  strcpy(from, path_of("one-byte"));
  memset(&options, 0, sizeof options);
  options.finding = finding;
  options.context = &found;
  OK(frond_salvage(from, path_of("one-byte-salvaged"), &options, &rows, &json));
  CHECK(rows < ROWS && found.in_all >= 2);
  frond_string_free(json);
}

/* The checksum of the log: CRC-32C, of a header over eight zeros and its bytes. */
static uint32_t crc32c(const uint8_t *bytes, size_t size)
{
  uint32_t crc = 0xffffffffu;
  size_t at;
  int bit;
  for (at = 0; at < size; at++) {
    crc ^= bytes[at];
    for (bit = 0; bit < 8; bit++)
      crc = (crc >> 1) ^ (0x82f63b78u & (0u - (crc & 1u)));
  }
  return ~crc;
}

static bool take_event(void *context, const frond_log_event *event)
{
  CHECK(context == NULL && event->lsn > 0);
  return true;
}

/* Segments of the log as a newer version would write them. */
static void newer_format(void)
{
  char path[4096], file_path[8192];
  struct dirent *entry;
  frond_db *db;
  frond_options *options = frond_options_new();
  DIR *log;
  make("newer");
  snprintf(path, sizeof path, "%s/log", path_of("newer"));
  log = opendir(path);
  CHECK(log != NULL);
  while ((entry = readdir(log)) != NULL) {
    uint8_t checked[8 + 512], *header = checked + 8;
    uint32_t crc;
    FILE *file;
    if (strstr(entry->d_name, ".log") == NULL)
      continue;
    snprintf(file_path, sizeof file_path, "%s/%s", path, entry->d_name);
    file = fopen(file_path, "r+b");
    CHECK(file != NULL);
    if (fread(header, 1, 512, file) == 512 && memcmp(header, "FRONDLOG", 8) == 0) {
      header[8] = 99;
      memset(header + 12, 0, 4);
      memset(checked, 0, 8);
      crc = crc32c(checked, sizeof checked);
      memcpy(header + 12, &crc, sizeof crc);
      CHECK(fseek(file, 0, SEEK_SET) == 0 && fwrite(header, 1, 512, file) == 512);
    }
    CHECK(fclose(file) == 0);
  }
  CHECK(closedir(log) == 0);
  IS(FROND_UNSUPPORTED_FORMAT, frond_db_open(path_of("newer"), options, &db));
  IS(FROND_UNSUPPORTED_FORMAT, frond_log_events(path_of("newer"), NULL, take_event, NULL));
  frond_options_free(options);
}

static void full_disk(void)
{
  static uint8_t large[100000];
  frond_options *options = frond_options_new();
  frond_db *db;
  frond_tree *tree;
  OK(frond_options_set(options, FROND_OPTION_CREATE_IF_MISSING, 1));
  fail("full-at-once/data.frond", 1, ENOSPC);
  IS(FROND_NO_SPACE, frond_db_open(path_of("full-at-once"), options, &db));
  fail("", 1, 0);
  frond_options_free(options);

  db = open_new("full");
  OK(frond_db_create_tree(db, "t", NULL, &tree));
  fail("full/data.frond", 1, ENOSPC);
  IS(FROND_NO_SPACE, frond_db_put(db, tree, text("large"), frond_bytes(large, sizeof large)));
  OK(frond_db_put(db, tree, text("small"), text("v"))); /* goes into the log alone */
  fail("", 1, 0);
  OK(frond_db_put(db, tree, text("large"), frond_bytes(large, sizeof large)));
  OK(frond_db_checkpoint(db));
  OK(frond_db_poisoned(db));
  frond_tree_close(tree);
  OK(frond_db_close(db));
}

static void unreadable(void)
{
  frond_db *db;
  frond_tree *tree;
  frond_list *list;
  frond_slice value;
  make("unreadable");
  db = open_again("unreadable");
  OK(frond_db_open_tree(db, "t", &tree));
  fail("unreadable/data.frond", 0, EIO);
  IS(FROND_CORRUPTION, frond_db_get(db, tree, text("00003000"), &list, &value));
  fail("unreadable/data.frond", 0, ENOMEM); /* says nothing about what is stored */
  IS(FROND_IO, frond_db_get(db, tree, text("00003000"), &list, &value));
  fail("", 0, 0);
  OK(frond_db_get(db, tree, text("00003000"), &list, &value));
  CHECK(value.data != NULL);
  frond_list_free(list);
  frond_tree_close(tree);
  OK(frond_db_close(db));
}

static void poisoned(void)
{
  frond_db *db = open_new("poisoned");
  frond_tree *tree;
  frond_list *list;
  frond_slice value;
  const char *message;
  OK(frond_db_create_tree(db, "t", NULL, &tree));
  OK(frond_db_put(db, tree, text("before"), text("v")));
  OK(frond_db_poisoned(db));
  fail("poisoned/log", 1, EIO);
  IS(FROND_POISONED, frond_db_put(db, tree, text("k"), text("v")));
  fail("", 1, 0);
  IS(FROND_POISONED, frond_db_put(db, tree, text("k"), text("v"))); /* for good */
  CHECK(frond_db_poisoned(db) != FROND_OK);
  CHECK(frond_last_error(&message) != FROND_OK && strstr(message, "log") != NULL);
  OK(frond_db_get(db, tree, text("before"), &list, &value)); /* reads go on */
  CHECK(value.data != NULL);
  frond_list_free(list);
  frond_tree_close(tree);
  IS(FROND_POISONED, frond_db_close(db));
  db = open_again("poisoned");
  OK(frond_db_open_tree(db, "t", &tree));
  OK(frond_db_get(db, tree, text("before"), &list, &value));
  CHECK(value.data != NULL);
  frond_list_free(list);
  OK(frond_db_put(db, tree, text("k"), text("v")));
  frond_tree_close(tree);
  OK(frond_db_close(db));
}

void test_bad_days(void)
{
  damaged();
  newer_format();
  full_disk();
  unreadable();
  poisoned();
}

#else

void test_bad_days(void)
{
}

#endif
