/* Indexes that are being built. See index_build.h.

   SPDX-License-Identifier: GPL-2.0-or-later */
#include "index_build.h"

#include <mysql/service_progress_report.h>

#include <shared_mutex>

#include "errors.h"
#include "plugin.h"

namespace frond {

namespace {

constexpr uint BATCH_ROWS= 2000;
/* Ids of indexes that are passed over because their trees are there. */
constexpr uint32_t SKIPPED_MAX= 1000;
/* How long one wait of the builder lasts before it looks whether it was killed. */
constexpr int64_t BUILDER_WAIT_MS= 500;

frond_slice slice(const Bytes &bytes)
{
  return frond_bytes(bytes.data(), bytes.size());
}

bool same(frond_slice a, frond_slice b)
{
  return a.size == b.size && memcmp(a.data, b.data, a.size) == 0;
}

} // namespace

/* Where the builder is. */
struct Index_build::Walk {
  TABLE *table= nullptr;
  const Row_codec *rows= nullptr;
  const Key_codec *primary= nullptr;

  Bytes position; /* the key of the last row done, or of the next one */
  bool position_done= false;
  bool at_end= false;
  uint64_t done= 0;

  /* An entry that somebody holds, to be waited for without any lock. */
  const frond_tree *awaited= nullptr;
  Bytes awaited_key;

