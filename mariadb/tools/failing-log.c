/* A disk under FROND's log that fails: preloaded into a server under test (mtr.sh), it lets syncs and durable writes of files in a folder "#frond/log" fail with EIO
   while there is a file frond_fail beside "#frond".

   SPDX-License-Identifier: GPL-2.0-or-later */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static int fails(int file)
{
  char link[64], path[PATH_MAX + 16];
  ssize_t length;
  char *end;
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  length= readlink(link, path, PATH_MAX);
  if (length <= 0)
    return 0;
  path[length]= 0;
  end= strstr(path, "/#frond/");
  if (!end || !strstr(end, "log"))
    return 0;
  strcpy(end, "/frond_fail");
  return access(path, F_OK) == 0;
}

int fdatasync(int file)
{
  static int (*real)(int);
  if (fails(file)) {
    errno= EIO;
    return -1;
  }
  if (!real)
    *(void **) &real= dlsym(RTLD_NEXT, "fdatasync");
  return real(file);
}

/* What pwritev2 is with 64-bit offsets; the log writes durably by it. */
ssize_t pwritev64v2(int file, const struct iovec *pieces, int count, off64_t offset, int flags)
{
  static ssize_t (*real)(int, const struct iovec *, int, off64_t, int);
  if ((flags & RWF_DSYNC) && fails(file)) {
    errno= EIO;
    return -1;
  }
  if (!real)
    *(void **) &real= dlsym(RTLD_NEXT, "pwritev64v2");
  return real(file, pieces, count, offset, flags);
}
