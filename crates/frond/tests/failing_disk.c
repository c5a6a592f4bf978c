/* Preloaded into the tool: calls on files whose path contains FAIL_PATH fail with the error FAIL_ERRNO, if FAIL_CALL
 * names them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fails(const char *call, int fd)
{
  const char *wanted = getenv("FAIL_CALL"), *part = getenv("FAIL_PATH"), *number = getenv("FAIL_ERRNO");
  char link[64], path[4096];
  ssize_t length;
  if (wanted == NULL || part == NULL || number == NULL || strcmp(wanted, call) != 0)
    return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  length = readlink(link, path, sizeof path - 1);
  if (length < 0)
    return 0;
  path[length] = '\0';
  if (strstr(path, part) == NULL)
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
