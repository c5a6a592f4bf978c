/* What instances of a table share. See share.h.

   SPDX-License-Identifier: GPL-2.0-or-later */
#include "share.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <unordered_map>

#include "errors.h"
#include "key_codec.h"
#include "plugin.h"
#include "session.h"

namespace frond {

const char temporary_prefix[]= "#tmp/";
const char building_mark[]= "being built";
frond_tree *auto_increment_tree= nullptr;

namespace {

/* How the server's names for temporary tables begin. */
constexpr char TEMPORARY_FILE[]= "#sql-temptable-";
constexpr uint64_t REFRESH_NANOS= 1000000000;
/* And no more of the time than one part in so many, also where rows come and go, or are rolled back, all the time. */
constexpr uint64_t REFRESH_PART= 50;
/* Of a table that nobody changes. Estimates get better with its compaction. */
constexpr uint64_t IDLE_REFRESH_NANOS= 60000000000;
/* Statistics of indexes are not renewed for so many rows. */
constexpr uint64_t SMALL_TABLE_ROWS= 16;
/* A table that is so many times as large, or as small, is not the one that was analysed. Estimates of rows are rough. */
constexpr uint64_t OTHER_TABLE_FACTOR= 8;
/* Tables of fewer rows are counted: the engine's estimate takes rewritten and rolled back rows for rows until it forgets
   them. */
constexpr uint64_t COUNTED_ROWS= 1000;
/* Who waits for another's measurement. */
constexpr std::chrono::milliseconds LOOK_WHETHER_KILLED(100);

std::mutex trees_latch;
std::unordered_map<uint64_t, uint64_t> trees_times; /* by table id; under trees_latch */
std::unordered_map<uint64_t, std::shared_ptr<Counters>> tables_counters; /* by table id; under trees_latch */
std::atomic<uint64_t> trees_now{1};

std::shared_ptr<Counters> counters_of(uint64_t table_id)
{
  std::lock_guard<std::mutex> guard(trees_latch);
  std::shared_ptr<Counters> &counters= tables_counters[table_id];
  if (!counters)
    counters= std::make_shared<Counters>(table_id);
  return counters;
}

/* Whether they are a table's still. */
bool are_in_use(const Counters *counters)
{
  std::lock_guard<std::mutex> guard(trees_latch);
  auto found= tables_counters.find(counters->table_id);
  return found != tables_counters.end() && found->second.get() == counters;
}

void raise_to(std::atomic<uint64_t> *counter, uint64_t least)
{
  uint64_t now= counter->load(std::memory_order_relaxed);
  while (now < least && !counter->compare_exchange_weak(now, least, std::memory_order_relaxed)) {
  }
}

/* The value after another; the last one stays, which the server never gives. */
uint64_t after(uint64_t value)
{
  return value == UINT64_MAX ? value : value + 1;
}

/* When the server wrote the definition of a table; a temporary one has no such file. */
time_t creation_time(const TABLE_SHARE *s)
{
  struct stat file;
  const std::string path= std::string(s->normalized_path.str, s->normalized_path.length) + reg_ext;
  return s->tmp_table == NO_TMP_TABLE && stat(path.c_str(), &file) == 0 ? file.st_mtime : 0;
}

uint64_t big_endian(const uint8_t *bytes)
{
  uint64_t number= 0;
  for (size_t i= 0; i < 8; i++)
    number= number << 8 | bytes[i];
  return number;
}

/* Calls use(key) with the key of the last row of a tree; not at all when it is empty. Where `giving_up` (0, or FROND_CURSOR_GIVE_UP) has it give up,
   because very many keys without a row lie behind that one, with the key that it has come to, and says so in *gave_up. */
template <typename Use>
frond_status with_last_key(frond_txn *txn, const frond_tree *tree, bool first, uint32_t giving_up, bool *gave_up, Use use)
{
  frond_cursor *cursor;
  frond_cursor_options options= {};
  options.flags= FROND_CURSOR_KEYS_ONLY | FROND_CURSOR_NO_READ_AHEAD | giving_up;
  frond_status status= frond_cursor_open(txn, tree, &options, &cursor);
  if (status != FROND_OK)
    return status;
  Killable heard(current_thd ? Session::of(current_thd) : nullptr, txn);
  frond_row row;
  status= frond_cursor_move(cursor, first ? FROND_MOVE_FIRST : FROND_MOVE_LAST, frond_slice{nullptr, 0}, &row);
  *gave_up= frond_cursor_gave_up(cursor);
  const frond_slice key= row.key.data ? row.key : frond_cursor_gave_up_at(cursor);
  if (status == FROND_OK && key.data)
    use(key);
  frond_cursor_close(cursor);
  return status;
}

/* The rows of a tree, undecided ones too, counted as far as `most`; fewer, and says so in *gave_up, where `giving_up` (0, or
   FROND_CURSOR_GIVE_UP) has it do so. */
frond_status count_rows(const frond_tree *tree, uint64_t most, uint32_t giving_up, uint64_t *rows, bool *gave_up)
{
  *rows= 0;
  *gave_up= false;
  frond_txn_options options= {};
  options.isolation= FROND_ISOLATION_READ_UNCOMMITTED;
  frond_txn *txn;
  frond_status status= frond_txn_begin(database, &options, &txn);
  if (status != FROND_OK)
    return status;
  frond_cursor *cursor;
  frond_cursor_options walk= {};
  walk.flags= FROND_CURSOR_KEYS_ONLY | FROND_CURSOR_NO_READ_AHEAD | giving_up;
  status= frond_cursor_open(txn, tree, &walk, &cursor);
  if (status == FROND_OK) {
    Killable heard(current_thd ? Session::of(current_thd) : nullptr, txn);
    frond_row row;
    status= frond_cursor_move(cursor, FROND_MOVE_FIRST, frond_slice{nullptr, 0}, &row);
    while (status == FROND_OK && row.key.data && ++*rows < most)
      status= frond_cursor_move(cursor, FROND_MOVE_NEXT, frond_slice{nullptr, 0}, &row);
    *gave_up= frond_cursor_gave_up(cursor);
    frond_cursor_close(cursor);
  }
  frond_txn_rollback(txn);
  return status;
}

} // namespace

std::string tree_name(const char *path)
{
  const char *slash= strrchr(path, '/'), *last= slash ? slash + 1 : path;
  /* Temporary tables live in the server's directory for them, which may be given relative to its data directory as that of a
     schema is: only the last part of the path says which. */
  if (path[0] == '.' && path[1] == '/' && strncmp(last, TEMPORARY_FILE, sizeof TEMPORARY_FILE - 1) != 0)
    return path + 2;
  return std::string(temporary_prefix) + last;
}

bool is_reserved(const char *path)
{
  return strncmp(path, "./#", 3) == 0 && strchr(path + 3, '/') != nullptr && tree_name(path) == path + 2;
}

std::string index_tree_name(const std::string &table, uint32_t index_id)
{
  return table + "/" + std::to_string(index_id);
}

std::string auto_increment_key(uint64_t table_id)
{
  std::string key;
  for (int shift= 56; shift >= 0; shift-= 8)
    key.push_back(static_cast<char>(table_id >> shift));
  return key;
}

/* What the tree of counters has of a table. */
static std::string kept_value(uint64_t kept, uint64_t lowered_from)
{
  std::string value= auto_increment_key(kept);
  return lowered_from > kept ? value + auto_increment_key(lowered_from) : value;
}

uint64_t trees_clock()
{
  return trees_now.load(std::memory_order_acquire);
}

void trees_came(uint64_t table_id)
{
  std::lock_guard<std::mutex> guard(trees_latch);
  trees_times[table_id]= ++trees_now;
}

void trees_went(const std::vector<uint64_t> &table_ids)
{
  std::lock_guard<std::mutex> guard(trees_latch);
  for (uint64_t table_id : table_ids) {
    trees_times.erase(table_id);
    tables_counters.erase(table_id);
  }
}

frond_status read_definition(frond_txn *txn, const std::string &name, Table_definition *definition)
{
  frond_tree *tree;
  frond_status status= frond_tree_open(txn, name.c_str(), &tree);
  if (status != FROND_OK)
    return status;
  frond_tree_options options;
  status= frond_tree_get_options(txn, tree, &options);
  if (status == FROND_OK && !definition->decode(options.metadata.data, options.metadata.size)) {
    undecodable();
    status= FROND_CORRUPTION;
  }
  frond_tree_close(tree);
  return status;
}

frond_status write_definition(frond_txn *txn, frond_tree *tree, const Table_definition &definition)
{
  frond_tree_options options;
  frond_status status= frond_tree_get_options(txn, tree, &options);
  if (status != FROND_OK)
    return status;
  Bytes bytes;
  definition.encode(bytes);
  options.metadata= frond_bytes(bytes.data(), bytes.size());
  return frond_tree_set_options(txn, tree, &options);
}

namespace {

/* The open tables, by the name of their primary tree: two of one name while an old definition goes out of use. A Table_share
   leaves before anything of it or its TABLE_SHARE goes. */
std::mutex open_tables_latch;
std::multimap<std::string, const Table_share *> open_tables;

} // namespace

bool with_open_table(const std::string &name, const std::function<void(const Table_share &)> &use)
{
  std::lock_guard<std::mutex> guard(open_tables_latch);
  auto found= open_tables.find(name);
  if (found == open_tables.end())
    return false;
  use(*found->second);
  return true;
}

Table_share::~Table_share()
{
  {
    std::lock_guard<std::mutex> guard(open_tables_latch);
    auto range= open_tables.equal_range(name);
    for (auto entry= range.first; entry != range.second; ++entry)
      if (entry->second == this) {
        open_tables.erase(entry);
        break;
      }
  }
  if (counters)
    counters->keep_given();
  for (const Index_tree &index : indexes)
    frond_tree_close(index.tree);
  frond_tree_close(primary);
}

int Table_share::open(const char *path, const TABLE *table)
{
  name= tree_name(path);
  frond_txn *txn;
  frond_status status= frond_txn_begin(database, nullptr, &txn);
  if (status != FROND_OK)
    return handler_error(status);
  status= read_definition(txn, name, &definition);
  if (status == FROND_OK)
    status= frond_tree_open(txn, name.c_str(), &primary);
  int error= handler_error(status);
  {
    std::lock_guard<std::mutex> guard(trees_latch);
    auto time= trees_times.find(definition.table_id);
    born= time == trees_times.end() ? 0 : time->second;
  }
  if (!error)
    error= open_indexes(txn, table);
  if (!error)
    error= start_counters(table);
  frond_txn_rollback(txn);
  if (!error) {
    load_index_statistics();
    table_share= table->s;
    created= creation_time(table_share);
    std::lock_guard<std::mutex> guard(open_tables_latch);
    open_tables.emplace(name, this);
  }
  return error;
}

int Table_share::open_indexes(frond_txn *txn, const TABLE *table)
{
  const TABLE_SHARE *s= table->s;
  indexes.resize(s->keys);
  for (uint key= 0; key < s->keys; key++) {
    const KEY &info= s->key_info[key];
    int position= definition.index_by_name(info.name.str, info.name.length);
    if (position < 0)
      return HA_ERR_TABLE_DEF_CHANGED;
    const Index &index= definition.indexes[position];
    Index_tree &open= indexes[key];
    open.id= index.id;
    open.unique= (info.flags & HA_NOSAME) && !index.hashed;
    open.clustering= index.clustering;
    if (key == s->primary_key)
      continue;
    frond_status status= frond_tree_open(txn, index_tree_name(name, index.id).c_str(), &open.tree);
    if (status != FROND_OK)
      return handler_error(status);
  }
  return 0;
}

/* Rows whose deletion is not decided are there at one level, rows whose insertion is not at the other. */
int Table_share::start_counters(const TABLE *table)
{
  const TABLE_SHARE *s= table->s;
  counters= counters_of(definition.table_id);
  counters->miscounted= true;
  if (s->primary_key != MAX_KEY && !table->found_next_number_field && !s->found_next_number_field)
    return 0;
  for (frond_isolation isolation : {FROND_ISOLATION_REPEATABLE_READ, FROND_ISOLATION_READ_UNCOMMITTED}) {
    frond_txn_options options= {};
    options.isolation= isolation;
    frond_txn *txn;
    frond_status status= frond_txn_begin(database, &options, &txn);
    if (status != FROND_OK)
      return handler_error(status);
    int error= raise_counters(txn, table);
    frond_txn_rollback(txn);
    if (error)
      return error;
  }
  std::lock_guard<std::mutex> guard(counters->latch);
  counters->searched= true;
  return 0;
}

int Table_share::raise_counters(frond_txn *txn, const TABLE *table)
{
  const TABLE_SHARE *s= table->s;
  std::lock_guard<std::mutex> guard(counters->latch);
  bool gave_up;
  if (s->primary_key == MAX_KEY) {
    frond_status status= with_last_key(txn, primary, false, FROND_CURSOR_GIVE_UP, &gave_up, [this](frond_slice key) {
      if (key.size == 8)
        raise_to(&counters->hidden_key, big_endian(key.data) + 1);
    });
    if (status != FROND_OK)
      return handler_error(status);
  }
  if (!table->found_next_number_field && !s->found_next_number_field)
    return 0;
  raise_to(&counters->next, definition.auto_increment_start);
  std::string key= auto_increment_key(definition.table_id);
  frond_slice value;
  frond_status status= frond_txn_get(txn, auto_increment_tree, frond_bytes(key.data(), key.size()), &value);
  if (status != FROND_OK)
    return handler_error(status);
  if (value.data && value.size >= 8) {
    uint64_t kept= big_endian(value.data);
    raise_to(&counters->kept, kept);
    raise_to(&counters->next, after(kept));
  }
  if (value.data && value.size == 16)
    counters->lowered_from= std::max(counters->lowered_from, big_endian(value.data + 8));
  if (s->next_number_keypart != 0)
    return 0;
  uint number_index= s->next_number_index;
  const KEY &info= table->key_info[number_index];
  const frond_tree *tree= number_index == s->primary_key ? primary : indexes[number_index].tree;
  bool descending= info.key_part[0].key_part_flag & HA_REVERSE_SORT;
  Key_codec codec;
  int error= codec.init(table, &info);
  if (error)
    return error;
  uint64_t last= 0;
  auto take= [&](frond_slice last_key) {
    Field *field= table->field[s->found_next_number_field[0]->field_index];
    /* The sign of a zero does not matter, nor do the columns after this one. */
    const uchar nothing[MAX_REF_PARTS]= {}, *restore= nothing;
    codec.decode(last_key.data, last_key.size, &restore, nothing + sizeof nothing, table->record[0]);
    const longlong value= field->is_null() ? 0 : field->val_int();
    last= value > 0 || field->is_unsigned() ? static_cast<uint64_t>(value) : 0;
  };
  status= with_last_key(txn, tree, descending, FROND_CURSOR_GIVE_UP, &gave_up, take);
  if (status == FROND_OK && gave_up && after(last) > counters->next && last <= counters->lowered_from) {
    last= 0;
    if (!counters->searched)
      status= with_last_key(txn, tree, descending, 0, &gave_up, take);
  }
  if (status == FROND_OK)
    raise_to(&counters->next, after(last));
  return handler_error(status);
}

uint64_t Table_share::Size::rows_now(uint64_t inserted_now, uint64_t deleted_now) const
{
  uint64_t more= inserted_now - inserted, fewer= deleted_now - deleted;
  return rows + more > fewer ? rows + more - fewer : 0;
}

/* Asks the engine. What it does not answer stays as it was. */
Table_share::Size Table_share::measure(const Size &last, bool unknown, Precision precision) const
{
  Size now= last;
  now.inserted= inserted.load(std::memory_order_relaxed);
  now.deleted= deleted.load(std::memory_order_relaxed);
  const uint64_t known= last.rows_now(now.inserted, now.deleted);
  now.rows= known;
  const frond_slice everything= {nullptr, 0};
  frond_estimate estimate;
  bool small= unknown || now.rows < COUNTED_ROWS;
  uint64_t bytes= 0, entries= UINT64_MAX;
  for (const Index_tree &index : indexes)
    if (index.tree && frond_db_estimate(database, index.tree, everything, everything, &estimate) == FROND_OK) {
      bytes+= estimate.bytes;
      entries= std::min(entries, estimate.rows);
    }
  if (frond_db_estimate(database, primary, everything, everything, &estimate) == FROND_OK) {
    /* A row that was updated counts once more until the update comes to its leaf. Entries of an index are left alone or deleted and put. */
    now.rows= std::min(estimate.rows, entries);
    now.data_bytes= estimate.bytes;
    now.blob_bytes= estimate.blob_bytes;
    small|= now.rows < COUNTED_ROWS;
  }
  now.index_bytes= bytes;
  now.rows_are= Size::ESTIMATED;
  if (!small)
    return now;
  uint64_t counted;
  bool gave_up;
  const uint32_t giving_up= precision == Precision::counted ? 0 : FROND_CURSOR_GIVE_UP;
  if (count_rows(primary, COUNTED_ROWS, giving_up, &counted, &gave_up) == FROND_OK && !gave_up) {
    now.rows_are= counted < COUNTED_ROWS ? Size::COUNTED : Size::ESTIMATED;
    now.rows= counted < COUNTED_ROWS ? counted : std::max(counted, now.rows);
  } else if (!unknown && last.rows_are == Size::COUNTED) {
    /* And what has come and gone since. */
    now.rows_are= Size::COUNTED;
    now.rows= known;
  } else {
    now.rows_are= Size::GUESSED;
    now.rows= std::max(counted, now.rows);
  }
  return now;
}

bool Table_share::is_measuring_due(const Size &last, const Times &times, uint64_t now, Precision precision) const
{
  uint64_t inserts= inserted.load(std::memory_order_relaxed), deletes= deleted.load(std::memory_order_relaxed);
  uint64_t change= inserts - last.inserted + deletes - last.deleted;
  bool moved= (change > COUNTED_ROWS / 4 && change > last.rows / 16) || counters->miscounted.load(std::memory_order_relaxed);
  if (precision != Precision::recent)
    return moved || now > times.after || (precision == Precision::counted && guessed.load(std::memory_order_relaxed));
  return now > times.rest && (moved || now > times.after + (change > 0 ? 0 : IDLE_REFRESH_NANOS));
}

Table_share::Times Table_share::measuring_times() const
{
  return {published.rest.load(std::memory_order_relaxed), published.after.load(std::memory_order_relaxed)};
}

/* False while somebody publishes another one, and before the first. */
bool Table_share::read_size(Size *found, Times *times) const
{
  uint64_t version= published.version.load(std::memory_order_acquire);
  found->rows= published.rows.load(std::memory_order_relaxed);
  found->data_bytes= published.data_bytes.load(std::memory_order_relaxed);
  found->blob_bytes= published.blob_bytes.load(std::memory_order_relaxed);
  found->index_bytes= published.index_bytes.load(std::memory_order_relaxed);
  found->inserted= published.inserted.load(std::memory_order_relaxed);
  found->deleted= published.deleted.load(std::memory_order_relaxed);
  *times= measuring_times();
  std::atomic_thread_fence(std::memory_order_acquire);
  return version > 0 && version % 2 == 0 && published.version.load(std::memory_order_relaxed) == version;
}

/* Under statistics_latch. */
void Table_share::write_size(const Size &found, const Times &times)
{
  size= found;
  guessed.store(found.rows_are == Size::GUESSED, std::memory_order_relaxed);
  uint64_t version= published.version.load(std::memory_order_relaxed);
  published.version.store(version + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  published.rows.store(found.rows, std::memory_order_relaxed);
  published.data_bytes.store(found.data_bytes, std::memory_order_relaxed);
  published.blob_bytes.store(found.blob_bytes, std::memory_order_relaxed);
  published.index_bytes.store(found.index_bytes, std::memory_order_relaxed);
  published.inserted.store(found.inserted, std::memory_order_relaxed);
  published.deleted.store(found.deleted, std::memory_order_relaxed);
  published.rest.store(times.rest, std::memory_order_relaxed);
  published.after.store(times.after, std::memory_order_relaxed);
  published.version.store(version + 2, std::memory_order_release);
}

Table_share::Sizes Table_share::statistics(uint64_t now, Precision precision)
{
  Size known;
  Times times;
  if (unlikely(!read_size(&known, &times) || is_measuring_due(known, times, now, precision))) {
    std::unique_lock<std::mutex> guard(statistics_latch);
    /* Of a table of which nothing is known yet, all wait for the first who asks, unless they are killed: nobody is to take it for
       an empty one. */
    auto is_known= [this] { return !measuring || published.version.load(std::memory_order_relaxed) > 0; };
    while (!measured.wait_for(guard, LOOK_WHETHER_KILLED, is_known) &&
           !(current_thd && thd_kill_level(current_thd) != THD_IS_NOT_KILLED)) {
    }
    /* Another one may have measured meanwhile, who is not done yet, or is. */
    const bool is_first= published.version.load(std::memory_order_relaxed) == 0;
    if (!measuring && (is_first || is_measuring_due(size, measuring_times(), now, precision))) {
      bool unknown= counters->miscounted.exchange(false, std::memory_order_relaxed);
      const Size last= size;
      measuring= true;
      guard.unlock();
      const uint64_t begun= my_interval_timer();
      const Size found= measure(last, unknown || last.rows_are == Size::GUESSED, precision);
      const uint64_t ended= my_interval_timer();
      guard.lock();
      measuring= false;
      const uint64_t rest= (ended - begun) * REFRESH_PART;
      measured.notify_all();
      write_size(found, {ended + rest, ended + std::max(REFRESH_NANOS, rest)});
    }
    known= size;
  }
  known.rows= known.rows_now(inserted.load(std::memory_order_relaxed), deleted.load(std::memory_order_relaxed));
  return known;
}

bool Table_share::take_index_sampling(uint64_t rows_now)
{
  uint64_t then= key_sampled_rows.load(std::memory_order_relaxed);
  uint64_t changed_since= changes() - key_sampled_changes.load(std::memory_order_relaxed);
  bool due;
  if (key_statistics_kept.load(std::memory_order_relaxed)) /* and those of an earlier process: changes were not counted */
    due= changed_since > then + SMALL_TABLE_ROWS || rows_now / OTHER_TABLE_FACTOR > then + SMALL_TABLE_ROWS ||
         then / OTHER_TABLE_FACTOR > rows_now + SMALL_TABLE_ROWS;
  else
    due= index_statistics_version() == 0 || changed_since > then / 4 + SMALL_TABLE_ROWS;
  return due && my_interval_timer() >= key_sampling_after.load(std::memory_order_relaxed) &&
         !key_sampling.exchange(true, std::memory_order_acquire);
}

void Table_share::give_up_index_sampling()
{
  key_sampling_after= my_interval_timer() + REFRESH_NANOS;
  key_sampling.store(false, std::memory_order_release);
}

void Table_share::set_index_statistics(const Key_statistics &statistics)
{
  std::lock_guard<std::mutex> guard(statistics_latch);
  key_statistics= statistics;
  key_statistics_kept= false;
  key_sampled_rows= statistics.rows;
  key_sampled_changes= changes();
  key_statistics_version.fetch_add(1, std::memory_order_release);
  key_sampling.store(false, std::memory_order_release);
}

void Table_share::put_statistics(const Key_statistics &statistics, Table_definition *target) const
{
  target->analyzed_rows= std::max<uint64_t>(statistics.rows, 1);
  target->row_bytes= statistics.row_bytes;
  for (size_t key= 0; key < indexes.size(); key++)
    for (Index &index : target->indexes)
      if (index.id == indexes[key].id)
        index.rec_per_key= statistics.rows_per_key[key];
}

frond_status Table_share::write_statistics(const Key_statistics &statistics, const frond_txn_options &options)
{
  return in_transaction(options, [&](frond_txn *txn) {
    Table_definition stored;
    frond_status status= read_definition(txn, name, &stored);
    if (status != FROND_OK)
      return status;
    put_statistics(statistics, &stored);
    return write_definition(txn, primary, stored);
  });
}

frond_status Table_share::keep_analyzed_statistics(const Key_statistics &statistics)
{
  frond_txn_options options= {};
  frond_status status= write_statistics(statistics, options);
  if (status != FROND_OK)
    return status;
  set_index_statistics(statistics);
  key_statistics_kept= true;
  return FROND_OK;
}

void Table_share::keep_sampled_statistics(const Key_statistics &statistics)
{
  frond_txn_options options= {};
  options.durability= FROND_DURABILITY_NONE;
  options.lock_wait_ms= FROND_WAIT_NONE;
  write_statistics(statistics, options);
}

Key_statistics Table_share::index_statistics()
{
  std::lock_guard<std::mutex> guard(statistics_latch);
  return key_statistics;
}

/* What was kept before. */
void Table_share::load_index_statistics()
{
  if (definition.analyzed_rows == 0)
    return;
  Key_statistics kept;
  kept.rows= definition.analyzed_rows;
  kept.row_bytes= definition.row_bytes;
  kept.rows_per_key.resize(indexes.size());
  for (size_t key= 0; key < indexes.size(); key++)
    for (const Index &index : definition.indexes)
      if (index.id == indexes[key].id)
        kept.rows_per_key[key]= index.rec_per_key;
  for (const std::vector<uint64_t> &rows_per_key : kept.rows_per_key)
    if (rows_per_key.empty())
      return; /* an index has been added since */
  set_index_statistics(kept);
  key_statistics_kept= true;
}

uint64_t Table_share::reserve_auto_increment(uint64_t offset, uint64_t increment, uint64_t count, uint64_t max)
{
  std::lock_guard<std::mutex> guard(counters->latch);
  /* The first member of the series at or after the counter. An offset above the increment is ignored, as by the server. */
  if (increment == 0)
    increment= 1;
  if (offset == 0 || offset > increment)
    offset= 1;
  uint64_t first= offset, next= counters->next;
  if (next == UINT64_MAX)
    return 0;
  if (next > offset) {
    uint64_t steps= (next - offset - 1) / increment + 1;
    if (steps > (UINT64_MAX - offset) / increment)
      return 0;
    first= offset + steps * increment;
  }
  if (first > max)
    return 0;
  uint64_t room= (max - first) / increment;
  uint64_t taken= std::min(count == 0 ? 1 : count, room + 1);
  uint64_t last= first + (taken - 1) * increment;
  counters->next= after(last);
  return first;
}

void Table_share::give_back_auto_increment(uint64_t unused, uint64_t end)
{
  std::lock_guard<std::mutex> guard(counters->latch);
  if (unused < counters->next && end >= counters->next)
    counters->next= unused;
}

void Table_share::saw_auto_increment(uint64_t value)
{
  if (value < counters->next.load(std::memory_order_relaxed))
    return;
  std::lock_guard<std::mutex> guard(counters->latch);
  if (value >= counters->next)
    counters->next= after(value);
}

uint64_t Table_share::next_auto_increment()
{
  std::lock_guard<std::mutex> guard(counters->latch);
  return counters->next;
}

void Table_share::set_auto_increment(uint64_t value)
{
  std::lock_guard<std::mutex> guard(counters->latch);
  counters->lowered_from= lowered_from(value);
  counters->searched= false;
  counters->next= std::max<uint64_t>(value, 1);
  counters->kept= 0;
}

uint64_t Table_share::lowered_from(uint64_t value) const
{
  const uint64_t highest= counters->next - 1;
  return highest >= value ? std::max(counters->lowered_from, highest) : counters->lowered_from;
}

std::string Table_share::kept_when_lowered(uint64_t value)
{
  std::lock_guard<std::mutex> guard(counters->latch);
  const uint64_t from= lowered_from(value);
  return from ? kept_value(0, from) : std::string();
}

frond_status Table_share::keep_auto_increment(uint64_t value)
{
  if (value <= counters->kept.load(std::memory_order_relaxed))
    return FROND_OK;
  return counters->keep(value, FROND_WAIT_DEFAULT);
}

frond_status Counters::keep(uint64_t value, int64_t lock_wait_ms)
{
  std::lock_guard<std::mutex> guard(latch);
  uint64_t value_kept= std::max<uint64_t>(value, next - 1);
  if (value_kept <= kept)
    return FROND_OK;
  std::string key= auto_increment_key(table_id), bytes= kept_value(value_kept, lowered_from);
  frond_operation operation= {};
  operation.tree= auto_increment_tree;
  operation.op= FROND_OP_PUT;
  operation.key= frond_bytes(key.data(), key.size());
  operation.value= frond_bytes(bytes.data(), bytes.size());
  frond_txn_options options= {};
  options.durability= FROND_DURABILITY_NONE;
  options.lock_wait_ms= lock_wait_ms;
  frond_status status= frond_db_write(database, &operation, 1, &options);
  if (status == FROND_OK)
    kept= value_kept;
  return status;
}

/* Not of a table that was dropped; no matter if that cannot be done now. */
void Counters::keep_given()
{
  if (are_in_use(this))
    keep(0, FROND_WAIT_NONE);
}

void Counters::rows_undone()
{
  miscounted.store(true, std::memory_order_relaxed);
  keep_given();
}

void rows_undone_somewhere()
{
  std::vector<std::shared_ptr<Counters>> all;
  {
    std::lock_guard<std::mutex> guard(trees_latch);
    for (const auto &table : tables_counters)
      all.push_back(table.second);
  }
  for (const auto &counters : all)
    counters->rows_undone();
}

} // namespace frond
