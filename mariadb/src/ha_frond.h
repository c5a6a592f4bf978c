/* The handler: one open instance of a table, in the order of the server's handler.h.

   It translates: records to keys and rows (key_codec.h, row_codec.h), the server's ways of reading to walks (scan.h), the
   changes of a row to one call of writes (row_writes.h). What instances share is in share.h, what the connection owns in
   session.h, DDL in ddl.cc and alter.cc.

   Entries
     primary                key(pk) → row
     secondary, not unique, or unique by a hash
                            key(columns) ‖ key(pk) → restore(columns) ‖ restore(pk) [‖ row]
     unique, no NULL        key(columns) → varint length of key(pk) ‖ key(pk) ‖ restore(columns) ‖ restore(pk) [‖ row]
     unique, with a NULL    key(columns) ‖ key(pk) → the same value
   [‖ row] where the index is clustering. A table without a primary key has a hidden one: a number of 8 bytes, big endian.

   Locks: a locking read locks index entries and rows by the engine's cursor; the entries of secondary indexes that are not
   unique are written under the lock of their row (FROND_OPERATION_COVERED). Below REPEATABLE READ a walk over a secondary index locks
   rows alone. Between the ends of a range, if it is the only walk of the statement and its order does not matter (may_take_moved), it takes a row where
   it meets it first, wherever in the range the row is by then; else it keeps up: it also finds entries that are not committed, and after a wait goes on in
   what is there by then. An UPDATE that walks through the rows themselves peeks at those that others hold, and waits for those alone that it wants
   (semi-consistent read). Where the server keeps a key unique by looking before it writes (hashes of long columns, periods), that search locks
   the range of what must not be there, below REPEATABLE READ too.

   Copyright (c) 2026 The FrondDB maintainers. SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef FROND_MARIADB_HA_FROND_H
#define FROND_MARIADB_HA_FROND_H

#include "server.h"

#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "bulk_load.h"
#include "bytes.h"
#include "entry.h"
#include "frond.h"
#include "key_codec.h"
#include "merged_scan.h"
#include "row_codec.h"
#include "row_writes.h"
#include "scan.h"
#include "share.h"

namespace frond {
class Alter;
struct Builder;
class Session;
class Table_check;
class Virtual_columns;
struct Sampling;
}

/* Options of a table and of an index, as CREATE TABLE takes them; the members are the server's to fill. */
struct ha_table_option_struct {
  uint compression; /* 0 default, 1 none, 2 lz4, 3 zstd */
  ulonglong compression_level; /* 0 not given */
};
struct ha_index_option_struct {
  bool clustering;
};

class ha_frond final : public handler {
public:
  ha_frond(handlerton *hton, TABLE_SHARE *table_share);
  ~ha_frond() override= default;

  handler *clone(const char *name, MEM_ROOT *mem_root) override;

  /* What it can do */
  Table_flags table_flags() const override;
  ulong index_flags(uint index, uint part, bool all_parts) const override;
  uint max_supported_keys() const override { return MAX_KEY; }
  uint max_supported_key_parts() const override { return MAX_REF_PARTS; }
  uint max_supported_key_length() const override { return 3072; }
  uint max_supported_key_part_length() const override { return 3072; }
  uint max_supported_record_length() const override { return HA_MAX_REC_LENGTH; }
  const char *index_type(uint) override { return "BTREE"; }
  enum row_type get_row_type() const override { return ROW_TYPE_DYNAMIC; }
  uint8 table_cache_type() override { return HA_CACHE_TBL_NOCACHE; }
  const key_map *keys_to_use_for_scanning() override { return &key_map_full; }
  bool get_error_message(int error, String *text) override;
  void print_error(int error, myf flags) override;

  /* Opening */
  int open(const char *name, int mode, uint test_if_locked) override;
  int close() override;

  /* Costs and statistics */
  double scan_time() override;
  double read_time(uint index, uint ranges, ha_rows rows) override;
  double keyread_time(uint index, uint ranges, ha_rows rows) override;
  ha_rows records_in_range(uint index, const key_range *min, const key_range *max, page_range *pages) override;
  ha_rows estimate_rows_upper_bound() override;
  int info(uint flag) override;

