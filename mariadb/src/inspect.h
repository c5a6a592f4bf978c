/* What goes on inside, put together from the engine's lists and the server's connections: for information_schema.cc and
   status.cc. Costs nothing to those who do not look.

   A transaction's connection is found by walking the server's connections, each under its own mutex (LOCK_thd_data), which
   also keeps its Session and the text of its statement alive.

   Keys are decoded by a TABLE made for the purpose from the TABLE_SHARE of an open table; the registry of open Table_shares
   keeps that alive meanwhile. Where a table is not open, or a part of a key cannot be decoded (text under a collation, and the
   row that would have told it is gone), that is shown in hexadecimal.

   Copyright (c) 2026 The FrondDB maintainers. SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef FROND_MARIADB_INSPECT_H
#define FROND_MARIADB_INSPECT_H

#include "server.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "frond.h"

namespace frond {

/* Which table and index a tree is. Names as users write them; all empty for trees of FROND itself. */
struct Tree_view {
  std::string name; /* of the tree */
  uint32_t id= 0;
  frond_codec codec= FROND_CODEC_DEFAULT;
  int32_t codec_level= 0;
  uint64_t user_bytes= 0, bytes_written= 0;
  std::string schema, table, partition, index;
  std::string table_tree; /* name of the table's primary tree */
  uint32_t index_id= 0;
};

struct Transaction_view {
  frond_txn_info info= {};
  uint64_t thread_id= 0; /* 0: no connection has it */
  std::string query;
  uint64_t rows= 0; /* written by the connection */
  uint64_t locks_held= 0;
  bool waits= false;
  std::vector<uint64_t> waits_for; /* frond_txn_info.txn of those in the way */

  const char *state() const;
};

struct Lock_view {
  uint64_t txn= 0;
  uint32_t tree= 0;
  frond_lock_mode mode= FROND_LOCK_NONE;
  std::string start, end;
  bool is_range= false;
  bool waits= false;
  uint64_t waited_ms= 0;
  std::vector<uint64_t> waits_for;
};

/* Whether there is one for which it matters what its tree is: there may be very many trees to list. */
inline bool any_waits(const std::vector<Lock_view> &locks)
{
  return std::any_of(locks.begin(), locks.end(), [](const Lock_view &lock) { return lock.waits; });
}

using Trees= std::map<uint32_t, Tree_view>;

/* False, with the engine's message in last_message(), when it could not be had. */
bool list_trees(Trees *trees);
bool list_locks(std::vector<Lock_view> *locks);
bool list_transactions(const std::vector<Lock_view> &locks, std::vector<Transaction_view> *transactions);

const char *isolation_name(frond_isolation isolation);
const char *codec_name(frond_codec codec);

constexpr uint QUERY_CHARACTERS_MAX= 8192;
/* What a connection executes, in UTF-8, whatever its client speaks, no further than about so many characters: the caller's own, or one whose
   LOCK_thd_data is held. */
std::string query_of(THD *thd);

/* A key of a tree as column values: "1, 'abc', NULL". */
std::string key_text(THD *thd, const Tree_view &tree, const std::string &key);

/* While it lives, the database stays open: for those whom the server does not keep from running while the plugin ends. */
class Database_use {
public:
  Database_use();
  ~Database_use();
  Database_use(const Database_use &)= delete;
  Database_use &operator=(const Database_use &)= delete;
  bool is_open() const;
};
/* Closes the database once nobody uses it so. */
frond_status close_database();

} // namespace frond

#endif
