/* Copyright (c) 2026 The FrondDB maintainers. SPDX-License-Identifier: GPL-2.0-or-later */

#include "pace.h"

#include "check.h"

using namespace frond;

namespace {

constexpr uint64_t MILLIS= 1000000;

/* How long the second of two writers rests, where the first has noted so many bytes. */
uint64_t rest(Pace *pace, size_t bytes)
{
  static uint64_t now= 1;
  now+= 1000000 * MILLIS;
  CHECK(pace->take_turn(now, bytes) == 0);
  return pace->take_turn(now, bytes);
}

void writers_rest_after_a_pass_that_did_not_shrink()
{
  Pace pace;
  CHECK(pace.is_free());
  CHECK(rest(&pace, 1000) == 0);
  pace.passed(10, 9, 7000, 7 * MILLIS);
  CHECK(!pace.is_free());
  uint64_t rested= rest(&pace, 7000);
  CHECK(rested > 9 * MILLIS && rested < 11 * MILLIS);
  CHECK(rest(&pace, 7000000) == Pace::REST_NANOS_MAX);
}

void writers_do_not_rest_where_passes_shrink()
{
  Pace pace;
  pace.passed(10, 8, 7000, 7 * MILLIS);
  CHECK(pace.is_free());
  pace.passed(1, 1, 7000, 7 * MILLIS);
  CHECK(pace.is_free());
  pace.passed(10, 10, 0, 7 * MILLIS);
  CHECK(pace.is_free());
}

void a_pass_that_shrinks_lowers_what_a_slow_one_has_said()
{
  Pace pace;
  pace.passed(10, 10, 7, 70 * MILLIS);
  CHECK(rest(&pace, 7000) == Pace::REST_NANOS_MAX);
  pace.passed(10, 2, 7000, 7 * MILLIS);
  uint64_t rested= rest(&pace, 7000);
  CHECK(rested > 9 * MILLIS && rested < 11 * MILLIS);
  pace.passed(10, 2, 7, 70 * MILLIS);
  CHECK(rest(&pace, 7000) == rested);
  pace.passed(10, 9, 7, 70 * MILLIS);
  CHECK(rest(&pace, 7000) == Pace::REST_NANOS_MAX);
}

void nobody_rests_at_the_end()
{
  Pace pace;
  pace.passed(10, 10, 7, 70 * MILLIS);
  pace.lift();
  CHECK(pace.is_free());
  CHECK(rest(&pace, 7000) == 0);
}

}  // namespace

int main()
{
  TEST("writers rest after a pass that did not shrink", writers_rest_after_a_pass_that_did_not_shrink);
  TEST("writers do not rest where passes shrink", writers_do_not_rest_where_passes_shrink);
  TEST("a pass that shrinks lowers what a slow one has said", a_pass_that_shrinks_lowers_what_a_slow_one_has_said);
  TEST("nobody rests at the end", nobody_rests_at_the_end);
  return check::finish();
}
