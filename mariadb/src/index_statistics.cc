/* Rows per value of an index. See index_statistics.h.

   SPDX-License-Identifier: GPL-2.0-or-later */
#include "index_statistics.h"

#include <algorithm>
#include <functional>
#include <set>
#include <string>

#include "errors.h"

namespace frond {

namespace {

constexpr frond_slice NOTHING= {nullptr, 0};
/* Bytes of a key beyond what all keys share that bisection decides on. */
constexpr size_t PLACE_BYTES= 8;
constexpr uint32_t ROWS_BETWEEN_STOPS= 1000;
/* So many rows lie in a block or two of each run: to read ahead would read what nobody looks at. */
constexpr uint64_t SHORT_STRETCH_ROWS= 1000;
constexpr size_t BUFFER_BYTES= 64 * 1024;
/* Places where rows are measured, rows of each, and bytes after which long ones are enough at each. */
constexpr uint32_t LENGTH_PLACES= 16;
constexpr uint32_t LENGTH_ROWS= 16;
constexpr uint64_t LENGTH_BYTES_MAX= 64 * 1024;

frond_slice slice(const std::string &bytes)
{
  return frond_bytes(bytes.data(), bytes.size());
}

/* Neighbours compared, column by column. */
class Counter {
public:
  Counter(const Counted_columns &columns_arg)
    : columns(columns_arg), changes(columns_arg.own.columns() + columns_arg.primary_columns), prefixes(changes.size()) {}

  void begin_stretch() { previous_known= false; }

  /* The next key of the stretch; false when it is damaged. */
  bool add(const uchar *key, size_t size)
  {
    ends.clear();
    if (!add_ends(columns.own, columns.own.columns(), key, size))
      return false;
    if (columns.primary_columns > 0 && !add_ends(*columns.primary, columns.primary_columns, key, size))
      return false;
    if (previous_known)
      compare(key);
    else
      for (size_t column= 0; column < ends.size(); column++)
        prefixes[column].emplace(reinterpret_cast<const char *>(key), ends[column]);
    previous.assign(reinterpret_cast<const char *>(key), ends.empty() ? 0 : ends.back());
    previous_ends= ends;
    previous_known= seen= true;
    return true;
  }

  /* What it comes to in an index of `rows` rows. `whole`: every row was compared. */
  std::vector<uint64_t> rows_per_key(uint64_t rows, bool whole) const
  {
    std::vector<uint64_t> result;
    if (!seen)
      return result;
    for (size_t column= 0; column < changes.size(); column++) {
      double values= static_cast<double>(changes[column]) + 1;
      if (!whole && pairs > 0)
        values= static_cast<double>(changes[column]) / static_cast<double>(pairs) * static_cast<double>(rows);
      /* Where no stretch saw a change, the values that they began with are known to be there. */
      values= std::max(values, static_cast<double>(prefixes[column].size()));
      double per_key= static_cast<double>(whole ? pairs + 1 : rows) / values;
      result.push_back(std::max<uint64_t>(1, static_cast<uint64_t>(per_key + 0.5)));
    }
    return result;
  }

private:
  /* Where columns end that begin where the last of those before does. */
  bool add_ends(const Key_codec &codec, uint count, const uchar *key, size_t size)
  {
    const size_t begin= ends.empty() ? 0 : ends.back();
    for (uint column= 0; column < count; column++) {
      size_t end= begin < size ? codec.skip(key + begin, size - begin, column + 1) : 0;
      if (end == 0)
        return false;
      ends.push_back(begin + end);
    }
    return true;
  }

  void compare(const uchar *key)
  {
    pairs++;
    bool changed= false;
    for (size_t column= 0; column < ends.size(); column++) {
      changed= changed || ends[column] != previous_ends[column] || memcmp(key, previous.data(), ends[column]) != 0;
      changes[column]+= changed;
    }
  }

