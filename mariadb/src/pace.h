/* How fast writers may note what an index build has to set right (index_build.h), so that it comes to an end.

   The builder goes over all that there is in passes. Where one leaves hardly less than there was before it, each byte that is noted takes its writer
   as long as the builder worked on a byte in that pass, and somewhat longer, one writer after the other. One that leaves clearly less lowers that
   where it was quicker. A wait of the builder's is no work. When it has come to the end, nobody rests any more.

   Copyright (c) 2026 The FrondDB maintainers. SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef FROND_MARIADB_PACE_H
#define FROND_MARIADB_PACE_H

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace frond {

class Pace {
public:
  /* A writer rests so long at a time at most. */
  static constexpr uint64_t REST_NANOS_MAX= 100000000;

  /* After a pass over `before` pieces of notes, which has set so many bytes right by so much work, so many pieces are left. */
  void passed(size_t before, size_t left, uint64_t bytes, uint64_t nanos)
  {
    if (bytes == 0)
      return;
    const double measured= nanos / (NOTED_PART * bytes);
    const bool shrank= left <= 1 || left <= SHRINKS_TO * before;
    nanos_per_byte.store(shrank ? std::min(measured, nanos_per_byte.load(std::memory_order_relaxed)) : measured, std::memory_order_relaxed);
  }
  void lift() { nanos_per_byte.store(0, std::memory_order_relaxed); }

  bool is_free() const { return nanos_per_byte.load(std::memory_order_relaxed) == 0; }
  /* How long a writer rests that has noted so many bytes `now`. */
  uint64_t take_turn(uint64_t now, size_t bytes)
  {
    const uint64_t takes= static_cast<uint64_t>(nanos_per_byte.load(std::memory_order_relaxed) * bytes);
    if (takes == 0)
      return 0;
    uint64_t next= next_turn.load(std::memory_order_relaxed), turn;
    do
      turn= std::min(std::max(next, now), now + REST_NANOS_MAX);
    while (!next_turn.compare_exchange_weak(next, turn + takes, std::memory_order_relaxed));
    return turn - now;
  }

private:
  /* A pass is to leave no more than so much of what the one before left; where it does not, writers may note so much of what is set
     right meanwhile. */
  static constexpr double SHRINKS_TO= 0.8, NOTED_PART= 0.7;

  std::atomic<double> nanos_per_byte{0}; /* of notes, that writers take at least; 0: they need not rest */
  std::atomic<uint64_t> next_turn{0};
};

} // namespace frond

#endif
