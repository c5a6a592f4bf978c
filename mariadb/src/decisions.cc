/* Decisions that are made again. See decisions.h.

   SPDX-License-Identifier: GPL-2.0-or-later */
#include "server.h"

#include "decisions.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

#include "ddl.h"
#include "errors.h"
#include "plugin.h"
#include "session.h"

namespace frond {

std::atomic<bool> has_kept_decisions{false};

namespace {

/* Each try may wait for checkpoints that make room. */
constexpr uint64_t RETRY_NANOS= 1000000000;

struct Decision {
  std::string xid;
  bool commits;
};

/* Held while decisions are made, which may take long: by one thread at a time. Before `latch`, which is held for moments. */
std::mutex making;
uint64_t tried_at= 0;
std::mutex latch;
std::vector<Decision> kept;    /* this and the next: under the latch */
std::vector<void *> requests;  /* of the binary log, not answered (X1) */

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

/* Under the latch. */
std::vector<Decision>::iterator find(const std::string &xid)
{
  return std::find_if(kept.begin(), kept.end(), [&xid](const Decision &one) { return one.xid == xid; });
}

void forget(const std::string &xid)
{
  std::lock_guard<std::mutex> guard(latch);
  auto found= find(xid);
  if (found != kept.end())
    kept.erase(found);
  has_kept_decisions= !kept.empty() || !requests.empty();
}

/* The requests that can be answered, now that no decision is kept. */
std::vector<void *> take_requests()
{
  std::lock_guard<std::mutex> guard(latch);
  std::vector<void *> due;
  due.swap(requests);
  has_kept_decisions= !kept.empty();
  return due;
}

/* Where one lacks space the others do. Returns how many are left. Under `making`. */
size_t make_kept(bool *has_made= nullptr)
{
  std::vector<Decision> due;
  {
    std::lock_guard<std::mutex> guard(latch);
    due= kept;
  }
  size_t made= 0;
  while (made < due.size() && make(due[made]))
    forget(due[made++].xid);
  tried_at= my_interval_timer();
  if (has_made)
    *has_made= made > 0;
  std::lock_guard<std::mutex> guard(latch);
  if (made > 0 && kept.empty())
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

/* Whether a user's branch waits for a decision; also where nobody can tell. */
bool has_prepared_branch()
{
  frond_list *items;
  const frond_prepared_info *prepared;
  size_t count;
  if (frond_db_prepared(database, &items, &prepared, &count) != FROND_OK)
    return true;
  bool found= false;
  for (size_t i= 0; i < count && !found; i++) {
    XID xid;
    found= decode_xid(prepared[i].xid, &xid) && !xid.get_my_xid();
  }
  frond_list_free(items);
  return found;
}

} // namespace

void note_decision(frond_status status, const std::string &xid, bool commits)
{
  if (is_made(status))
    return;
  std::lock_guard<std::mutex> guard(latch);
  if (find(xid) == kept.end())
    kept.push_back({xid, commits});
  has_kept_decisions= true;
}

void keep_undone_decision(frond_status status, const std::string &xid, bool commits, const std::string &why)
{
  if (is_made(status)) {
    if (has_kept_decisions)
      forget(xid);
    return;
  }
  note_decision(status, xid, commits);
  XID id;
  const bool by_user= !decode_xid(frond_bytes(xid.data(), xid.size()), &id) || !id.get_my_xid();
  const char *restart= by_user       ? "a restart lists it in XA RECOVER"
                       : opt_bin_log ? "a restart needs the binary logs"
                                     : "a restart rolls it back, because there is no binary log";
  sql_print_error("FROND: a prepared transaction could not be %s, which is tried again; until then its rows stay locked, and %s: %s",
                  commits ? "committed" : "rolled back", restart, why.c_str());
}

void retry_decisions()
{
  std::vector<void *> due;
  bool has_made= false;
  {
    std::unique_lock<std::mutex> guard(making, std::try_to_lock);
    if (!guard.owns_lock() || my_interval_timer() - tried_at < RETRY_NANOS)
      return;
    if (make_kept(&has_made) == 0)
      due= take_requests();
  }
  if (has_made)
    branch_decided();
  answer(due);
}

void answer_checkpoint_request(void *cookie)
{
  std::vector<void *> due;
  {
    std::lock_guard<std::mutex> guard(making);
    {
      std::lock_guard<std::mutex> short_guard(latch);
      requests.push_back(cookie);
    }
    if (make_kept() > 0)
      return;
    due= take_requests();
  }
  answer(due);
}

bool make_last_decisions()
{
  std::lock_guard<std::mutex> guard(making);
  size_t left= make_kept();
  if (left > 0)
    sql_print_error("FROND: %zu prepared transactions could not be committed or rolled back: the next start decides them by the binary logs", left);
  return left == 0;
}

namespace {

std::mutex staying;
bool stays= false;       /* this and the next two: under the latch */
uint branches_begun= 0;  /* are being prepared */
std::map<st_plugin_int *, enum_plugin_load_option> held; /* while they stay: what each plugin of the library was loaded with */

/* Under LOCK_plugin. */
void hold(st_plugin_int *plugin)
{
  if (held.emplace(plugin, plugin->load_option).second)
    plugin->load_option= PLUGIN_FORCE_PLUS_PERMANENT;
}

/* UNINSTALL SONAME goes on with the others where one is refused. */
my_bool hold_table(THD *, plugin_ref plugin, void *engine)
{
  mysql_mutex_lock(&LOCK_plugin);
  if (plugin_dlib(plugin) == static_cast<st_plugin_int *>(engine)->plugin_dl)
    hold(plugin_ref_to_int(plugin));
  mysql_mutex_unlock(&LOCK_plugin);
  return 0;
}

/* Under the latch. The server looks at this under its own, and has marked a plugin that it uninstalls before it lets go. False: it has. */
bool stay(bool must)
{
  st_plugin_int *engine= hton2plugin[hton->slot];
  mysql_mutex_lock(&LOCK_plugin);
  const bool is_ready= engine->state == PLUGIN_IS_READY, has_changed= must != stays;
  stays= must;
  if (must) {
    hold(engine);
  } else {
    for (const auto &one : held)
      one.first->load_option= one.second;
    held.clear();
  }
  mysql_mutex_unlock(&LOCK_plugin);
  if (must && has_changed)
    plugin_foreach_with_mask(nullptr, hold_table, MYSQL_INFORMATION_SCHEMA_PLUGIN, PLUGIN_IS_READY, engine);
  return is_ready;
}

} // namespace

bool begin_branch()
{
  std::lock_guard<std::mutex> guard(staying);
  branches_begun++;
  return stay(true);
}

void end_branch(bool prepared)
{
  {
    std::lock_guard<std::mutex> guard(staying);
    branches_begun--;
  }
  if (!prepared)
    stay_while_prepared();
}

void stay_while_prepared()
{
  std::lock_guard<std::mutex> guard(staying);
  const bool must= branches_begun > 0 || has_prepared_branch();
  if (must != stays)
    stay(must);
}

void branch_decided()
{
  drop_kept();
  stay_while_prepared();
}

} // namespace frond
