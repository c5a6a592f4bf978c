/* A disk under FROND's log that fails: preloaded into a server under test (mtr.sh), it lets syncs and durable writes of files in a folder "#frond/log" fail with EIO
   while there is a file frond_fail beside "#frond"; after they have been done, where there is frond_fail_written too. And while there is frond_hold, each sync
   of the server's log of DDL statements stops, and makes frond_held, until that is removed.

   SPDX-License-Identifier: GPL-2.0-or-later */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum failure { NONE, INSTEAD, AFTERWARDS };

/* With room behind it for a name of ours. */
typedef char name_of_file[PATH_MAX + 32];

static void name(int file, name_of_file path)
{
  char link[64];
  ssize_t length;
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  length= readlink(link, path, PATH_MAX);
  path[length > 0 ? length : 0]= 0;
}

static void hold(int file)
{
  name_of_file path;
  char *end;
  name(file, path);
  end= strstr(path, "/ddl_recovery.log");
  if (!end)
    return;
  strcpy(end, "/frond_hold");
  if (access(path, F_OK) != 0)
    return;
  strcpy(end, "/frond_held");
  close(creat(path, 0666));
  while (access(path, F_OK) == 0)
    usleep(1000);
}

static enum failure failure_of(int file)
{
  name_of_file path;
  char *end;
  name(file, path);
  end= strstr(path, "/#frond/");
  if (!end || !strstr(end, "log"))
    return NONE;
  strcpy(end, "/frond_fail");
  if (access(path, F_OK) != 0)
    return NONE;
  strcat(end, "_written");
  return access(path, F_OK) == 0 ? AFTERWARDS : INSTEAD;
}

int fdatasync(int file)
{
  static int (*real)(int);
  enum failure failure= failure_of(file);
  int done= -1;
  hold(file);
  if (!real)
    *(void **) &real= dlsym(RTLD_NEXT, "fdatasync");
  if (failure != INSTEAD)
    done= real(file);
  if (failure == NONE)
    return done;
  errno= EIO;
  return -1;
}

/* What pwritev2 is with 64-bit offsets; the log writes durably by it. */
ssize_t pwritev64v2(int file, const struct iovec *pieces, int count, off64_t offset, int flags)
{
  static ssize_t (*real)(int, const struct iovec *, int, off64_t, int);
  enum failure failure= flags & RWF_DSYNC ? failure_of(file) : NONE;
  ssize_t done= -1;
  if (!real)
    *(void **) &real= dlsym(RTLD_NEXT, "pwritev64v2");
  if (failure != INSTEAD)
    done= real(file, pieces, count, offset, flags);
  if (failure == NONE)
    return done;
  errno= EIO;
  return -1;
}
