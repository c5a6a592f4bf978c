/* ANALYZE, CHECK and OPTIMIZE TABLE.

   CHECK TABLE reads everything under one snapshot, without locks:
     rows      each row is decoded whole, and the key made from what comes out must be its key
     indexes   the entries that the rows call for and the entries that are there are summed up, entry by entry, in 128 bits each
               that do not depend on their order: equal counts and sums mean equal entries. Only where they differ, a second
               pass looks up each row's entry and each entry's row, and tells which.
     QUICK     counts alone.   EXTENDED   the stored bytes of the whole database as well (frond_db_check).

   SPDX-License-Identifier: GPL-2.0-or-later */
#include "ha_frond.h"

#include <algorithm>
#include <string>

#include <mysql/service_thd_alloc.h>

#include "errors.h"
#include "index_statistics.h"
#include "plugin.h"
#include "session.h"
#include "slices.h"
#include "virtual_columns.h"

/* The server declares it to its own parts only, and has no service for it in its library of services. */
extern "C" void print_check_msg(THD *thd, const char *db, const char *table, const char *operation, const char *kind,
                                const char *message, my_bool print_to_log);

using namespace frond;

namespace {

constexpr frond_slice NOTHING= {nullptr, 0};
constexpr uint FINDINGS_MAX= 20; /* that are told of one table */
constexpr uint64_t ROWS_BETWEEN_REPORTS= 1000;
constexpr size_t BUFFER_BYTES= 256 * 1024;
/* Records up to this length are what their rows take, about. */
constexpr ulong SHORT_ROW_BYTES= 100;

bool is_killed(THD *thd)
{
  return thd_kill_level(thd) != THD_IS_NOT_KILLED;
}

/* A message in the result of a statement about tables. */
void tell(THD *thd, const TABLE *table, const char *operation, const char *kind, const std::string &message)
{
  print_check_msg(thd, table->s->db.str, table->s->table_name.str, operation, kind, message.c_str(), false);
}

/* And why it failed: the server takes the error of a statement that was killed away. */
void tell_failure(THD *thd, const TABLE *table, const char *operation, bool interrupted, const char *words)
{
  tell(thd, table, operation, "error", interrupted ? ER_THD(thd, ER_QUERY_INTERRUPTED) : words);
}

/* A sum over entries that does not depend on their order: two 64-bit hashes of key and value each. */
struct Entry_sum {
  uint64_t count= 0, low= 0, high= 0;

