/* Tables loaded in one go. See bulk_load.h.

   SPDX-License-Identifier: GPL-2.0-or-later */
#include "bulk_load.h"

#include <mysql/service_progress_report.h>

#include <algorithm>

#include "plugin.h"
#include "variables.h"

namespace frond {

namespace {

/* To sort in, for all trees of a statement together: a part of the cache's memory; and what one of them takes at least, and
   at most where it is one of a table's. Each may have a few files open: so many trees of partitions at most. */
constexpr uint64_t MEMORY_PART= 4;
constexpr uint64_t MEMORY_BYTES_MIN= 256 << 10, TABLE_MEMORY_MAX= 64 << 20;
constexpr uint64_t TREES_MAX= 1024;

/* How far finish() is. */
struct Progress {
  THD *thd;
  uint64_t done, all;
};

bool report(void *context, const frond_bulk_progress *now)
{
  const Progress *progress= static_cast<const Progress *>(context);
  thd_progress_report(progress->thd, progress->done + now->rows_written, progress->all);
  /* LIMIT ROWS EXAMINED ends the reading of the rows in this way, and wants what has been read. */
  return thd_kill_level(progress->thd) == THD_IS_NOT_KILLED || progress->thd->killed == ABORT_QUERY;
}

} // namespace

Bulk_load::~Bulk_load()
{
  if (told)
    thd_progress_end(told);
  for (const Load &load : loads)
    frond_bulk_free(load.bulk);
}

frond_status Bulk_load::begin(frond_txn *txn, const std::vector<Target> &targets, uint64_t trees, uint64_t memory_max,
                              Duplicates duplicates)
{
  std::string directory= tmp_dir();
  frond_bulk_options options= {};
  options.temporary_dir= directory.empty() ? nullptr : directory.c_str();
  told_duplicates= duplicates;
  options.flags= FROND_BULK_GIVE_UP | (duplicates == Duplicates::first ? FROND_BULK_FIRST_DUPLICATE : 0);
  options.memory_bytes= std::clamp(cache_bytes() / MEMORY_PART / trees, MEMORY_BYTES_MIN, memory_max);
  for (const Target &target : targets) {
    frond_bulk *bulk;
    frond_status status= frond_bulk_begin(txn, target.tree, &options, &bulk);
    if (status != FROND_OK)
      return status;
    loads.push_back({bulk, target.key_number, target.unique});
  }
  return FROND_OK;
}

std::vector<Bulk_load::Target> Bulk_load::targets_of(const Table_share *share, const TABLE_SHARE *table)
{
  std::vector<Target> targets= {{share->primary, table->primary_key, true}};
  for (uint index= 0; index < table->keys; index++)
    if (index != table->primary_key)
      targets.push_back({share->indexes[index].tree, index, (table->key_info[index].flags & HA_NOSAME) != 0});
  return targets;
}

frond_status Bulk_load::look_free(const Table_share *share, const TABLE_SHARE *table)
{
  if (table->keys == (table->primary_key != MAX_KEY ? 1U : 0U))
    return FROND_OK;
  frond_txn *looking;
  frond_status status= frond_txn_begin(database, nullptr, &looking);
  if (status != FROND_OK)
    return status;
  for (const Target &target : targets_of(share, table))
    if (status == FROND_OK)
      status= frond_txn_lock_range(looking, target.tree, {nullptr, 0}, {nullptr, 0}, FROND_LOCK_EXCLUSIVE, FROND_WAIT_NONE);
  frond_txn_rollback(looking);
  return status;
}

frond_status Bulk_load::begin(frond_txn *txn, const Table_share *share, const TABLE_SHARE *table, uint tables,
                              std::unique_ptr<Bulk_load> *load)
{
  std::vector<Target> targets= targets_of(share, table);
  uint64_t trees= uint64_t(std::max(tables, 1U)) * targets.size();
  if (tables > 1 && trees > std::min(TREES_MAX, cache_bytes() / MEMORY_PART / MEMORY_BYTES_MIN))
    return FROND_OK;
  auto begun= std::make_unique<Bulk_load>();
  frond_status status= begun->begin(txn, targets, trees, TABLE_MEMORY_MAX, Duplicates::first);
  if (status == FROND_OK)
    *load= std::move(begun);
  return status == FROND_INVALID_ARGUMENT ? frond_status(FROND_OK) : status; /* it has rows */
}

frond_status Bulk_load::add(size_t number, frond_slice key, frond_slice value)
{
  rows_added+= number == 0;
  return frond_bulk_add(loads[number].bulk, key, value);
}

void Bulk_load::tell(THD *thd, uint stages)
{
  if (thd->progress.arena == thd->stmt_arena)
    return;
  thd_progress_init(thd, stages);
  thd_progress_report(thd, 0, 1); /* the stage is not shown before; how many rows will come is unknown */
  told= thd;
}

frond_status Bulk_load::finish(THD *thd, uint *key_number, frond_row *duplicate)
{
  if (told)
    thd_progress_next_stage(thd);
  else
    tell(thd, 1); /* it was for another partition's load to tell, which has ended */
  Progress progress= {thd, 0, rows_added * loads.size()};
  uint64_t first= UINT64_MAX; /* number of the first row that came again */
  for (const Load &load : loads) {
    if (first != UINT64_MAX && !load.unique)
      continue; /* nothing is to be written any more */
    frond_row found;
    frond_status status= frond_bulk_finish(load.bulk, report, &progress, &found);
    if (status != FROND_OK && status != FROND_KEY_EXISTS)
      return status;
    progress.done+= rows_added;
    if (status == FROND_OK || frond_bulk_duplicate_number(load.bulk) >= first)
      continue;
    first= frond_bulk_duplicate_number(load.bulk);
    *key_number= load.key_number;
    *duplicate= found;
    if (told_duplicates == Duplicates::lowest)
      break;
  }
  return first == UINT64_MAX ? FROND_OK : FROND_KEY_EXISTS;
}

} // namespace frond
