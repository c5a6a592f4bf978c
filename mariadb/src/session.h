/* What FROND keeps for one connection: its open transaction, the mark of the running statement, its prepared XA branch.

   A transaction begins with the first table that a statement locks and ends with commit() or rollback() of the handlerton.
   States of `phase`, and who changes them:

     idle      → active     statement_begin, start_consistent_snapshot, savepoint_set
     active    → idle       commit, rollback
     active    → prepared   prepare (the engine's handle has ended; the XID finds the transaction)
     prepared  → idle       commit_ordered or commit, rollback; or let_go at what the session does next, where the server has handed the branch
                            to whoever decides it (COM_RESET_CONNECTION, COM_CHANGE_USER: engines are not told)

   The statement's mark is a savepoint, set before the first write of a statement inside a larger transaction, so that
   reading statements pay nothing.

   Threads: everything belongs to the connection's thread, except kill(), which any thread may call while the server keeps the
   THD alive, and commit_ordered(), which the leader of a commit group calls while the connection waits for it.

   Copyright (c) 2026 The FrondDB maintainers. SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef FROND_MARIADB_SESSION_H
#define FROND_MARIADB_SESSION_H

#include "server.h"

#include <atomic>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "frond.h"
#include "locked_rows.h"
#include "waits.h"

namespace frond {

struct Counters;

class Session {
public:
  /* The session of a connection: made at first use; or null if FROND was not used yet. */
  static Session *of(THD *thd);
  static Session *find(THD *thd);
  /* The connection ends: rolls back what is open; a prepared branch stays for XA COMMIT from elsewhere. */
  static void close(THD *thd);

  /* Milliseconds that the statement waits for locks. What one says of that holds for its functions and triggers, too. */
  int64_t statement_wait_ms(THD *thd);
  /* A statement locks a table (external_lock, start_stmt): registers with the server, begins what has not begun.
     `again`: a further statement over tables that stay locked; those of functions and triggers are part of their caller,
     whose tables are locked first, and see what it sees. Returns 0 or an HA_ERR_*. */
  int statement_begin(THD *thd, int64_t wait_ms, bool again);
  /* It gives a table back; after the last one READ COMMITTED lets its snapshot go. */
  void statement_release();
  void lock_table() { tables_locked++; }
  /* The statement may lock or write rows of a table. */
  void may_lock_rows() { locks_rows= true; }
  bool may_hold_locks() const { return locks_rows; }

  /* Before a write: the mark that a statement rollback goes back to; and how long it may wait, which the last write may have
     been told otherwise, because the variable has changed, or its statement said NOWAIT, or was another's function. */
  int mark_statement(THD *thd);
  int set_wait(int64_t wait_ms);

  int commit(THD *thd, bool all);
  int rollback(THD *thd, bool all);
  int prepare(THD *thd, bool all);
  void commit_ordered(THD *thd, bool all);
  int start_consistent_snapshot(THD *thd);

  int savepoint_set(THD *thd, uint32_t *savepoint);
  int savepoint_rollback(THD *thd, uint32_t savepoint);
  void savepoint_release(uint32_t savepoint);

  /* A temporary table goes while the transaction may hold locks in it: its trees are dropped when the transaction ends. */
  void drop_at_end(const std::string &table) { dropped.push_back(table); }
  /* CREATE TABLE … SELECT failed, and the new table goes: rolls back what the statement has written. */
  void abandon();

  /* The transaction has written, changed or deleted a row, in a table that `lasts`; since it began, whatever was undone of it. Any thread may ask. */
  void wrote_row(bool lasts)
  {
    wrote_lasting|= lasts;
    rows_written.store(rows_written.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  uint64_t rows() const { return rows_written.load(std::memory_order_relaxed); }

  /* The transaction has changed rows of a table, or how many it has: its counters are told when that is committed, or undone. */
  void changed_rows(const std::shared_ptr<Counters> &counters) { changed.insert(counters); }
  void counted_rows(const std::shared_ptr<Counters> &counters) { counted.insert(counters); }

  /* The transaction has written a row of a table that others had changed after the snapshot of its plain reads, at READ COMMITTED the
     statement's: in what these see, entries of the row as it was in the snapshot are left beside those that it wrote. */
  void overtook(const frond_tree *rows) { overtaken.insert(frond_tree_id(rows)); }
  bool has_overtaken(const frond_tree *rows) const { return !overtaken.empty() && overtaken.count(frond_tree_id(rows)) > 0; }

  /* It has written an entry of a unique index that others had changed after its snapshot: that hides the snapshot's. */
  void hid(const frond_tree *index) { hidden.insert(frond_tree_id(index)); }
  bool has_hidden(const frond_tree *index) const { return !hidden.empty() && hidden.count(frond_tree_id(index)) > 0; }

  /* What SELECT … FOR UPDATE has read of the transaction's rows. */
  Locked_rows locked_rows;

  /* The key that the last write found taken. It is the session's, because a row that moves between partitions fails in
     one handler and is asked for at another. */
  uint duplicate_key= MAX_KEY;
  bool load_failed= false; /* the first that was ended, of the loads of a statement into partitions */

  /* A statement begins a transaction of the engine beside the session's, or ends it (0): kill() ends its waits as well. See Killable. */
  void set_ddl(uint64_t transaction) { ddl_id.store(transaction, std::memory_order_release); }
  /* Ends a lock wait of this session. */
  void kill();

  frond_txn *txn() const { return transaction; }
  uint64_t id() const { return transaction_id.load(std::memory_order_relaxed); }
  /* Active or prepared. */
  bool has_transaction() const { return phase != Phase::idle; }
  /* Whether the plain reads that are about to begin may see a time before `tick` of trees_clock. The snapshot that they see is taken at
     the first of them, which may be long after the transaction began. */
  bool reads_before(uint64_t tick);
  /* Whether gaps need no locks and unmatched rows are given back. */
  bool read_committed() const { return isolation <= ISO_READ_COMMITTED; }
  /* Whether each plain read sees another moment. */
  bool read_uncommitted() const { return isolation == ISO_READ_UNCOMMITTED; }

private:
  enum class Phase { idle, active, prepared };

  int begin(THD *thd, uint32_t flags, int64_t wait_ms);
  int let_go(THD *thd);
  frond_status commit_prepared();
  int undone_to_mark(THD *thd, frond_status status);
  void end_statement();
  void forget();
  void forget_snapshot();
  void rows_changed();
  void rows_undone();
  void drop_waiting()
  {
    if (unlikely(!dropped.empty()))
      drop_tables();
  }
  void drop_tables();
  static bool is_whole(THD *thd, bool all);
  bool waits_for_disk(THD *thd, bool all) const;

  Phase phase= Phase::idle;
  frond_txn *transaction= nullptr;
  std::atomic<uint64_t> transaction_id{0};
  std::atomic<uint64_t> ddl_id{0};
  std::atomic<uint64_t> rows_written{0};
  bool wrote_lasting= false;
  /* A statement since the transaction began may have locked rows. */
  bool locks_rows= false;
  Reported reported;
  uint64_t reads_from= 0; /* of trees_clock, at a time when no snapshot was taken yet */
  uint isolation= ISO_REPEATABLE_READ;
  int64_t waits_ms= 0; /* for locks, as the engine was told */
  int64_t said_wait_ms= FROND_WAIT_DEFAULT; /* by the statement that the client or a procedure runs */
  uint tables_locked= 0;
  bool has_mark= false;
  uint32_t mark= 0;
  uint32_t newest_savepoint= UINT32_MAX; /* the engine's last mark but for the statement's; or not known */
  std::string xid;
  bool by_user= false; /* the XID is of XA START, and not the server's own */
  std::vector<std::string> dropped; /* temporary tables */
  std::unordered_set<std::shared_ptr<Counters>> changed, counted;
  std::unordered_set<uint32_t> overtaken; /* trees of rows */
  std::unordered_set<uint32_t> hidden;    /* trees of unique indexes */
  frond_durability durability= FROND_DURABILITY_DEFAULT;
  /* What commit_ordered came to, for commit() to report. */
  bool ordered= false;
  frond_status ordered_status= FROND_OK;
  std::string ordered_message; /* where that is an error */
};

/* Whether its transaction may have several statements, as against a statement by itself. */
bool is_multi_statement(THD *thd);

/* XIDs as the engine keeps them. */
std::string encode_xid(const XID &xid);
bool decode_xid(frond_slice bytes, XID *xid);

/* While it lives, KILL ends what a transaction of the engine beside the session's waits for or looks through. */
class Killable {
public:
  /* Without a session nobody kills. */
  Killable(Session *session_arg, const frond_txn *txn) : session(session_arg)
  {
    if (session)
      session->set_ddl(frond_txn_id(txn));
  }
  ~Killable()
  {
    if (session)
      session->set_ddl(0);
  }
  Killable(const Killable &)= delete;
  Killable &operator=(const Killable &)= delete;

private:
  Session *session;
};

} // namespace frond

#endif
