/* Indexes that are being built. See index_build.h.

   SPDX-License-Identifier: GPL-2.0-or-later */
#include "index_build.h"

#include <mysql/service_progress_report.h>

#include <algorithm>
#include <shared_mutex>
#include <string_view>
#include <tuple>

#include "bulk_load.h"
#include "errors.h"
#include "plugin.h"
#include "row_writes.h"
#include "session.h"
#include "slices.h"
#include "variables.h"

namespace frond {

namespace {

/* Ids of indexes that are passed over because their trees are there. */
constexpr uint32_t SKIPPED_MAX= 1000;
/* How long one wait of the builder lasts before it looks whether it was killed. */
constexpr int64_t BUILDER_WAIT_MS= 500;
/* Rows between two looks at that, and two reports. */
constexpr uint64_t ROWS_PER_REPORT= 1000;
/* To sort in, for one index. */
constexpr uint64_t SORT_BYTES_MAX= 256 << 20;
/* Notes in memory, and those that are set right by one transaction. */
constexpr size_t NOTES_BYTES_MAX= 8 << 20;
constexpr size_t NOTES_PER_TRANSACTION= 500;
/* So few bytes of notes are left to finish(), or what comes in during so many passes over all that there is, each hardly shorter than the last. */
constexpr size_t NOTES_LEFT= 64 << 10;
constexpr uint PASSES_MAX= 50;

constexpr frond_slice NOTHING= {nullptr, 0};

int tell_notes_lost()
{
  my_error(ER_TEMP_FILE_WRITE_FAILURE, MYF(0));
  return HA_ERR_GENERIC;
}

} // namespace

/* ---------------------------------------------------------------------------------------------------------------
 * Notes
 */

Touched_entries::~Touched_entries()
{
  if (file >= 0)
    my_close(file, MYF(0));
}

bool Touched_entries::add(const Bytes &notes)
{
  std::lock_guard<std::mutex> guard(latch);
  if (lost)
    return false;
  recent.append_bytes(notes);
  if (recent.size() < NOTES_BYTES_MAX || spill())
    return true;
  /* The build has failed: its writers neither wait for the disk again nor fill the memory. */
  lost= true;
  Bytes().swap(recent);
  return false;
}

bool Touched_entries::spill()
{
  if (file < 0) {
    char path[FN_REFLEN];
    std::string directory= tmp_dir();
    file= create_temp_file(path, directory.empty() ? mysql_tmpdir : directory.c_str(), "frond", O_BINARY | O_SEQUENTIAL,
                           MYF(MY_TEMPORARY));
    if (file < 0)
      return false;
  }
  if (my_pwrite(file, recent.data(), recent.size(), file_end, MYF(MY_NABP)))
    return false;
  spilled.emplace_back(file_end, recent.size());
  file_end+= recent.size();
  recent.clear();
  return true;
}

bool Touched_entries::take(Bytes *notes)
{
  std::lock_guard<std::mutex> guard(latch);
  notes->clear();
  if (spilled.empty()) {
    notes->swap(recent);
    return true;
  }
  auto [at, size]= spilled.front();
  if (my_pread(file, notes->reserve(size), size, at, MYF(MY_NABP)))
    return false;
  notes->added(size);
  spilled.pop_front();
  if (spilled.empty())
    file_end= 0;
  return true;
}

size_t Touched_entries::pieces()
{
  std::lock_guard<std::mutex> guard(latch);
  return spilled.size() + (recent.empty() ? 0 : 1);
}

size_t Touched_entries::bytes()
{
  std::lock_guard<std::mutex> guard(latch);
  size_t sum= recent.size();
  for (const auto &piece : spilled)
    sum+= piece.second;
  return sum;
}

/* An entry that was touched: 1 + (index << 1 | whether its key alone says that there is one such row) · key · primary key of the row.
   Or a row, for computed indexes: 0 · the row as it was, nothing where there was none · primary key. */
struct Index_build::Note {
  bool of_row;
  size_t index;
  bool checked;
  frond_slice key; /* of a row: what it was */
  frond_slice row;

