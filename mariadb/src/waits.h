/* What the server wants to know of waits.

   A replica applies transactions in parallel and commits them in the master's order. When an earlier one waits for a row
   lock of a later one, which in turn waits for its turn to commit, neither goes on; only the server sees both sides. So it
   is told of each wait, and kills the later one, which is rolled back and applied again. The same report marks a
   transaction in the binary log as one that has waited, so that replicas do not try it early.

   A pool of threads starts another one instead of one that waits, for a lock or for the log to be on the disk, so that the
   other connections go on: the one that holds the lock among them.

   The engine names transactions by number. Those whose server wants reports are registered with their THD, from the
   transaction's beginning until it is decided, its time as a prepared one included: it waits for its turn in just that
   state. A report is made under the latch that unregistering takes, so that no THD ends meanwhile.

   Copyright (c) 2026 The FrondDB maintainers. SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef FROND_MARIADB_WAITS_H
#define FROND_MARIADB_WAITS_H

#include <cstdint>

class THD;

namespace frond {

/* A transaction's membership among those that can be reported; none of its own until enter(). */
class Reported {
public:
  ~Reported() { leave(); }
  /* Transaction `id` of `thd` begins: registers it where the server wants reports. */
  void enter(THD *thd, uint64_t id);
  /* It is decided, or no longer the connection's. */
  void leave();

private:
  uint64_t id= 0;
};

/* The engine's wait observer (frond_wait_observer_fn): `waiter`, of this thread, is about to wait for `blocker`. Also ends
   the wait of a connection that was killed before the engine knew of the wait. */
void wait_begins(void *, uint64_t waiter, uint64_t blocker);

/* The end of a wait of this thread that wait_begins() was told of (frond_wait_end_fn). */
void wait_ends(void *, uint64_t waiter);

/* While it lives, `thd` counts as waiting for the disk, if `waits`. */
class Disk_wait {
public:
  Disk_wait(THD *thd, bool waits);
  ~Disk_wait();
  Disk_wait(const Disk_wait &)= delete;
  Disk_wait &operator=(const Disk_wait &)= delete;

private:
  THD *waiting; /* null: it does not */
};

/* The engine's preference for a deadlock's victim (frond_victim_fn): of two that must commit in order, the later one, because
   the other would only meet it again. */
int32_t preferred_victim(void *, uint64_t one, uint64_t other);

} // namespace frond

#endif
