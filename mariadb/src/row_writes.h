/* The writes of one row: its primary entry and all its index entries, gathered and handed to the engine by one call.

   Copyright (c) 2026 The FrondDB maintainers. SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef FROND_MARIADB_ROW_WRITES_H
#define FROND_MARIADB_ROW_WRITES_H

#include "server.h"

#include <vector>

#include "bytes.h"
#include "frond.h"

namespace frond {

class Bulk_load;

class Row_writes {
public:
  void clear();
  /* The same, and keeps no more memory for keys and values than is kept beyond a statement. */
  void shrink();
  /* A write begins; its key, then its value are appended to bytes(). `key_number` is told when it fails. */
  void begin(const frond_tree *tree, frond_op op, uint32_t flags, uint key_number);
  void value();
  Bytes &bytes() { return buffer; }
  bool empty() const { return writes.empty(); }

  /* All of them, or none; after FROND_KEY_EXISTS *key_number is the key that had the row, MAX_KEY when unknown. */
  frond_status run(frond_txn *txn, uint *key_number);
  /* Adds them to a load instead, whose trees are in the order of these writes. */
  frond_status load(Bulk_load *load);
  /* As they were run. */
  const std::vector<frond_operation> &made() const { return operations; }
  /* Whether one of them is too long, after FROND_INVALID_ARGUMENT from either. */
  bool too_long() const;

private:
  void make_operations();

  struct Write {
    const frond_tree *tree;
    frond_op op;
    uint32_t flags;
    uint key_number;
    size_t key_start, value_start;
  };

  Bytes buffer;
  std::vector<Write> writes;
  std::vector<frond_operation> operations;
};

} // namespace frond

#endif