  void add(const uchar *key, size_t key_size, const uchar *value, size_t value_size)
  {
    count++;
    low+= hash(0x9e3779b97f4a7c15ULL, key, key_size, value, value_size);
    high+= hash(0xc2b2ae3d27d4eb4fULL, key, key_size, value, value_size);
  }
  bool operator==(const Entry_sum &other) const { return count == other.count && low == other.low && high == other.high; }

private:
  static uint64_t mix(uint64_t state, const uchar *bytes, size_t size)
  {
    for (; size >= 8; bytes+= 8, size-= 8)
      state= turn(state ^ uint8korr(bytes));
    uint64_t rest= size;
    for (size_t i= 0; i < size; i++)
      rest= rest << 8 | bytes[i];
    return turn(state ^ rest);
  }
  static uint64_t turn(uint64_t x)
  {
    x^= x >> 32;
    x*= 0xd6e8feb86659fd93ULL;
    x^= x >> 32;
    x*= 0xd6e8feb86659fd93ULL;
    return x ^ (x >> 32);
  }
  static uint64_t hash(uint64_t seed, const uchar *key, size_t key_size, const uchar *value, size_t value_size)
  {
    return mix(mix(seed ^ key_size, key, key_size) + value_size, value, value_size);
  }
};

/* All rows of a tree, in order. use(row) says 0 to go on. */
template <typename Use> int walk_tree(frond_txn *txn, const frond_tree *tree, bool keys_only, Use use)
{
  frond_cursor_options options= {};
  options.flags= FROND_CURSOR_NO_FILL_CACHE | (keys_only ? FROND_CURSOR_KEYS_ONLY : 0);
  frond_cursor *cursor;
  frond_status status= frond_cursor_open(txn, tree, &options, &cursor);
  if (status != FROND_OK)
    return handler_error(status);
  std::vector<uint8_t> buffer(BUFFER_BYTES);
  frond_move move= FROND_MOVE_FIRST;
  int error= 0;
  for (;;) {
    frond_fetch fetch= {};
    fetch.buffer= buffer.data();
    fetch.capacity= buffer.size();
    fetch.flags= keys_only ? FROND_FETCH_KEYS_ONLY : 0;
    status= frond_cursor_fetch(cursor, move, NOTHING, &fetch);
    move= FROND_MOVE_NEXT;
    const uint8_t *at= buffer.data();
    frond_row row;
    for (uint32_t i= 0; i < fetch.rows && !error; i++) {
      at= frond_fetch_row(at, &row);
      error= use(row);
    }
    if (!error)
      error= handler_error(status);
    if (error || !fetch.more)
      break;
    if (fetch.rows == 0) {
      if (fetch.bytes_needed == 0)
        break;
      buffer.resize(fetch.bytes_needed);
    }
  }
  frond_cursor_close(cursor);
  return error;
}

/* Calls use(snapshot) with a transaction that sees what is committed now; KILL ends what it does. */
template <typename Use> frond_status with_snapshot(THD *thd, Use use)
{
  frond_txn *snapshot;
  frond_status status= frond_db_snapshot(database, &snapshot);
  if (status != FROND_OK)
    return status;
  {
    Killable heard(Session::of(thd), snapshot);
    status= use(snapshot);
  }
  frond_txn_rollback(snapshot);
  return status;
}

/* A frond_compact_fn: progress in the process list; KILL ends it. */
bool report_compaction(void *context, const frond_compact_progress *progress)
{
  auto *thd= static_cast<THD *>(context);
  thd_progress_report(thd, progress->bytes_done, progress->bytes_total);
  return !is_killed(thd);
}

std::string hex_text(const uchar *bytes, size_t size)
{
  static const char digits[]= "0123456789ABCDEF";
  std::string text= "0x";
  for (size_t i= 0; i < std::min<size_t>(size, 64); i++) {
    text.push_back(digits[bytes[i] >> 4]);
    text.push_back(digits[bytes[i] & 15]);
  }
  return size > 64 ? text + "..." : text;
}

} // namespace

namespace frond {

/* One CHECK TABLE of one table, in the thread of its statement. */
class Table_check {
public:
  Table_check(ha_frond &handler, THD *thd_arg, frond_txn *snapshot)
    : file(handler), table(handler.table), thd(thd_arg), txn(snapshot), expected(table->s->keys)
  {
  }

  int run(uint flags);
  uint findings() const { return found; }

private:
  int read_rows(bool quick);
  int read_index(uint index, bool quick, Entry_sum *actual);
  int find_missing(uint index);
  int find_superfluous(uint index);
  int expect(uint index);
  int set_record(frond_slice key, frond_slice value);
  bool entry_as_expected(uint index, const frond_row &entry, Bytes &value);
  int step(uint64_t of);
  void find(const std::string &what);
  int check_stored_bytes();
  static void stored_finding(void *context, const frond_finding *finding);
  static bool stored_progress(void *context, const frond_check_progress *progress);
  std::string index_name(uint index) const { return table->key_info[index].name.str; }

  ha_frond &file;
  TABLE *table;
  THD *thd;
  frond_txn *txn;
  std::vector<Entry_sum> expected; /* by key number */
  uint64_t rows= 0, done= 0;
  uint found= 0;
  Bytes key, value, primary, row_memory;
};

} // namespace frond

namespace {

/* What CHECK TABLE … EXTENDED has found in the stored bytes of the whole database, which a statement reads once for a table, for all of its partitions. */
struct Stored_damage {
  static constexpr size_t FINDINGS_MAX= 100000;
  struct Finding {
    uint32_t tree, tree_last;
    std::string words;
  };
  query_id_t query= 0; /* of the statement that has read all of it, for this table */
  const TABLE_SHARE *table= nullptr;
  std::vector<Finding> list;
};

thread_local Stored_damage stored_damage;

} // namespace

void Table_check::find(const std::string &what)
{
  if (++found <= FINDINGS_MAX)
    tell(thd, table, "check", "error", what);
}

