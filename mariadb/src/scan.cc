/* An ordered walk in batches. See scan.h.

   SPDX-License-Identifier: GPL-2.0-or-later */
#include "scan.h"

#include "slices.h"

namespace frond {

namespace {

/* For a long walk. */
constexpr size_t BUFFER_BYTES_LONG= 32 * 1024;
/* What a packed row takes, about. */
constexpr size_t ROW_BYTES_LENT= 32, ROW_BYTES_COPIED= 128;
/* The first time; where they are lent and the end of the walk is known, which is to say cheap and mostly wanted; at most. */
constexpr uint32_t ROWS_FIRST= 8, ROWS_FIRST_LENT= 32, ROWS_MAX= 512;
constexpr uint32_t ROWS_AHEAD= 8;
constexpr frond_slice NO_KEY= {nullptr, 0};

} // namespace

void Scan::park()
{
  if (cursor && last_key)
    park_at(frond_bytes(last_key, last_size));
  else if (cursor)
    close();
}

/* A place, in memory of its own. */
void Scan::keep_place(frond_slice key)
{
  if (key.data == turning_key.data())
    return;
  turning_key.clear();
  turning_key.append(key.data, key.size);
}

void Scan::park_at(frond_slice key)
{
  keep_place(key);
  close();
  last_key= turning_key.data();
  last_size= turning_key.size();
  parked= true;
}

void Scan::resume(frond_txn *txn_arg, const Scan_mode &mode_arg)
{
  if (!tree)
    return;
  txn= txn_arg;
  mode= mode_arg;
}

frond_status Scan::open(const Scan_bounds &bounds)
{
  close();
  frond_cursor_options options= {};
  options.lower= bounds.lower;
  options.upper= bounds.upper;
  options.lock= mode.lock;
  options.wait_ms= mode.wait_ms;
  options.flags= mode.sees | (mode.heads ? FROND_CURSOR_HEADS_ONLY : 0);
  bounded= (bounds.lower.data || bounds.upper.data) && !bounds.final_upper;
  rows_max= mode.lock != FROND_LOCK_NONE ? 1 : mode.lends && bounds.final_upper ? ROWS_FIRST_LENT : ROWS_FIRST;
  return frond_cursor_open(txn, tree, &options, &cursor);
}

frond_status Scan::begin(bool ahead, const Scan_bounds &bounds, frond_row *row)
{
  frond_status status= open(bounds);
  if (status != FROND_OK)
    return status;
  forward= ahead;
  return fetch(ahead ? FROND_MOVE_FIRST : FROND_MOVE_LAST, NO_KEY, row);
}

frond_status Scan::look(bool ahead, bool beyond, frond_row *row)
{
  if (ahead == forward && !parked) {
    if (pending != FROND_OK)
      return pending;
    if (more)
      return fetch(ahead ? FROND_MOVE_NEXT : FROND_MOVE_PREV, NO_KEY, row);
    if (!bounded || !beyond || !last_key) {
      row->key= NO_KEY;
      return FROND_OK;
    }
  }
  if (!last_key) {
    row->key= NO_KEY;
    return FROND_OK;
  }
  /* Turn round, or walk past the bounds: again from the last row, which is left out. */
  keep_place(place());
  Scan_bounds rest;
  if (ahead) {
    to_successor(turning_key);
    rest.lower= slice(turning_key);
  } else {
    rest.upper= slice(turning_key);
  }
  return begin(ahead, rest, row);
}

frond_status Scan::again(frond_row *row, bool beyond)
{
  frond_status status= fetch(FROND_MOVE_AGAIN, NO_KEY, row);
  return status != FROND_OK || row->key.data ? status : step(forward, beyond, row);
}

/* Room for rows. The place of the last one, which lies there, stays what it is, also where none comes after it. */
void Scan::reserve(size_t bytes)
{
  if (unlikely(bytes > buffer.capacity()) && last_key) {
    keep_place(place());
    last_key= turning_key.data();
  }
  buffer.reserve(bytes);
}

frond_status Scan::fetch(frond_move move, frond_slice key, frond_row *row)
{
  for (;;) {
    frond_fetch request= {};
    const size_t wanted= rows_max * (mode.lends ? ROW_BYTES_LENT : ROW_BYTES_COPIED);
    reserve(wanted > BUFFER_BYTES ? BUFFER_BYTES_LONG : BUFFER_BYTES);
    request.buffer= buffer.data();
    request.capacity= buffer.capacity();
    request.rows_max= rows_max;
    lent= mode.lends;
    request.flags= lent ? FROND_FETCH_LENT : 0;
    frond_status status= frond_cursor_fetch(cursor, move, key, &request);
    rows_left= request.rows;
    if (status != FROND_OK && request.rows == 0)
      return status;
    pending= status;
    more= request.more;
    peeked= request.peeked;
    if (request.rows == 0 && request.bytes_needed > 0) {
      /* One row larger than the buffer: the cursor stands at it. */
      reserve(request.bytes_needed);
      move= move == FROND_MOVE_LAST || move == FROND_MOVE_PREV ? FROND_MOVE_PREV : FROND_MOVE_NEXT;
      continue;
    }
    if (mode.lock == FROND_LOCK_NONE)
      rows_max= std::min(rows_max * 2, ROWS_MAX);
    at= ahead= buffer.data();
    rows_ahead= lent ? rows_left : 0;
    for (uint32_t i= 0; i < ROWS_AHEAD; i++)
      look_ahead();
    if (rows_left == 0) {
      more= false;
      row->key= NO_KEY;
      return FROND_OK;
    }
    take(row);
    return FROND_OK;
  }
}

} // namespace frond
