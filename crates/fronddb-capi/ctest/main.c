/* Test program of the C interface: ctest DIRECTORY [GROUP]. Exit code 0 when everything held. */
#include "test.h"

static const char *directory;

void check(int holds, const char *what, const char *file, int line)
{
  const char *message;
  frond_status last;
  if (holds)
    return;
  last = frond_last_error(&message);
  fprintf(stderr, "%s:%d: does not hold: %s (last error %d: %s)\n", file, line, what, (int) last, message);
  exit(1);
}

void check_status(frond_status expected, frond_status status, const char *what, const char *file, int line)
{
  const char *message = "";
  if (status == expected)
    return;
  if (status != FROND_OK)
    (void) frond_last_error(&message);
  fprintf(stderr, "%s:%d: %s is %s and not %s: %s\n", file, line, what, frond_status_name(status),
          frond_status_name(expected), message);
  exit(1);
}

frond_slice text(const char *string)
{
  return frond_bytes(string, strlen(string));
}

frond_slice none(void)
{
  return frond_bytes(NULL, 0);
}

int is(frond_slice slice, const char *string)
{
  return slice.data != NULL && slice.size == strlen(string) && memcmp(slice.data, string, slice.size) == 0;
}

const char *path_of(const char *name)
{
  static char path[4096];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  return path;
}

static frond_db *open_with(const char *name, uint64_t create)
{
  frond_db *db = NULL;
  frond_options *options = frond_options_new();
  OK(frond_options_set(options, FROND_OPTION_CREATE_IF_MISSING, create));
  OK(frond_options_set(options, FROND_OPTION_ERROR_IF_EXISTS, create));
  OK(frond_options_set(options, FROND_OPTION_MEMORY_BYTES, 32 << 20));
  OK(frond_options_set(options, FROND_OPTION_LOG_SEGMENT_BYTES, 4 << 20));
  OK(frond_db_open(path_of(name), options, &db));
  frond_options_free(options);
  CHECK(db != NULL);
  return db;
}

frond_db *open_new(const char *name)
{
  return open_with(name, 1);
}

frond_db *open_again(const char *name)
{
  return open_with(name, 0);
}

frond_txn *begin(frond_db *db)
{
  frond_txn *txn = NULL;
  OK(frond_txn_begin(db, NULL, &txn));
  CHECK(frond_txn_id(txn) != 0);
  return txn;
}

int main(int argc, char **argv)
{
  static const struct {
    const char *name;
    void (*run)(void);
  } groups[] = {{"arguments", test_arguments},       {"rows", test_rows},   {"cursors", test_cursors},
                {"transactions", test_transactions}, {"locks", test_locks}, {"threads", test_threads},
                {"recovery", test_recovery},         {"inside", test_inside},
                {"options", test_options},           {"bad_days", test_bad_days}};
  size_t i, ran = 0;
  if (argc < 2 || argc > 3) {
    fprintf(stderr, "usage: ctest DIRECTORY [GROUP]\n");
    return 2;
  }
  directory = argv[1];
  for (i = 0; i < sizeof groups / sizeof groups[0]; i++) {
    if (argc == 3 && strcmp(argv[2], groups[i].name) != 0)
      continue;
    groups[i].run();
    printf("ok %s\n", groups[i].name);
    ran++;
  }
  return ran == 0 ? 2 : 0;
}