int Table_check::step(uint64_t of)
{
  if (++done % ROWS_BETWEEN_REPORTS == 0) {
    thd_progress_report(thd, done, of);
    if (is_killed(thd))
      return HA_ERR_ABORTED_BY_USER;
  }
  return 0;
}

/* The row into record[0], virtual columns too. Bytes of blobs stay with `row_value`. */
int Table_check::set_record(frond_slice row_key, frond_slice row_value)
{
  int error= file.rows.decode(row_key.data, row_key.size, row_value.data, row_value.size, nullptr, table->record[0]);
  return error ? error : update_virtual_fields(table, &file);
}

/* Key and value of the entry that the row in record[0] calls for. */
int Table_check::expect(uint index)
{
  key.clear();
  value.clear();
  file.append_entry_key(index, table->record[0], primary, key);
  file.append_entry_value(index, table->record[0], primary, value);
  return 0;
}

int Table_check::read_rows(bool quick)
{
  uint64_t about= file.stats.records;
  return walk_tree(txn, file.share->primary, quick, [&](const frond_row &row) {
    rows++;
    if (quick)
      return step(about);
    if (set_record(row.key, row.value)) {
      find("a row cannot be decoded, key=" + hex_text(row.key.data, row.key.size));
      return step(about);
    }
    primary.clear();
    if (file.has_primary_key()) {
      file.append_primary_key(table->record[0], primary);
      if (!same(slice(primary), row.key))
        find("a row is not where its primary key says, key=" + hex_text(row.key.data, row.key.size));
    }
    primary.clear();
    primary.append(row.key.data, row.key.size);
    for (uint index= 0; index < table->s->keys; index++)
      if (!file.is_primary(index)) {
        expect(index);
        expected[index].add(key.data(), key.size(), value.data(), value.size());
      }
    return step(about);
  });
}

/* The value of an entry as expect() makes it: the row that a clustering index keeps is of the current layout then. False when
   it is damaged. */
bool Table_check::entry_as_expected(uint index, const frond_row &entry, Bytes &as_expected)
{
  as_expected.clear();
  if (!file.share->indexes[index].clustering) {
    as_expected.append(entry.value.data, entry.value.size);
    return true;
  }
  frond_slice row_key;
  const uchar *restore, *end= entry.value.data + entry.value.size;
  if (!file.entry_primary_key(index, entry, &row_key, &restore) ||
      file.codecs[index]->decode(entry.key.data, entry.key.size, &restore, end, table->record[0]) == 0)
    return false;
  if (file.has_primary_key() &&
      file.codecs[table->s->primary_key]->decode(row_key.data, row_key.size, &restore, end, table->record[0]) == 0)
    return false;
  as_expected.append(entry.value.data, restore - entry.value.data);
  if (file.rows.decode(row_key.data, row_key.size, restore, end - restore, nullptr, table->record[0]))
    return false;
  file.rows.encode(table->record[0], as_expected);
  return true;
}

int Table_check::read_index(uint index, bool quick, Entry_sum *actual)
{
  return walk_tree(txn, file.share->indexes[index].tree, quick, [&](const frond_row &entry) {
    if (quick)
      actual->count++;
    else if (entry_as_expected(index, entry, value))
      actual->add(entry.key.data, entry.key.size, value.data(), value.size());
    else
      find("index " + index_name(index) + ": an entry cannot be decoded, key=" + hex_text(entry.key.data, entry.key.size));
    return step(rows);
  });
}

/* Looks up the entry of each row. */
int Table_check::find_missing(uint index)
{
  return walk_tree(txn, file.share->primary, false, [&](const frond_row &row) {
    if (set_record(row.key, row.value))
      return step(rows);
    primary.clear();
    primary.append(row.key.data, row.key.size);
    expect(index);
    frond_row entry;
    entry.key= slice(key);
    frond_status status= frond_txn_get(txn, file.share->indexes[index].tree, entry.key, &entry.value);
    if (status != FROND_OK)
      return handler_error(status);
    if (!entry.value.data) {
      find("index " + index_name(index) + ": a row has no entry, row=" + hex_text(row.key.data, row.key.size));
      return step(rows);
    }
    Bytes wanted, actual;
    wanted.append_bytes(value);
    if (!entry_as_expected(index, entry, actual) || !same(slice(actual), slice(wanted)))
      find("index " + index_name(index) + ": an entry does not say what its row says, row=" +
           hex_text(row.key.data, row.key.size));
    return step(rows);
  });
}

