/* Indexes that ALTER TABLE is building while the table is written.

   The new trees are made and the build is published in Table_share::build while the server holds everybody off (prepare of
   the ALTER). Then run() reads the table as it is at one moment, sorts the entries, and writes each tree once, as a bulk load. Meanwhile
   whoever writes a row notes which entries that touches (touch); nobody but the builder writes to the trees. Entries that were touched
   are set right afterwards: the row is locked and read as it is now, and says whether the entry is to be there. The last ones are set
   right in finish(), while the server holds everybody off again, and the ALTER makes the indexes part of the table's
   definition. Until then only the trees' own metadata says what they are: start-up drops those that a crash left.

   Invariants
     B1  an entry is noted by who holds its row's lock, after the row was written. So whoever locks the row after having read
         the note sees what became of the row.
     B2  a row that nobody has touched since the build was published is at that moment as it is now. (The moment is after
         it; a prepared transaction that wrote before is waited for in prepare.)
     B3  setting an entry right depends on the row as it is now and on the tree alone: it may be done twice, in any order.
     B4  nothing that happens here fails a writer: what fails, a duplicate among others, fails the ALTER. Rows are locked one or two at a time,
         from being read until the entry is written: whoever changes one later notes it again. NOWAIT and SKIP LOCKED may meet that moment.
         Where entries are noted faster than they are set right, writers take turns, so that it ends (pace.h).
     B5  the builder waits for a lock only while it holds none: it is nobody's deadlock.
     B6  virtual columns are computed by the builder, in its own TABLE: a writer has not those that are in none of its indexes. So where an
         index has one, a writer notes the row and what it was, and the builder sets right the entry of that and the one that the row has now.
         Each state of a row that the load can have met is the last one, or one that was noted.
     B7  so it is as well where an index has a column that comes with it or becomes another. The builder reads the rows as the altered table has them (Builder),
         all indexes are computed, and a writer, who knows nothing of the column, notes every row that changes.

   Notes are kept in memory up to a few MiB, then in a temporary file.

   Latch: a writer holds Table_share::build_latch shared while it notes.

   Copyright (c) 2026 The FrondDB maintainers. SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef FROND_MARIADB_INDEX_BUILD_H
#define FROND_MARIADB_INDEX_BUILD_H

#include "server.h"

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "entry.h"
#include "pace.h"
#include "share.h"
#include "virtual_columns.h"

namespace frond {

class Bulk_load;

/* Which entries were touched: written by many threads, read by the builder. */
class Touched_entries {
public:
  ~Touched_entries();

  /* Adds notes; false when they could not be kept. */
  bool add(const Bytes &notes);
  /* Takes some, in no order; *notes is empty when there are none. False when they could not be read. */
  bool take(Bytes *notes);
  /* How often there is something to take, as of now. */
  size_t pieces();
  /* Of what there is to take, as of now. */
  size_t bytes();

private:
  bool spill();

  std::mutex latch;
  Bytes recent;
  File file= -1;
  std::deque<std::pair<my_off_t, size_t>> spilled; /* pieces of the file */
  bool lost= false; /* notes could not be kept */
  my_off_t file_end= 0;
};

/* How the builder reads rows: as the present table has them, or the altered one (B7). */
struct Builder {
  TABLE *table;
  const Row_codec *rows;
  const Key_codec *primary; /* null: hidden */
};

class Index_build {
public:
  explicit Index_build(Table_share *share_arg) : share(share_arg) {}
  ~Index_build();

  /* An index to build, before the trees are made: `key` is number `key_number` of the altered table, its parts' fieldnr
     say the fields of the builder's. 0 or an HA_ERR_*. */
  int add(const TABLE *table, const KEY *key, uint key_number, bool clustering, uint32_t id);
  /* After all indexes: the builder's table is the altered one, and this the writers' (B7). */
  void note_rows_of(const TABLE *present);
  bool empty() const { return indexes.empty(); }

  /* Makes the trees, after waiting for prepared transactions that have written to the table (B2). */
  frond_status create_trees(frond_txn *txn, const frond_tree_options &options);
  /* From now on writers note; then not any more. The second waits for those that are at it. */
  void publish();
  void withdraw();
  /* The build succeeded: the trees are the table's. */
  frond_status adopt_trees(frond_txn *txn);
  frond_status drop_trees(frond_txn *txn);

  /* Builds; 0 or an HA_ERR_*. What it is given has to last until finish(). After HA_ERR_FOUND_DUPP_KEY: duplicate_key, and
     the row is in record[0] of the builder's table. */
  int run(THD *thd, const Builder &builder, uint64_t rows_about);
  /* Sets right what others have touched since, while they go on; as run(). */
  int follow(THD *thd);
  /* Sets the last entries right, when nobody writes any more; as run(). */
  int finish(THD *thd);
  uint duplicate_key() const { return duplicate_key_number; }

  /* For writers, after an insertion (no old_record), a deletion (no new_record) or an update; the table is the writer's. Returns how many nanoseconds
     it is to rest, when it has let the latch go. */
  uint64_t touch(const TABLE *table, const Row_codec &rows, const Key_codec *primary, const uchar *old_record, const Bytes &old_key,
                 const uchar *new_record, const Bytes &new_key);

  struct Index {
    std::unique_ptr<Key_codec> codec;
    frond_tree *tree= nullptr;
    uint32_t id= 0;
    uint key_number= 0;
    bool unique= false;
    bool clustering= false;
    bool computed= false; /* writers cannot make its entries (B6, B7) */
    bool of_blobs= false; /* an entry may be made of any column, or of one that makes rows long */
  };
  std::vector<Index> indexes;

private:
  struct Note;
  class Setting;

  Entry_form form(const Index &index) const { return form(index, *builder.rows, builder.primary); }
  Entry_form form(const Index &index, const Row_codec &its_rows, const Key_codec *its_primary) const
  {
    return {*index.codec, its_primary, its_rows, index.unique, index.clustering};
  }
  frond_status load(THD *thd, uint64_t rows_about);
  frond_status gather(THD *thd, frond_txn *txn, Bulk_load *all, uint64_t rows_about);
  int catch_up(THD *thd, bool last);
  int set_all_right(THD *thd, bool last);
  int set_right(THD *thd, const std::vector<Note> &notes, bool last, uint64_t *waited_nanos);
  /* The row with this primary key, into record[0]. */
  frond_status show_row(frond_txn *txn, frond_slice key);
  int decode(frond_slice key, frond_slice value, const MY_BITMAP *wanted= nullptr);
  frond_status decode_gathered(frond_txn *txn, const frond_row &row, const MY_BITMAP *wanted);
  void touch_row(const TABLE *its_table, const Row_codec &its_rows, const uchar *old_record, const Bytes &old_key,
                 const uchar *new_record, const Bytes &new_key, Bytes *notes) const;
  int build_error(frond_status status) const;

  Table_share *share;
  Touched_entries touched;
  std::atomic<bool> notes_lost{false};
  Pace pace;
  uint duplicate_key_number= 0;
  bool lacks_temporary_space= false; /* so the load ended */
  bool entry_too_long= false; /* of a row that was met; nothing else is wrong with what the engine was given */
  Bytes row_memory; /* of the row in record[0] */
  Virtual_columns virtual_parts; /* which a row does not have */
  Virtual_columns computed_from; /* what the entries of computed indexes are made from, their values too; empty where there are none */
  Builder builder= {};
};

} // namespace frond

#endif
