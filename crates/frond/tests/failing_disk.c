/* Preloaded into the tool: calls on files whose path contains FAIL_PATH fail with the error FAIL_ERRNO, if FAIL_CALL
 * names them, but for the first FAIL_AFTER of them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "../../fronddb-capi/ctest/open_file.h"

static int fails(const char *call, int fd)
{
  static atomic_int calls;
  const char *wanted = getenv("FAIL_CALL"), *part = getenv("FAIL_PATH"), *number = getenv("FAIL_ERRNO");
  const char *after = getenv("FAIL_AFTER");
  if (wanted == NULL || part == NULL || number == NULL || strcmp(wanted, call) != 0 || !is_open_file(fd, part))
    return 0;
  if (after != NULL && atomic_fetch_add(&calls, 1) < atoi(after))
    return 0;
  errno = atoi(number);
  return 1;
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset)
{
  ssize_t (*next)(int, const void *, size_t, off64_t);
  *(void **) &next = dlsym(RTLD_NEXT, "pwrite64");
  return fails("write", fd) ? -1 : next(fd, data, size, offset);
}

ssize_t pread64(int fd, void *data, size_t size, off64_t offset)
{
  ssize_t (*next)(int, void *, size_t, off64_t);
  *(void **) &next = dlsym(RTLD_NEXT, "pread64");
  return fails("read", fd) ? -1 : next(fd, data, size, offset);
}

int fdatasync(int fd)
{
  int (*next)(int);
  *(void **) &next = dlsym(RTLD_NEXT, "fdatasync");
  return fails("sync", fd) ? -1 : next(fd);
}

/* A durable write is a write and a sync. */
ssize_t pwritev64v2(int fd, const struct iovec *pieces, int count, off64_t offset, int flags)
{
  ssize_t (*next)(int, const struct iovec *, int, off64_t, int);
  *(void **) &next = dlsym(RTLD_NEXT, "pwritev64v2");
  return fails("write", fd) || fails("sync", fd) ? -1 : next(fd, pieces, count, offset, flags);
}
