/* A walk over an index, merged where need be with one over what the index was before the transaction wrote to it.

   An index of unique values has one entry for a value. When others gave a value away after the transaction's snapshot and the transaction
   writes its entry, then it sees its own there, and no more the snapshot's, whose row its plain reads see all the same. So both entries
   come, in the order of their rows' keys; whoever reads them tells those that are not their row's any more from the others.

   Any other walk is passed on to Scan as it is. Where one goes on after its transaction over an index of unique values, the value may be
   another row's by then; so its place is the row's as well, and it goes on behind that.

   Copyright (c) 2026 The FrondDB maintainers. SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef FROND_MARIADB_MERGED_SCAN_H
#define FROND_MARIADB_MERGED_SCAN_H

#include "server.h"

#include "bytes.h"
#include "frond.h"
#include "scan.h"

namespace frond {

class Merged_scan {
public:
  /* As those of Scan. `merges`: plain, and over a unique index. */
  void prepare(frond_txn *txn, const frond_tree *tree_arg, const Scan_mode &mode, bool merges_arg)
  {
    close();
    tree= tree_arg;
    own.prepare(txn, tree, mode);
    merge(txn, merges_arg);
  }
  void set_sees(uint32_t sees) { own.set_sees(sees); }
  void close()
  {
    own.close();
    before.close();
    has_last= false;
  }
  void rest()
  {
    own.rest();
    before.rest();
    has_last= false;
  }
  void shrink();
  bool is_forward() const { return own.is_forward(); }
  bool is_open() const { return own.is_open(); }
  bool is_peeked() const { return own.is_peeked(); }
  bool is_merged() const { return merges; }
  bool takes_heads() const { return own.takes_heads(); }
  /* As of Scan. `row`: the key of the row whose entry was lent last, in an index of unique values; or none. */
  void park(frond_slice row);
  void park_at(frond_slice key, frond_slice row);
  void resume(frond_txn *txn, const Scan_mode &mode, bool merges);

  frond_status begin(bool ahead, const Scan_bounds &bounds, frond_row *row);
  bool take_at_hand(bool ahead, frond_row *row) { return !merges && own.take_at_hand(ahead, row); }
  frond_status onward(frond_row *row) { return step(is_forward(), false, row); }
  frond_status next(frond_row *row, bool beyond) { return step(true, beyond, row); }
  frond_status prev(frond_row *row, bool beyond) { return step(false, beyond, row); }
  frond_status again(frond_row *row, bool beyond) { return own.again(row, beyond); } /* of a walk that locks, which is not merged */

private:
  void merge(frond_txn *txn, bool merges_arg)
  {
    merges= merges_arg;
    if (merges)
      before.prepare(txn, tree, {FROND_LOCK_NONE, FROND_CURSOR_OTHERS, FROND_WAIT_DEFAULT});
  }
  frond_status step(bool ahead, bool beyond, frond_row *row)
  {
    if (merges || unlikely(has_last))
      return step_merged(ahead, beyond, row);
    return ahead ? own.next(row, beyond) : own.prev(row, beyond);
  }
  frond_status step_merged(bool ahead, bool beyond, frond_row *row);
  frond_status advance(frond_row *row);
  frond_status again(bool ahead, frond_row *row);
  void lend(frond_row *row);
  void keep_last(frond_slice key, frond_slice row);

  Scan own, before;
  const frond_tree *tree= nullptr;
  bool merges= false;
  /* Of a merged walk, or one that has been parked at a row: */
  frond_row own_row= {{nullptr, 0}, {nullptr, 0}}, before_row= own_row; /* where they stand; none at the end */
  int order= 0;        /* which was lent last: the own below 0, the other above, 0 for both */
  bool bounded= false; /* the walk ends before the caller may want it to */
  bool has_last= false;
  Bytes last_key, last_value; /* lent last; of one that was parked no more of the value than whose the entry is */
};

} // namespace frond

#endif