  Bytes key; /* of the row in hand */
  Bytes entry_key;
  Row_writes writes;
};

Index_build::~Index_build()
{
  for (const Index &index : indexes)
    frond_tree_close(index.tree);
}

int Index_build::add(const TABLE *table, const KEY *key, uint key_number, bool clustering, uint32_t id)
{
  Index index;
  index.codec= std::make_unique<Key_codec>();
  int error= index.codec->init(table, key);
  if (error)
    return error;
  index.id= id;
  index.key_number= key_number;
  index.unique= key->flags & HA_NOSAME;
  index.clustering= clustering;
  indexes.push_back(std::move(index));
  return 0;
}

frond_status Index_build::create_trees(frond_txn *txn, const frond_tree_options &table_options)
{
  frond_tree_options options= table_options;
  options.metadata= frond_bytes(building_mark, strlen(building_mark));
  frond_status status= FROND_OK;
  uint32_t skipped= 0;
  for (Index &index : indexes) {
    if (status != FROND_OK)
      break;
    index.id+= skipped;
    status= frond_tree_create(txn, index_tree_name(share->name, index.id).c_str(), &options, &index.tree);
    /* A tree of that name is left of a build that was given up, and others have locks in it. */
    for (; status == FROND_KEY_EXISTS && skipped < SKIPPED_MAX; skipped++) {
      index.id++;
      status= frond_tree_create(txn, index_tree_name(share->name, index.id).c_str(), &options, &index.tree);
    }
  }
  return status;
}

frond_status Index_build::adopt_trees(frond_txn *txn)
{
  frond_status status= FROND_OK;
  for (const Index &index : indexes) {
    frond_tree_options options;
    if (status == FROND_OK)
      status= frond_tree_get_options(txn, index.tree, &options);
    options.metadata= frond_slice{nullptr, 0};
    if (status == FROND_OK)
      status= frond_tree_set_options(txn, index.tree, &options);
  }
  return status;
}

frond_status Index_build::drop_trees(frond_txn *txn)
{
  frond_status status= FROND_OK;
  for (const Index &index : indexes) {
    if (status == FROND_OK)
      status= frond_tree_drop(txn, index_tree_name(share->name, index.id).c_str());
    if (status == FROND_NOT_FOUND)
      status= FROND_OK;
  }
  return status;
}

void Index_build::publish()
{
  share->build.store(this, std::memory_order_release);
}

void Index_build::withdraw()
{
  std::unique_lock<std::shared_mutex> guard(share->build_latch);
  if (share->build.load(std::memory_order_relaxed) == this)
    share->build.store(nullptr, std::memory_order_release);
}

/* ---------------------------------------------------------------------------------------------------------------
 * Failures
 */

int Index_build::failure()
{
  if (!failed.load(std::memory_order_acquire))
    return 0;
  std::lock_guard<std::mutex> guard(failure_latch);
  return failure_error;
}

void Index_build::fail(int error, size_t index, const uchar *record)
{
  std::lock_guard<std::mutex> guard(failure_latch);
  if (failure_error)
    return;
  failure_error= error;
  duplicate_index= index;
  if (error == HA_ERR_FOUND_DUPP_KEY) {
    indexes[index].codec->encode(record, duplicate_columns);
    indexes[index].codec->encode_restore(record, duplicate_restore);
  }
  failed.store(true, std::memory_order_release);
}

void Index_build::show_duplicate(TABLE *table) const
{
  restore_record(table, s->default_values);
  const uchar *restore= duplicate_restore.data();
  indexes[duplicate_index].codec->decode(duplicate_columns.data(), duplicate_columns.size(), &restore,
                                         duplicate_restore.end(), table->record[0]);
}

bool Index_build::takes_failure(frond_status status, uint key_number, const uchar *new_record)
{
  if (key_number < BUILD_KEY_NUMBER || key_number >= BUILD_KEY_NUMBER + indexes.size() || !new_record)
    return false;
  if (status != FROND_KEY_EXISTS && status != FROND_LOCK_TIMEOUT)
    return false;
  fail(handler_error(status), key_number - BUILD_KEY_NUMBER, new_record);
  return true;
}

/* ---------------------------------------------------------------------------------------------------------------
 * Writers
 */

frond_status Index_build::follow(frond_txn *txn, int64_t wait_ms, const Row_codec &rows, const Key_codec *primary,
                                 const uchar *old_record, const Bytes &old_key, const uchar *new_record,
                                 const Bytes &new_key, Row_writes *writes)
{
  if (failed.load(std::memory_order_acquire))
    return FROND_OK;
  written.store(true, std::memory_order_release);
  Bytes old_entry, new_entry, old_value, new_value;
  for (size_t i= 0; i < indexes.size(); i++) {
    const Index &index= indexes[i];
    Entry_form entry= form(index, rows, primary);
    uint key_number= BUILD_KEY_NUMBER + static_cast<uint>(i);
    bool old_checked= old_record && entry.checked(old_record);
    bool new_checked= new_record && entry.checked(new_record);
    old_entry.clear();
    new_entry.clear();
    new_value.clear();
    if (new_record) {
      entry.append_key(new_record, new_key, new_entry);
      entry.append_value(new_record, new_key, new_value);
    }
    bool there= false, stays= false;
    if (old_record) {
      entry.append_key(old_record, old_key, old_entry);
      stays= new_record && same(slice(old_entry), slice(new_entry));
      if (stays) {
        old_value.clear();
        entry.append_value(old_record, old_key, old_value);
        if (same(slice(old_value), slice(new_value)))
          continue;
      }
      frond_slice value;
      frond_status status=
        frond_txn_get_locked(txn, index.tree, slice(old_entry), FROND_LOCK_EXCLUSIVE, wait_ms, &value, nullptr);
      if (status == FROND_LOCK_TIMEOUT) {
        fail(HA_ERR_LOCK_WAIT_TIMEOUT, i, old_record);
        return FROND_OK;
      }
      if (status != FROND_OK)
        return status;
      there= value.data != nullptr;
      frond_slice owner;
      const uchar *rest;
      if (there && old_checked)
        there= unique_entry_primary(value, &owner, &rest) && same(owner, slice(old_key)); /* B3 */
    }
    if (there && !(stays && new_checked)) {
      writes->begin(index.tree, old_checked ? FROND_OP_DELETE : FROND_OP_SINGLE_DELETE,
                    old_checked ? 0 : FROND_OPERATION_COVERED, key_number);
      writes->bytes().append_bytes(old_entry);
    }
    if (!new_record)
      continue;
    bool inserts= new_checked && !(there && stays);
    writes->begin(index.tree, inserts ? FROND_OP_INSERT : FROND_OP_PUT, new_checked ? 0 : FROND_OPERATION_COVERED,
                  key_number);
    writes->bytes().append_bytes(new_entry);
    writes->value();
    writes->bytes().append_bytes(new_value);
  }
  return FROND_OK;
}

/* ---------------------------------------------------------------------------------------------------------------
 * The builder
 */

int Index_build::run(THD *thd, TABLE *table, const Row_codec &rows, const Key_codec *primary, uint64_t rows_about)
{
  Walk walk;
  walk.table= table;
  walk.rows= &rows;
  walk.primary= primary;
  int error= 0;
  thd_progress_init(thd, 1);
  while (!walk.at_end && !error) {
    frond_status status= walk.awaited ? wait_for_entry(&walk) : batch(&walk);
    error= failure();
    if (!error && status != FROND_LOCK_TIMEOUT && status != FROND_DEADLOCK)
      error= handler_error(status);
    if (!error && thd_killed(thd))
      error= HA_ERR_ABORTED_BY_USER;
    thd_progress_report(thd, walk.done, std::max(walk.done, rows_about));
  }
  thd_progress_end(thd);
  return error;
}

/* Waits until whoever holds the entry has decided, holding nothing itself (B5). */
frond_status Index_build::wait_for_entry(Walk *walk)
{
  frond_txn *txn;
  frond_txn_options options= {};
  options.isolation= FROND_ISOLATION_READ_COMMITTED;
  frond_status status= frond_txn_begin(database, &options, &txn);
  if (status != FROND_OK)
    return status;
  frond_slice value;
  status= frond_txn_get_locked(txn, walk->awaited, slice(walk->awaited_key), FROND_LOCK_SHARED, BUILDER_WAIT_MS, &value,
                               nullptr);
  frond_txn_rollback(txn);
  if (status == FROND_OK)
    walk->awaited= nullptr;
  return status;
}

/* The next rows, as a transaction. FROND_LOCK_TIMEOUT: somebody holds the next row; try again. */
frond_status Index_build::batch(Walk *walk)
{
  frond_txn *txn;
  frond_txn_options options= {};
  options.isolation= FROND_ISOLATION_READ_COMMITTED;
  options.durability= FROND_DURABILITY_NONE;
  options.lock_wait_ms= FROND_WAIT_NONE;
  frond_status status= frond_txn_begin(database, &options, &txn);
  if (status != FROND_OK)
    return status;
  frond_cursor_options range= {};
  range.flags= FROND_CURSOR_NO_FILL_CACHE;
  if (!walk->position.empty()) {
    range.lower= slice(walk->position);
    if (walk->position_done)
      range.flags|= FROND_CURSOR_LOWER_EXCLUDED;
  }
  frond_cursor *cursor;
  status= frond_cursor_open(txn, share->primary, &range, &cursor);
  if (status != FROND_OK) {
    frond_txn_rollback(txn);
    return status;
  }
  uint rows= 0;
  bool end= false;
  for (; rows < BATCH_ROWS; rows++) {
    frond_row row;
    status= frond_cursor_move(cursor, rows == 0 ? FROND_MOVE_FIRST : FROND_MOVE_NEXT, frond_slice{nullptr, 0}, &row);
    if (status != FROND_OK)
      break;
    if (!row.key.data) {
      end= true;
      break;
    }
    walk->key.clear();
    walk->key.append(row.key.data, row.key.size);
    status= frond_cursor_lock_row(cursor, FROND_LOCK_SHARED, rows == 0 ? BUILDER_WAIT_MS : FROND_WAIT_NONE, &row);
    if (status == FROND_OK && row.key.data) {
      uchar *record= walk->table->record[0];
      if (walk->rows->decode(row.key.data, row.key.size, row.value.data, row.value.size, nullptr, record))
        status= FROND_CORRUPTION;
      /* Columns of the primary key, too. */
      if (status == FROND_OK)
        status= add_row(walk, txn, record);
    }
    if (status != FROND_OK)
      break;
    walk->position.swap(walk->key);
    walk->position_done= true;
  }
  frond_cursor_close(cursor);
  /* What was done stays done; the row that could not be had is the next. */
  if (status == FROND_OK || (status == FROND_LOCK_TIMEOUT && rows > 0)) {
    if (status != FROND_OK) {
      walk->position.swap(walk->key);
      walk->position_done= false;
    }
    status= frond_txn_commit(txn);
    if (status == FROND_OK) {
      walk->done+= rows;
      walk->at_end= end;
    }
    return status;
  }
  frond_txn_rollback(txn);
  return status;
}

/* Adds the entries of one row, whose lock is held, where they are not there yet. */
frond_status Index_build::add_row(Walk *walk, frond_txn *txn, const uchar *record)
{
  bool look= written.load(std::memory_order_acquire);
  uint64_t own= 0; /* a bit per index that has this row's entry */
  for (;;) {
    walk->writes.clear();
    for (size_t i= 0; i < indexes.size(); i++) {
      if (own >> i & 1)
        continue;
      const Index &index= indexes[i];
      Entry_form entry= form(index, *walk->rows, walk->primary);
      walk->entry_key.clear();
      entry.append_key(record, walk->key, walk->entry_key);
      bool checked= entry.checked(record);
      if (look && !checked) {
        bool there;
        frond_status status= frond_txn_contains(txn, index.tree, slice(walk->entry_key), &there);
        if (status != FROND_OK)
          return status;
        if (there)
          continue;
      }
      walk->writes.begin(index.tree, checked ? FROND_OP_INSERT : FROND_OP_PUT, checked ? 0 : FROND_OPERATION_COVERED,
                         static_cast<uint>(i));
      walk->writes.bytes().append_bytes(walk->entry_key);
      walk->writes.value();
      entry.append_value(record, walk->key, walk->writes.bytes());
    }
    if (walk->writes.empty())
      return FROND_OK;
    uint failed_index;
    frond_status status= walk->writes.run(txn, &failed_index);
    if (status == FROND_OK || failed_index >= indexes.size())
      return status;
    const Index &index= indexes[failed_index];
    walk->entry_key.clear();
    form(index, *walk->rows, walk->primary).append_key(record, walk->key, walk->entry_key);
    if (status == FROND_LOCK_TIMEOUT) {
      walk->awaited= index.tree;
      walk->awaited_key.swap(walk->entry_key);
      return status;
    }
    if (status != FROND_KEY_EXISTS)
      return status;
    frond_slice value, owner;
    const uchar *rest;
    status= frond_txn_get_locked(txn, index.tree, slice(walk->entry_key), FROND_LOCK_EXCLUSIVE, FROND_WAIT_NONE, &value,
                                 nullptr);
    if (status != FROND_OK)
      return status;
    if (!value.data)
      continue; /* it went between the two: once more */
    if (!unique_entry_primary(value, &owner, &rest))
      return FROND_CORRUPTION;
    if (!same(owner, slice(walk->key))) {
      fail(HA_ERR_FOUND_DUPP_KEY, failed_index, record);
      duplicate_is_read= duplicate_index == failed_index;
      return FROND_KEY_EXISTS;
    }
    own|= 1ULL << failed_index;
  }
}

} // namespace frond
