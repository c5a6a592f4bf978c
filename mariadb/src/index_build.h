/* Indexes that ALTER TABLE is building while the table is written.

   The new trees are made and published in Table_share::build while the server holds everybody off (prepare of the ALTER);
   from then on each writer keeps them up beside the table's own indexes (follow), and the builder walks the primary tree in
   batches and adds what is not there yet (run). At the end the server holds everybody off again and the ALTER makes the
   indexes part of the table's definition. Until then only the trees' own metadata says what they are: start-up drops those
   that a crash left.

   Invariants
     B1  an entry is written and read under the lock of its row: exclusive by its writer, shared by the builder. So the
         latest committed entries are those of the latest committed rows, or are missing where the builder has not been.
     B2  entries that are deleted by SINGLE_DELETE are put once: the builder puts what is not there, a writer deletes what
         is there. Both look first; the builder only once a writer has written.
     B3  a unique entry is another row's unless it names this one. Nobody deletes another row's entry.
     B4  what happens to these trees never fails a writer, a deadlock apart: a duplicate, or a lock that was not granted in
         time, fails the build instead, which then ends the ALTER.
     B5  the builder waits for a lock only while it holds none: it is nobody's deadlock.

   Latch: a writer holds Table_share::build_latch shared from looking at Table_share::build to the end of its write.

   Copyright (c) 2026 The FrondDB maintainers. SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef FROND_MARIADB_INDEX_BUILD_H
#define FROND_MARIADB_INDEX_BUILD_H

#include "server.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "entry.h"
#include "row_writes.h"
#include "share.h"

namespace frond {

/* Key numbers that Row_writes tells of writes to indexes being built begin here. */
constexpr uint BUILD_KEY_NUMBER= 1000;

class Index_build {
public:
  explicit Index_build(Table_share *share_arg) : share(share_arg) {}
  ~Index_build();

  /* An index to build, before the trees are made: `key` is number `key_number` of the altered table, its parts' fieldnr
     say the fields of the present one. 0 or an HA_ERR_*. */
  int add(const TABLE *table, const KEY *key, uint key_number, bool clustering, uint32_t id);
  bool empty() const { return indexes.empty(); }

  frond_status create_trees(frond_txn *txn, const frond_tree_options &options);
  /* From now on writers follow; then not any more. The second waits for those that are writing. */
  void publish();
  void withdraw();
  /* The build succeeded: the trees are the table's. */
  frond_status adopt_trees(frond_txn *txn);
  frond_status drop_trees(frond_txn *txn);

  /* Adds all rows; 0 or an HA_ERR_*. After HA_ERR_FOUND_DUPP_KEY: duplicate_key, show_duplicate. */
  int run(THD *thd, TABLE *table, const Row_codec &rows, const Key_codec *primary, uint64_t rows_about);
  /* Why the build cannot be finished, or 0. */
  int failure();
  uint duplicate_key() const { return indexes[duplicate_index].key_number; }
  /* Puts the duplicate columns into table->record[0], as far as they are known: not those with a prefix in the index.
     After run() found it, table->record[0] is the row. */
  bool duplicate_in_record() const { return duplicate_is_read; }
  void show_duplicate(TABLE *table) const;

  /* For writers: adds what an insertion (no old_record), a deletion (no new_record) or an update means here. */
  frond_status follow(frond_txn *txn, int64_t wait_ms, const Row_codec &rows, const Key_codec *primary,
                      const uchar *old_record, const Bytes &old_key, const uchar *new_record, const Bytes &new_key,
                      Row_writes *writes);
  /* A write failed in one of these trees: whether that fails the build and not the writer, who writes again without. */
  bool takes_failure(frond_status status, uint key_number, const uchar *new_record);

  struct Index {
    std::unique_ptr<Key_codec> codec;
    frond_tree *tree= nullptr;
    uint32_t id= 0;
    uint key_number= 0;
    bool unique= false;
    bool clustering= false;
  };
  std::vector<Index> indexes;

private:
  struct Walk;

  Entry_form form(const Index &index, const Row_codec &rows, const Key_codec *primary) const
  {
    return {*index.codec, primary, rows, index.unique, index.clustering};
  }
  frond_status batch(Walk *walk);
  frond_status add_row(Walk *walk, frond_txn *txn, const uchar *record);
  frond_status wait_for_entry(Walk *walk);
  void fail(int error, size_t index, const uchar *record);

  Table_share *share;
  std::atomic<bool> written{false}; /* a writer has followed */
  std::atomic<bool> failed{false};
  std::mutex failure_latch;
  int failure_error= 0; /* the rest: under failure_latch; written once */
  size_t duplicate_index= 0;
  bool duplicate_is_read= false; /* by the builder */
  Bytes duplicate_columns, duplicate_restore;
};

} // namespace frond

#endif