  const Counted_columns &columns;
  uint64_t pairs= 0;
  std::vector<uint64_t> changes;
  std::vector<std::set<std::string>> prefixes; /* values at the beginnings of stretches */
  bool seen= false; /* any key */
  bool previous_known= false;
  std::string previous;
  std::vector<size_t> previous_ends, ends;
};

/* Reads up to `rows` keys from `lower` on; fewer, and says so in *gave_up, where `giving_up` (0, or FROND_CURSOR_GIVE_UP) has it do so. */
frond_status read_stretch(frond_txn *txn, const frond_tree *tree, frond_slice lower, uint64_t rows, Counter *counter,
                          uint32_t giving_up, bool (*stop)(THD *), THD *thd, bool *gave_up)
{
  frond_cursor_options options= {};
  options.lower= lower;
  options.flags= FROND_CURSOR_KEYS_ONLY | FROND_CURSOR_NO_FILL_CACHE | giving_up;
  if (rows <= SHORT_STRETCH_ROWS)
    options.flags|= FROND_CURSOR_NO_READ_AHEAD;
  frond_cursor *cursor;
  frond_status status= frond_cursor_open(txn, tree, &options, &cursor);
  if (status != FROND_OK)
    return status;
  counter->begin_stretch();
  std::vector<uint8_t> buffer(BUFFER_BYTES);
  frond_move move= FROND_MOVE_FIRST;
  while (rows > 0 && status == FROND_OK) {
    frond_fetch fetch= {};
    fetch.buffer= buffer.data();
    fetch.capacity= buffer.size();
    fetch.rows_max= static_cast<uint32_t>(std::min<uint64_t>(rows, ROWS_BETWEEN_STOPS));
    fetch.flags= FROND_FETCH_KEYS_ONLY;
    status= frond_cursor_fetch(cursor, move, NOTHING, &fetch);
    const uint8_t *at= buffer.data();
    frond_row row;
    for (uint32_t i= 0; i < fetch.rows && status == FROND_OK; i++) {
      at= frond_fetch_row(at, &row);
      if (!counter->add(row.key.data, row.key.size)) {
        undecodable();
        status= FROND_CORRUPTION;
      }
    }
    if (stop(thd))
      status= FROND_CANCELLED;
    rows-= fetch.rows;
    move= FROND_MOVE_NEXT;
    if (fetch.rows == 0 && fetch.bytes_needed > 0)
      buffer.resize(fetch.bytes_needed);
    else if (!fetch.more || fetch.rows == 0)
      break;
  }
  *gave_up= frond_cursor_gave_up(cursor);
  frond_cursor_close(cursor);
  return status;
}

/* The first or the last key. *gave_up: it lies behind very many that are deleted. */
frond_status end_key(frond_txn *txn, const frond_tree *tree, frond_move move, std::string *key, bool *gave_up)
{
  frond_cursor *cursor;
  frond_cursor_options options= {};
  options.flags= FROND_CURSOR_KEYS_ONLY | FROND_CURSOR_NO_READ_AHEAD | FROND_CURSOR_GIVE_UP;
  frond_status status= frond_cursor_open(txn, tree, &options, &cursor);
  if (status != FROND_OK)
    return status;
  frond_row row;
  status= frond_cursor_move(cursor, move, NOTHING, &row);
  if (status == FROND_OK && row.key.data)
    key->assign(reinterpret_cast<const char *>(row.key.data), row.key.size);
  *gave_up= frond_cursor_gave_up(cursor);
  frond_cursor_close(cursor);
  return status;
}

uint64_t number_at(const std::string &key, size_t at)
{
  uint64_t number= 0;
  for (size_t i= at; i < at + PLACE_BYTES; i++)
    number= number << 8 | (i < key.size() ? static_cast<uchar>(key[i]) : 0);
  return number;
}

std::string place(const std::string &shared, uint64_t number)
{
  std::string key= shared;
  for (int shift= 56; shift >= 0; shift-= 8)
    key.push_back(static_cast<char>(number >> shift));
  return key;
}

/* A key with `target` rows before it, `near` more or less, between those that begin with shared and *low and `high`. *reach is about how
   far it lies from *low. Both are moved on, for the next one. */
frond_status bisect(frond_txn *txn, const frond_tree *tree, const std::string &shared, uint64_t *low, uint64_t high,
                    uint64_t target, uint64_t near, uint64_t *reach, std::string *key)
{
  uint64_t from= *low, at= *low, step= *reach;
  bool is_between= false; /* high is behind the key that is looked for */
  while (*low < high) {
    is_between= is_between || step >= high - *low;
    at= is_between ? *low + (high - *low) / 2 : *low + step;
    *key= place(shared, at);
    frond_estimate estimate;
    frond_status status= frond_txn_estimate(txn, tree, NOTHING, slice(*key), &estimate);
    if (status != FROND_OK)
      return status;
    if (estimate.rows + near >= target && estimate.rows <= target + near)
      break;
    if (estimate.rows < target) {
      *low= at + 1;
      step= std::max(step, step * 2);
    } else {
      high= at;
      is_between= true;
    }
    at= *low;
  }
  *low= at;
  *key= place(shared, at);
  *reach= std::max<uint64_t>(at - from, 1);
  return FROND_OK;
}

/* Calls look(lower) for the beginning of a tree of about `rows` rows and for places that lie evenly behind it. */
frond_status visit_places(frond_txn *txn, const frond_tree *tree, uint64_t rows, uint32_t places,
                          const std::function<frond_status(frond_slice)> &look)
{
  std::string first, last, key;
  bool before= false, behind= false; /* there is no knowing where it begins, or ends */
  frond_status status= end_key(txn, tree, FROND_MOVE_FIRST, &first, &before);
  if (status == FROND_OK)
    status= end_key(txn, tree, FROND_MOVE_LAST, &last, &behind);
  if (before || behind) {
    first.clear();
    last.assign(PLACE_BYTES, '\xff');
  }
  size_t shared= 0;
  while (shared < first.size() && shared < last.size() && first[shared] == last[shared])
    shared++;
  std::string prefix= first.substr(0, shared);
  uint64_t low= number_at(first, shared), high= number_at(last, shared), distance= rows / places;
  uint64_t reach= (high - low) / places + 1;
  for (uint32_t i= 0; i < places && status == FROND_OK; i++) {
    key.clear();
    if (i > 0)
      status= bisect(txn, tree, prefix, &low, high, distance * i, distance / 8, &reach, &key);
    if (status == FROND_OK)
      status= look(slice(key));
  }
  return status;
}

/* The rows of a place, for how long they are in the tree: what of them lies apart is known without that. */
class Lengths {
public:
  frond_status look(frond_txn *txn, const frond_tree *tree, frond_slice lower)
  {
    frond_cursor_options options= {};
    options.lower= lower;
    options.flags= FROND_CURSOR_NO_FILL_CACHE | FROND_CURSOR_NO_READ_AHEAD | FROND_CURSOR_GIVE_UP | FROND_CURSOR_HEADS_ONLY;
    frond_cursor *cursor;
    frond_status status= frond_cursor_open(txn, tree, &options, &cursor);
    if (status != FROND_OK)
      return status;
    const uint64_t enough= bytes + LENGTH_BYTES_MAX;
    for (uint32_t i= 0; i < LENGTH_ROWS && bytes < enough; i++) {
      frond_row row;
      status= frond_cursor_move(cursor, i == 0 ? FROND_MOVE_FIRST : FROND_MOVE_NEXT, NOTHING, &row);
      if (status != FROND_OK || !row.key.data)
        break;
      rows++;
      bytes+= row.key.size + row.value.size;
    }
    frond_cursor_close(cursor);
    return status;
  }