  /* Statements and locks */
  THR_LOCK_DATA **store_lock(THD *thd, THR_LOCK_DATA **to, enum thr_lock_type lock_type) override;
  uint lock_count() const override { return 0; }
  int external_lock(THD *thd, int lock_type) override;
  void init_table_handle_for_HANDLER() override;
  int start_stmt(THD *thd, thr_lock_type lock_type) override;
  int extra(enum ha_extra_function operation) override;
  int reset() override;
  void column_bitmaps_signal() override;
  void unlock_row() override;
  void try_semi_consistent_read(bool yes) override { semi_consistent= yes; }
  bool was_semi_consistent_read() override { return peeked; }

  /* Writing */
  int write_row(const uchar *record) override;
  void start_bulk_insert(ha_rows rows, uint flags) override;
  int end_bulk_insert() override;
  int update_row(const uchar *old_record, const uchar *new_record) override;
  int delete_row(const uchar *record) override;
  int truncate() override;
  void get_auto_increment(ulonglong offset, ulonglong increment, ulonglong wanted, ulonglong *first,
                          ulonglong *reserved) override;
  int reset_auto_increment(ulonglong value) override;
  bool autoinc_lock_mode_stmt_unsafe() const override { return true; } /* interleaved */
  void update_create_info(HA_CREATE_INFO *info) override;

  /* Reading */
  int rnd_init(bool scan) override;
  int rnd_end() override;
  int rnd_next(uchar *record) override;
  int rnd_pos(uchar *record, uchar *position) override;
  int rnd_pos_by_record(uchar *record) override;
  void position(const uchar *record) override;
  int cmp_ref(const uchar *a, const uchar *b) override;
  int index_init(uint index, bool sorted) override;
  int index_end() override;
  int index_read_map(uchar *record, const uchar *key, key_part_map parts, enum ha_rkey_function find) override;
  int index_read_last_map(uchar *record, const uchar *key, key_part_map parts) override;
  int index_next(uchar *record) override;
  int index_prev(uchar *record) override;
  int index_first(uchar *record) override;
  int index_last(uchar *record) override;
  int index_next_same(uchar *record, const uchar *key, uint key_bytes) override;
  int read_range_first(const key_range *start, const key_range *end, bool eq_range, bool sorted) override;
  int read_range_next() override;

  /* Pushdown and multi-range read */
  Item *idx_cond_push(uint key_number, Item *condition) override;
  bool rowid_filter_push(Rowid_filter *filter) override;
  int multi_range_read_init(RANGE_SEQ_IF *seq, void *seq_param, uint ranges, uint mode, HANDLER_BUFFER *buffer) override;
  int multi_range_read_next(range_id_t *range) override;
  ha_rows multi_range_read_info_const(uint index, RANGE_SEQ_IF *seq, void *seq_param, uint ranges, uint *buffer_bytes,
                                      uint *flags, Cost_estimate *cost) override;
  ha_rows multi_range_read_info(uint index, uint ranges, uint keys, uint key_parts, uint *buffer_bytes, uint *flags,
                                Cost_estimate *cost) override;
  int multi_range_read_explain_info(uint mode, char *text, size_t size) override;

  /* DDL: ddl.cc */
  int create(const char *name, TABLE *form, HA_CREATE_INFO *info) override;
  int delete_table(const char *name) override;
  int rename_table(const char *from, const char *to) override;

  /* Upkeep: upkeep.cc */
  int analyze(THD *thd, HA_CHECK_OPT *options) override;
  int check(THD *thd, HA_CHECK_OPT *options) override;
  int optimize(THD *thd, HA_CHECK_OPT *options) override;

  /* ALTER TABLE in place: alter.cc */
  bool check_if_incompatible_data(HA_CREATE_INFO *, uint changes) override;
  bool can_convert_nocopy(const Field &field, const Column_definition &type) const override;
  Compare_keys compare_key_parts(const Field &old_field, const Column_definition &new_field,
                                 const KEY_PART_INFO &old_part, const KEY_PART_INFO &new_part) const override;
  enum_alter_inplace_result check_if_supported_inplace_alter(TABLE *altered, Alter_inplace_info *info) override;
  bool prepare_inplace_alter_table(TABLE *altered, Alter_inplace_info *info) override;
  bool inplace_alter_table(TABLE *altered, Alter_inplace_info *info) override;
  bool commit_inplace_alter_table(TABLE *altered, Alter_inplace_info *info, bool commit) override;

private:
  friend class frond::Table_check;

