/* What the whole plugin shares: the handlerton and the open database. Set by the plugin's init, read-only after.

   Copyright (c) 2026 The FrondDB maintainers. SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef FROND_MARIADB_PLUGIN_H
#define FROND_MARIADB_PLUGIN_H

#include "server.h"

#include "frond.h"

namespace frond {

extern handlerton *hton;
extern frond_db *database;

/* Runs `work(txn)` as a transaction of the engine; commits when it gives FROND_OK, else rolls back. */
template <typename Work>
frond_status in_transaction(const frond_txn_options &options, Work work, frond_status (*commit)(frond_txn *)= frond_txn_commit)
{
  frond_txn *txn;
  frond_status status= frond_txn_begin(database, &options, &txn);
  if (status != FROND_OK)
    return status;
  status= work(txn);
  if (status == FROND_OK)
    return commit(txn);
  frond_txn_rollback(txn);
  return status;
}

/* The same, durably. */
template <typename Work> frond_status in_transaction(Work work, int64_t lock_wait_ms= FROND_WAIT_DEFAULT)
{
  frond_txn_options options= {};
  options.lock_wait_ms= lock_wait_ms;
  return in_transaction(options, work);
}

} // namespace frond

#endif
