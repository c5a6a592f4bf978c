/* Which file a call is about, for tests that make calls fail. */
#ifndef OPEN_FILE_H
#define OPEN_FILE_H

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Whether the path of an open file contains part. */
static int is_open_file(int fd, const char *part)
{
  char link[64], path[4096];
  ssize_t length;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  length = readlink(link, path, sizeof path - 1);
  if (length < 0)
    return 0;
  path[length] = '\0';
  return strstr(path, part) != NULL;
}

#endif