  static void append(Bytes *out, size_t index, bool checked, const Bytes &key, const Bytes &row)
  {
    append(out, 1 + (index << 1 | checked), key, row);
  }
  static void append_row(Bytes *out, const Bytes &was, const Bytes &row) { append(out, 0, was, row); }
  static std::vector<Note> parse(const Bytes &bytes)
  {
    std::vector<Note> notes;
    const uchar *at= bytes.data(), *end= bytes.end();
    auto string= [&at, end]() {
      uint64_t size= 0;
      at= read_varint(at, end, &size);
      frond_slice found= frond_bytes(at, size);
      at+= size;
      return found;
    };
    while (at < end) {
      uint64_t what= 0;
      at= read_varint(at, end, &what);
      frond_slice key= string(), row= string();
      const bool of_row= what == 0;
      what-= !of_row;
      notes.push_back({of_row, static_cast<size_t>(what >> 1), (what & 1) != 0, key, row});
    }
    return notes;
  }

  /* Rows in the order of their keys, and each note once: what is set right depends on nothing but what there is (B3). */
  static void put_in_order(std::vector<Note> *notes)
  {
    auto parts= [](const Note &note) {
      auto text= [](frond_slice bytes) { return std::string_view(reinterpret_cast<const char *>(bytes.data), bytes.size); };
      return std::make_tuple(text(note.row), note.of_row, note.index, note.checked, text(note.key));
    };
    std::sort(notes->begin(), notes->end(), [&parts](const Note &one, const Note &other) { return parts(one) < parts(other); });
    auto same= [&parts](const Note &one, const Note &other) { return parts(one) == parts(other); };
    notes->erase(std::unique(notes->begin(), notes->end(), same), notes->end());
  }

private:
  static void append(Bytes *out, uint64_t what, const Bytes &key, const Bytes &row)
  {
    out->append_varint(what);
    out->append_varint(key.size());
    out->append_bytes(key);
    out->append_varint(row.size());
    out->append_bytes(row);
  }
};

uint64_t Index_build::touch(const TABLE *its_table, const Row_codec &its_rows, const Key_codec *its_primary, const uchar *old_record,
                            const Bytes &old_key, const uchar *new_record, const Bytes &new_key)
{
  Bytes notes, old_entry, new_entry, old_value, new_value;
  if (!computed_from.sources().empty())
    touch_row(its_table, its_rows, old_record, old_key, new_record, new_key, &notes);
  for (size_t i= 0; i < indexes.size(); i++) {
    if (indexes[i].computed)
      continue;
    Entry_form entry= form(indexes[i], its_rows, its_primary);
    old_entry.clear();
    new_entry.clear();
    if (old_record)
      entry.append_key(old_record, old_key, old_entry);
    if (new_record)
      entry.append_key(new_record, new_key, new_entry);
    if (old_record && new_record && same(slice(old_entry), slice(new_entry)) && same(slice(old_key), slice(new_key))) {
      old_value.clear();
      new_value.clear();
      entry.append_value(old_record, old_key, old_value);
      entry.append_value(new_record, new_key, new_value);
      if (!same(slice(old_value), slice(new_value)))
        Note::append(&notes, i, entry.checked(new_record), new_entry, new_key);
      continue;
    }
    if (old_record)
      Note::append(&notes, i, entry.checked(old_record), old_entry, old_key);
    if (new_record)
      Note::append(&notes, i, entry.checked(new_record), new_entry, new_key);
  }
  if (notes.empty())
    return 0;
  if (!touched.add(notes))
    notes_lost.store(true, std::memory_order_release);
  return likely(pace.is_free()) ? 0 : pace.take_turn(my_interval_timer(), notes.size());
}

/* The row, for computed indexes (B6, B7). An update that changes nothing that they are made from does not touch them. */
void Index_build::touch_row(const TABLE *its_table, const Row_codec &its_rows, const uchar *old_record, const Bytes &old_key,
                            const uchar *new_record, const Bytes &new_key, Bytes *notes) const
{
  const bool stays= old_record && new_record && same(slice(old_key), slice(new_key));
  const auto &sources= computed_from.sources();
  auto same_in= [&](uint column) {
    Field *field= its_table->field[column];
    return !field->stored_in_db() || same_column(field, old_record, new_record);
  };
  if (stays && std::all_of(sources.begin(), sources.end(), same_in))
    return;
  Bytes was;
  if (old_record) {
    its_rows.encode(old_record, was);
    Note::append_row(notes, was, old_key);
  }
  if (new_record && !stays)
    Note::append_row(notes, Bytes(), new_key);
}

/* ---------------------------------------------------------------------------------------------------------------
 * Trees
 */

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
  index.clustering= index.of_blobs= clustering;
  for (uint part= 0; part < key->user_defined_key_parts; part++) {
    Field *field= table->field[key->key_part[part].fieldnr - 1];
    index.of_blobs|= (field->flags & BLOB_FLAG) || !field->stored_in_db();
    if (field->stored_in_db())
      continue;
    index.computed= true;
    virtual_parts.add(field);
  }
  if (index.computed) {
    auto add_parts= [&](const KEY &of) {
      for (uint part= 0; part < of.user_defined_key_parts; part++)
        computed_from.add(table->field[of.key_part[part].fieldnr - 1]);
    };
    add_parts(*key);
    if (table->s->primary_key != MAX_KEY)
      add_parts(table->key_info[table->s->primary_key]);
    for (uint column= 0; clustering && column < table->s->fields; column++)
      computed_from.add(table->field[column]);
  }
  indexes.push_back(std::move(index));
  return 0;
}