/* Looks up the row of each entry, and whether it calls for that entry. */
int Table_check::find_superfluous(uint index)
{
  return walk_tree(txn, file.share->indexes[index].tree, false, [&](const frond_row &entry) {
    frond_slice row_key, row_value;
    const uchar *restore;
    std::string shown= hex_text(entry.key.data, entry.key.size);
    if (!file.entry_primary_key(index, entry, &row_key, &restore)) {
      find("index " + index_name(index) + ": an entry names no row, key=" + shown);
      return step(rows);
    }
    primary.clear();
    primary.append(row_key.data, row_key.size);
    frond_status status= frond_txn_get(txn, file.share->primary, slice(primary), &row_value);
    if (status != FROND_OK)
      return handler_error(status);
    row_memory.clear();
    row_memory.append(row_value.data, row_value.size);
    bool belongs= row_value.data && set_record(slice(primary), slice(row_memory)) == 0;
    if (!belongs) {
      find("index " + index_name(index) + ": an entry has no row, key=" + shown);
      return step(rows);
    }
    expect(index);
    if (!same(slice(key), entry.key))
      find("index " + index_name(index) + ": an entry is of a row that has another, key=" + shown);
    return step(rows);
  });
}

void Table_check::stored_finding(void *, const frond_finding *finding)
{
  if (stored_damage.list.size() < Stored_damage::FINDINGS_MAX)
    stored_damage.list.push_back(
      {finding->tree, finding->tree_last,
       std::string(finding->message) + " file=" + finding->file + " offset=" + std::to_string(finding->offset)});
}

/* A frond_check_fn: progress in the process list; KILL ends it. */
bool Table_check::stored_progress(void *context, const frond_check_progress *progress)
{
  THD *thd= static_cast<Table_check *>(context)->thd;
  thd_progress_report(thd, progress->bytes_done, progress->bytes_total);
  return !is_killed(thd);
}

int Table_check::check_stored_bytes()
{
  thd_proc_info(thd, "checking stored bytes");
  if (stored_damage.query != thd->query_id || stored_damage.table != table->s) {
    stored_damage= {};
    frond_status status= frond_db_check(database, stored_finding, stored_progress, this, nullptr);
    if (status == FROND_CANCELLED)
      return HA_ERR_ABORTED_BY_USER;
    if (status != FROND_OK) {
      find(last_message());
      return 0;
    }
    stored_damage.query= thd->query_id;
    stored_damage.table= table->s;
  }
  const Table_share &share= *file.share;
  for (const Stored_damage::Finding &finding : stored_damage.list) {
    auto concerns= [&finding](const frond_tree *tree) {
      return finding.tree <= frond_tree_id(tree) && frond_tree_id(tree) <= finding.tree_last;
    };
    bool ours= finding.tree == 0 || concerns(share.primary);
    for (const Index_tree &index : share.indexes)
      ours= ours || (index.tree && concerns(index.tree));
    if (ours)
      find(finding.words);
  }
  return 0;
}

int Table_check::run(uint flags)
{
  bool quick= flags & T_QUICK;
  thd_progress_init(thd, 1 + table->s->keys + !!(flags & T_EXTEND));
  MY_BITMAP *old_read_set= table->read_set;
  table->read_set= &table->s->all_set;
  int error= read_rows(quick);
  for (uint index= 0; index < table->s->keys && !error; index++) {
    if (file.is_primary(index))
      continue;
    thd_progress_next_stage(thd);
    done= 0;
    uint before= found;
    Entry_sum actual;
    error= read_index(index, quick, &actual);
    if (error)
      break;
    if (actual.count != (quick ? rows : expected[index].count))
      find("index " + index_name(index) + " has " + std::to_string(actual.count) + " entries for " + std::to_string(rows) +
           " rows");
    if (quick || (actual == expected[index] && found == before))
      continue;
    error= find_missing(index);
    if (!error)
      error= find_superfluous(index);
    if (!error && found == before)
      find("index " + index_name(index) + " does not belong to the rows");
  }
  table->read_set= old_read_set;
  if (!error && (flags & T_EXTEND)) {
    thd_progress_next_stage(thd);
    error= check_stored_bytes();
  }
  if (found > FINDINGS_MAX)
    tell(thd, table, "check", "note", std::to_string(found - FINDINGS_MAX) + " more");
  thd_progress_end(thd);
  return error;
}