  uint64_t mean() const { return rows ? bytes / rows : 0; }

private:
  uint64_t rows= 0, bytes= 0;
};

} // namespace

frond_status sample_rows_per_key(frond_txn *txn, const frond_tree *tree, const Counted_columns &columns, const Sampling &sampling,
                                 bool (*stop)(THD *), THD *thd, std::vector<uint64_t> *rows_per_key)
{
  frond_estimate all;
  frond_status status= frond_txn_estimate(txn, tree, NOTHING, NOTHING, &all);
  if (status != FROND_OK)
    return status;
  Counter counter(columns);
  uint32_t giving_up= sampling.gives_up ? FROND_CURSOR_GIVE_UP : 0;
  bool gave_up, whole= all.rows <= sampling.whole_rows_max;
  if (whole) {
    status= read_stretch(txn, tree, NOTHING, UINT64_MAX, &counter, giving_up, stop, thd, &gave_up);
    whole= !gave_up;
  }
  if (!whole && status == FROND_OK) {
    status= visit_places(txn, tree, all.rows, sampling.stretches, [&](frond_slice lower) {
      return read_stretch(txn, tree, lower, sampling.stretch_rows, &counter, giving_up, stop, thd, &gave_up);
    });
  }
  if (status == FROND_OK)
    *rows_per_key= counter.rows_per_key(all.rows, whole);
  return status;
}

frond_status sample_row_bytes(frond_txn *txn, const frond_tree *tree, uint64_t rows, bool (*stop)(THD *), THD *thd,
                              uint64_t *row_bytes)
{
  Lengths lengths;
  frond_status status= visit_places(txn, tree, rows, LENGTH_PLACES, [&](frond_slice lower) {
    return stop(thd) ? frond_status{FROND_CANCELLED} : lengths.look(txn, tree, lower);
  });
  *row_bytes= lengths.mean();
  return status;
}

} // namespace frond