void Index_build::note_rows_of(const TABLE *present)
{
  computed_from= Virtual_columns();
  for (uint column= 0; column < present->s->fields; column++)
    computed_from.add(present->field[column]);
  for (Index &index : indexes)
    index.computed= true;
}

frond_status Index_build::create_trees(frond_txn *txn, const frond_tree_options &table_options)
{
  frond_tree_options options= table_options;
  options.metadata= frond_bytes(building_mark, strlen(building_mark));
  frond_status status=
    frond_txn_lock_range(txn, share->primary, NOTHING, NOTHING, FROND_LOCK_SHARED, FROND_WAIT_DEFAULT);
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
    options.metadata= NOTHING;
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
 * The load
 */

int Index_build::run(THD *thd, const Builder &builder_arg, uint64_t rows_about)
{
  builder= builder_arg;
  thd_progress_init(thd, 3);
  frond_status status= load(thd, rows_about);
  int error= lacks_temporary_space ? temporary_space_error() : build_error(status);
  if (error == HA_ERR_ABORTED_BY_USER && notes_lost.load(std::memory_order_acquire))
    error= tell_notes_lost();
  thd_progress_next_stage(thd);
  if (!error)
    error= catch_up(thd, false);
  thd_progress_end(thd);
  return error;
}

int Index_build::build_error(frond_status status) const
{
  return status == FROND_INVALID_ARGUMENT && entry_too_long ? HA_ERR_TO_BIG_ROW : handler_error(status);
}

int Index_build::follow(THD *thd)
{
  return catch_up(thd, false);
}

int Index_build::finish(THD *thd)
{
  return catch_up(thd, true);
}

/* Fills the trees from the table as it is at one moment (B2). */
frond_status Index_build::load(THD *thd, uint64_t rows_about)
{
  frond_txn_options options= {};
  options.isolation= FROND_ISOLATION_REPEATABLE_READ;
  options.durability= FROND_DURABILITY_NONE;
  return in_transaction(options, [&](frond_txn *txn) {
    Killable heard(Session::of(thd), txn);
    std::vector<Bulk_load::Target> targets;
    for (const Index &index : indexes)
      targets.push_back({index.tree, index.key_number, index.unique});
    Bulk_load all;
    frond_status status= all.begin(txn, targets, targets.size(), SORT_BYTES_MAX, Bulk_load::Duplicates::lowest);
    if (status == FROND_OK)
      status= gather(thd, txn, &all, rows_about);
    lacks_temporary_space= is_of_temporary_space(status);
    thd_progress_next_stage(thd);
    if (status != FROND_OK)
      return status;
    frond_row duplicate;
    status= all.finish(thd, &duplicate_key_number, &duplicate);
    if (status != FROND_KEY_EXISTS)
      return status;
    frond_slice owner;
    const uchar *rest;
    frond_status shown= FROND_CORRUPTION;
    if (unique_entry_primary(duplicate.value, &owner, &rest))
      shown= show_row(txn, owner);
    return shown == FROND_OK ? status : shown;
  });
}

/* Reads the table and adds the entries of its rows to the load. Of long rows it reads the first bytes where entries are made of no BLOB. */
frond_status Index_build::gather(THD *thd, frond_txn *txn, Bulk_load *all, uint64_t rows_about)
{
  MY_BITMAP short_columns;
  my_bitmap_map bits[bitmap_buffer_size(MAX_FIELDS) / sizeof(my_bitmap_map)];
  const TABLE *table= builder.table;
  my_bitmap_init(&short_columns, bits, table->s->fields);
  for (uint column= 0; column < table->s->fields; column++)
    if (!(table->field[column]->flags & BLOB_FLAG))
      bitmap_set_bit(&short_columns, column);
  const bool of_blobs= std::any_of(indexes.begin(), indexes.end(), [](const Index &index) { return index.of_blobs; });
  const MY_BITMAP *wanted= of_blobs || builder.rows->wants_blobs(&short_columns) ? nullptr : &short_columns;
  frond_cursor_options range= {};
  range.flags= FROND_CURSOR_NO_FILL_CACHE | (wanted ? FROND_CURSOR_HEADS_ONLY : 0);
  frond_cursor *cursor;
  frond_status status= frond_cursor_open(txn, share->primary, &range, &cursor);
  if (status != FROND_OK)
    return status;
  Bytes key, entry_key, entry_value;
  const uchar *record= table->record[0];
  Diagnostics_area *said= thd->get_stmt_da(); /* of values that a virtual column does not take */
  said->reset_current_row_for_warning(1);
  frond_move move= FROND_MOVE_FIRST;
  for (frond_row row; status == FROND_OK; move= FROND_MOVE_NEXT) {
    status= frond_cursor_move(cursor, move, NOTHING, &row);
    if (status != FROND_OK || !row.key.data)
      break;
    key.clear();
    key.append(row.key.data, row.key.size);
    status= decode_gathered(txn, row, wanted);
    for (size_t i= 0; i < indexes.size() && status == FROND_OK; i++) {
      Entry_form entry= form(indexes[i]);
      entry_key.clear();
      entry_value.clear();
      entry.append_key(record, key, entry_key);
      entry.append_value(record, key, entry_value);
      status= all->add(i, slice(entry_key), slice(entry_value));
      entry_too_long= !fits(slice(entry_key), slice(entry_value));
    }
    said->inc_current_row_for_warning();
    if (all->rows() % ROWS_PER_REPORT == 0) {
      thd_progress_report(thd, all->rows(), std::max(all->rows(), rows_about));
      if (status == FROND_OK && (thd_kill_level(thd) != THD_IS_NOT_KILLED || notes_lost.load(std::memory_order_relaxed)))
        status= FROND_CANCELLED;
    }
  }
  frond_cursor_close(cursor);
  return status;
}

/* A row of the cursor, or where of its first bytes that is not enough, the row itself. */
frond_status Index_build::decode_gathered(frond_txn *txn, const frond_row &row, const MY_BITMAP *wanted)
{
  if (!decode(row.key, row.value, wanted))
    return FROND_OK;
  return wanted ? show_row(txn, row.key) : FROND_CORRUPTION;
}

int Index_build::decode(frond_slice key, frond_slice value, const MY_BITMAP *wanted)
{
  int error= builder.rows->decode(key.data, key.size, value.data, value.size, wanted, builder.table->record[0]);
  return error || virtual_parts.compute(builder.table->in_use) ? error : HA_ERR_GENERIC;
}

frond_status Index_build::show_row(frond_txn *txn, frond_slice key)
{
  Bytes row_key;
  row_key.append(key.data, key.size);
  frond_slice value;
  frond_status status= frond_txn_get(txn, share->primary, slice(row_key), &value);
  if (status != FROND_OK)
    return status;
  row_memory.clear();
  row_memory.append(value.data, value.size);
  return value.data && !decode(slice(row_key), slice(row_memory)) ? frond_status(FROND_OK) : FROND_CORRUPTION;
}

/* ---------------------------------------------------------------------------------------------------------------
 * Setting right
 */

/* Sets entries right, some by each transaction. */
class Index_build::Setting {
public:
  explicit Setting(Index_build *build_arg) : build(build_arg) {}

  /* Sets notes right from number *done on and counts them there. FROND_LOCK_TIMEOUT: somebody holds a row still; after
     FROND_KEY_EXISTS the row is in record[0]. */
  frond_status run(const std::vector<Note> &notes, size_t *done);
  /* For rows that others held, in nanoseconds. */
  uint64_t waited() const { return waited_nanos; }

private:
  frond_status set(const Note &note);
  frond_status set_row(const Note &note);
  void append_entries_of_record(const Bytes &row, Bytes *notes) const;
  frond_status lock_row(frond_slice key, int64_t wait_ms, frond_slice *value);
  void unlock_rows();
  frond_status read_row(frond_slice key, bool *there);
  frond_status find_owner(const Note &note, frond_slice owner, bool *has_it);
  bool is_entry_of_record(const Note &note, frond_slice row);

  Index_build *build;
  frond_txn *txn= nullptr;
  Bytes awaited; /* the row that somebody held: locked first by the next transaction, the only one that waits (B5) */
  uint64_t waited_nanos= 0;
  std::vector<Bytes> locked; /* rows of the note that is being set right (B4) */
  Bytes row_key, entry_key, entry_value;
};

frond_status Index_build::Setting::lock_row(frond_slice key, int64_t wait_ms, frond_slice *value)
{
  frond_status status= frond_txn_get_locked(txn, build->share->primary, key, FROND_LOCK_SHARED, wait_ms, value, nullptr);
  if (status == FROND_OK) {
    locked.emplace_back();
    locked.back().append(key.data, key.size);
  }
  return status;
}

void Index_build::Setting::unlock_rows()
{
  for (const Bytes &key : locked)
    frond_txn_unlock(txn, build->share->primary, slice(key));
  locked.clear();
}

/* Locks a row and reads it into record[0]. */
frond_status Index_build::Setting::read_row(frond_slice key, bool *there)
{
  frond_slice value;
  frond_status status= lock_row(key, FROND_WAIT_NONE, &value);
  if (status == FROND_LOCK_TIMEOUT) {
    awaited.clear();
    awaited.append(key.data, key.size);
  }
  if (status != FROND_OK)
    return status;
  *there= value.data != nullptr;
  if (!*there)
    return FROND_OK;
  build->row_memory.clear();
  build->row_memory.append(value.data, value.size);
  return build->decode(key, slice(build->row_memory)) ? FROND_CORRUPTION : frond_status(FROND_OK);
}

/* Whether the row in record[0] has this entry. */
bool Index_build::Setting::is_entry_of_record(const Note &note, frond_slice row)
{
  row_key.clear();
  row_key.append(row.data, row.size);
  entry_key.clear();
  build->form(build->indexes[note.index]).append_key(build->builder.table->record[0], row_key, entry_key);
  return same(slice(entry_key), note.key);
}

/* Whether another row, whose the entry is in the tree, still has it. If not, its own note is done or still to come. */
frond_status Index_build::Setting::find_owner(const Note &note, frond_slice owner, bool *has_it)
{
  Bytes other;
  other.append(owner.data, owner.size);
  bool there;
  frond_status status= read_row(slice(other), &there);
  *has_it= status == FROND_OK && there && is_entry_of_record(note, slice(other));
  return status == FROND_OK ? read_row(note.row, &there) : status;
}

frond_status Index_build::Setting::run(const std::vector<Note> &notes, size_t *done)
{
  size_t at= *done, end= std::min(notes.size(), at + NOTES_PER_TRANSACTION);
  frond_txn_options options= {};
  options.isolation= FROND_ISOLATION_READ_COMMITTED;
  options.durability= FROND_DURABILITY_NONE;
  frond_status status= in_transaction(options, [&](frond_txn *begun) {
    txn= begun;
    frond_status set_right= FROND_OK;
    if (!awaited.empty()) {
      frond_slice value;
      const uint64_t begun_at= my_interval_timer();
      set_right= lock_row(slice(awaited), BUILDER_WAIT_MS, &value);
      waited_nanos+= my_interval_timer() - begun_at;
      if (set_right == FROND_OK)
        awaited.clear();
    }
    while (at < end && set_right == FROND_OK)
      if ((set_right= notes[at].of_row ? set_row(notes[at]) : set(notes[at])) == FROND_OK) {
        unlock_rows();
        at++;
      }
    locked.clear();
    /* What is done stays. */
    return set_right == FROND_LOCK_TIMEOUT && at > *done ? frond_status(FROND_OK) : set_right;
  });
  if (status == FROND_OK)
    *done= at;
  return status;
}

/* Sets right the entries in computed indexes that a row has, and had when it was touched. The row is locked first: it stays as it is. */
frond_status Index_build::Setting::set_row(const Note &note)
{
  bool there;
  frond_status status= read_row(note.row, &there);
  if (status != FROND_OK)
    return status;
  Bytes row, entries;
  row.append(note.row.data, note.row.size);
  if (there)
    append_entries_of_record(row, &entries);
  if (note.key.size) {
    if (build->builder.rows->decode(note.row.data, note.row.size, note.key.data, note.key.size, nullptr, build->builder.table->record[0]))
      return FROND_CORRUPTION;
    /* Of a row that cannot be computed nobody has made an entry. */
    if (build->virtual_parts.compute_quietly(build->builder.table->in_use))
      append_entries_of_record(row, &entries);
  }
  for (const Note &entry : Note::parse(entries))
    if (status == FROND_OK)
      status= set(entry);
  return status;
}

void Index_build::Setting::append_entries_of_record(const Bytes &row, Bytes *notes) const
{
  const uchar *record= build->builder.table->record[0];
  Bytes key;
  for (size_t i= 0; i < build->indexes.size(); i++) {
    if (!build->indexes[i].computed)
      continue;
    Entry_form entry= build->form(build->indexes[i]);
    key.clear();
    entry.append_key(record, row, key);
    Note::append(notes, i, entry.checked(record), key, row);
  }
}

frond_status Index_build::Setting::set(const Note &note)
{
  bool there;
  frond_status status= read_row(note.row, &there);
  if (status != FROND_OK)
    return status;
  const Index &index= build->indexes[note.index];
  bool wanted= there && is_entry_of_record(note, note.row);
  frond_slice found;
  status= frond_txn_get(txn, index.tree, note.key, &found);
  if (!fits(note.key, NOTHING)) {
    build->entry_too_long= true;
    return wanted ? status : frond_status(FROND_OK);
  }
  if (status != FROND_OK)
    return status;
  bool is_own= found.data != nullptr;
  if (found.data && note.checked) {
    frond_slice owner;
    const uchar *rest;
    if (!unique_entry_primary(found, &owner, &rest))
      return FROND_CORRUPTION;
    is_own= same(owner, note.row);
    bool is_anothers= false;
    if (wanted && !is_own)
      status= find_owner(note, owner, &is_anothers);
    if (status != FROND_OK)
      return status;
    if (is_anothers) {
      build->duplicate_key_number= index.key_number;
      return FROND_KEY_EXISTS;
    }
  }
  if (!wanted && !is_own)
    return FROND_OK;
  if (wanted) {
    row_key.clear();
    row_key.append(note.row.data, note.row.size);
    entry_value.clear();
    build->form(index).append_value(build->builder.table->record[0], row_key, entry_value);
    if (is_own && same(found, slice(entry_value)))
      return FROND_OK;
  }
  /* Keys with the row in them see a put and a single delete in turn. */
  Row_writes writes;
  uint32_t flags= note.checked ? 0 : FROND_OPERATION_COVERED;
  if (is_own && !(wanted && note.checked)) {
    writes.begin(index.tree, note.checked ? FROND_OP_DELETE : FROND_OP_SINGLE_DELETE, flags, index.key_number);
    writes.bytes().append(note.key.data, note.key.size);
  }
  if (wanted) {
    writes.begin(index.tree, FROND_OP_PUT, flags, index.key_number);
    writes.bytes().append(note.key.data, note.key.size);
    writes.value();
    writes.bytes().append_bytes(entry_value);
  }
  uint failed;
  return writes.run(txn, &failed);
}

/* Sets the entries of some notes right; 0 or an HA_ERR_*. In the `last` pass whoever holds a row is a prepared transaction,
   which may never be decided: it is waited for as long as for a lock. Before that it is also any other, for which the statement
   would wait in the end: as long as for a lock of the table. Adds what it has waited to *waited_nanos. */
int Index_build::set_right(THD *thd, const std::vector<Note> &notes, bool last, uint64_t *waited_nanos)
{
  Setting setting(this);
  int64_t waited= 0, waits_max= last ? std::max<int64_t>(lock_wait_ms(thd), 0) : int64_t(thd->variables.lock_wait_timeout) * 1000;
  for (size_t done= 0; done < notes.size();) {
    if (thd_kill_level(thd) != THD_IS_NOT_KILLED)
      return HA_ERR_ABORTED_BY_USER;
    frond_status status= setting.run(notes, &done);
    waited= status == FROND_LOCK_TIMEOUT ? waited + BUILDER_WAIT_MS : 0;
    if (status != FROND_OK && (status != FROND_LOCK_TIMEOUT || waited > waits_max))
      return build_error(status);
  }
  *waited_nanos+= setting.waited();
  return 0;
}

int Index_build::catch_up(THD *thd, bool last)
{
  const int error= set_all_right(thd, last);
  pace.lift();
  return error;
}

int Index_build::set_all_right(THD *thd, bool last)
{
  Bytes taken;
  size_t left= touched.pieces(), pass_pieces= left;
  uint64_t begun= my_interval_timer(), waited= 0, bytes= 0;
  for (uint passes= 0; last || passes < PASSES_MAX;) {
    if (notes_lost.load(std::memory_order_acquire) || !touched.take(&taken))
      return tell_notes_lost();
    if (taken.empty())
      return 0;
    std::vector<Note> notes= Note::parse(taken);
    Note::put_in_order(&notes);
    int error= set_right(thd, notes, last, &waited);
    if (error)
      return error;
    /* Where a row was waited for there may be much again. */
    if (!last && taken.size() < NOTES_LEFT && touched.bytes() < NOTES_LEFT)
      return 0;
    bytes+= taken.size();
    if (left > 1) {
      left--;
    } else {
      left= touched.pieces();
      pace.passed(pass_pieces, left, bytes, my_interval_timer() - begun - waited);
      pass_pieces= left;
      begun= my_interval_timer();
      waited= bytes= 0;
      passes++;
    }
  }
  return 0;
}

} // namespace frond
