/* Two walks in one. See merged_scan.h.

   SPDX-License-Identifier: GPL-2.0-or-later */
#include "merged_scan.h"

#include "entry.h"
#include "slices.h"

namespace frond {

namespace {

/* The order of entries: by their keys, and where two rows have one, by the keys of these. What is damaged is for the reader to say. */
int compare_entries(const frond_row &a, const frond_row &b)
{
  int order= compare(a.key, b.key);
  frond_slice first, second;
  const uchar *rest;
  if (order != 0 || !unique_entry_primary(a.value, &first, &rest) || !unique_entry_primary(b.value, &second, &rest))
    return order;
  return compare(first, second);
}

} // namespace

void Merged_scan::shrink()
{
  own.shrink();
  before.shrink();
  has_last= false;
  last_key.shrink();
  last_value.shrink();
}

void Merged_scan::park(frond_slice row)
{
  if (merges && has_last) {
    own.park_at(slice(last_key));
  } else {
    own.park();
    has_last= own.is_parked() && row.data;
    if (has_last)
      keep_last(own.place(), row);
  }
  before.close();
}

void Merged_scan::park_at(frond_slice key, frond_slice row)
{
  own.park_at(key);
  before.close();
  has_last= true;
  keep_last(key, row);
}

/* Of the value of the entry what tells whose it is. */
void Merged_scan::keep_last(frond_slice key, frond_slice row)
{
  last_key.clear();
  last_key.append(key.data, key.size);
  last_value.clear();
  append_unique_primary(row, last_value);
}

void Merged_scan::resume(frond_txn *txn, const Scan_mode &mode, bool merges_arg)
{
  own.resume(txn, mode);
  merge(txn, merges_arg);
}

frond_status Merged_scan::begin(bool ahead, const Scan_bounds &bounds, frond_row *row)
{
  frond_status status= own.begin(ahead, bounds, &own_row);
  if (merges && status == FROND_OK)
    status= before.begin(ahead, bounds, &before_row);
  has_last= false;
  if (!merges) {
    *row= own_row;
    before_row.key.data= nullptr;
    order= -1;
    return status;
  }
  bounded= (bounds.lower.data || bounds.upper.data) && !bounds.final_upper;
  if (status == FROND_OK)
    lend(row);
  return status;
}

/* The one of the two rows that comes first. */
void Merged_scan::lend(frond_row *row)
{
  if (!own_row.key.data || !before_row.key.data)
    order= own_row.key.data ? -1 : 1;
  else
    order= is_forward() ? compare_entries(own_row, before_row) : compare_entries(before_row, own_row);
  *row= order <= 0 ? own_row : before_row;
  if (!row->key.data)
    return;
  has_last= true;
  last_key.clear();
  last_key.append(row->key.data, row->key.size);
  last_value.clear();
  last_value.append(row->value.data, row->value.size);
}

frond_status Merged_scan::advance(frond_row *row)
{
  frond_status status= FROND_OK;
  if (order <= 0 && own_row.key.data)
    status= own.onward(&own_row);
  if (order >= 0 && before_row.key.data && status == FROND_OK)
    status= before.onward(&before_row);
  if (status == FROND_OK)
    lend(row);
  return status;
}

frond_status Merged_scan::step_merged(bool ahead, bool beyond, frond_row *row)
{
  row->key.data= nullptr;
  if (!has_last)
    return FROND_OK;
  if (ahead != is_forward() || own.is_parked())
    return again(ahead, row);
  frond_status status= advance(row);
  return status == FROND_OK && !row->key.data && bounded && beyond ? again(ahead, row) : status;
}

/* Turned round, or past the bounds: from the last row, which is left out. */
frond_status Merged_scan::again(bool ahead, frond_row *row)
{
  Bytes key, value, end;
  key.append_bytes(last_key);
  value.append_bytes(last_value);
  end.append_bytes(last_key);
  to_successor(end);
  Scan_bounds rest;
  (ahead ? rest.lower : rest.upper)= slice(ahead ? key : end);
  const frond_row last= {slice(key), slice(value)};
  frond_status status= begin(ahead, rest, row);
  while (status == FROND_OK && row->key.data &&
         (ahead ? compare_entries(*row, last) : compare_entries(last, *row)) <= 0)
    status= advance(row);
  has_last= has_last && merges;
  return status;
}

} // namespace frond
