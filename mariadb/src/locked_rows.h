/* Rows that a transaction has read and locked: what it reads of them again is what it has read.

   SELECT … FOR UPDATE and then UPDATE is how programs change a row by what it was, and the second statement looks the row up
   once more. Nobody else changes a row while it is locked, so the session keeps the last few rows that such a SELECT has
   read.

   - A row is here only while the transaction holds its lock, in this mode or a stronger one.
   - It is found from the next statement on: within one, the engine wants to know of a lock that is asked for twice, which
     must not be given back (frond_txn_unlock).
   - It is as the transaction's next locking read of it would find it: what the transaction writes, unlocks or undoes goes. What
     is undone goes with all else, because a mark does not say what was written since.

   Trees go by their numbers: a table may be closed and another opened at its address while the transaction lives.

   Copyright (c) 2026 The FrondDB maintainers. SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef FROND_MARIADB_LOCKED_ROWS_H
#define FROND_MARIADB_LOCKED_ROWS_H

#include <cstddef>
#include <cstdint>

#include "bytes.h"
#include "frond.h"

namespace frond {

class Locked_rows {
public:
  void begin_statement() { statement++; }
  void keep(const frond_tree *tree, frond_slice key, frond_slice value, frond_lock_mode mode);
  /* The row's value, if it is here and locked as strongly; it stays where it is until the next change. */
  bool find(const frond_tree *tree, frond_slice key, frond_lock_mode mode, frond_slice *value) const;
  void forget(const frond_tree *tree, frond_slice key);
  void clear()
  {
    count= 0;
    bytes.shrink(BYTES_MAX);
  }

private:
  struct Row {
    uint64_t hash; /* of tree and key */
    uint32_t tree;
    frond_lock_mode mode;
    uint64_t statement;
    size_t key_start, key_size, value_size; /* the value follows the key */
  };

  frond_slice key_of(const Row &row) const { return {bytes.data() + row.key_start, row.key_size}; }
  const Row *look_up(uint32_t tree, frond_slice key) const;

  uint64_t statement= 0;
  /* A statement that locks more has them written one by one, if at all: the next ones take the place of all before. */
  static constexpr size_t ROWS_MAX= 32;
  /* Of all rows, and so what a session keeps for this between transactions. */
  static constexpr size_t BYTES_MAX= 16 << 10;

  Row rows[ROWS_MAX];
  size_t count= 0;
  Bytes bytes;
};

} // namespace frond

#endif
