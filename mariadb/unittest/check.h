/* Copyright (c) 2026 The FrondDB maintainers. SPDX-License-Identifier: GPL-2.0-or-later */

#ifndef FROND_UNITTEST_CHECK_H
#define FROND_UNITTEST_CHECK_H

/*
  Owns: the few lines that a test program needs: named checks that speak TAP and
  an exit status. No server, no library.

    CHECK(a == b);                  in a test function
    TEST("what holds", function);   in main
    return finish();
*/

#include <cstdio>
#include <cstdlib>

namespace check {

inline unsigned tests= 0, failed_tests= 0, failures= 0;

inline void check(bool holds, const char *text, const char *file, int line)
{
  if (holds)
    return;
  if (failures++ < 10)
    printf("# failed: %s at %s:%d\n", text, file, line);
}

inline void test(const char *name, void (*function)())
{
  failures= 0;
  function();
  tests++;
  failed_tests+= failures > 0;
  printf("%s %u - %s\n", failures > 0 ? "not ok" : "ok", tests, name);
}

inline int finish()
{
  printf("1..%u\n", tests);
  return failed_tests > 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

}  // namespace check

#define CHECK(condition) check::check((condition), #condition, __FILE__, __LINE__)
#define TEST(name, function) check::test(name, function)

#endif
