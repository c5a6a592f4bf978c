/* Decisions that are made again. See decisions.h.

   SPDX-License-Identifier: GPL-2.0-or-later */
#include "server.h"

#include "decisions.h"

#include <mutex>
#include <vector>

#include "errors.h"
#include "plugin.h"

namespace frond {

std::atomic<bool> has_kept_decisions{false};

namespace {

/* Each try may wait for checkpoints that make room. */
constexpr uint64_t RETRY_NANOS= 1000000000;

struct Decision {
  std::string xid;
  bool commits;
};

std::mutex latch;
std::vector<Decision> kept;    /* this and the next two: under the latch */
std::vector<void *> requests;  /* of the binary log, not answered (X1) */
uint64_t tried_at= 0;

/* Of an unknown one nobody will say anything any more: somebody else has decided it. */
bool is_made(frond_status status)
{
  return status == FROND_OK || status == FROND_NOT_FOUND;
}

bool make(const Decision &decision)
{
  frond_slice id= frond_bytes(decision.xid.data(), decision.xid.size());
  return is_made(decision.commits ? frond_db_commit_prepared(database, id, FROND_DURABILITY_SYNC)
                                  : frond_db_rollback_prepared(database, id));
}

/* Returns how many are left. */
size_t make_kept()
{
  for (size_t at= kept.size(); at-- > 0;)
    if (make(kept[at]))
      kept.erase(kept.begin() + at);
  tried_at= my_interval_timer();
  if (kept.empty() && has_kept_decisions.exchange(false))
    sql_print_information("FROND: all decisions about prepared transactions are written");
  return kept.size();
}

/* What is committed is made durable by one sync. Where that fails nothing will be durable any more before a restart, which decides by the binary
   log what was committed: so the server is never told to forget it. */
void answer(const std::vector<void *> &due)
{
  if (due.empty() || frond_db_sync_log(database) != FROND_OK)
    return;
  for (void *cookie : due)
    commit_checkpoint_notify_ha(cookie);
}

} // namespace

void keep_undone_decision(frond_status status, const std::string &xid, bool commits)
{
  if (is_made(status))
    return;
  sql_print_error("FROND: a prepared transaction could not be %s, which is tried again; until then its rows stay locked, and a restart "
                  "needs the binary logs: %s", commits ? "committed" : "rolled back", last_message());
  std::lock_guard<std::mutex> guard(latch);
  kept.push_back({xid, commits});
  has_kept_decisions= true;
}

void retry_decisions()
{
  std::vector<void *> due;
  {
    std::unique_lock<std::mutex> guard(latch, std::try_to_lock);
    if (!guard.owns_lock() || my_interval_timer() - tried_at < RETRY_NANOS || make_kept() > 0)
      return;
    due.swap(requests);
  }
  answer(due);
}

void answer_checkpoint_request(void *cookie)
{
  std::vector<void *> due;
  {
    std::lock_guard<std::mutex> guard(latch);
    requests.push_back(cookie);
    if (make_kept() > 0)
      return;
    due.swap(requests);
  }
  answer(due);
}

void make_last_decisions()
{
  std::lock_guard<std::mutex> guard(latch);
  if (make_kept() > 0)
    sql_print_error("FROND: %zu prepared transactions could not be committed or rolled back: the next start decides them by the binary logs",
                    kept.size());
}

} // namespace frond
