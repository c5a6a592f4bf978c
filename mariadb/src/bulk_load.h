/* The rows of a table that a statement makes or fills, gathered beside its trees and written once, in key order, at the end;
   and the entries of indexes that are being built (index_build.h).

   The server says that it copies into a table which nobody else knows (HA_EXTRA_BEGIN_COPY: an ALTER TABLE that copies, CREATE
   TABLE … SELECT), and that it will say when the rows are complete (start_bulk_insert). From the first row on, each tree of
   the table then has a bulk load of the engine. LOAD DATA and INSERT … SELECT into an empty table are done in the same way. Rows are
   in no tree before finish(); so a table in which the server or this engine looks while it is written cannot be loaded so: see
   ha_frond::may_load().

   A duplicate is found at the end and reported then, as InnoDB does it in such a copy.

   Copyright (c) 2026 The FrondDB maintainers. SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef FROND_MARIADB_BULK_LOAD_H
#define FROND_MARIADB_BULK_LOAD_H

#include "server.h"

#include <memory>
#include <vector>

#include "frond.h"
#include "share.h"

namespace frond {

class Bulk_load {
public:
  ~Bulk_load();

  /* A tree, the number that its key has in the server's table, and whether its entries may meet a duplicate. */
  struct Target {
    const frond_tree *tree;
    uint key_number;
    bool unique;
  };

  /* Which of several keys that are there twice is told: the one whose row was the first to come again, of all indexes, as if rows were
     written one by one; or the lowest of the first index that has one. */
  enum class Duplicates { first, lowest };

  /* Begins the loads of these trees, which it locks. `trees`: how many the statement loads in all; they share the memory for
     sorting, and each takes `memory_max` bytes at most. FROND_INVALID_ARGUMENT where a tree has rows. */
  frond_status begin(frond_txn *txn, const std::vector<Target> &targets, uint64_t trees, uint64_t memory_max,
                     Duplicates duplicates);
  /* FROND_LOCK_TIMEOUT where a transaction, this session's too, has locks in a tree of a table with several. Call it before a begin() that
     does not wait: that would keep the trees which it has locked, to the end of the transaction, when it meets the locks of others in the next.
     Locks that come between the two, and rows that begin() finds, still have this effect. */
  static frond_status look_free(const Table_share *share, const TABLE_SHARE *table);
  /* The same of all trees of a table. *load stays null where one has rows, and where partitions have more trees than there is
     memory for: rows are written one by one then.
     `tables`: how many the statement loads (partitions). */
  static frond_status begin(frond_txn *txn, const Table_share *share, const TABLE_SHARE *table, uint tables,
                            std::unique_ptr<Bulk_load> *load);

  /* Shows the statement's progress in the process list until the load's end, unless somebody does already: the server in ALTER TABLE and
     LOAD DATA. The first stage is the gathering of rows, the second finish(). */
  void tell(THD *thd) { tell(thd, 2); }

  /* Adds an entry to target `number`. Of a table the tree of rows is 0, then come its other indexes in the order of their
     key numbers. */
  frond_status add(size_t number, frond_slice key, frond_slice value);
  /* What was added to the first. */
  uint64_t rows() const { return rows_added; }

  /* Writes everything, in the order of the targets. FROND_KEY_EXISTS: key *key_number has *duplicate twice, which is
     lent as long as this lives; the trees of other targets may be written or not. FROND_CANCELLED when the session was killed. */
  frond_status finish(THD *thd, uint *key_number, frond_row *duplicate);

private:
  void tell(THD *thd, uint stages);
  static std::vector<Target> targets_of(const Table_share *share, const TABLE_SHARE *table);

  struct Load {
    frond_bulk *bulk;
    uint key_number;
    bool unique;
  };
  std::vector<Load> loads;
  Duplicates told_duplicates= Duplicates::lowest;
  THD *told= nullptr; /* whose progress ends with this */
  uint64_t rows_added= 0;
};

} // namespace frond

#endif