int ha_frond::check(THD *thd, HA_CHECK_OPT *options)
{
  int outcome= HA_ADMIN_FAILED;
  frond_status status= with_snapshot(thd, [&](frond_txn *snapshot) {
    Table_check check(*this, thd, snapshot);
    const int error= is_killed(thd) ? HA_ERR_ABORTED_BY_USER : check.run(options->flags);
    if (error)
      tell_failure(thd, table, "check", error == HA_ERR_ABORTED_BY_USER, error_words(error));
    if (error == HA_ERR_CRASHED || check.findings() > 0)
      outcome= HA_ADMIN_CORRUPT;
    else if (!error)
      outcome= HA_ADMIN_OK;
    return frond_status(FROND_OK);
  });
  if (status != FROND_OK)
    tell(thd, table, "check", "error", last_message());
  return outcome;
}

int ha_frond::optimize(THD *thd, HA_CHECK_OPT *)
{
  thd_progress_init(thd, 1 + table_share->keys);
  frond_status status= frond_db_compact(database, share->primary, NOTHING, NOTHING, report_compaction, thd);
  for (const Index_tree &index : share->indexes) {
    thd_progress_next_stage(thd);
    if (status == FROND_OK && index.tree)
      status= frond_db_compact(database, index.tree, NOTHING, NOTHING, report_compaction, thd);
  }
  thd_progress_end(thd);
  if (status == FROND_OK)
    return HA_ADMIN_OK;
  tell_failure(thd, table, "optimize", status == FROND_CANCELLED, last_message());
  return HA_ADMIN_FAILED;
}

int ha_frond::analyze(THD *thd, HA_CHECK_OPT *)
{
  Key_statistics found;
  frond_status status= with_snapshot(thd, [&](frond_txn *snapshot) { return sample_indexes(snapshot, ANALYZE_SAMPLING, &found); });
  if (status == FROND_OK)
    status= share->keep_analyzed_statistics(found);
  if (status == FROND_OK)
    return HA_ADMIN_OK;
  tell_failure(thd, table, "analyze", status == FROND_CANCELLED, error_words(handler_error(status)));
  return HA_ADMIN_FAILED;
}

/* For each column of the primary key that the server adds to an index which is not unique, how many leading ones of that key end with it; not for
   the last one, which makes it unique. */
std::vector<uint> ha_frond::extended_columns(uint index) const
{
  std::vector<uint> columns;
  if (!has_primary_key() || share->indexes[index].unique)
    return columns;
  const KEY &key= table->key_info[index], &primary= table->key_info[table_share->primary_key];
  const uint end= key.ext_key_parts - ((key.ext_key_flags & HA_EXT_NOSAME) != 0);
  for (uint part= key.user_defined_key_parts; part < end; part++) {
    uint column= 0;
    while (column < primary.user_defined_key_parts && primary.key_part[column].fieldnr != key.key_part[part].fieldnr)
      column++;
    if (column == primary.user_defined_key_parts)
      break;
    columns.push_back(column + 1);
  }
  return columns;
}

/* Of what was counted of an index's own columns and of the primary key's behind them: leaves its own and those of extended_columns. */
static void keep_extended(uint own, const std::vector<uint> &extended, std::vector<uint64_t> *rows_per_key)
{
  if (rows_per_key->empty())
    return;
  std::vector<uint64_t> kept(rows_per_key->begin(), rows_per_key->begin() + own);
  for (uint columns : extended)
    kept.push_back((*rows_per_key)[own + columns - 1]);
  rows_per_key->swap(kept);
}

