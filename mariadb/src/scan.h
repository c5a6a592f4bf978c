/* An ordered walk over a tree with rows fetched in batches across the C border.

   Plain reads fetch a few rows first, or some more within a range, and twice as many each time; locking reads fetch one row
   at a time, because every row that the engine packs it also locks. A row that is lent stays until the next call of the scan.

   Where the caller allows it, values are not copied but lent from the engine's cache, and the processor is asked for those of the next
   rows while it works on one: a table's rows seldom lie in the processor's own caches.

   A locking walk may peek (FROND_CURSOR_PEEK): a row that another transaction holds comes as it was committed last, without a lock;
   again() gives the row once more, locked, or what there is in its place by then.

   A scan outlives its transaction where HANDLER … READ NEXT goes on in the next one: park() gives the engine's cursor back and
   keeps the place, resume() says in which transaction the walk goes on.

   The scan may be opened with bounds that end it early (the rows of one key prefix). Walking on past such a bound, or turning
   round, opens the engine's cursor again without them, at the last row.

   Copyright (c) 2026 The FrondDB maintainers. SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef FROND_MARIADB_SCAN_H
#define FROND_MARIADB_SCAN_H

#include "server.h"

#include "bytes.h"
#include "frond.h"

#include <algorithm>

namespace frond {

struct Scan_bounds {
  frond_slice lower= {nullptr, 0}; /* included */
  frond_slice upper= {nullptr, 0}; /* excluded */
  /* The end of the bounds is the end of what the caller wants; otherwise it may walk past it. */
  bool final_upper= false;
};

/* What a walk sees and locks. */
struct Scan_mode {
  frond_lock_mode lock= FROND_LOCK_NONE;
  uint32_t sees= 0; /* flags of the cursor: without lock FROND_CURSOR_COMMITTED, _LATEST, _ADDED or _OTHERS, with lock FROND_CURSOR_PEEK */
  int64_t wait_ms= FROND_WAIT_DEFAULT;
  /* What is made of a row's value does not refer to it any more when the next row is asked for, or the walk ends. */
  bool lends= false;
  bool heads= false; /* without lock: of a row that is kept apart its first bytes will do (FROND_CURSOR_HEADS_ONLY) */
};

class Scan {
public:
  Scan()= default;
  ~Scan() { close(); }
  Scan(const Scan &)= delete;
  Scan &operator=(const Scan &)= delete;

  /* What the following walks range over, and how. Nothing is read. */
  void prepare(frond_txn *txn_arg, const frond_tree *tree_arg, const Scan_mode &mode_arg)
  {
    close();
    txn= txn_arg;
    tree= tree_arg;
    mode= mode_arg;
  }
  void set_sees(uint32_t sees) { mode.sees= sees; }
  void close()
  {
    if (cursor)
      frond_cursor_close(cursor);
    cursor= nullptr;
    rows_left= 0;
    more= peeked= parked= false;
    pending= FROND_OK;
    last_key= nullptr;
  }
  /* The same, and keeps no more memory for rows than a short walk takes. */
  void rest()
  {
    close();
    if (unlikely(buffer.capacity() > BUFFER_BYTES))
      buffer.shrink(BUFFER_BYTES);
  }
  /* The same, and lets go of a long key, too. */
  void shrink()
  {
    rest();
    turning_key.shrink();
  }
  bool is_forward() const { return forward; }
  bool is_open() const { return cursor != nullptr || parked; }
  bool is_parked() const { return parked; }
  /* Whether the last row that was lent is not locked, because another transaction holds it. */
  bool is_peeked() const { return peeked; }
  bool takes_heads() const { return mode.heads; }
  /* Of the last row that was lent; stays until the next call. */
  frond_slice place() const { return {last_key, last_size}; }
  /* The transaction may end; the walk goes on from the last row that was lent, after resume(). */
  void park();
  void park_at(frond_slice key);
  void resume(frond_txn *txn, const Scan_mode &mode);

  /* The first row within the bounds, or the last one to walk back from there. FROND_OK with row->key.data NULL at the end. */
  frond_status begin(bool ahead, const Scan_bounds &bounds, frond_row *row);
  /* The next one in the direction of the walk, within the bounds. */
  frond_status onward(frond_row *row) { return step(forward, false, row); }
  /* The next one in that direction if it is fetched already; false, and nothing done, if not. */
  bool take_at_hand(bool ahead, frond_row *row)
  {
    if (rows_left == 0 || ahead != forward || parked)
      return false;
    take(row);
    return true;
  }
  /* The row after or before the last one that was lent; `beyond` the bounds if need be. */
  frond_status next(frond_row *row, bool beyond) { return step(true, beyond, row); }
  frond_status prev(frond_row *row, bool beyond) { return step(false, beyond, row); }
  /* The last row that was lent, which is peeked at, locked; where it is gone, the next one in the direction of the walk, as by next(). */
  frond_status again(frond_row *row, bool beyond);

private:
  static constexpr size_t BUFFER_BYTES= 4 * 1024; /* for a short walk, and kept for the next one */

  frond_status open(const Scan_bounds &bounds);
  frond_status fetch(frond_move move, frond_slice key, frond_row *row);
  void reserve(size_t bytes);
  void keep_place(frond_slice key);
  frond_status step(bool ahead, bool beyond, frond_row *row)
  {
    return take_at_hand(ahead, row) ? FROND_OK : look(ahead, beyond, row);
  }
  frond_status look(bool ahead, bool beyond, frond_row *row); /* step() where no row at hand is the next one */
  void take(frond_row *row);
  void look_ahead();

  frond_txn *txn= nullptr;
  const frond_tree *tree= nullptr;
  Scan_mode mode;

  frond_cursor *cursor= nullptr;
  bool forward= true;
  bool parked= false;
  bool bounded= false; /* the cursor ends before the caller may want it to */

  Bytes buffer;
  const uint8_t *at= nullptr;
  uint32_t rows_left= 0;
  bool lent= false;              /* as the rows in the buffer are packed */
  const uint8_t *ahead= nullptr; /* of lent rows: the first that the processor has not been asked for */
  uint32_t rows_ahead= 0;
  uint32_t rows_max= 0;
  bool more= false;
  bool peeked= false;
  frond_status pending= FROND_OK; /* met after the rows that are left */
  /* The last row lent; what is in the buffer goes with the next fetch. */
  const uint8_t *last_key= nullptr;
  size_t last_size= 0;
  Bytes turning_key;
};

inline void Scan::look_ahead()
{
  constexpr size_t CACHE_LINE_BYTES= 64, BYTES_AHEAD_MAX= 512;
  if (rows_ahead == 0)
    return;
  rows_ahead--;
  frond_row row;
  ahead= frond_fetch_lent(ahead, &row);
  size_t bytes= std::min(row.value.size, BYTES_AHEAD_MAX);
  for (size_t i= 0; i < bytes; i+= CACHE_LINE_BYTES)
    __builtin_prefetch(row.value.data + i);
}

inline void Scan::take(frond_row *row)
{
  look_ahead();
  at= lent ? frond_fetch_lent(at, row) : frond_fetch_row(at, row);
  rows_left--;
  last_key= row->key.data;
  last_size= row->key.size;
}

} // namespace frond

#endif