  int read_as_altered(TABLE *altered, frond::Alter *alter);
  frond::Builder builder_of(TABLE *altered, const frond::Alter &alter) const;
  void show_as_altered(TABLE *altered, const KEY &key, const frond::Alter &alter);
  bool report_build_failure(TABLE *altered, const frond::Alter &alter, int error);
  template <typename Step> bool run_build(TABLE *altered, const frond::Alter &alter, Step step);
  frond_status commit_alter(frond_txn *txn, const frond::Alter &alter, const TABLE *altered,
                            const Alter_inplace_info *info);

  frond_txn *txn() const;
  bool locking() const { return lock_mode != FROND_LOCK_NONE; }
  int64_t wait_ms() const { return skip_locked ? FROND_WAIT_SKIP : statement_wait_ms; }
  bool locks_entries(uint index) const;
  uint32_t walk_sees() const;
  const uchar *overlap_record() const;
  bool looks_before_write(key_part_map parts, enum ha_rkey_function find) const;
  int lock_prefix(uint index, const uchar *tuple, key_part_map parts);
  void unlock(const frond_tree *tree, const frond::Bytes &key);
  void shrink_buffers();
  void end_scan();
  frond::Scan_mode scan_mode() const;
  bool hides_entries(uint index) const;
  int failure(frond_status status);
  int write_failure(frond_status status);
  int load_failure(frond_status status);
  bool is_sequence() const { return table_share->table_type == TABLE_TYPE_SEQUENCE; }
  bool has_primary_key() const { return table_share->primary_key != MAX_KEY; }
  bool is_primary(uint index) const { return index == table_share->primary_key; }
  const frond_tree *tree_of(uint index) const;
  int open_codecs();
  void choose_places();
  frond_slice place_key(const uchar *place, frond::Bytes &memory) const;
  bool may_be_read_again(THD *thd) const;
  int begin_statement(THD *thd, bool again);
  int take_part();
  void read_index_statistics(uint info_flag);
  std::vector<uint> extended_columns(uint index) const;
  bool copies_table(THD *thd) const;
  bool drops_partition(THD *thd) const;
  int wait_for_branches();
  frond_status sample_indexes(frond_txn *snapshot, const frond::Sampling &sampling, frond::Key_statistics *found);

  /* Keys */
  void append_primary_key(const uchar *record, frond::Bytes &out) const;
  void append_search_key(uint index, const uchar *tuple, key_part_map parts, frond::Bytes &out);
  void append_extended_parts(uint index, const uchar *tuple, key_part_map parts, frond::Bytes &out);
  void append_entry_key(uint index, const uchar *record, const frond::Bytes &primary, frond::Bytes &out) const;
  void append_entry_value(uint index, const uchar *record, const frond::Bytes &primary, frond::Bytes &out) const;
  bool entry_primary_key(uint index, const frond_row &entry, frond_slice *key, const uchar **restore) const;

  /* Writes */
  uint32_t insertion_flags() const;
  void add_insertion(uint index, const uchar *record, const frond::Bytes &primary);
  void add_deletion(uint index, const uchar *record, const frond::Bytes &primary);
  void add_update(uint index, const uchar *old_record, const uchar *new_record, bool whole);
  int look_overtaken(const frond::Bytes &key, bool *overtaken);
  frond_status look_hidden();
  bool is_same_row(const uchar *a, const uchar *b) const;
  int restore_generated(uchar *old_record);
  void compute_in(uchar *record, const frond::Virtual_columns &columns);
  void settle_virtual(const uchar *old_record, const uchar *new_record);
  bool primary_differs(const uchar *old_record, const uchar *new_record);
  bool restore_differs(const frond::Key_codec &codec, const uchar *a, const uchar *b);
  void wrote_row();
  void count_row(bool more);
  bool may_load() const;
  bool fills_empty_table() const;
  int begin_load();
  void show_duplicate(uint index, const frond_row &duplicate);
  int run_sequence_writes();
  int run_writes(const uchar *old_record, const uchar *new_record);
  const frond::Key_codec *primary_codec() const
  {
    return has_primary_key() ? codecs[table_share->primary_key].get() : nullptr;
  }
  frond::Entry_form entry_form(uint index) const;
  uint64_t auto_increment_of(const uchar *record) const;
  void give_back_auto_increment();
  int find_highest_number(uint index, ulonglong *number);
  void get_next_in_prefix(ulonglong *first, ulonglong *reserved);

