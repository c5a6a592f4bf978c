/* A connection's transaction. See session.h.

   SPDX-License-Identifier: GPL-2.0-or-later */
#include "session.h"

#include "ddl.h"
#include "decisions.h"
#include "errors.h"
#include "plugin.h"
#include "share.h"
#include "variables.h"

namespace frond {

bool is_multi_statement(THD *thd)
{
  return thd_test_options(thd, OPTION_NOT_AUTOCOMMIT | OPTION_BEGIN) != 0;
}

namespace {

frond_isolation engine_isolation(uint isolation, bool alone)
{
  switch (isolation) {
  case ISO_READ_UNCOMMITTED:
    return FROND_ISOLATION_READ_UNCOMMITTED;
  case ISO_READ_COMMITTED:
    return FROND_ISOLATION_READ_COMMITTED;
  case ISO_SERIALIZABLE:
    /* One statement by itself is serializable at the moment of its snapshot. */
    return alone ? FROND_ISOLATION_REPEATABLE_READ : FROND_ISOLATION_SERIALIZABLE;
  default:
    return FROND_ISOLATION_REPEATABLE_READ;
  }
}

/* Most transactions of a server only read, and leave it as it is. */
template <typename Set> void clear(Set *set)
{
  if (unlikely(!set->empty()))
    set->clear();
}

} // namespace

Session *Session::find(THD *thd)
{
  return static_cast<Session *>(thd_get_ha_data(thd, hton));
}

Session *Session::of(THD *thd)
{
  Session *session= find(thd);
  if (!session) {
    session= new (std::nothrow) Session;
    if (session)
      thd_set_ha_data(thd, hton, session);
  }
  return session;
}

void Session::close(THD *thd)
{
  Session *session= find(thd);
  if (!session)
    return;
  thd_set_ha_data(thd, hton, nullptr);
  if (session->phase == Phase::active) {
    frond_txn_rollback(session->transaction);
    session->rows_undone();
  }
  session->drop_waiting();
  delete session;
}

/* What the session registered says so: SET autocommit=0 changes its options in the middle of a statement. But where the options are gone, the
   statement is the end: the server takes them away to write down a replica's position, and commits no more than that. */
bool Session::is_whole(THD *thd, bool all)
{
  return all || !thd->ha_data[hton->slot].ha_info[1].is_started() || !is_multi_statement(thd);
}

int Session::begin(THD *thd, uint32_t flags, int64_t wait_ms)
{
  frond_txn_options options= {};
  isolation= thd_tx_isolation(thd);
  options.isolation= engine_isolation(isolation, !is_multi_statement(thd));
  options.durability= durability= commit_durability(thd);
  options.lock_wait_ms= waits_ms= wait_ms;
  options.flags= flags;
  reads_from= trees_clock();
  frond_status status= frond_txn_begin(database, &options, &transaction);
  if (status != FROND_OK)
    return statement_error(thd, status);
  uint64_t id= frond_txn_id(transaction);
  rows_written.store(0, std::memory_order_relaxed);
  wrote_lasting= false;
  locks_rows= false;
  transaction_id.store(id, std::memory_order_release);
  reported.enter(thd, id);
  phase= Phase::active;
  return 0;
}

bool Session::reads_before(uint64_t tick)
{
  if (read_committed())
    return false;
  if (!frond_txn_has_snapshot(transaction))
    reads_from= trees_clock();
  return reads_from < tick;
}

int Session::set_wait(int64_t wait_ms)
{
  if (wait_ms == waits_ms)
    return 0;
  waits_ms= wait_ms;
  return handler_error(frond_txn_set_lock_wait_ms(transaction, wait_ms));
}

int64_t Session::statement_wait_ms(THD *thd)
{
  const int64_t said= said_lock_wait_ms(thd);
  if (!thd->in_sub_stmt)
    said_wait_ms= said;
  else if (said_wait_ms != FROND_WAIT_DEFAULT && said == FROND_WAIT_DEFAULT)
    return said_wait_ms;
  return lock_wait_ms(thd, said);
}

/* A prepared branch is the session's no more, and stays for XA COMMIT or XA ROLLBACK. Where it still is, the server refuses tables before
   we are asked, but for those of functions. */
int Session::let_go(THD *thd)
{
  if (thd->transaction->xid_state.check_has_uncommitted_xa())
    return HA_ERR_WRONG_COMMAND;
  forget();
  return 0;
}

int Session::statement_begin(THD *thd, int64_t wait_ms, bool again)
{
  if (unlikely(phase == Phase::prepared))
    if (int error= let_go(thd))
      return error;
  if (unlikely(!hton->prepare) && thd->transaction->xid_state.is_explicit_XA()) {
    my_printf_error(ER_XAER_RMERR, "FROND takes no part in XA: it was installed in a server that began without it, and without a binary log",
                    MYF(0));
    return HA_ERR_WRONG_COMMAND;
  }
  const bool begins= phase == Phase::idle;
  int error= begins ? begin(thd, 0, wait_ms) : set_wait(wait_ms);
  if (error)
    return error;
  trans_register_ha(thd, false, hton, 0);
  if (is_multi_statement(thd))
    trans_register_ha(thd, true, hton, 0);
  if (begins || tables_locked == 0 || (again && !thd->in_sub_stmt)) {
    frond_txn_begin_statement(transaction);
    locked_rows.begin_statement();
    if (read_committed())
      forget_snapshot();
  }
  return 0;
}

void Session::statement_release()
{
  if (tables_locked > 0 && --tables_locked == 0 && phase == Phase::active && read_committed())
    frond_txn_end_statement(transaction);
}

int Session::mark_statement(THD *thd)
{
  if (has_mark || !is_multi_statement(thd))
    return 0;
  frond_status status= frond_savepoint_set(transaction, &mark);
  has_mark= status == FROND_OK;
  return handler_error(status);
}

void Session::end_statement()
{
  has_mark= false;
  said_wait_ms= FROND_WAIT_DEFAULT;
}

void Session::forget()
{
  phase= Phase::idle;
  transaction= nullptr;
  transaction_id.store(0, std::memory_order_release);
  reported.leave();
  end_statement();
  newest_savepoint= UINT32_MAX;
  xid.clear();
  ordered= false;
  clear(&changed);
  clear(&counted);
  forget_snapshot();
  locked_rows.clear();
  drop_waiting();
}

void Session::forget_snapshot()
{
  clear(&overtaken);
  clear(&hidden);
}

void Session::rows_changed()
{
  for (const auto &counters : changed)
    counters->rows_changed();
}

/* What its tables have counted is not so. */
void Session::rows_undone()
{
  for (const auto &counters : counted)
    counters->rows_undone();
}

void Session::drop_tables()
{
  for (const std::string &table : dropped)
    drop_temporary(table);
  dropped.clear();
}

void Session::abandon()
{
  if (phase != Phase::active)
    return;
  frond_txn_rollback(transaction);
  rows_undone();
  forget();
}

/* Whether a restart goes by what the server has decided about a prepared transaction, when the server was killed; when the power
   failed. Without a binary log it does not: the decision is in tc.log, and the server's recovery rolls back all that is prepared. */
static bool is_decision_kept_by_kill()
{
  return opt_bin_log;
}

static bool is_decision_kept_by_power_loss()
{
  return opt_bin_log && sync_binlog_period == 1;
}

/* Whether the end of what `all` says takes a sync of the log: it has written, and that is to be durable. */
bool Session::waits_for_disk(THD *thd, bool all) const
{
  if (phase == Phase::idle || durability != FROND_DURABILITY_SYNC)
    return false;
  const Ha_trx_info &info= thd->ha_data[hton->slot].ha_info[all];
  return info.is_started() && info.is_trx_read_write();
}

/* The second phase, or what commit_ordered has left of it. */
frond_status Session::commit_prepared()
{
  /* Outside of the group's order there is time to make room in a full log, or to get another descriptor for it. */
  const bool again= ordered && (ordered_status == FROND_NO_SPACE || ordered_status == FROND_IO);
  frond_status status= ordered_status;
  if (!ordered || again)
    status= frond_db_commit_prepared(database, frond_bytes(xid.data(), xid.size()), durability);
  const bool made_elsewhere= again && status == FROND_NOT_FOUND; /* by another thread, which may be syncing it still */
  if (made_elsewhere)
    status= FROND_OK;
  if (unlikely(status != FROND_OK || has_kept_decisions))
    keep_undone_decision(status, xid, true, ordered && !again ? ordered_message : last_message());
  const bool is_synced= !ordered || (again && !made_elsewhere);
  if (status == FROND_OK && !is_synced && durability == FROND_DURABILITY_SYNC && (by_user || !is_decision_kept_by_power_loss()))
    status= frond_db_sync_log(database);
  return status;
}

int Session::commit(THD *thd, bool all)
{
  if (!is_whole(thd, all)) {
    if (has_mark)
      frond_savepoint_release(transaction, mark);
    end_statement();
    return 0;
  }
  frond_status status= FROND_OK;
  const bool was_branch= phase == Phase::prepared && by_user;
  Disk_wait waits(thd, waits_for_disk(thd, all));
  /* What only temporary tables have goes with the server. */
  if (phase == Phase::active)
    status= frond_txn_commit_with(transaction, wrote_lasting ? durability : frond_durability{FROND_DURABILITY_NONE});
  else if (phase == Phase::prepared)
    status= commit_prepared();
  if (status == FROND_OK)
    rows_changed();
  else
    rows_undone();
  forget();
  if (unlikely(was_branch))
    branch_decided();
  if (unlikely(has_kept_decisions) && status == FROND_OK)
    retry_decisions();
  return handler_error(status);
}

/* After the attempt to roll back to a mark. The server takes it for done, and has taken the changes out of the binary log: where it has
   failed the transaction ends, because a commit of it would keep what nobody else has. */
int Session::undone_to_mark(THD *thd, frond_status status)
{
  rows_undone();
  locked_rows.clear();
  if (status == FROND_OK)
    return 0;
  int error= handler_error(status);
  abandon();
  thd->mark_transaction_to_rollback(true);
  return error;
}

int Session::rollback(THD *thd, bool all)
{
  if (!is_whole(thd, all)) {
    frond_status status= has_mark ? frond_savepoint_rollback(transaction, mark) : FROND_OK;
    if (has_mark && status == FROND_OK)
      frond_savepoint_release(transaction, mark);
    end_statement();
    /* A deadlock's victim was rolled back whole when it was chosen, and the server has been told. Otherwise the engine could not undo what a part of
       the statement had written, and has rolled all back for it. */
    const bool is_known= status == FROND_CLOSED && thd->transaction_rollback_request;
    return undone_to_mark(thd, is_known ? frond_status{FROND_OK} : status);
  }
  frond_status status= FROND_OK;
  const bool was_branch= phase == Phase::prepared && by_user;
  if (phase == Phase::active)
    status= frond_txn_rollback(transaction);
  else if (phase == Phase::prepared) {
    status= frond_db_rollback_prepared(database, frond_bytes(xid.data(), xid.size()));
    keep_undone_decision(status, xid, false, last_message());
  }
  rows_undone();
  forget();
  if (unlikely(was_branch))
    branch_decided();
  if (unlikely(has_kept_decisions))
    retry_decisions();
  return handler_error(status);
}

int Session::prepare(THD *thd, bool all)
{
  if (!is_whole(thd, all) || phase != Phase::active)
    return 0;
  /* The binary log puts in order what is written to it. A parallel replica that does not log what it applies, or not this, waits for its turn here,
     while it can be told to give its locks back. */
  if (unlikely(thd->wait_for_commit_ptr && opt_bin_log && !thd->ha_data[binlog_hton->slot].ha_info[all].is_started()) &&
      thd->wait_for_prior_commit())
    return HA_ERR_ABORTED_BY_USER; /* reported already */
  XID id;
  thd_get_xid(thd, reinterpret_cast<MYSQL_XID *>(&id));
  xid= encode_xid(id);
  /* What the user prepares by XA survives anything; what goes through the binary log is as durable as commits are to be. */
  by_user= thd->transaction->xid_state.is_explicit_XA();
  const bool waits_for_decision= by_user && thd_sql_command(thd) == SQLCOM_XA_PREPARE;
  if (waits_for_decision && !begin_branch()) {
    end_branch(false);
    my_printf_error(ER_XAER_RMERR, "%s: FROND is being uninstalled", MYF(0), ER_THD(thd, ER_XAER_RMERR));
    return HA_ERR_WRONG_COMMAND; /* the server rolls back */
  }
  /* It may wait for long: below SERIALIZABLE it keeps the locks of what it has written. Where that cannot be told it keeps all. */
  if (waits_for_decision && isolation != ISO_SERIALIZABLE)
    frond_txn_release_unwritten(transaction);
  /* The handle ends here, whatever comes of it; after a failure the transaction is rolled back. */
  frond_txn *ending= transaction;
  transaction= nullptr;
  transaction_id.store(0, std::memory_order_release);
  const frond_durability least= by_user ? frond_durability{FROND_DURABILITY_SYNC} : durability;
  Disk_wait waits(thd, least == FROND_DURABILITY_SYNC);
  frond_status status= frond_txn_prepare(ending, frond_bytes(xid.data(), xid.size()), least);
  if (waits_for_decision)
    end_branch(status == FROND_OK);
  has_mark= false;
  if (status != FROND_OK) {
    rows_undone();
    forget();
    return handler_error(status);
  }
  phase= Phase::prepared;
  return 0;
}

void Session::commit_ordered(THD *thd, bool all)
{
  if (!is_whole(thd, all) || phase != Phase::prepared)
    return;
  /* What nobody else has written is written here, so that it survives the server. commit() sees to the rest, beside others. After a restart the
     server leaves a branch of a user's to its coordinator, whatever its binary log has: XA COMMIT … ONE PHASE. */
  frond_durability least= FROND_DURABILITY_NONE;
  if ((by_user || !is_decision_kept_by_kill()) && durability != FROND_DURABILITY_NONE)
    least= FROND_DURABILITY_WRITE;
  ordered_status= frond_db_commit_prepared(database, frond_bytes(xid.data(), xid.size()), least);
  ordered= true;
  if (unlikely(ordered_status != FROND_OK)) {
    /* This is the thread of the group's leader. */
    ordered_message= last_message();
    note_decision(ordered_status, xid, true);
  }
}

int Session::start_consistent_snapshot(THD *thd)
{
  if (phase == Phase::prepared)
    if (int error= let_go(thd))
      return error;
  if (phase != Phase::idle)
    return 0;
  const bool lasts= thd_tx_isolation(thd) == ISO_REPEATABLE_READ;
  if (!lasts)
    push_warning(thd, Sql_condition::WARN_LEVEL_WARN, HA_ERR_UNSUPPORTED,
                 "FROND: WITH CONSISTENT SNAPSHOT has no effect: only at REPEATABLE READ does a snapshot last");
  int error= begin(thd, lasts ? FROND_TXN_CONSISTENT_SNAPSHOT : 0, lock_wait_ms(thd));
  if (!error)
    trans_register_ha(thd, true, hton, 0);
  return error;
}

int Session::savepoint_set(THD *thd, uint32_t *savepoint)
{
  *savepoint= UINT32_MAX;
  /* The transaction of which it is told may have ended with a statement (is_whole). */
  if (phase == Phase::idle)
    if (int error= begin(thd, 0, FROND_WAIT_DEFAULT))
      return error;
  if (phase != Phase::active)
    return 0;
  frond_status status= frond_savepoint_set(transaction, savepoint);
  if (status == FROND_OK)
    newest_savepoint= *savepoint;
  return handler_error(status);
}

/* With the engine's mark would go all later ones, which the server may still come back to. Those that are set and released again and again
   are the newest each time; others stay until the transaction ends. */
void Session::savepoint_release(uint32_t savepoint)
{
  if (phase != Phase::active || savepoint == UINT32_MAX || savepoint != newest_savepoint || (has_mark && mark > savepoint))
    return;
  frond_savepoint_release(transaction, savepoint);
  newest_savepoint= UINT32_MAX;
}

int Session::savepoint_rollback(THD *thd, uint32_t savepoint)
{
  if (phase != Phase::active || savepoint == UINT32_MAX)
    return 0;
  if (mark > savepoint) /* a function's savepoint comes after the mark of the statement that calls it */
    has_mark= false;
  newest_savepoint= savepoint;
  return undone_to_mark(thd, frond_savepoint_rollback(transaction, savepoint));
}

void Session::kill()
{
  for (const std::atomic<uint64_t> *id : {&transaction_id, &ddl_id})
    if (uint64_t waits= id->load(std::memory_order_acquire))
      frond_db_cancel(database, waits);
}

std::string encode_xid(const XID &xid)
{
  std::string bytes;
  uint32_t format= static_cast<uint32_t>(xid.formatID);
  for (int shift= 24; shift >= 0; shift-= 8)
    bytes.push_back(static_cast<char>(format >> shift));
  bytes.push_back(static_cast<char>(xid.gtrid_length));
  bytes.push_back(static_cast<char>(xid.bqual_length));
  bytes.append(xid.data, xid.gtrid_length + xid.bqual_length);
  return bytes;
}

bool decode_xid(frond_slice bytes, XID *xid)
{
  constexpr size_t header= 6;
  if (bytes.size < header)
    return false;
  size_t gtrid= bytes.data[4], bqual= bytes.data[5];
  if (gtrid > MAXGTRIDSIZE || bqual > MAXBQUALSIZE || bytes.size != header + gtrid + bqual)
    return false;
  uint32_t format= 0;
  for (size_t i= 0; i < 4; i++)
    format= format << 8 | bytes.data[i];
  xid->formatID= static_cast<int32_t>(format);
  xid->gtrid_length= static_cast<long>(gtrid);
  xid->bqual_length= static_cast<long>(bqual);
  memcpy(xid->data, bytes.data + header, gtrid + bqual);
  return true;
}

} // namespace frond
