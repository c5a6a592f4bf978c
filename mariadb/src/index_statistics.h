/* How many rows share a value of the leading columns of an index: what the optimizer asks for as rec_per_key.

   A small index is read whole, of a larger one stretches at even distances. Within a stretch every pair of neighbours is
   compared, column by column: rows = pairs × rows per value ⁄ changes, so that groups which a stretch cuts do not mislead. The
   places of stretches are found by bisection with the engine's estimates, without reading. So are a few places where rows are read,
   for how long they are. Where very many rows lie that are deleted or rolled back and not yet gone, only the stretches of ANALYZE TABLE
   wait until a row is found among them; any other place tells less, or nothing, and where an end lies is left open.

   ANALYZE TABLE reads much and keeps what it finds in the table's definition. Without it the first statement that asks, and
   another once the table has grown or shrunk a good deal, reads a few places. Of a large table these are a few hundred blocks,
   which a start with a cold cache should not wait for: what they say is kept as well.

   Copyright (c) 2026 The FrondDB maintainers. SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef FROND_MARIADB_INDEX_STATISTICS_H
#define FROND_MARIADB_INDEX_STATISTICS_H

#include "server.h"

#include <vector>

#include "frond.h"
#include "key_codec.h"

namespace frond {

struct Sampling {
  uint64_t whole_rows_max; /* an index of so many rows is read whole */
  uint32_t stretches;
  uint32_t stretch_rows;
  bool gives_up; /* among very many rows that are gone */
};

constexpr Sampling ANALYZE_SAMPLING= {200000, 100, 1000, false};
constexpr Sampling QUICK_SAMPLING= {5000, 16, 100, true};

/* Whose columns an index has: its own, and behind them so many leading ones of the primary key, where its entries end in that. */
struct Counted_columns {
  const Key_codec &own;
  const Key_codec *primary;
  uint primary_columns; /* 0: none of them */
};

/* Rows per value of the first 1, 2, … columns; at least 1 each; none of it when there are no rows. `stop` is asked now and then:
   true gives up (FROND_CANCELLED). */
frond_status sample_rows_per_key(frond_txn *txn, const frond_tree *tree, const Counted_columns &columns, const Sampling &sampling,
                                 bool (*stop)(THD *), THD *thd, std::vector<uint64_t> *rows_per_key);

/* Bytes of a row of a table of about `rows` rows, its key and value before compression, on average; 0 where there is none. */
frond_status sample_row_bytes(frond_txn *txn, const frond_tree *tree, uint64_t rows, bool (*stop)(THD *), THD *thd,
                              uint64_t *row_bytes);

} // namespace frond

#endif