  /* Reads */
  enum class Move { first, last, next, prev };
  enum class Stands { at_row, before_first, behind_last, behind_search };
  void prepare_walk(bool merges);
  void park_walk();
  int walk(Move move, const frond::Scan_bounds &bounds, uchar *record, bool one_prefix= false);
  int step(Move move, uchar *record);
  frond_status onward(bool ahead, bool beyond, frond_row *row);
  int read_walked(const frond_row &row, uchar *record, bool *skip);
  int decode_walked(const frond_row &row, const MY_BITMAP *wanted, uchar *record, bool *skip);
  bool heads_will_do() const;
  int is_entry_seen(uint index, frond_slice entry_key, frond_slice primary, const uchar *record, bool *seen);
  int is_entry_of(uint index, frond_slice entry_key, const uchar *record, bool *its);
  int read_entry(uint index, const frond_row &entry, uchar *record, bool *skip);
  int take_entry(uint index, const frond_row &entry, uchar *record, bool *skip);
  void keep_record(const uchar *record);
  void put_record_back(uchar *record);
  int read_row_later(uint index, const frond_row &entry, frond_slice primary, const uchar *restore, bool pushed, uchar *record,
                     bool *skip);
  bool is_restored(uint index) const;
  void keep_restore(uint index, const frond_row &entry, const uchar *restore);
  bool is_checked(uint index, const uchar *record);
  int lock_entry_row(uint index, frond_slice entry_key, frond_slice primary, bool pushed, uchar *record, bool *skip, bool *busy);
  bool is_walked(const frond::Bytes &key) const;
  bool keeps_up() const;
  bool may_take_moved(const uchar *record);
  void compute_virtual_parts(uint index);
  void add_virtual_parts(uint index, frond::Virtual_columns *to) const;
  void append_present_key(uint index, const uchar *record);
  int was_walked(uint index, const frond_row &entry, frond_slice primary, uchar *record, bool *was);
  frond_status begin_pass(frond_row *row);
  void end_passes();
  int check_entry(uint index, uchar *record, bool *skip);
  bool has_primary_prefix() const;
  bool has_virtual_part(uint index) const;
  int read_index_columns(uint index, const frond_row &entry, frond_slice primary, const uchar *restore, uchar *record);
  int read_index_and_row(uint index, const frond_row &entry, frond_slice primary, const uchar *restore, uchar *record,
                         bool *skip);
  int read_virtual_parts(uint index, frond_slice key, const uchar *restore, const uchar *restore_end, uchar *record);
  bool is_index_enough();
  bool takes_entry_columns(uint index, const uchar *record);
  bool has_rows(uint index) const;
  int check_pushed(bool *skip);
  frond_status get_locked_row(int64_t wait_ms, frond_slice *value, bool *skipped);
  int read_primary(frond_slice key, uchar *record, bool *skip, bool *busy= nullptr, bool waits= true);
  int point_read(uint index, uchar *record);
  bool is_point(uint index, key_part_map parts) const;
  bool has_null(uint index, const uchar *tuple) const;
  const MY_BITMAP *wanted_columns() const;

  frond::Table_share *share= nullptr; /* the TABLE_SHARE's; stays while it does */
  std::vector<std::unique_ptr<frond::Key_codec>> codecs; /* by key number */
  frond::Row_codec rows;

  std::vector<uint> stored_generated; /* the stored generated columns */
  bool places_are_columns= false; /* of the primary key, as the server has them in a key: what position() gives */

  uint64_t index_statistics_version= 0; /* of those in table->key_info, and of row_bytes */
  uint64_t row_bytes= 0;                /* of a row before compression, but for what lies apart, on average; 0: not known */
  uint64_t blob_bytes= 0;               /* as stored, of rows that lie apart */

