/* Reports of waits. See waits.h.

   SPDX-License-Identifier: GPL-2.0-or-later */
#include "waits.h"

#include "plugin.h"

#include <mutex>
#include <unordered_map>

/* Services of the server for storage engines, declared in none of its headers. */
extern "C" int thd_need_wait_reports(const MYSQL_THD thd);
extern "C" int thd_rpl_deadlock_check(MYSQL_THD thd, MYSQL_THD other_thd);
extern "C" int thd_deadlock_victim_preference(const MYSQL_THD one, const MYSQL_THD other);

namespace frond {

namespace {

struct Shard {
  std::mutex latch;
  std::unordered_map<uint64_t, THD *> owners; /* under `latch` */

  THD *owner(uint64_t id) const
  {
    auto found= owners.find(id);
    return found == owners.end() ? nullptr : found->second;
  }
};

constexpr size_t SHARDS= 16;
Shard shards[SHARDS];

/* Whom of this thread the pool of threads knows to wait for a lock. */
thread_local THD *waiting_for_lock= nullptr;

Shard &shard_of(uint64_t id)
{
  return shards[id % SHARDS];
}

} // namespace

void Reported::enter(THD *thd, uint64_t transaction)
{
  if (!thd_need_wait_reports(thd))
    return;
  Shard &shard= shard_of(transaction);
  std::lock_guard<std::mutex> guard(shard.latch);
  shard.owners.emplace(transaction, thd);
  id= transaction;
}

void Reported::leave()
{
  if (!id)
    return;
  Shard &shard= shard_of(id);
  std::lock_guard<std::mutex> guard(shard.latch);
  shard.owners.erase(id);
  id= 0;
}

void wait_begins(void *, uint64_t waiter, uint64_t blocker)
{
  THD *thd= current_thd;
  if (!thd)
    return;
  if (!waiting_for_lock) {
    waiting_for_lock= thd;
    thd_wait_begin(thd, THD_WAIT_ROW_LOCK);
  }
  if (thd_need_wait_reports(thd)) {
    Shard &shard= shard_of(blocker);
    std::lock_guard<std::mutex> guard(shard.latch);
    thd_rpl_deadlock_check(thd, shard.owner(blocker));
  }
  if (thd_kill_level(thd) != THD_IS_NOT_KILLED)
    frond_db_cancel(database, waiter);
}

void wait_ends(void *, uint64_t)
{
  if (!waiting_for_lock)
    return;
  thd_wait_end(waiting_for_lock);
  waiting_for_lock= nullptr;
}

Disk_wait::Disk_wait(THD *thd, bool waits) : waiting(waits ? thd : nullptr)
{
  if (waiting)
    thd_wait_begin(waiting, THD_WAIT_SYNC);
}

Disk_wait::~Disk_wait()
{
  if (waiting)
    thd_wait_end(waiting);
}

int32_t preferred_victim(void *, uint64_t one, uint64_t other)
{
  Shard &first= shard_of(std::min(one % SHARDS, other % SHARDS)), &second= shard_of(std::max(one % SHARDS, other % SHARDS));
  std::unique_lock<std::mutex> guard(first.latch), further;
  if (&first != &second)
    further= std::unique_lock<std::mutex>(second.latch);
  return thd_deadlock_victim_preference(shard_of(one).owner(one), shard_of(other).owner(other));
}

} // namespace frond
