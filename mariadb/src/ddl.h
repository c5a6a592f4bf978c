/* DDL that is not a method of the handler. See ddl.cc.

   Copyright (c) 2026 The FrondDB maintainers. SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef FROND_MARIADB_DDL_H
#define FROND_MARIADB_DDL_H

#include "server.h"

#include "frond.h"
#include "plugin.h"
#include "session.h"
#include "share.h"
#include "variables.h"

struct ha_table_option_struct;

namespace frond {

/* Calls use(tree) for the committed trees whose names begin with `prefix` until it fails; for none where some of them cannot be
   read. */
template <typename Use> frond_status for_each_tree(const std::string &prefix, Use use)
{
  frond_list *list= nullptr;
  const frond_tree_info *trees;
  size_t count= 0;
  frond_status status= frond_db_trees_under(database, prefix.c_str(), &list, &trees, &count);
  for (size_t i= 0; i < count && status == FROND_OK; i++)
    status= use(trees[i]);
  frond_list_free(list);
  return status;
}

/* The same without end, but for those whose rows in the catalog cannot be read. False: there is no list. */
template <typename Use> bool for_each_readable_tree(const std::string &prefix, Use use)
{
  frond_list *list= nullptr;
  const frond_tree_info *trees;
  size_t count= 0;
  if (frond_db_trees_under(database, prefix.c_str(), &list, &trees, &count) != FROND_OK && !list)
    return false;
  for (size_t i= 0; i < count; i++)
    use(trees[i]);
  frond_list_free(list);
  return true;
}

/* Commits what a DDL statement has changed durably. Where the log fails in this very moment nobody knows whether the change survives, and the
   server would go back to what was before, and close its own log of DDL statements: then it is killed, and its next start finds out by that log. */
frond_status commit_ddl(frond_txn *txn);

/* After a transaction of a DDL statement that gave `status`. Where the log has failed since an earlier one of the same statement was
   committed, this one is refused and that one cannot be taken back, and the server would close its log of DDL statements all the same:
   it is killed for the same reason. */
frond_status end_step(frond_status status);

/* A transaction by itself of the DDL statement that `thd` runs: it waits for locks as long as the statement says, and KILL
   ends the wait. While the server starts nobody says and nobody kills, nor decides about the branch that would be waited for: it does not wait. */
template <typename Work>
frond_status in_ddl_transaction(THD *thd, Work work, frond_durability durability= FROND_DURABILITY_DEFAULT)
{
  Session *session= thd && mysqld_server_started ? Session::of(thd) : nullptr;
  frond_txn_options options= {};
  options.durability= durability;
  options.lock_wait_ms= session ? lock_wait_ms(thd) : mysqld_server_started ? FROND_WAIT_DEFAULT : FROND_WAIT_NONE;
  auto heard_work= [session, &work](frond_txn *txn) {
    Killable heard(session, txn);
    return work(txn);
  };
  if (durability == FROND_DURABILITY_NONE)
    return in_transaction(options, heard_work);
  return end_step(in_transaction(options, heard_work, commit_ddl));
}

/* The same, which waits so long, whoever runs it. */
template <typename Work> frond_status in_ddl_transaction(Work work, int64_t lock_wait_ms)
{
  frond_txn_options options= {};
  options.lock_wait_ms= lock_wait_ms;
  return end_step(in_transaction(options, work, commit_ddl));
}

/* Whether a tree is of a table that one session alone sees. */
bool is_temporary(const std::string &name);
/* Whether it is the one of the rows. */
bool is_temporary_table(const std::string &name);
/* Where the name of a partition begins, with the mark that the server writes into no other name; a '#' of the user's is written otherwise. */
size_t partition_mark(const std::string &name);
/* How durable it is that a table comes or goes. A temporary one goes with the server, however it ends: what a crash brings back of
   it is dropped at the next start. */
frond_durability ddl_durability(const std::string &name);

/* Drops a table without opening it, damaged or not; a temporary one in a transaction when that ends. 0 or an HA_ERR_*. */
int drop_table(THD *thd, const char *path);
/* And as a part of a transaction, after which trees_went is to be told of `gone`. FROND_NOT_FOUND. */
frond_status drop_trees(frond_txn *txn, const std::string &name, std::vector<uint64_t> *gone);
/* Drops a temporary table by the name of its primary tree, after the transaction that used it. That one may be prepared and
   have locks in it still: then the table goes when it is decided. */
void drop_temporary(const std::string &name);
/* A prepared transaction was decided: drops the temporary tables that were kept for one. */
void drop_kept();
/* Gives a table's trees another name. FROND_NOT_FOUND, FROND_KEY_EXISTS. */
frond_status rename_trees(frond_txn *txn, const std::string &from, const std::string &to, uint64_t *table_id);
/* Reports what CREATE or ALTER asks for and FROND does not have: HA_ERR_UNSUPPORTED, reported already. */
int refuse_unsupported(const TABLE *form, const Alter_info *alter);
/* The codec of a table's trees. */
void table_codec(const ha_table_option_struct *options, frond_codec *codec, int32_t *level);
/* Gives all trees of a table the codec that its options ask for, where they ask for another than before. */
frond_status change_codec(frond_txn *txn, const Table_share &share, const Table_definition &definition,
                          const ha_table_option_struct *before, const ha_table_option_struct *now);

} // namespace frond

#endif