  frond_lock_mode lock_mode= FROND_LOCK_NONE, stored_lock_mode= FROND_LOCK_NONE;
  bool skip_locked= false;
  bool semi_consistent= false; /* the server looks at a row before it has to be locked */
  bool peeked= false; /* the row read last is another transaction's, as it was committed last: the server may want it again, locked */
  int64_t statement_wait_ms= FROND_WAIT_DEFAULT;
  frond::Session *session= nullptr; /* of the statement, where is_locked; otherwise of whichever was the last */
  bool is_locked= false;            /* between external_lock and its end */
  bool rows_changed= false; /* the session knows that this statement changes rows */
  bool rows_counted= false; /* and how many there are */
  frond_txn *sequence_reader= nullptr; /* of a walk over a sequence's row */

  frond::Merged_scan scan;
  bool walk_due= false; /* it is an earlier index's: the next walk prepares it */
  frond::Row_writes writes;
  std::unique_ptr<frond::Bulk_load> load; /* of the statement that runs */
  bool copying= false;  /* into this table, which the statement makes */
  bool passes_duplicates= false; /* the statement does not end with a row that has a key already */
  bool writes_duplicates= false; /* the statement changes or replaces the row that has a key already */
  bool load_due= false; /* the next row begins a load, if there can be one; end_bulk_insert will be called */
  frond::Bytes search_key;  /* the encoded key of the running index search */
  frond::Bytes search_end;  /* its end as a prefix */
  frond::Bytes range_end;   /* where read_range_first says that the range ends */
  bool has_range_end= false;
  bool within_range= false; /* the walk ends where the range does */
  bool at_point= false;     /* the last search was for one row by its whole key */
  bool plain_walk= false;   /* the walk is a plain read of the rows by their own key: most of its steps need nothing but the next row */
  bool exact_walk= false;   /* the walk ends with the rows of the search key */
  bool may_overtake= false; /* plain reads after this statement's writes may see a snapshot from before others' changes */
  bool is_at_row= false;    /* of a search for one key, at_point: that it has found a row */
  Stands stands= Stands::at_row; /* where the walk has come to: beyond an end of the index or of what was searched for, when there was no row any more */
  bool in_range= false;     /* a range is begun: read_range_first */
  bool prefix_locked= false; /* what the walk ranges over is locked as a whole */
  frond::Scan_bounds walked; /* the bounds of the walk; what they refer to stays until the next search */
  bool is_clone= false;     /* one of several handlers of a statement's table, whose rows the server may merge */
  bool several_ranges= false; /* the walk is one of several, through one range after the other */
  bool index_only= false;   /* the server has asked for the columns of the index, until it says otherwise */
  bool takes_moved= false;  /* a row found inside them is wanted wherever in them it is now */
  bool has_moved= false;    /* what follows, while the row where it stands was waited for or read; or that row itself */
  bool has_left= false;     /* a row found inside them was not there any more */
  bool passes= false;       /* the walk has been through them once, in the snapshot of the statement */
  frond::Scan first_pass;   /* that one again, beside the others */
  frond_row first_row= {{nullptr, 0}, {nullptr, 0}}; /* where it stands; none at its end */
  std::unordered_set<std::string> passed; /* primary keys that later passes have met */
  std::unordered_set<std::string> taken_elsewhere; /* those of rows that the walk has taken and whose entries are elsewhere in its bounds by now */
  uint64_t times_large= 0;  /* as Bytes says, when what follows was looked at last */
  frond::Bytes row_memory;  /* value of the row that was read by its key: blobs of the record point into it */
  frond::Bytes restored_memory; /* the same of an old record that restore_generated has changed */
  frond::Bytes primary_key; /* of the row read last */
  frond::Bytes primary_tuple; /* columns of a search by an extended key */
  frond::Bytes new_primary_key, compare_key, compare_other;
  frond::Bytes place, other_place; /* keys made of what position() gave */
  frond::Bytes walked_key;  /* of the row where the walk stands, when what follows may have moved */
  frond::Bytes compared;    /* the entry by which a row that is locked was found, or one that is not its entry any more */
  bool checked_entry= false; /* what is pushed has said yes to its columns */
  frond::Bytes compared_restore; /* what restores these */
  frond::Bytes record_before;
  DsMrr_impl multi_range;
};

#endif