frond_status ha_frond::sample_indexes(frond_txn *snapshot, const Sampling &sampling, Key_statistics *found)
{
  const frond_slice everything= {nullptr, 0};
  frond_estimate estimate;
  frond_status status= frond_txn_estimate(snapshot, share->primary, everything, everything, &estimate);
  found->rows= estimate.rows;
  found->rows_per_key.assign(table_share->keys, {});
  for (uint index= 0; index < table_share->keys && status == FROND_OK; index++) {
    std::vector<uint64_t> &rows_per_key= found->rows_per_key[index];
    bool unique= share->indexes[index].unique;
    if (!tree_of(index))
      continue;
    if (unique && codecs[index]->columns() == 1)
      rows_per_key.assign(1, 1);
    else {
      const std::vector<uint> extended= extended_columns(index);
      const Counted_columns columns= {*codecs[index], primary_codec(), extended.empty() ? 0 : extended.back()};
      status= sample_rows_per_key(snapshot, tree_of(index), columns, sampling, is_killed, ha_thd(), &rows_per_key);
      keep_extended(codecs[index]->columns(), extended, &rows_per_key);
    }
    if (status == FROND_OK && unique && !(table->key_info[index].flags & HA_NULL_PART_KEY) && !rows_per_key.empty())
      rows_per_key.back()= 1;
  }
  /* Of short columns of one length the record says it. */
  if (table_share->varchar_fields + table_share->blob_fields == 0 && table_share->reclength <= SHORT_ROW_BYTES)
    found->row_bytes= table_share->reclength;
  else if (status == FROND_OK)
    status= sample_row_bytes(snapshot, share->primary, found->rows, is_killed, ha_thd(), &found->row_bytes);
  return status;
}

/* Statistics of indexes for the optimizer: those that were kept, or a quick look where there are none that fit the table. Not
   while the table is opened. Partitions share one TABLE: what the largest has, which the server asks for with HA_STATUS_CONST after it
   has opened them, counts for all. */
void ha_frond::read_index_statistics(uint info_flag)
{
  if (table->part_info && !(info_flag & HA_STATUS_CONST)) {
    if (row_bytes == 0)
      row_bytes= share->index_statistics().row_bytes; /* as far as it is known; each partition's scan has its own cost */
    return;
  }
  if (!(info_flag & HA_STATUS_OPEN) && share->take_index_sampling(stats.records)) {
    Key_statistics found;
    frond_status status=
        with_snapshot(ha_thd(), [&](frond_txn *snapshot) { return sample_indexes(snapshot, QUICK_SAMPLING, &found); });
    /* A statement that is killed while it looks must not take away what is known. */
    if (status == FROND_OK)
      share->set_index_statistics(found);
    else
      share->give_up_index_sampling();
    /* A smaller table is read again as fast. */
    if (status == FROND_OK && found.rows > QUICK_SAMPLING.whole_rows_max && !table_share->tmp_table)
      share->keep_sampled_statistics(found);
  }
  uint64_t version= share->index_statistics_version();
  if (version == index_statistics_version && !table->part_info)
    return;
  index_statistics_version= version;
  Key_statistics known= share->index_statistics();
  row_bytes= known.row_bytes;
  for (uint index= 0; index < table_share->keys; index++) {
    KEY &key= table->key_info[index];
    for (uint part= 0; part < key.user_defined_key_parts; part++) {
      uint64_t rows_per_key= 0;
      if (index < known.rows_per_key.size() && part < known.rows_per_key[index].size())
        rows_per_key= known.rows_per_key[index][part];
      else if ((key.flags & HA_NOSAME) && part + 1 == key.user_defined_key_parts)
        rows_per_key= 1;
      key.rec_per_key[part]= static_cast<ulong>(rows_per_key);
    }
    const std::vector<uint> extended= extended_columns(index);
    for (uint part= key.user_defined_key_parts; part < key.ext_key_parts; part++) {
      const uint number= part - key.user_defined_key_parts;
      ulong rows_per_key= key.rec_per_key[part - 1];
      if (part + 1 == key.ext_key_parts && (key.ext_key_flags & HA_EXT_NOSAME))
        rows_per_key= 1;
      else if (index < known.rows_per_key.size() && part < known.rows_per_key[index].size())
        rows_per_key= static_cast<ulong>(known.rows_per_key[index][part]);
      else if (number < extended.size()) { /* not counted yet: no more than with either key alone */
        const ulong of_primary= table->key_info[table_share->primary_key].rec_per_key[extended[number] - 1];
        rows_per_key= of_primary > 0 ? std::min(rows_per_key, of_primary) : rows_per_key;
      }
      key.rec_per_key[part]= rows_per_key;
    }
  }
}
