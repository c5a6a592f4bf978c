/* The handler. See ha_frond.h.

   SPDX-License-Identifier: GPL-2.0-or-later */
#include "ha_frond.h"

#include <algorithm>

#include "errors.h"
#include "index_build.h"
#include "plugin.h"
#include "session.h"
#include "slices.h"
#include "variables.h"
#include "virtual_columns.h"

using namespace frond;

namespace {

/* At SERIALIZABLE; but not of a statement that is a transaction of its own. */
bool plain_reads_lock(THD *thd)
{
  return thd_tx_isolation(thd) == ISO_SERIALIZABLE && is_multi_statement(thd);
}

/* As an upper bound of a walk: none when empty. */
frond_slice upper_slice(const Bytes &bytes)
{
  return bytes.empty() ? frond_slice{nullptr, 0} : slice(bytes);
}

constexpr size_t HIDDEN_KEY_BYTES= 8;
constexpr size_t REF_LENGTH_BYTES= 2;
/* How much longer a key may be than its columns, before these are a row's place: comparing them takes longer. */
constexpr uint PLACE_RATIO= 3;
/* What the optimizer counts reads in, as for InnoDB. */
constexpr double PAGE_BYTES= 16384;

} // namespace

ha_frond::ha_frond(handlerton *hton_arg, TABLE_SHARE *share_arg) : handler(hton_arg, share_arg) {}

handler *ha_frond::clone(const char *name, MEM_ROOT *mem_root)
{
  auto *copy= static_cast<ha_frond *>(handler::clone(name, mem_root));
  if (copy) {
    copy->lock_mode= lock_mode;
    copy->stored_lock_mode= stored_lock_mode;
    copy->skip_locked= skip_locked;
    copy->statement_wait_ms= statement_wait_ms;
    copy->session= session;
    copy->is_locked= is_locked;
    copy->is_clone= true;
  }
  return copy;
}

/* ---------------------------------------------------------------------------------------------------------------
 * What it can do
 */

handler::Table_flags ha_frond::table_flags() const
{
  /* Below REPEATABLE READ gaps are not locked: statements, repeated in the order of their commits, may meet other rows. The server
     asks anew for each statement; where it asks outside of one, there may be no session. */
  THD *thd= ha_thd();
  Table_flags statements= !thd || thd_tx_isolation(thd) > ISO_READ_COMMITTED ? HA_BINLOG_STMT_CAPABLE : 0;
  return statements | HA_REC_NOT_IN_SEQ | HA_NULL_IN_KEY | HA_AUTO_PART_KEY | HA_CAN_VIRTUAL_COLUMNS | HA_CAN_INDEX_BLOBS |
         HA_CAN_SQL_HANDLER | HA_REQUIRES_KEY_COLUMNS_FOR_DELETE | HA_PRIMARY_KEY_REQUIRED_FOR_POSITION |
         HA_PRIMARY_KEY_IN_READ_INDEX | HA_BINLOG_ROW_CAPABLE | HA_CAN_GEOMETRY |
         HA_TABLE_SCAN_ON_INDEX | HA_CRASH_SAFE | HA_CAN_ONLINE_BACKUPS | HA_CONCURRENT_OPTIMIZE | HA_CAN_SKIP_LOCKED |
         HA_ONLINE_ANALYZE | HA_CAN_TABLES_WITHOUT_ROLLBACK;
}

ulong ha_frond::index_flags(uint index, uint, bool) const
{
  ulong flags= HA_READ_NEXT | HA_READ_PREV | HA_READ_ORDER | HA_READ_RANGE | HA_KEYREAD_ONLY;
  /* The filter asks for the place of the row of an entry. */
  if (!table_share->key_info || !has_primary_prefix())
    flags|= HA_DO_RANGE_FILTER_PUSHDOWN;
  /* Of no other, although a clustering index has the rows as well: index merges take a clustered index for the primary key, whose rows
     come in the order of their places. That its rows need no second look-up, its costs say. Nor is each column said to be part of it
     (Field::part_of_key), which would make it covering: the server narrows what is read from an index alone to the columns of its
     definition (TABLE::prepare_for_keyread), and an UPDATE would judge rows by columns that were not read. */
  return flags | (is_primary(index) ? HA_CLUSTERED_INDEX : HA_DO_INDEX_COND_PUSHDOWN);
}

bool ha_frond::get_error_message(int error, String *text)
{
  if (engine_words_wanted(error))
    text->append(error_words(error), strlen(error_words(error)));
  return false;
}

/* The server's words for damage name no place, and advise a repair that there is not. What UPDATE meets when it writes a row the server
   takes for fatal, which no handler of a procedure hears of; of other transactions' locks it hears as when a row is read. Not by
   is_fatal_error(): that also says what IGNORE passes over. */
void ha_frond::print_error(int error, myf flags)
{
  if (error == HA_ERR_LOCK_DEADLOCK || error == HA_ERR_LOCK_WAIT_TIMEOUT)
    flags&= ~ME_FATAL;
  if (error != HA_ERR_CRASHED)
    return handler::print_error(error, flags);
  flags&= ~(ME_WARNING | ME_NOTE);
  my_printf_error(ER_NOT_KEYFILE, "Table '%s' is damaged: %s", flags | ME_ERROR_LOG, table_share->table_name.str,
                  error_words(error));
}

/* ---------------------------------------------------------------------------------------------------------------
 * Opening
 */

int ha_frond::open(const char *name, int, uint)
{
  lock_shared_ha_data();
  share= static_cast<Table_share *>(get_ha_share_ptr());
  int error= 0;
  if (!share) {
    auto opened= std::make_unique<Table_share>();
    error= opened->open(name, table);
    if (!error) {
      share= opened.release();
      set_ha_share_ptr(share);
    }
  }
  unlock_shared_ha_data();
  if (!error)
    error= open_codecs();
  if (error)
    return error;
  choose_places();
  /* Rows lie in the order of the primary key: an UPDATE that scans the table must not meet a row that it has moved. */
  key_used_on_scan= table_share->primary_key;
  return info(HA_STATUS_NO_LOCK | HA_STATUS_VARIABLE | HA_STATUS_CONST | HA_STATUS_OPEN);
}

/* What position() gives: the key of a row; or, where the weights of a collation make that much longer, the columns as the server
   has them in a key, from which it is made. */
void ha_frond::choose_places()
{
  size_t key_bytes= has_primary_key() ? primary_codec()->length_max() : HIDDEN_KEY_BYTES;
  ref_length= static_cast<uint>(key_bytes + REF_LENGTH_BYTES);
  places_are_columns= false;
  if (!has_primary_key())
    return;
  const KEY &key= table->key_info[table_share->primary_key];
  for (uint part= 0; part < key.user_defined_key_parts; part++)
    if (key.key_part[part].field->type() == MYSQL_TYPE_BIT)
      return; /* the server copies its bits from record[0] alone */
  places_are_columns= ref_length > PLACE_RATIO * key.key_length;
  if (places_are_columns)
    ref_length= key.key_length;
}

int ha_frond::open_codecs()
{
  codecs.clear();
  for (uint key= 0; key < table_share->keys; key++) {
    codecs.push_back(std::make_unique<Key_codec>());
    int error= codecs[key]->init(table, &table->key_info[key]);
    if (error)
      return error;
  }
  stored_generated.clear();
  for (uint column= 0; table_share->virtual_fields && column < table_share->fields; column++)
    if (table->field[column]->vcol_info && table->field[column]->stored_in_db())
      stored_generated.push_back(column);
  return rows.init(table, share->definition, primary_codec());
}

int ha_frond::close()
{
  scan.close();
  return 0;
}

const frond_tree *ha_frond::tree_of(uint index) const
{
  return is_primary(index) ? share->primary : share->indexes[index].tree;
}

/* ---------------------------------------------------------------------------------------------------------------
 * Costs and statistics
 */

/* Rows count as they are before compression: what is reckoned for the other ways to them does not know of that either, nor do InnoDB's
   costs, whose plans users expect. What lies apart counts as it is stored. */
double ha_frond::scan_time()
{
  double apart= static_cast<double>(blob_bytes), stored= static_cast<double>(stats.data_file_length) - apart;
  return (apart + std::max(stored, rows2double(stats.records) * static_cast<double>(row_bytes))) / PAGE_BYTES + 2;
}

double ha_frond::read_time(uint index, uint ranges, ha_rows count)
{
  if (!has_rows(index))
    return handler::read_time(index, ranges, count);
  if (count <= 2)
    return rows2double(count);
  /* However long rows are, none is dearer in a range than by its place: nor is it for InnoDB. */
  double whole= scan_time(), total= rows2double(estimate_rows_upper_bound());
  double some= ranges + rows2double(count) * std::min(1.0, whole / total);
  return total < rows2double(count) ? std::min(whole, some) : some;
}

double ha_frond::keyread_time(uint index, uint ranges, ha_rows count)
{
  double entries= handler::keyread_time(index, ranges, count);
  if (!has_rows(index))
    return entries;
  /* Without ranges, what is added to the time of reading the rows. With them no less than the server reckons for entries, which
     knows nothing of compression: the rows themselves must not look cheaper than the index that has less of them. */
  return ranges ? std::max(read_time(index, ranges, count), entries) : 0;
}

bool ha_frond::has_rows(uint index) const
{
  return is_primary(index) || (index < share->indexes.size() && share->indexes[index].clustering);
}

ha_rows ha_frond::estimate_rows_upper_bound()
{
  return stats.records + stats.records / 8 + 16;
}

ha_rows ha_frond::records_in_range(uint index, const key_range *min, const key_range *max, page_range *)
{
  Bytes lower, upper, key;
  if (min) {
    append_search_key(index, min->key, min->keypart_map, key);
    if (min->flag != HA_READ_AFTER_KEY) {
      lower.append_bytes(key);
    } else {
      prefix_end(key, lower);
      if (lower.size() == 0)
        return 1; /* no key comes after it */
    }
  }
  if (max) {
    key.clear();
    append_search_key(index, max->key, max->keypart_map, key);
    if (max->flag == HA_READ_BEFORE_KEY)
      upper.append_bytes(key);
    else
      prefix_end(key, upper);
  }
  frond_estimate estimate;
  frond_status status= frond_db_estimate(database, tree_of(index), slice(lower), slice(upper), &estimate);
  if (status != FROND_OK)
    return HA_POS_ERROR;
  /* The optimizer takes 0 for a fact. */
  return std::max<ha_rows>(estimate.rows, 1);
}

int ha_frond::info(uint flag)
{
  if (flag & HA_STATUS_VARIABLE) {
    /* The optimizer asks without these flags, an opening with HA_STATUS_CONST too; who else asks with them counts (history partitions). */
    using Precision= Table_share::Precision;
    Precision precision= Precision::recent;
    if (flag & (HA_STATUS_TIME | HA_STATUS_OPEN))
      precision= (flag & HA_STATUS_OPEN) && (flag & HA_STATUS_CONST) ? Precision::present : Precision::counted;
    const Table_share::Sizes sizes= share->statistics(ha_thd()->start_utime * 1000, precision);
    const uint64_t count= sizes.rows;
    blob_bytes= sizes.blob_bytes;
    /* The optimizer takes 0 for a fact. */
    stats.records= count == 0 && precision == Precision::recent ? 1 : count;
    stats.deleted= 0;
    stats.data_file_length= std::max<uint64_t>(sizes.data_bytes, static_cast<uint64_t>(PAGE_BYTES));
    stats.index_file_length= sizes.index_bytes;
    stats.delete_length= 0;
    stats.check_time= 0;
    stats.mrr_length_per_rec= ref_length + sizeof(void *);
    stats.mean_rec_length= count ? static_cast<ulong>(sizes.data_bytes / count) : 0;
  }
  if (flag & HA_STATUS_TIME)
    stats.update_time= share->changed_at();
  if (flag & HA_STATUS_CONST) {
    stats.create_time= share->created;
    stats.max_data_file_length= LONGLONG_MAX;
    stats.block_size= static_cast<uint>(PAGE_BYTES);
  }
  if (flag & (HA_STATUS_VARIABLE | HA_STATUS_CONST))
    read_index_statistics(flag);
  if (flag & HA_STATUS_ERRKEY)
    errkey= session ? session->duplicate_key : MAX_KEY;
  if (flag & HA_STATUS_AUTO)
    stats.auto_increment_value= share->next_auto_increment();
  return 0;
}

/* ---------------------------------------------------------------------------------------------------------------
 * Statements and locks
 */

frond_txn *ha_frond::txn() const
{
  return sequence_reader ? sequence_reader : session->txn();
}

int ha_frond::failure(frond_status status)
{
  return statement_error(ha_thd(), status);
}

/* The same of `writes`. */
int ha_frond::write_failure(frond_status status)
{
  return status == FROND_INVALID_ARGUMENT && writes.too_long() ? HA_ERR_TO_BIG_ROW : failure(status);
}

int ha_frond::load_failure(frond_status status)
{
  return is_of_temporary_space(status) ? temporary_space_error() : write_failure(status);
}

/* Whether a locking walk over an index locks the entries, and the gaps between them. Below REPEATABLE READ the lock of the row is
   enough: its entries change only under it. */
bool ha_frond::locks_entries(uint index) const
{
  return index == MAX_KEY || is_primary(index) || prefix_locked || !session->read_committed();
}

/* What a locking walk finds, as a flag of its cursor. As InnoDB, it does not peek by a secondary index, nor where nothing is waited for. */
uint32_t ha_frond::walk_sees() const
{
  if (keeps_up())
    return FROND_CURSOR_ADDED;
  const bool through_rows= active_index == MAX_KEY || is_primary(active_index);
  return semi_consistent && through_rows && wait_ms() != FROND_WAIT_NONE ? FROND_CURSOR_PEEK : FROND_CURSOR_COMMITTED;
}

/* Whether the server looks for what is in the way of the row that it is about to write: by a unique hash; or, among periods that must
   not overlap, for the next one by its end. */
bool ha_frond::looks_before_write(key_part_map parts, enum ha_rkey_function find) const
{
  const KEY &key= table->key_info[active_index];
  if (lock_mode != FROND_LOCK_EXCLUSIVE)
    return false;
  if (key.algorithm == HA_KEY_ALG_LONG_HASH)
    return find == HA_READ_KEY_EXACT;
  return key.without_overlaps && find == HA_READ_AFTER_KEY && !in_range &&
         parts == make_prev_keypart_map(key.user_defined_key_parts - 1);
}

/* Where the server reads what may overlap a row that it is about to write. */
const uchar *ha_frond::overlap_record() const
{
  const handler *whole= table->file;
  return whole->lookup_buffer ? whole->lookup_buffer + table_share->max_unique_length + table_share->null_fields : nullptr;
}

/* Below REPEATABLE READ a search that finds nothing keeps nobody away. This does, from all that begins as the tuple, until the
   transaction ends; searches until the end of the walk then see what others have committed, and wait for what they have not. */
int ha_frond::lock_prefix(uint index, const uchar *tuple, key_part_map parts)
{
  Bytes prefix, end;
  append_search_key(index, tuple, parts, prefix);
  prefix_end(prefix, end);
  frond_status status= frond_txn_lock_range(txn(), tree_of(index), slice(prefix), slice(end), FROND_LOCK_EXCLUSIVE,
                                            statement_wait_ms);
  prefix_locked= status == FROND_OK;
  return failure(status);
}

frond::Scan_mode ha_frond::scan_mode() const
{
  bool locks= locks_entries(active_index);
  uint32_t sees= locking() ? FROND_CURSOR_COMMITTED : 0;
  bool walks_rows= active_index == MAX_KEY || is_primary(active_index);
  bool heads= walks_rows && heads_will_do();
  /* A BLOB in a record is a pointer into the row, which the server may follow after the walk. Entries of an index are short. */
  bool lends= walks_rows && (heads || table_share->blob_fields == 0);
  return {locks ? lock_mode : static_cast<frond_lock_mode>(FROND_LOCK_NONE), sees, wait_ms(), lends, heads};
}

THR_LOCK_DATA **ha_frond::store_lock(THD *thd, THR_LOCK_DATA **to, enum thr_lock_type lock_type)
{
  if (lock_type == TL_IGNORE)
    return to;
  int command= thd_sql_command(thd);
  bool in_lock_tables= thd_in_lock_tables(thd);
  if (command == SQLCOM_DROP_TABLE || command == SQLCOM_DROP_SEQUENCE)
    return to;
  bool wants_shared= (in_lock_tables && (lock_type == TL_READ || lock_type == TL_READ_HIGH_PRIORITY)) ||
                     lock_type == TL_READ_WITH_SHARED_LOCKS || lock_type == TL_READ_SKIP_LOCKED ||
                     lock_type == TL_READ_NO_INSERT || command != SQLCOM_SELECT;
  bool plain_read= lock_type == TL_READ || lock_type == TL_READ_NO_INSERT;
  bool copies= command == SQLCOM_INSERT_SELECT || command == SQLCOM_REPLACE_SELECT || command == SQLCOM_UPDATE ||
               command == SQLCOM_CREATE_SEQUENCE || command == SQLCOM_CREATE_TABLE;
  /* The server looks itself whether rows are in the partition that they belong to. What an ALTER says there stays after it. */
  bool checks= command == SQLCOM_CHECK || (command == SQLCOM_ALTER_TABLE && lock_type == TL_READ_NO_INSERT &&
                                           (thd->lex->alter_info.partition_flags & ALTER_PARTITION_ADMIN));
  bool needs_no_lock= checks || command == SQLCOM_CHECKSUM || command == SQLCOM_CREATE_SEQUENCE ||
                      (command == SQLCOM_ANALYZE && lock_type == TL_READ) ||
                      (thd_tx_isolation(thd) <= ISO_READ_COMMITTED && plain_read && copies);
  lock_mode= FROND_LOCK_NONE;
  if (wants_shared && !needs_no_lock)
    lock_mode= FROND_LOCK_SHARED;
  stored_lock_mode= lock_mode;
  skip_locked= lock_type == TL_WRITE_SKIP_LOCKED || lock_type == TL_READ_SKIP_LOCKED;
  return to;
}

/* Whether a statement may read the table, plainly, after it has written to it: by functions or triggers, or by another name. */
bool ha_frond::may_be_read_again(THD *thd) const
{
  if (thd->locked_tables_mode >= LTM_PRELOCKED)
    return true;
  for (const TABLE *other= thd->open_tables; other; other= other->next)
    if (other != table && other->s == table->s)
      return true;
  return false;
}

int ha_frond::begin_statement(THD *thd, bool again)
{
  session= Session::of(thd);
  if (!session)
    return HA_ERR_OUT_OF_MEM;
  statement_wait_ms= session->statement_wait_ms(thd);
  rows_changed= rows_counted= false;
  int error= session->statement_begin(thd, statement_wait_ms, again);
  may_overtake= !error && !session->read_uncommitted() && (!session->read_committed() || may_be_read_again(thd));
  return error;
}

/* Of a partitioned table the server locks those partitions that a statement names (INSERT … PARTITION), and reads the others as well where it
   looks for the next number behind a prefix, or for the same hash. They take part in the statement then, and keep away who would write
   what is looked for. */
int ha_frond::take_part()
{
  if (likely(is_locked))
    return 0;
  int error= begin_statement(ha_thd(), false);
  if (error)
    return error;
  /* A temporary sequence under LOCK TABLES is told of no statement, either. */
  lock_mode= stored_lock_mode= static_cast<frond_lock_mode>(is_sequence() ? FROND_LOCK_NONE : FROND_LOCK_EXCLUSIVE);
  session->may_lock_rows();
  return 0;
}

int ha_frond::external_lock(THD *thd, int lock_type)
{
  if (lock_type == F_UNLCK) {
    if (unlikely(inited == INDEX && active_index != MAX_KEY))
      park_walk();
    else if (unlikely(scan.is_open()))
      scan.park({nullptr, 0});
    end_passes();
    if (session)
      session->statement_release();
    lock_mode= stored_lock_mode= FROND_LOCK_NONE;
    is_locked= false;
    return 0;
  }
  int error= drops_partition(thd) ? wait_for_branches() : 0;
  if (!error)
    error= begin_statement(thd, false);
  if (error)
    return error;
  is_locked= true;
  session->lock_table();
  if (lock_type == F_WRLCK)
    lock_mode= stored_lock_mode= FROND_LOCK_EXCLUSIVE;
  else if (lock_mode == FROND_LOCK_NONE && plain_reads_lock(thd))
    lock_mode= stored_lock_mode= FROND_LOCK_SHARED;
  if (locking())
    session->may_lock_rows();
  if (is_sequence())
    lock_mode= stored_lock_mode= FROND_LOCK_NONE;
  plain_walk= false;
  /* HANDLER … READ goes on with a walk that an earlier statement has begun; others begin theirs. */
  if (unlikely(inited != NONE && !walk_due))
    scan.resume(txn(), scan_mode(), hides_entries(active_index));
  return 0;
}

/* HANDLER … READ NEXT goes on after the statement and its transaction. A unique key may be another row's by then: so the row belongs to the place. */
void ha_frond::park_walk()
{
  if (is_primary(active_index) || !share->indexes[active_index].unique) {
    scan.park({nullptr, 0});
    return;
  }
  if (at_point) {
    prepare_walk(false);
    if (!is_at_row)
      to_successor(search_key); /* behind the place where it would have been */
    scan.park_at(slice(search_key), is_at_row ? slice(primary_key) : frond_slice{nullptr, 0});
    at_point= false;
  } else
    scan.park(slice(primary_key));
}

/* HANDLER … READ is a plain read; in a SERIALIZABLE transaction, where plain reads lock, it locks the rows that are asked for. */
void ha_frond::init_table_handle_for_HANDLER()
{
  lock_mode= stored_lock_mode= plain_reads_lock(ha_thd()) ? FROND_LOCK_SHARED : FROND_LOCK_NONE;
  plain_walk= false;
  if (!walk_due)
    scan.resume(txn(), scan_mode(), hides_entries(active_index));
}

int ha_frond::start_stmt(THD *thd, thr_lock_type lock_type)
{
  int error= drops_partition(thd) ? wait_for_branches() : 0;
  if (!error)
    error= begin_statement(thd, true);
  if (error)
    return error;
  is_locked= true;
  bool plain= thd_tx_isolation(thd) != ISO_SERIALIZABLE && thd_sql_command(thd) == SQLCOM_SELECT && lock_type == TL_READ;
  if (table->s->tmp_table != NO_TMP_TABLE)
    lock_mode= FROND_LOCK_EXCLUSIVE;
  else
    lock_mode= plain ? static_cast<frond_lock_mode>(FROND_LOCK_NONE) : stored_lock_mode;
  /* A function's tables were stored with the strongest type of all its statements. */
  skip_locked= lock_type == TL_WRITE_SKIP_LOCKED || lock_type == TL_READ_SKIP_LOCKED;
  if (locking() || lock_type >= TL_WRITE_ALLOW_WRITE)
    session->may_lock_rows();
  if (is_sequence())
    lock_mode= FROND_LOCK_NONE;
  return 0;
}

int ha_frond::extra(enum ha_extra_function operation)
{
  switch (operation) {
  case HA_EXTRA_KEYREAD:
    index_only= true;
    return 0;
  case HA_EXTRA_NO_KEYREAD:
    index_only= false;
    return 0;
  case HA_EXTRA_IGNORE_DUP_KEY:
    passes_duplicates= true;
    return 0;
  case HA_EXTRA_NO_IGNORE_DUP_KEY:
    passes_duplicates= false;
    return 0;
  case HA_EXTRA_WRITE_CAN_REPLACE:
  case HA_EXTRA_INSERT_WITH_UPDATE:
    writes_duplicates= true;
    return 0;
  case HA_EXTRA_WRITE_CANNOT_REPLACE:
    writes_duplicates= false;
    return 0;
  case HA_EXTRA_BEGIN_COPY:
    copying= true;
    return 0;
  case HA_EXTRA_END_COPY: /* also of an INSERT … SELECT, which is no copy */
    if (copying)
      give_back_auto_increment();
    /* fall through */
  case HA_EXTRA_ABORT_COPY:
    copying= false;
    load.reset();
    return 0;
  default:
    return 0;
  }
}

int ha_frond::reset()
{
  end_passes();
  if (table_share->blob_fields)
    scan.rest(); /* see end_scan */
  if (unlikely(times_large != Bytes::times_large()))
    shrink_buffers();
  cancel_pushed_idx_cond();
  cancel_pushed_rowid_filter();
  multi_range.dsmrr_close();
  has_range_end= has_moved= has_left= index_only= false;
  copying= load_due= passes_duplicates= writes_duplicates= prefix_locked= semi_consistent= peeked= false;
  load.reset();
  return 0;
}

/* Nothing refers to them any more. */
void ha_frond::shrink_buffers()
{
  times_large= Bytes::times_large();
  scan.shrink();
  first_pass.shrink();
  writes.shrink();
  for (Bytes *buffer : {&search_key, &search_end, &range_end, &row_memory, &restored_memory, &primary_key, &primary_tuple, &new_primary_key,
                        &compare_key, &compare_other, &place, &other_place, &walked_key, &compared, &compared_restore, &record_before})
    buffer->shrink();
}

/* The server computes those virtual columns that it believes are needed. A writer needs all that are in indexes, in the old
   row and in the new. */
void ha_frond::column_bitmaps_signal()
{
  if (!table->vfield || table->current_lock != F_WRLCK)
    return;
  for (Field **field= table->vfield; *field; field++)
    if (!(*field)->stored_in_db() && ((*field)->flags & PART_KEY_FLAG))
      table->mark_virtual_column_with_deps(*field);
}

/* Gives back what a read of this statement has locked and the statement has no use for; at READ COMMITTED others may have it at once. */
void ha_frond::unlock(const frond_tree *tree, const Bytes &key)
{
  if (!locking() || !session->read_committed())
    return;
  frond_txn_unlock(txn(), tree, slice(key));
  session->locked_rows.forget(tree, slice(key));
}

/* The row read last is not wanted. */
void ha_frond::unlock_row()
{
  if (peeked) {
    peeked= false;
    return;
  }
  unlock(share->primary, primary_key);
  if (active_index != MAX_KEY && !is_primary(active_index) && (at_point || has_virtual_part(active_index)))
    unlock(tree_of(active_index), compared);
}

/* ---------------------------------------------------------------------------------------------------------------
 * Keys and entries
 */

void ha_frond::append_primary_key(const uchar *record, Bytes &out) const
{
  codecs[table_share->primary_key]->encode(record, out);
}

Entry_form ha_frond::entry_form(uint index) const
{
  const Index_tree &tree= share->indexes[index];
  return {*codecs[index], primary_codec(), rows, tree.unique, tree.clustering};
}

void ha_frond::append_entry_key(uint index, const uchar *record, const Bytes &primary, Bytes &out) const
{
  entry_form(index).append_key(record, primary, out);
}

/* A search by leading columns of an index. No row has a key that is too long, and none has one that begins as that, because
   columns say where they end: what is within the limit stands at the same place among the rows. */
void ha_frond::append_search_key(uint index, const uchar *tuple, key_part_map parts, Bytes &out)
{
  codecs[index]->encode_tuple(tuple, parts, out);
  append_extended_parts(index, tuple, parts, out);
  if (out.size() > FROND_KEY_BYTES_MAX)
    out.truncate(FROND_KEY_BYTES_MAX);
}

/* To an index that is not unique the server adds the columns of the primary key that it does not have (extended keys); in the
   entry the whole primary key follows, so those that it has are repeated. */
void ha_frond::append_extended_parts(uint index, const uchar *tuple, key_part_map parts, Bytes &out)
{
  const KEY &key= table->key_info[index];
  if (key.ext_key_parts == key.user_defined_key_parts || parts >> key.user_defined_key_parts == 0)
    return;
  const KEY &primary= table->key_info[table_share->primary_key];
  key_part_map primary_parts= 0;
  primary_tuple.clear();
  for (uint j= 0; j < primary.user_defined_key_parts; j++) {
    uint part= 0;
    size_t at= 0;
    while (part < key.ext_key_parts && key.key_part[part].fieldnr != primary.key_part[j].fieldnr)
      at+= key.key_part[part++].store_length;
    if (part == key.ext_key_parts || !(parts >> part & 1))
      break;
    primary_tuple.append(tuple + at, primary.key_part[j].store_length);
    primary_parts|= key_part_map(1) << j;
  }
  codecs[table_share->primary_key]->encode_tuple(primary_tuple.data(), primary_parts, out);
}

void ha_frond::append_entry_value(uint index, const uchar *record, const Bytes &primary, Bytes &out) const
{
  entry_form(index).append_value(record, primary, out);
}

/* Where the entry of a secondary index holds the key of its row, and where what restores its columns begins. */
bool ha_frond::entry_primary_key(uint index, const frond_row &entry, frond_slice *key, const uchar **restore) const
{
  if (share->indexes[index].unique)
    return unique_entry_primary(entry.value, key, restore);
  size_t own= codecs[index]->skip(entry.key.data, entry.key.size);
  if (own == 0 || own > entry.key.size)
    return false;
  *key= frond_bytes(entry.key.data + own, entry.key.size - own);
  *restore= entry.value.data;
  return true;
}

/* ---------------------------------------------------------------------------------------------------------------
 * Writing
 */

/* How the key of a row that is there already is left locked: shared, where the statement only says so. Of a REPLACE that has triggers
   to call the server says nothing by extra(). */
uint32_t ha_frond::insertion_flags() const
{
  return writes_duplicates || ha_thd()->lex->duplicates != DUP_ERROR ? 0 : FROND_OPERATION_SHARING;
}

void ha_frond::add_insertion(uint index, const uchar *record, const Bytes &primary)
{
  bool checked= share->indexes[index].unique && !codecs[index]->has_null(record);
  writes.begin(share->indexes[index].tree, checked ? FROND_OP_INSERT : FROND_OP_PUT,
               checked ? insertion_flags() : uint32_t{FROND_OPERATION_COVERED}, index);
  append_entry_key(index, record, primary, writes.bytes());
  writes.value();
  append_entry_value(index, record, primary, writes.bytes());
}

void ha_frond::add_deletion(uint index, const uchar *record, const Bytes &primary)
{
  bool checked= share->indexes[index].unique && !codecs[index]->has_null(record);
  writes.begin(share->indexes[index].tree, checked ? FROND_OP_DELETE : FROND_OP_SINGLE_DELETE,
               checked ? 0 : FROND_OPERATION_COVERED, index);
  append_entry_key(index, record, primary, writes.bytes());
}

bool ha_frond::restore_differs(const Key_codec &codec, const uchar *a, const uchar *b)
{
  if (!codec.restore_needed())
    return false;
  compare_key.clear();
  compare_other.clear();
  codec.encode_restore(a, compare_key);
  codec.encode_restore(b, compare_other);
  return !same(slice(compare_key), slice(compare_other));
}

/* Whether others changed a row, which is locked, after the snapshot that plain reads of the transaction, or of the statement, see. What it writes goes over the
   latest row, so these reads see of the row: what it writes, and the entries that the row had in the snapshot. So all entries
   are written, also those that are the latest row's already, and is_entry_seen tells the others from them. */
int ha_frond::look_overtaken(const Bytes &key, bool *overtaken)
{
  *overtaken= false;
  if (!may_overtake || table_share->keys == (has_primary_key() ? 1U : 0U))
    return 0;
  frond_status status= frond_txn_changed_after_snapshot(txn(), share->primary, slice(key), overtaken);
  if (status == FROND_OK && *overtaken)
    session->overtook(share->primary);
  return failure(status);
}

/* Whether what was written hides entries of the snapshot in unique indexes: others have changed them since, and the rows that had them there
   are seen all the same. What a row had itself that was not overtaken is nobody else's in the snapshot. */
frond_status ha_frond::look_hidden()
{
  if (!may_overtake)
    return FROND_OK;
  const bool overtaken= session->has_overtaken(share->primary);
  frond_status status= FROND_OK;
  for (const frond_operation &write : writes.made()) {
    if (write.tree == share->primary || (write.flags & FROND_OPERATION_COVERED) || (write.op != FROND_OP_INSERT && !overtaken))
      continue;
    bool changed= false;
    status= frond_txn_changed_after_snapshot(txn(), write.tree, write.key, &changed);
    if (status != FROND_OK)
      break;
    if (changed) {
      session->hid(write.tree);
      session->overtook(share->primary);
    }
  }
  return status;
}

/* Whether plain reads by an index have to look for entries that are hidden. */
bool ha_frond::hides_entries(uint index) const
{
  return !locking() && index != MAX_KEY && !is_primary(index) && session->has_hidden(tree_of(index));
}

/* The entry of a secondary index follows its row from the old to the new record; `whole`: it is written even where it stays the same. */
void ha_frond::add_update(uint index, const uchar *old_record, const uchar *new_record, bool whole)
{
  const Key_codec &codec= *codecs[index];
  const Index_tree &tree= share->indexes[index];
  bool moved= codec.differs(old_record, new_record);
  if (!moved && !whole && !tree.clustering && !restore_differs(codec, old_record, new_record))
    return;
  bool checked= tree.unique && !codec.has_null(new_record);
  if (!moved && checked) {
    /* The same unique key with another value: it is this row's already. */
    writes.begin(tree.tree, FROND_OP_PUT, 0, index);
    append_entry_key(index, new_record, new_primary_key, writes.bytes());
    writes.value();
    append_entry_value(index, new_record, new_primary_key, writes.bytes());
    return;
  }
  add_deletion(index, old_record, primary_key);
  add_insertion(index, new_record, new_primary_key);
}

/* A sequence does not give numbers back: its row is written, and read, outside the transaction of whoever asks. */
int ha_frond::run_sequence_writes()
{
  frond_txn_options options= {};
  options.isolation= FROND_ISOLATION_READ_COMMITTED;
  /* The row of a new one comes after the server has closed its log of DDL statements. */
  options.durability= table_share->tmp_table != NO_TMP_TABLE                ? frond_durability{FROND_DURABILITY_NONE}
                      : thd_sql_command(ha_thd()) == SQLCOM_CREATE_SEQUENCE ? frond_durability{FROND_DURABILITY_SYNC}
                                                                            : commit_durability(ha_thd());
  frond_txn *alone;
  frond_status status= frond_txn_begin(database, &options, &alone);
  if (status != FROND_OK)
    return failure(status);
  uint key_number= MAX_KEY;
  status= writes.run(alone, &key_number);
  if (status == FROND_OK) {
    status= frond_txn_commit(alone);
    if (status == FROND_OK)
      share->shared_counters()->rows_changed();
    return failure(status);
  }
  int error= failure(status);
  frond_txn_rollback(alone);
  return error;
}

/* The writes of a row that goes from old_record to new_record; null where there was none, or will be none. */
int ha_frond::run_writes(const uchar *old_record, const uchar *new_record)
{
  if (is_sequence())
    return run_sequence_writes();
  int error= session->mark_statement(ha_thd());
  if (!error)
    error= session->set_wait(statement_wait_ms);
  if (error)
    return error;
  uint key_number= MAX_KEY;
  frond_status status= writes.run(txn(), &key_number);
  for (const frond_operation &made : writes.made())
    if (made.tree == share->primary)
      session->locked_rows.forget(made.tree, made.key);
  if (status == FROND_KEY_EXISTS)
    session->duplicate_key= key_number;
  if (status == FROND_OK)
    status= look_hidden();
  if (status == FROND_OK)
    wrote_row();
  if (status == FROND_OK && share->build.load(std::memory_order_acquire)) {
    uint64_t rest= 0;
    std::shared_lock<std::shared_mutex> guard(share->build_latch);
    if (Index_build *build= share->build.load(std::memory_order_relaxed))
      rest= build->touch(table, rows, primary_codec(), old_record, primary_key, new_record, new_primary_key);
    guard.unlock();
    if (rest > 0)
      my_sleep(rest / 1000);
  }
  return write_failure(status);
}

/* A row has come, has changed or has gone. */
void ha_frond::wrote_row()
{
  session->wrote_row(table_share->tmp_table == NO_TMP_TABLE || copying);
  if (rows_changed)
    return;
  rows_changed= true;
  session->changed_rows(share->shared_counters());
}

/* The table has one row more, or less. */
void ha_frond::count_row(bool more)
{
  if (!rows_counted) {
    rows_counted= true;
    session->counted_rows(share->shared_counters());
  }
  if (more)
    share->row_inserted();
  else
    share->row_deleted();
}

/* The number that a record has in the column; 0 where it counts for nothing. */
static uint64_t number_in(Field *field, const uchar *record)
{
  my_ptrdiff_t offset= record - field->table->record[0];
  field->move_field_offset(offset);
  longlong value= field->val_int();
  field->move_field_offset(-offset);
  return value > 0 || field->is_unsigned() ? static_cast<uint64_t>(value) : 0;
}

/* The same of the auto-increment column, where numbers are the table's and not a prefix's. */
uint64_t ha_frond::auto_increment_of(const uchar *record) const
{
  Field *field= table->found_next_number_field;
  return field && table_share->next_number_keypart == 0 ? number_in(field, record) : 0;
}

/* ---------------------------------------------------------------------------------------------------------------
 * Loads
 */

void ha_frond::start_bulk_insert(ha_rows, uint)
{
  load_due= true;
}

/* Whether nobody looks into the table while it is written: the server does where it passes over duplicates or replaces them,
   and for unique hashes and periods; this handler for the next number of an auto-increment column that counts within a prefix. */
bool ha_frond::may_load() const
{
  return !is_sequence() && !passes_duplicates && !table_share->long_unique_table && !table_share->period.unique_keys &&
         !(table->found_next_number_field && table_share->next_number_keypart != 0) &&
         !share->build.load(std::memory_order_acquire);
}

/* Whether the statement fills a table that looks empty, and does nothing else in it: RETURNING may look for the rows. Others
   wait for its end, which is near where the statement is a transaction of its own; or the session says that it loads, as InnoDB
   wants it said. */
bool ha_frond::fills_empty_table() const
{
  THD *thd= ha_thd();
  int command= thd_sql_command(thd);
  if ((command != SQLCOM_LOAD && command != SQLCOM_INSERT_SELECT) || table->triggers ||
      thd->lex->has_returning() || thd->locked_tables_mode != LTM_NONE)
    return false;
  bool alone= !is_multi_statement(thd);
  bool said= thd_test_options(thd, OPTION_RELAXED_UNIQUE_CHECKS) && thd_test_options(thd, OPTION_NO_FOREIGN_KEY_CHECKS);
  if (!alone && !said)
    return false;
  return share->statistics(my_interval_timer(), Table_share::Precision::counted).rows == 0;
}

int ha_frond::begin_load()
{
  load_due= session->load_failed= false;
  if (!may_load() || (!copying && !fills_empty_table()))
    return 0;
  int error= session->mark_statement(ha_thd());
  if (error)
    return error;
  uint tables= table->part_info ? table->part_info->get_tot_partitions() : 1;
  if (copying) {
    error= failure(Bulk_load::begin(txn(), share, table_share, tables, &load));
    if (load)
      load->tell(ha_thd());
    return error;
  }
  /* Others may be writing to it: then this statement writes beside them. */
  frond_status status= Bulk_load::look_free(share, table_share);
  if (status != FROND_OK)
    return status == FROND_LOCK_TIMEOUT ? 0 : failure(status);
  error= session->set_wait(FROND_WAIT_NONE);
  if (error)
    return error;
  status= Bulk_load::begin(txn(), share, table_share, tables, &load);
  session->set_wait(statement_wait_ms);
  if (load)
    load->tell(ha_thd());
  /* Its snapshot may have rows there that others have deleted since. */
  if (status == FROND_OK && !session->read_committed() && is_multi_statement(ha_thd())) {
    session->overtook(share->primary);
    for (const Index_tree &index : share->indexes)
      if (index.unique)
        session->hid(index.tree);
  }
  return status == FROND_LOCK_TIMEOUT ? 0 : failure(status);
}

int ha_frond::end_bulk_insert()
{
  load_due= false;
  if (!load)
    return 0;
  std::unique_ptr<Bulk_load> ended= std::move(load);
  /* The rows are not wanted any more. Of what partitions say, the server keeps the last; the first is what has happened. */
  if (ha_thd()->is_error() || session->load_failed)
    return 0;
  uint key_number;
  frond_row duplicate;
  frond_status status= ended->finish(ha_thd(), &key_number, &duplicate);
  int error= failure(status);
  if (status == FROND_KEY_EXISTS) {
    session->duplicate_key= key_number;
    show_duplicate(key_number, duplicate);
  }
  session->load_failed= error != 0;
  if (error)
    my_errno= error; /* what the server prints */
  return error;
}

/* Reads the row that has an entry twice into record[0], for the error message. Rows are in their tree when those of the index are found
   to collide, unless some of them collide themselves: then the entry tells the columns of its index. */
void ha_frond::show_duplicate(uint index, const frond_row &duplicate)
{
  uchar *record= table->record[0];
  bool skip= false;
  if (is_primary(index)) {
    row_memory.clear();
    row_memory.append(duplicate.value.data, duplicate.value.size);
    rows.decode(duplicate.key.data, duplicate.key.size, row_memory.data(), row_memory.size(), nullptr, record);
  } else {
    frond_slice primary;
    const uchar *restore;
    if (unique_entry_primary(duplicate.value, &primary, &restore)) {
      read_primary(primary, record, &skip);
      if (skip)
        codecs[index]->decode(duplicate.key.data, duplicate.key.size, &restore, duplicate.value.data + duplicate.value.size, record);
    }
  }
  update_virtual_fields(table, this);
}

/* The row read last stays what it is: of a partition the server may have read it ahead, to update or delete it after this one is written. */
int ha_frond::write_row(const uchar *record)
{
  /* CREATE TEMPORARY SEQUENCE writes its row into a table that nobody has locked. */
  if (unlikely(!session || !session->txn())) {
    int error= begin_statement(ha_thd(), true);
    if (error)
      return error;
  }
  if (load_due) {
    int error= begin_load();
    if (error)
      return error;
  }
  if (table->next_number_field && record == table->record[0]) {
    int error= update_auto_increment();
    if (error)
      return error;
  }
  settle_virtual(nullptr, record);
  writes.clear();
  new_primary_key.clear();
  if (has_primary_key()) {
    append_primary_key(record, new_primary_key);
  } else {
    uint64_t number= share->next_hidden_key();
    for (int shift= 56; shift >= 0; shift-= 8)
      new_primary_key.append_byte(static_cast<uchar>(number >> shift));
  }
  writes.begin(share->primary, has_primary_key() ? FROND_OP_INSERT : FROND_OP_PUT, insertion_flags(),
               table_share->primary_key);
  writes.bytes().append_bytes(new_primary_key);
  writes.value();
  rows.encode(record, writes.bytes());
  for (uint index= 0; index < table_share->keys; index++)
    if (!is_primary(index))
      add_insertion(index, record, new_primary_key);
  int error= load ? load_failure(writes.load(load.get())) : run_writes(nullptr, record);
  if (load && !error)
    wrote_row();
  bool overtaken;
  if (!error && !load && has_primary_key())
    error= look_overtaken(new_primary_key, &overtaken);
  if (error)
    return error;
  share->saw_auto_increment(auto_increment_of(record));
  count_row(true);
  return 0;
}

bool ha_frond::primary_differs(const uchar *old_record, const uchar *new_record)
{
  return has_primary_key() && codecs[table_share->primary_key]->differs(old_record, new_record);
}

/* Whether two records have the same stored columns, to the last byte. */
bool ha_frond::is_same_row(const uchar *a, const uchar *b) const
{
  for (Field **at= table->field; *at; at++)
    if ((*at)->stored_in_db() && !same_column(*at, a, b))
      return false;
  return true;
}

/* Copies a column from a record of the table to another. */
static void copy_column(const Field *field, const uchar *from, uchar *to)
{
  const uchar *first= field->table->record[0];
  const size_t at= field->ptr - first;
  memcpy(to + at, from + at, field->pack_length_in_rec());
  if (field->real_maybe_null()) {
    const size_t null_at= field->null_ptr - first;
    to[null_at]= static_cast<uchar>((to[null_at] & ~field->null_bit) | (from[null_at] & field->null_bit));
  }
}

/* DELETE, REPLACE and ON DUPLICATE KEY UPDATE compute the generated columns of the old record anew, the stored ones too, under the settings
   of this session. Entries are made of what is stored: where that is something else the record gets it back. */
int ha_frond::restore_generated(uchar *old_record)
{
  const int command= thd_sql_command(ha_thd());
  const bool has_entries= table_share->keys > (has_primary_key() ? 1U : 0U) || share->build.load(std::memory_order_acquire);
  if (stored_generated.empty() || !has_entries || command == SQLCOM_UPDATE || command == SQLCOM_UPDATE_MULTI)
    return 0;
  if (has_primary_key()) {
    primary_key.clear();
    append_primary_key(old_record, primary_key);
  }
  frond_slice value;
  frond_status status= frond_txn_get_locked(txn(), share->primary, slice(primary_key), FROND_LOCK_EXCLUSIVE, statement_wait_ms, &value,
                                            nullptr);
  if (status != FROND_OK || !value.data)
    return failure(status);
  restored_memory.clear();
  restored_memory.append(value.data, value.size);
  std::vector<uchar> stored(table_share->reclength);
  int error= rows.decode(primary_key.data(), primary_key.size(), restored_memory.data(), restored_memory.size(), nullptr, stored.data());
  std::set<uint> changed;
  for (uint column : stored_generated)
    if (!error && !same_column(table->field[column], old_record, stored.data())) {
      copy_column(table->field[column], stored.data(), old_record);
      changed.insert(column);
    }
  if (changed.empty())
    return error;
  Virtual_columns dependants;
  for (Field **at= table->vfield; *at; at++) {
    Virtual_columns one;
    one.add(*at);
    auto is_source= [&one](uint column) { return one.sources().count(column) != 0; };
    if (!(*at)->stored_in_db() && std::any_of(changed.begin(), changed.end(), is_source))
      dependants.add(*at);
  }
  compute_in(old_record, dependants);
  return error;
}

/* Computes virtual columns in a record; what does not fit is cut, as it is where the server reads. */
void ha_frond::compute_in(uchar *record, const Virtual_columns &columns)
{
  if (record == table->record[0]) {
    columns.compute_quietly(ha_thd());
    return;
  }
  /* What record[1] has of virtual blobs is in their read_value. */
  auto swap= [&]() {
    for (uint column : columns.sources()) {
      Field *field= table->field[column];
      if (!field->stored_in_db() && (field->flags & BLOB_FLAG))
        static_cast<Field_blob *>(field)->swap_value_and_read_value();
    }
  };
  table->move_fields(table->field, record, table->record[0]);
  swap();
  columns.compute_quietly(ha_thd());
  swap();
  table->move_fields(table->field, table->record[0], record);
}

/* Computes the virtual columns that are in indexes where those of the records may not be what their rows make of them: a replica computes none
   of a row that comes by the binary log; what a trigger, a period or a version changes comes after they were computed, or in the place of
   another record's. */
void ha_frond::settle_virtual(const uchar *old_record, const uchar *new_record)
{
  if (likely(!table->vfield))
    return;
  if (!table->triggers && !table_share->versioned && !table_share->period.name.str && !ha_thd()->lex->is_stmt_row_injection())
    return;
  Virtual_columns indexed;
  for (uint index= 0; index < table_share->keys; index++)
    add_virtual_parts(index, &indexed);
  if (indexed.sources().empty())
    return;
  for (const uchar *record : {old_record, new_record})
    if (record)
      compute_in(const_cast<uchar *>(record), indexed);
}

int ha_frond::update_row(const uchar *old_record, const uchar *new_record)
{
  int error= restore_generated(const_cast<uchar *>(old_record));
  if (error)
    return error;
  settle_virtual(old_record, new_record);
  /* The server then does not count it as changed. */
  if (!is_sequence() && is_same_row(old_record, new_record))
    return HA_ERR_RECORD_IS_THE_SAME;
  writes.clear();
  bool moved= primary_differs(old_record, new_record);
  /* Entries hold what restores the columns of the primary key, too. */
  bool retold= moved || (has_primary_key() &&
                         restore_differs(*codecs[table_share->primary_key], old_record, new_record));
  if (has_primary_key()) {
    primary_key.clear();
    append_primary_key(old_record, primary_key);
    new_primary_key.clear();
    append_primary_key(new_record, new_primary_key);
  } else {
    new_primary_key= primary_key;
  }
  bool overtaken= false;
  error= look_overtaken(primary_key, &overtaken);
  if (error)
    return error;
  if (moved) {
    writes.begin(share->primary, FROND_OP_DELETE, 0, table_share->primary_key);
    writes.bytes().append_bytes(primary_key);
  }
  writes.begin(share->primary, moved ? FROND_OP_INSERT : FROND_OP_PUT, insertion_flags(), table_share->primary_key);
  writes.bytes().append_bytes(new_primary_key);
  writes.value();
  rows.encode(new_record, writes.bytes());
  for (uint index= 0; index < table_share->keys; index++)
    if (!is_primary(index))
      add_update(index, old_record, new_record, retold || overtaken);
  /* The old number goes with the old row. */
  const uint64_t number= auto_increment_of(old_record);
  if (number != auto_increment_of(new_record))
    error= handler_error(share->keep_auto_increment(number));
  if (!error)
    error= run_writes(old_record, new_record);
  if (!error && moved)
    error= look_overtaken(new_primary_key, &overtaken);
  if (error)
    return error;
  share->saw_auto_increment(auto_increment_of(new_record));
  primary_key.swap(new_primary_key);
  return 0;
}

int ha_frond::delete_row(const uchar *record)
{
  int error= restore_generated(const_cast<uchar *>(record));
  if (error)
    return error;
  settle_virtual(record, nullptr);
  writes.clear();
  if (has_primary_key()) {
    primary_key.clear();
    append_primary_key(record, primary_key);
  }
  writes.begin(share->primary, FROND_OP_DELETE, 0, table_share->primary_key);
  writes.bytes().append_bytes(primary_key);
  for (uint index= 0; index < table_share->keys; index++)
    if (!is_primary(index))
      add_deletion(index, record, primary_key);
  bool overtaken;
  error= look_overtaken(primary_key, &overtaken);
  if (error)
    return error;
  frond_status status= share->keep_auto_increment(auto_increment_of(record));
  /* The deletion itself makes space. */
  if (status != FROND_OK && status != FROND_NO_SPACE)
    return handler_error(status);
  error= run_writes(record, nullptr);
  if (!error)
    count_row(false);
  return error;
}

/* The highest number under the columns before it in the key, which record[0] has; locks these, or others would find the same. 0 where there is none.
   The server asks in the midst of a walk, too (FOR PORTION OF), which has to stay what it is, as have the records and what their blobs are in. */
int ha_frond::find_highest_number(uint index, ulonglong *number)
{
  const KEY &key= table->key_info[index];
  const uint part= table_share->next_number_keypart;
  Field *field= table->next_number_field;
  uchar tuple[MAX_KEY_LENGTH];
  key_copy(tuple, table->record[0], &key, table_share->next_number_key_offset);
  if (locking() && session->read_committed()) {
    const bool is_walk_locked= prefix_locked;
    int error= lock_prefix(index, tuple, make_prev_keypart_map(part));
    prefix_locked= is_walk_locked;
    if (error)
      return error;
  }
  Bytes prefix, end;
  append_search_key(index, tuple, make_prev_keypart_map(part), prefix);
  prefix_end(prefix, end);
  Scan_bounds bounds;
  bounds.lower= slice(prefix);
  bounds.upper= upper_slice(end);
  bounds.final_upper= true;
  Scan highest;
  highest.prepare(txn(), tree_of(index), {lock_mode, 0, statement_wait_ms});
  frond_row row;
  frond_status status= highest.begin(key.key_part[part].key_part_flag & HA_REVERSE_SORT, bounds, &row);
  *number= 0;
  if (status != FROND_OK || !row.key.data)
    return failure(status);
  MY_BITMAP column;
  my_bitmap_map bits[bitmap_buffer_size(MAX_FIELDS) / sizeof(my_bitmap_map)];
  my_bitmap_init(&column, bits, table_share->fields);
  bitmap_set_bit(&column, field->field_index);
  std::vector<uchar> record(table_share->reclength);
  frond_slice primary;
  const uchar *restore;
  int error= 0;
  if (is_primary(index))
    error= rows.decode(row.key.data, row.key.size, row.value.data, row.value.size, &column, record.data());
  else if (!entry_primary_key(index, row, &primary, &restore) ||
           !codecs[index]->decode(row.key.data, row.key.size, &restore, row.value.data + row.value.size, &column, record.data()))
    error= undecodable();
  if (!error)
    *number= number_in(field, record.data());
  return error;
}

/* For the row in record[0]. */
void ha_frond::get_next_in_prefix(ulonglong *first, ulonglong *reserved)
{
  *first= *reserved= 1;
  if (!table)
    return; /* a partition that the statement does not write (LOAD DATA … PARTITION): it has not been opened */
  ulonglong highest= 0;
  int error= take_part();
  if (!error)
    error= find_highest_number(table_share->next_number_index, &highest);
  if (error)
    print_error(error, MYF(0));
  /* The last number of all is the server's sign of failure. */
  *first= error || ha_thd()->is_error() || highest == ULONGLONG_MAX ? ULONGLONG_MAX : highest + 1;
}

void ha_frond::get_auto_increment(ulonglong offset, ulonglong increment, ulonglong wanted, ulonglong *first,
                                  ulonglong *reserved)
{
  if (table_share->next_number_keypart != 0) {
    get_next_in_prefix(first, reserved);
    return;
  }
  uint64_t max= table->next_number_field->get_max_int_value();
  uint64_t value= share->reserve_auto_increment(offset, increment, wanted, max);
  /* Past the end: a number that the column refuses, or, where every number fits, the server's sign of failure. */
  *first= value ? value : max < ULONGLONG_MAX ? max + 1 : ULONGLONG_MAX;
  *reserved= wanted;
}

/* A copy into a table that nobody else sees has reserved values for all rows: what it did not use, for rows that are history, is
   to be given. Elsewhere reserved values stay gaps: others may have written some of them. */
void ha_frond::give_back_auto_increment()
{
  if (table->next_number_field && table_share->next_number_keypart == 0 && next_insert_id != 0)
    share->give_back_auto_increment(next_insert_id, auto_inc_interval_for_cur_row.maximum());
}

int ha_frond::reset_auto_increment(ulonglong value)
{
  share->set_auto_increment(value);
  return 0;
}

void ha_frond::update_create_info(HA_CREATE_INFO *create_info)
{
  if (!(create_info->used_fields & HA_CREATE_USED_AUTO) && table->found_next_number_field) {
    info(HA_STATUS_AUTO);
    create_info->auto_increment_value= stats.auto_increment_value;
  }
}

/* ---------------------------------------------------------------------------------------------------------------
 * Reading
 */

/* The columns to decode; all of them for rows that are locked: what is written back is written whole, and what was found by an
   index is compared with its entry, as it is where plain reads read the two at different moments. */
const MY_BITMAP *ha_frond::wanted_columns() const
{
  const bool compares= active_index != MAX_KEY && !is_primary(active_index) && session->read_uncommitted();
  return locking() || is_sequence() || compares ? nullptr : table->read_set;
}

/* Whether a plain read wants none of the columns that make a row long: then, of a row that is kept apart, its head is mostly enough. */
bool ha_frond::heads_will_do() const
{
  return table_share->blob_fields > 0 && !locking() && !rows.wants_blobs(wanted_columns());
}

/* Locks and reads the row of primary_key. */
frond_status ha_frond::get_locked_row(int64_t wait_ms, frond_slice *value, bool *skipped)
{
  if (session->locked_rows.find(share->primary, slice(primary_key), lock_mode, value))
    return FROND_OK;
  frond_status status= frond_txn_get_locked(txn(), share->primary, slice(primary_key), lock_mode, wait_ms, value, skipped);
  if (status == FROND_OK && value->data && !*skipped && thd_sql_command(ha_thd()) == SQLCOM_SELECT && is_multi_statement(ha_thd()))
    session->locked_rows.keep(share->primary, slice(primary_key), *value, lock_mode);
  return status;
}

/* `busy`: another transaction holds the row, and such rows are skipped, or were not to be waited for. */
int ha_frond::read_primary(frond_slice key, uchar *record, bool *skip, bool *busy, bool waits)
{
  frond_slice value;
  frond_status status;
  bool skipped= false;
  primary_key.clear();
  primary_key.append(key.data, key.size);
  const bool head= heads_will_do();
  if (locking())
    status= get_locked_row(waits ? wait_ms() : static_cast<int64_t>(FROND_WAIT_SKIP), &value, &skipped);
  else if (head)
    status= frond_txn_get_head(txn(), share->primary, slice(primary_key), &value);
  else
    status= frond_txn_get(txn(), share->primary, slice(primary_key), &value);
  if (head && status == FROND_OK && value.data) {
    if (rows.decode(primary_key.data(), primary_key.size(), value.data, value.size, wanted_columns(), record) == 0)
      return 0;
    status= frond_txn_get(txn(), share->primary, slice(primary_key), &value);
  }
  if (status != FROND_OK)
    return failure(status);
  if (busy)
    *busy= skipped;
  if (!value.data || skipped) {
    *skip= true;
    if (!skipped)
      unlock(share->primary, primary_key);
    return 0;
  }
  if (table_share->blob_fields) {
    /* Blobs of the record point into the value, which the next read of the transaction would take away. */
    row_memory.clear();
    row_memory.append(value.data, value.size);
    value= slice(row_memory);
  }
  return rows.decode(primary_key.data(), primary_key.size(), value.data, value.size, wanted_columns(), record);
}

/* Of such a column an entry does not give the value back. The server reads from an index alone to merge places by ranges of it, and
   compares its columns. */
static bool has_prefix_part(const KEY &key)
{
  for (uint part= 0; part < key.user_defined_key_parts; part++)
    if (key.key_part[part].key_part_flag & (HA_PART_KEY_SEG | HA_BLOB_PART))
      return true;
  return false;
}

/* The columns of an index entry and of the primary key that it holds. */
int ha_frond::read_index_columns(uint index, const frond_row &entry, frond_slice primary, const uchar *restore,
                                 uchar *record)
{
  const uchar *restore_end= entry.value.data + entry.value.size, *restore_index= restore;
  if (codecs[index]->decode(entry.key.data, entry.key.size, &restore, restore_end, record) == 0)
    return undecodable();
  if (has_primary_key() &&
      codecs[table_share->primary_key]->decode(primary.data, primary.size, &restore, restore_end, record) == 0)
    return undecodable();
  if (!share->indexes[index].clustering)
    return 0;
  int error= rows.decode(primary.data, primary.size, restore, restore_end - restore, wanted_columns(), record);
  /* A row has no virtual columns, and makes them NULL. */
  if (!error && has_virtual_part(index))
    error= read_virtual_parts(index, entry.key, restore_index, restore_end, record);
  return error;
}

/* The server reads from the index alone, which does not have the whole primary key: the columns of the index, and over them those
   of the row. The row has no virtual columns, and makes them NULL; the server does not compute them then. */
int ha_frond::read_index_and_row(uint index, const frond_row &entry, frond_slice primary, const uchar *restore, uchar *record,
                                 bool *skip)
{
  int error= read_index_columns(index, entry, primary, restore, record);
  bool computed= has_virtual_part(index);
  Bytes key, rest; /* the row's read may take the entry away */
  if (computed) {
    key.append(entry.key.data, entry.key.size);
    rest.append(restore, entry.value.data + entry.value.size - restore);
  }
  if (!error)
    error= read_primary(primary, record, skip);
  if (error || *skip || !computed)
    return error;
  return read_virtual_parts(index, slice(key), rest.data(), rest.end(), record);
}

/* The virtual columns of an index entry, over those of the row, which are NULL. */
int ha_frond::read_virtual_parts(uint index, frond_slice key, const uchar *restore, const uchar *restore_end, uchar *record)
{
  MY_BITMAP parts;
  my_bitmap_map bits[bitmap_buffer_size(MAX_FIELDS) / sizeof(my_bitmap_map)];
  my_bitmap_init(&parts, bits, table_share->fields);
  for (uint part= 0; part < table->key_info[index].user_defined_key_parts; part++) {
    const Field *field= table->key_info[index].key_part[part].field;
    if (!field->stored_in_db())
      bitmap_set_bit(&parts, field->field_index);
  }
  return codecs[index]->decode(key.data, key.size, &restore, restore_end, &parts, record) ? 0 : undecodable();
}

/* Whether the server wants no more than the columns of the index. A multi-range read that sorts rows by their places tells its second handler so by
   extra() alone; then the server computes all virtual columns of each row, which the index may lack the columns for. */
bool ha_frond::is_index_enough()
{
  return keyread_enabled() || (index_only && !table->vfield);
}

/* Whether the record is to have the virtual columns of the index from the entry: the server computes them in neither case, and compares
   them where it merges the entries of partitions. */
bool ha_frond::takes_entry_columns(uint index, const uchar *record)
{
  return keyread_enabled() || (record != table->record[0] && has_virtual_part(index));
}

/* The pushed condition and the rowid filter, on the columns of the index entry in record[0]. Neither is to look for the range's end:
   see read_range_first. */
int ha_frond::check_pushed(bool *skip)
{
  key_range *const end= end_range;
  end_range= nullptr;
  check_result_t answer= CHECK_POS;
  if (pushed_idx_cond && pushed_idx_cond_keyno == active_index)
    answer= handler_index_cond_check(this);
  if (answer == CHECK_POS && handler_rowid_filter_is_active(this))
    answer= handler_rowid_filter_check(this);
  end_range= end;
  switch (answer) {
  case CHECK_POS:
    return 0;
  case CHECK_NEG:
    *skip= true;
    return 0;
  case CHECK_OUT_OF_RANGE:
    return HA_ERR_END_OF_FILE;
  default:
    return HA_ERR_ABORTED_BY_USER;
  }
}

/* Whether an entry is that of its row as plain reads see it, in a table of which the transaction has overtaken a row. */
int ha_frond::is_entry_seen(uint index, frond_slice entry_key, frond_slice primary, const uchar *record, bool *seen)
{
  frond_slice value;
  primary_key.clear();
  primary_key.append(primary.data, primary.size);
  frond_status status= frond_txn_get(txn(), share->primary, slice(primary_key), &value);
  if (status != FROND_OK)
    return failure(status);
  *seen= false;
  if (!value.data)
    return 0;
  uchar *place= table->record[0];
  keep_record(place);
  int error= rows.decode(primary_key.data(), primary_key.size(), value.data, value.size, nullptr, place);
  if (!error)
    error= is_entry_of(index, entry_key, place, seen);
  if (record != place || error || !*seen)
    put_record_back(place);
  return error;
}

/* The server counts on it that a search which finds nothing leaves the record as it was (loose index scans do): so does what is passed over after it
   was read to be looked at. */
void ha_frond::keep_record(const uchar *record)
{
  record_before.clear();
  record_before.append(record, table_share->reclength);
}

void ha_frond::put_record_back(uchar *record)
{
  memcpy(record, record_before.data(), table_share->reclength);
}

/* Whether an entry is that of the row with primary_key in the record, all of whose stored columns are there. */
int ha_frond::is_entry_of(uint index, frond_slice entry_key, const uchar *record, bool *its)
{
  /* Virtual columns are computed of the record in this place alone. */
  uchar *place= table->record[0];
  Bytes kept;
  int error= 0;
  if (has_virtual_part(index)) {
    if (record != place) {
      kept.append(place, table_share->reclength);
      memcpy(place, record, table_share->reclength);
    }
    compute_virtual_parts(index);
    record= place;
  }
  if (!error) {
    append_present_key(index, record);
    *its= same(slice(compare_key), entry_key);
  }
  if (!kept.empty())
    memcpy(place, kept.data(), kept.size());
  return error;
}

int ha_frond::read_entry(uint index, const frond_row &entry, uchar *record, bool *skip)
{
  const bool looks_at_rows= locking() ? !locks_entries(index) : session->read_uncommitted();
  if (likely(!looks_at_rows) || record != table->record[0])
    return take_entry(index, entry, record, skip);
  keep_record(record);
  int error= take_entry(index, entry, record, skip);
  if (!error && *skip)
    put_record_back(record);
  return error;
}

int ha_frond::take_entry(uint index, const frond_row &entry, uchar *record, bool *skip)
{
  frond_slice primary;
  const uchar *restore;
  if (!entry_primary_key(index, entry, &primary, &restore))
    return undecodable();
  if (unlikely(!locking() && session->has_overtaken(share->primary))) {
    bool seen;
    int error= is_entry_seen(index, entry.key, primary, record, &seen);
    *skip= !seen;
    if (error || !seen)
      return error;
  }
  bool covered= share->indexes[index].clustering ||
                (is_index_enough() && !has_primary_prefix() && !has_prefix_part(table_share->key_info[index]));
  bool pushed= record == table->record[0] && (pushed_idx_cond || pushed_rowid_filter);
  /* What is not committed may have the key of what is, and other bytes: then it is the row that tells, once it is locked. */
  checked_entry= pushed && !(pushed_idx_cond && keeps_up() && is_restored(index));
  if ((covered && !locking()) || checked_entry) {
    int error= read_index_columns(index, entry, primary, restore, record);
    if (error)
      return error;
    primary_key.clear();
    primary_key.append(primary.data, primary.size);
    if (checked_entry)
      error= check_pushed(skip);
    if (error || *skip || (covered && !locking()))
      return error;
  }
  if (!locking())
    return read_row_later(index, entry, primary, restore, pushed, record, skip);
  keep_restore(index, entry, restore);
  /* The statement has written the entry itself, ahead of the walk: a clustering index has the whole row. */
  if (unlikely(!taken_elsewhere.empty()) && taken_elsewhere.count(std::string(reinterpret_cast<const char *>(primary.data), primary.size)) > 0) {
    *skip= true;
    return 0;
  }
  if (passes) {
    int error= was_walked(index, entry, primary, record, skip);
    if (error || *skip)
      return error;
  }
  bool busy= false;
  int error= lock_entry_row(index, entry.key, primary, pushed, record, skip, &busy);
  if (!error && *skip && !busy)
    unlock_row();
  if (has_moved) {
    walked_key.clear();
    walked_key.append(primary.data, primary.size);
  }
  return error;
}

/* The row of an entry, by a plain read. At READ UNCOMMITTED it may have another entry by now, or be gone: then it is passed over, and the walk
   goes on in what is there by now. */
int ha_frond::read_row_later(uint index, const frond_row &entry, frond_slice primary, const uchar *restore, bool pushed,
                             uchar *record, bool *skip)
{
  const bool compares= session->read_uncommitted();
  if (compares)
    keep_restore(index, entry, restore);
  int error= takes_entry_columns(index, record) ? read_index_and_row(index, entry, primary, restore, record, skip)
                                                : read_primary(primary, record, skip);
  if (error || !compares)
    return error;
  bool its= false;
  if (!*skip)
    error= is_entry_of(index, entry.key, record, &its);
  if (error)
    return error;
  if (its)
    return !pushed || is_checked(index, record) ? 0 : check_pushed(skip);
  *skip= true;
  if (!at_point) {
    has_moved= true;
    compared.clear();
    compared.append(entry.key.data, entry.key.size);
    walked_key.clear();
    walked_key.append(primary.data, primary.size);
  }
  return 0;
}

/* Whether entries with the same key may differ in the columns of the index or of the primary key. */
bool ha_frond::is_restored(uint index) const
{
  return codecs[index]->restore_needed() || (has_primary_key() && primary_codec()->restore_needed());
}

/* Where a pushed condition has looked at the columns of an entry: keeps what tells them from others that have the same key. */
void ha_frond::keep_restore(uint index, const frond_row &entry, const uchar *restore)
{
  compared_restore.clear();
  if (checked_entry && is_restored(index))
    compared_restore.append(restore, entry.value.data + entry.value.size - restore);
}

/* Whether what is pushed has said yes to the columns that are in the record, to the last byte; their keys are the entry's. */
bool ha_frond::is_checked(uint index, const uchar *record)
{
  if (!checked_entry)
    return false;
  compare_other.clear();
  codecs[index]->encode_restore(record, compare_other);
  if (has_primary_key())
    primary_codec()->encode_restore(record, compare_other);
  return compare_other.size() <= compared_restore.size() &&
         memcmp(compare_other.data(), compared_restore.data(), compare_other.size()) == 0;
}

/* The row to which an entry belonged when it was read, locked and as it is now. Where the lock has been waited for, the row may
   have another entry by now, and the walk may have passed that: a row that is still within the bounds of the walk is taken here, or a
   row that was there all the time would be missed. It comes once, since the walk sees one state of the index, and nobody
   moves the row any more. What a pushed condition has looked at in the entry it looks at in the row where that differs. Another transaction may hold the row,
   `busy`, and the statement leave it out: then it is as locked as it was. */
int ha_frond::lock_entry_row(uint index, frond_slice entry_key, frond_slice primary, bool pushed, uchar *record, bool *skip, bool *busy)
{
  compared.clear();
  compared.append(entry_key.data, entry_key.size);
  bool may_take= takes_moved && !locks_entries(index) && !at_point && record == table->record[0];
  int error= read_primary(primary, record, skip, busy, !keeps_up());
  if (!error && *busy && wait_ms() != FROND_WAIT_SKIP) {
    has_moved= true;
    *skip= false;
    error= read_primary(primary, record, skip, busy);
  }
  if (error)
    return error;
  if (*skip) {
    has_left= has_left || (may_take && !*busy);
    has_moved= has_moved || (keeps_up() && !*busy);
    return 0;
  }
  if (has_virtual_part(index)) {
    error= check_entry(index, record, skip);
    has_moved= has_moved || (*skip && keeps_up());
    if (error || !*skip || !may_take)
      return error;
    *skip= false;
    compute_virtual_parts(index);
  }
  append_present_key(index, record);
  const bool stays= same(slice(compare_key), slice(compared));
  if (stays && (!pushed || is_checked(index, record)))
    return 0;
  if (!stays && (!may_take || !is_walked(compare_key))) {
    *skip= true;
    has_left= has_left || may_take;
    has_moved= has_moved || keeps_up();
    return 0;
  }
  if (!stays)
    taken_elsewhere.emplace(reinterpret_cast<const char *>(primary_key.data()), primary_key.size());
  error= pushed ? check_pushed(skip) : 0;
  *skip= *skip || error == HA_ERR_END_OF_FILE;
  return error == HA_ERR_END_OF_FILE ? 0 : error;
}

/* The virtual columns of an index, in record[0], of the stored ones there, as where the server reads. */
void ha_frond::compute_virtual_parts(uint index)
{
  Virtual_columns virtual_parts;
  add_virtual_parts(index, &virtual_parts);
  virtual_parts.compute_quietly(ha_thd());
}

void ha_frond::add_virtual_parts(uint index, Virtual_columns *to) const
{
  const KEY &key= table->key_info[index];
  for (uint part= 0; part < key.user_defined_key_parts; part++)
    if (Field *field= key.key_part[part].field; !field->stored_in_db())
      to->add(field);
}

/* Into compare_key: the entry of the row with primary_key in the record. */
void ha_frond::append_present_key(uint index, const uchar *record)
{
  compare_key.clear();
  append_entry_key(index, record, primary_key, compare_key);
}

/* Whether a row that is met in a later pass was within the bounds in the first one, or has been met since. The record is a place
   to work at. */
int ha_frond::was_walked(uint index, const frond_row &entry, frond_slice primary, uchar *record, bool *was)
{
  /* Most entries are the same in both. */
  int order= -1;
  while (first_row.key.data) {
    order= compare(first_row.key, entry.key);
    if (!first_pass.is_forward())
      order= -order;
    if (order >= 0)
      break;
    frond_status status= first_pass.onward(&first_row);
    if (status != FROND_OK)
      return failure(status);
  }
  *was= order == 0 && same(first_row.value, entry.value);
  if (*was)
    return 0;
  primary_key.clear();
  primary_key.append(primary.data, primary.size);
  *was= !passed.emplace(reinterpret_cast<const char *>(primary.data), primary.size).second;
  if (*was)
    return 0;
  /* As the first pass saw it: by a cursor, because a plain read sees what is not committed at READ UNCOMMITTED. */
  Scan row_then;
  row_then.prepare(txn(), share->primary, {FROND_LOCK_NONE, FROND_CURSOR_COMMITTED, FROND_WAIT_DEFAULT});
  Scan_bounds bounds;
  Bytes end;
  end.append(primary.data, primary.size);
  to_successor(end);
  bounds.lower= slice(primary_key);
  bounds.upper= slice(end);
  frond_row row;
  frond_status status= row_then.begin(true, bounds, &row);
  if (status != FROND_OK)
    return failure(status);
  if (!row.key.data)
    return 0;
  int error= rows.decode(row.key.data, row.key.size, row.value.data, row.value.size, nullptr, record);
  if (error)
    return error;
  if (record == table->record[0])
    compute_virtual_parts(index);
  append_present_key(index, record);
  *was= is_walked(compare_key);
  return 0;
}

/* At the end of a walk: goes through its bounds once more where it has to. A row that has left them may have been replaced by another in
   the same transaction, which the snapshot of the statement does not have; who looks for *the* row of a key must not find none.
   Each pass sees what is committed when it begins, and takes the rows that were not there in the first. */
frond_status ha_frond::begin_pass(frond_row *row)
{
  if (!has_left) {
    row->key.data= nullptr;
    return FROND_OK;
  }
  has_left= false;
  passes= true;
  scan.set_sees(FROND_CURSOR_LATEST);
  first_pass.prepare(txn(), tree_of(active_index), {FROND_LOCK_NONE, FROND_CURSOR_COMMITTED, FROND_WAIT_DEFAULT});
  bool ahead= scan.is_forward();
  frond_status status= first_pass.begin(ahead, walked, &first_row);
  return status == FROND_OK ? scan.begin(ahead, walked, row) : status;
}

void ha_frond::end_passes()
{
  if (!passes)
    return;
  passes= false;
  scan.set_sees(FROND_CURSOR_COMMITTED);
  std::unordered_set<std::string>().swap(passed);
  first_pass.rest();
}

/* Whether a key is within the bounds of the walk. */
bool ha_frond::is_walked(const Bytes &key) const
{
  if (walked.lower.data && compare(slice(key), walked.lower) < 0)
    return false;
  return !walked.upper.data || compare(slice(key), walked.upper) < 0;
}

/* Whether the walk locks rows and no entries, and may not take a row that has moved where it meets it (may_take_moved). */
bool ha_frond::keeps_up() const
{
  return locking() && !takes_moved && !at_point && !locks_entries(active_index);
}

/* Whether a walk within bounds may take a row that has moved where it meets it. Not where the server wants the rows in the order of the index
   (ORDER BY, GROUP BY, one index merged with another, a partition's walk with those of others, whose rows are read into other records), or goes
   on from where a row takes it (loose scans); and not where the walk is one of several over the table, because a row may move from
   the bounds of one into those of another: several ranges, partitions, or indexes, the inner tables of a join, the parts of a UNION, what functions
   and triggers do. */
bool ha_frond::may_take_moved(const uchar *record)
{
  if (is_clone || several_ranges || record != table->record[0] || ha_thd()->in_sub_stmt)
    return false;
  if (table->part_info && bitmap_bits_set(&table->part_info->read_partitions) > 1)
    return false;
  st_select_lex *select= table->pos_in_table_list ? table->pos_in_table_list->select_lex : nullptr;
  if (!select)
    return true;
  if (select->master_unit()->first_select()->next_select())
    return false;
  const JOIN *join= select->join;
  /* UPDATE and DELETE of one table are no joins. They read from an index alone where they merge several, or first note the rows of which they change
     the index's columns. */
  if (!join)
    return select->order_list.elements == 0 && !keyread_enabled();
  if (join->ordered_index_usage != JOIN::ordered_index_void || (select->uncacheable & UNCACHEABLE_DEPENDENT))
    return false;
  /* Tables of which there is one row at most are read before the join has a plan. */
  JOIN_TAB *tab= join->join_tab ? table->reginfo.join_tab : nullptr;
  if (!tab)
    return true;
  if (tab != join->join_tab + join->const_tables || tab->type == JT_REF_OR_NULL || tab->loosescan_match_tab)
    return false;
  const SQL_SELECT *plan= tab->get_sql_select();
  return !plan || !plan->quick || plan->quick->get_type() == QUICK_SELECT_I::QS_TYPE_RANGE;
}

/* The next entry of a walk. Where others may have moved rows past the one where it stands, by now, it is the next one in what is
   there now: a row that went ahead is met there. */
frond_status ha_frond::onward(bool ahead, bool beyond, frond_row *row)
{
  if (!has_moved)
    return ahead ? scan.next(row, beyond) : scan.prev(row, beyond);
  has_moved= false;
  Scan_bounds rest;
  if (!beyond || walked.final_upper)
    rest= walked;
  Bytes after;
  after.append_bytes(compared);
  if (ahead) {
    rest.lower= slice(compared);
  } else {
    to_successor(after);
    rest.upper= slice(after);
  }
  frond_status status= scan.begin(ahead, rest, row);
  frond_slice primary;
  const uchar *restore;
  /* A unique value may have gone to another row, whose entry is in the place of this one. */
  bool same_entry= status == FROND_OK && row->key.data && same(row->key, slice(compared)) &&
                   entry_primary_key(active_index, *row, &primary, &restore) && same(primary, slice(walked_key));
  return same_entry ? scan.onward(row) : status;
}

/* Virtual columns are not in the row: that the entry is the row's still, the entry says, which stays while the row is locked.
   Who reads from the index alone gets them from there. */
int ha_frond::check_entry(uint index, uchar *record, bool *skip)
{
  frond_row entry= {slice(compared), {nullptr, 0}};
  bool skipped= false;
  frond_status status= frond_txn_get_locked(txn(), tree_of(index), entry.key, FROND_LOCK_SHARED, wait_ms(), &entry.value,
                                            &skipped);
  if (status != FROND_OK)
    return failure(status);
  frond_slice primary;
  const uchar *restore;
  *skip= !entry.value.data || skipped;
  if (!*skip && !entry_primary_key(index, entry, &primary, &restore))
    return undecodable();
  if (!*skip)
    *skip= !same(primary, slice(primary_key));
  if (*skip || !takes_entry_columns(index, record))
    return 0;
  return read_virtual_parts(index, entry.key, restore, entry.value.data + entry.value.size, record);
}

/* Then an entry does not give back the columns that position() makes the row's place of. */
bool ha_frond::has_primary_prefix() const
{
  return has_primary_key() && has_prefix_part(table_share->key_info[table_share->primary_key]);
}

bool ha_frond::has_virtual_part(uint index) const
{
  const KEY &key= table->key_info[index];
  for (uint part= 0; part < key.user_defined_key_parts; part++)
    if (!key.key_part[part].field->stored_in_db())
      return true;
  return false;
}

/* A row of a walk over the rows themselves. Where its head is not enough, because it is of an older layout, or its short columns are long, or the
   server wants more of it than when the walk began, it is read by its key; `skip`: it is gone, at READ UNCOMMITTED. */
int ha_frond::decode_walked(const frond_row &row, const MY_BITMAP *wanted, uchar *record, bool *skip)
{
  const bool heads= scan.takes_heads();
  if (likely(!heads || !rows.wants_blobs(wanted))) {
    int error= rows.decode(row.key.data, row.key.size, row.value.data, row.value.size, wanted, record);
    if (likely(!error || !heads))
      return error;
  }
  return read_primary(row.key, record, skip);
}

int ha_frond::read_walked(const frond_row &row, uchar *record, bool *skip)
{
  if (active_index != MAX_KEY && !is_primary(active_index))
    return read_entry(active_index, row, record, skip);
  /* Otherwise it is made of the record where it is wanted. */
  if (locking() || !has_primary_key()) {
    primary_key.clear();
    primary_key.append(row.key.data, row.key.size);
  }
  int error= decode_walked(row, wanted_columns(), record, skip);
  if (!error && !*skip && active_index != MAX_KEY && record == table->record[0] && pushed_rowid_filter)
    error= check_pushed(skip);
  peeked= scan.is_peeked() && !error && !*skip;
  return error;
}

int ha_frond::walk(Move move, const Scan_bounds &bounds, uchar *record, bool one_prefix)
{
  walked= bounds;
  takes_moved= (in_range || one_prefix) && locking() && may_take_moved(record);
  has_left= has_moved= at_point= exact_walk= peeked= false;
  if (unlikely(!taken_elsewhere.empty()))
    std::unordered_set<std::string>().swap(taken_elsewhere);
  stands= Stands::at_row;
  plain_walk= !locking() && !is_sequence() && has_primary_key() && (active_index == MAX_KEY || is_primary(active_index));
  end_passes();
  const bool hides= hides_entries(active_index);
  if (walk_due || unlikely(hides && !scan.is_merged()))
    prepare_walk(hides);
  if (locking())
    scan.set_sees(walk_sees());
  frond_row row;
  frond_status status= scan.begin(move == Move::first, bounds, &row);
  for (;;) {
    if (status != FROND_OK)
      return failure(status);
    if (!row.key.data && (status= begin_pass(&row)) != FROND_OK)
      return failure(status);
    if (!row.key.data) {
      if (move == Move::first ? !bounds.upper.data : !bounds.lower.data)
        stands= move == Move::first ? Stands::behind_last : Stands::before_first;
      return HA_ERR_END_OF_FILE;
    }
    bool skip= false;
    int error= read_walked(row, record, &skip);
    if (error || !skip)
      return error;
    /* A row left out does not make the search a longer one. */
    status= onward(scan.is_forward(), false, &row);
  }
}

/* From beyond an end, and from where a search found no more, the way back begins with the row that is the last there, whatever the walk met. */
int ha_frond::step(Move move, uchar *record)
{
  frond_row at_hand;
  if (plain_walk && stands == Stands::at_row && !pushed_rowid_filter && scan.take_at_hand(move == Move::next, &at_hand)) {
    bool skip= false;
    int error= decode_walked(at_hand, table->read_set, record, &skip);
    if (likely(!skip))
      return error;
  }
  if (unlikely(stands == Stands::behind_search)) {
    stands= Stands::at_row;
    if (move == Move::prev) {
      Scan_bounds bounds;
      bounds.upper= upper_slice(search_end);
      return walk(Move::last, bounds, record);
    }
  }
  if (unlikely(stands != Stands::at_row)) {
    if ((stands == Stands::behind_last) == (move == Move::next))
      return HA_ERR_END_OF_FILE;
    return walk(move == Move::next ? Move::first : Move::last, Scan_bounds(), record);
  }
  if (at_point) {
    /* From a row found by its whole key, on along the index. */
    at_point= false;
    Scan_bounds bounds;
    if (move == Move::next) {
      to_successor(search_key);
      bounds.lower= slice(search_key);
      return walk(Move::first, bounds, record);
    }
    bounds.upper= slice(search_key);
    return walk(Move::last, bounds, record);
  }
  bool again= peeked;
  peeked= false;
  for (;;) {
    frond_row row;
    bool ahead= move == Move::next;
    const bool beyond= !(ahead && exact_walk) && !passes;
    frond_status status= again ? scan.again(&row, beyond) : onward(ahead, beyond, &row);
    again= false;
    if (status == FROND_OK && !row.key.data)
      status= begin_pass(&row);
    if (status != FROND_OK)
      return failure(status);
    if (!row.key.data) {
      if (beyond)
        stands= ahead ? Stands::behind_last : Stands::before_first;
      else if (ahead && exact_walk)
        stands= Stands::behind_search;
      return HA_ERR_END_OF_FILE;
    }
    bool skip= false;
    int error= read_walked(row, record, &skip);
    if (error || !skip)
      return error;
  }
}

/* Whether these key parts name at most one row. */
bool ha_frond::is_point(uint index, key_part_map parts) const
{
  const KEY &key= table->key_info[index];
  if (!(key.flags & HA_NOSAME))
    return false;
  key_part_map all= make_prev_keypart_map(key.user_defined_key_parts);
  return (parts & all) == all;
}

/* Whether one of all columns of an index is NULL: then rows may have them in common. */
bool ha_frond::has_null(uint index, const uchar *tuple) const
{
  const KEY &key= table->key_info[index];
  for (uint part= 0; part < key.user_defined_key_parts; part++) {
    if (key.key_part[part].null_bit && *tuple)
      return true;
    tuple+= key.key_part[part].store_length;
  }
  return false;
}

int ha_frond::point_read(uint index, uchar *record)
{
  bool skip= false;
  at_point= true;
  has_moved= peeked= plain_walk= is_at_row= false;
  stands= Stands::at_row;
  int error;
  if (is_primary(index)) {
    error= read_primary(slice(search_key), record, &skip);
    if (!error && !skip && record == table->record[0] && pushed_rowid_filter)
      error= check_pushed(&skip);
  } else {
    frond_row entry= {slice(search_key), {nullptr, 0}};
    bool skipped= false;
    frond_status status=
      locking() ? frond_txn_get_locked(txn(), tree_of(index), entry.key, lock_mode, wait_ms(), &entry.value, &skipped)
                : frond_txn_get(txn(), tree_of(index), entry.key, &entry.value);
    if (status != FROND_OK)
      return failure(status);
    if (skipped)
      return HA_ERR_KEY_NOT_FOUND;
    if (!entry.value.data) {
      unlock(tree_of(index), search_key);
      return HA_ERR_KEY_NOT_FOUND;
    }
    /* The row's own read ends the lending of the entry. */
    row_memory.clear();
    row_memory.append(entry.value.data, entry.value.size);
    entry.value= slice(row_memory);
    error= read_entry(index, entry, record, &skip);
  }
  /* Others may write the row, by whatever key it has been looked for: it does not match. */
  if (!error && skip)
    unlock(tree_of(index), search_key);
  is_at_row= !error && !skip;
  return error ? error : skip ? HA_ERR_KEY_NOT_FOUND : 0;
}

int ha_frond::rnd_init(bool whole)
{
  if (int error= take_part())
    return error;
  /* A sequence is read as it is now. */
  if (!locking() && !is_sequence() && session->reads_before(share->born))
    return HA_ERR_TABLE_DEF_CHANGED;
  at_point= plain_walk= false;
  stands= Stands::at_row;
  if (whole && is_sequence()) {
    /* A scan that begins anew has not always been ended. */
    rnd_end();
    frond_status status= frond_txn_begin(database, nullptr, &sequence_reader);
    if (status != FROND_OK)
      return failure(status);
  }
  if (whole && unlikely(copies_table(ha_thd())))
    if (int error= wait_for_branches())
      return error;
  if (whole)
    scan.prepare(txn(), share->primary, scan_mode(), false);
  return 0;
}

/* The server may use the row that was read last after the walk (handler::read_first_row), until reset(); its blobs are in the scan's memory. */
void ha_frond::end_scan()
{
  if (table_share->blob_fields)
    scan.close();
  else
    scan.rest();
}

int ha_frond::rnd_end()
{
  multi_range.dsmrr_close();
  end_scan();
  if (sequence_reader)
    frond_txn_rollback(sequence_reader);
  sequence_reader= nullptr;
  return 0;
}

int ha_frond::rnd_next(uchar *record)
{
  if (scan.is_open())
    return step(Move::next, record);
  /* The server may have said since rnd_init that it wants less of a row: for the first pass of a sort, say. */
  if (heads_will_do())
    scan.prepare(txn(), share->primary, scan_mode(), false);
  return walk(Move::first, Scan_bounds(), record);
}

void ha_frond::position(const uchar *record)
{
  if (places_are_columns) {
    key_copy(ref, record, &table->key_info[table_share->primary_key], ref_length, true);
    return;
  }
  if (has_primary_key()) {
    primary_key.clear();
    append_primary_key(record, primary_key);
  }
  int2store(ref, primary_key.size());
  memcpy(ref + REF_LENGTH_BYTES, primary_key.data(), primary_key.size());
  size_t used= REF_LENGTH_BYTES + primary_key.size();
  memset(ref + used, 0, ref_length - used);
}

/* The key of the row at a place. */
frond_slice ha_frond::place_key(const uchar *place, Bytes &memory) const
{
  if (!places_are_columns)
    return frond_bytes(place + REF_LENGTH_BYTES, uint2korr(place));
  memory.clear();
  primary_codec()->encode_tuple(place, HA_WHOLE_KEY, memory);
  return slice(memory);
}

int ha_frond::rnd_pos(uchar *record, uchar *position)
{
  bool skip= false;
  peeked= false;
  int error= read_primary(place_key(position, place), record, &skip);
  return error ? error : skip ? HA_ERR_KEY_NOT_FOUND : 0;
}

/* The server reads by this what a replica changes. It leaves the virtual columns to the engine, and has not asked which the
   engine needs. */
int ha_frond::rnd_pos_by_record(uchar *record)
{
  column_bitmaps_signal();
  position(record);
  int error= rnd_pos(record, ref);
  if (!error)
    update_virtual_fields(table, this);
  return error;
}

/* In the order of the keys, in which the entries of an index with the same columns are. The same columns are the same place; others
   may be, where a collation does not tell them apart and the row was updated between. */
int ha_frond::cmp_ref(const uchar *a, const uchar *b)
{
  if (places_are_columns && memcmp(a, b, ref_length) == 0)
    return 0;
  frond_slice key= place_key(a, place);
  return compare(key, place_key(b, other_place));
}

int ha_frond::index_init(uint index, bool)
{
  if (int error= take_part())
    return error;
  if (!locking() && session->reads_before(share->born))
    return HA_ERR_TABLE_DEF_CHANGED;
  active_index= index;
  at_point= has_moved= has_left= peeked= plain_walk= false;
  stands= Stands::at_row;
  has_range_end= within_range= false;
  walk_due= true;
  several_ranges= false;
  return 0;
}

/* What walks over the index range over. Searches for one row need none of it. */
void ha_frond::prepare_walk(bool merges)
{
  scan.prepare(txn(), tree_of(active_index), scan_mode(), merges);
  walk_due= false;
}

int ha_frond::index_end()
{
  multi_range.dsmrr_close(); /* its second handler walks this index */
  if (!walk_due)
    end_scan();
  walk_due= false;
  end_passes();
  active_index= MAX_KEY;
  prefix_locked= false;
  return 0;
}

int ha_frond::index_read_map(uchar *record, const uchar *key, key_part_map parts, enum ha_rkey_function find)
{
  if (unlikely(looks_before_write(parts, find)) && session->read_committed()) {
    const KEY &unique= table->key_info[active_index];
    key_part_map before= unique.without_overlaps ? make_prev_keypart_map(unique.user_defined_key_parts - 2) : parts;
    int error= lock_prefix(active_index, key, before);
    if (error)
      return error;
    prepare_walk(false);
  }
  search_key.clear();
  append_search_key(active_index, key, parts, search_key);
  if (find == HA_READ_KEY_EXACT && is_point(active_index, parts) && !has_null(active_index, key) &&
      !hides_entries(active_index)) {
    if (!walk_due)
      scan.close();
    return point_read(active_index, record);
  }
  prefix_end(search_key, search_end);
  Scan_bounds bounds;
  if (has_range_end) {
    bounds.upper= upper_slice(range_end);
    bounds.final_upper= bounds.upper.data != nullptr;
  }
  int error;
  switch (find) {
  case HA_READ_KEY_EXACT:
  case HA_READ_PREFIX:
    bounds.lower= slice(search_key);
    bounds.upper= upper_slice(search_end);
    bounds.final_upper= false;
    error= walk(Move::first, bounds, record, true);
    exact_walk= error == 0;
    /* From between the entries on, where it would have been. */
    at_point= error == HA_ERR_END_OF_FILE;
    is_at_row= false;
    break;
  case HA_READ_KEY_OR_NEXT:
    bounds.lower= slice(search_key);
    error= walk(Move::first, bounds, record);
    break;
  case HA_READ_AFTER_KEY:
    if (search_end.empty()) {
      if (!walk_due)
        scan.close();
      at_point= exact_walk= false;
      stands= Stands::behind_last;
      return HA_ERR_KEY_NOT_FOUND;
    }
    bounds.lower= slice(search_end);
    if (unlikely(looks_before_write(parts, find)) && record == overlap_record()) {
      /* What other rows than those of the same columns have is nothing to wait for, nor an answer of a partition. */
      Bytes same;
      append_search_key(active_index, key, make_prev_keypart_map(table->key_info[active_index].user_defined_key_parts - 2), same);
      prefix_end(same, range_end);
      bounds.upper= upper_slice(range_end);
      bounds.final_upper= bounds.upper.data != nullptr;
    }
    error= walk(Move::first, bounds, record);
    break;
  case HA_READ_BEFORE_KEY:
    bounds= Scan_bounds();
    bounds.upper= slice(search_key);
    error= walk(Move::last, bounds, record);
    break;
  case HA_READ_KEY_OR_PREV:
  case HA_READ_PREFIX_LAST_OR_PREV:
    bounds= Scan_bounds();
    bounds.upper= upper_slice(search_end);
    error= walk(Move::last, bounds, record);
    break;
  case HA_READ_PREFIX_LAST:
    bounds= Scan_bounds();
    bounds.lower= slice(search_key);
    bounds.upper= upper_slice(search_end);
    error= walk(Move::last, bounds, record);
    break;
  default:
    return HA_ERR_UNSUPPORTED;
  }
  return error == HA_ERR_END_OF_FILE ? HA_ERR_KEY_NOT_FOUND : error;
}

int ha_frond::index_read_last_map(uchar *record, const uchar *key, key_part_map parts)
{
  return index_read_map(record, key, parts, HA_READ_PREFIX_LAST);
}

int ha_frond::index_next(uchar *record)
{
  exact_walk= false;
  return step(Move::next, record);
}

int ha_frond::index_prev(uchar *record)
{
  return step(Move::prev, record);
}

int ha_frond::index_first(uchar *record)
{
  Scan_bounds bounds;
  if (has_range_end) {
    bounds.upper= upper_slice(range_end);
    bounds.final_upper= bounds.upper.data != nullptr;
  }
  return walk(Move::first, bounds, record);
}

int ha_frond::index_last(uchar *record)
{
  return walk(Move::last, Scan_bounds(), record);
}

int ha_frond::index_next_same(uchar *record, const uchar *key, uint key_bytes)
{
  if (at_point)
    return HA_ERR_END_OF_FILE;
  /* A walk over one prefix ends with it; any other has to compare. */
  return exact_walk ? step(Move::next, record) : handler::index_next_same(record, key, key_bytes);
}

/* The walk ends where the range does. The server's own check of that compares the columns of the index in the record, which do
   not have their values there when only the index is read and has a prefix of them. */
int ha_frond::read_range_first(const key_range *start, const key_range *end, bool eq_range_arg, bool sorted)
{
  has_range_end= end != nullptr;
  range_end.clear();
  if (end) {
    Bytes &key= compare_key;
    key.clear();
    append_search_key(active_index, end->key, end->keypart_map, key);
    if (end->flag == HA_READ_BEFORE_KEY)
      range_end.append_bytes(key);
    else
      prefix_end(key, range_end);
  }
  in_range= true;
  const bool is_checked= in_range_check_pushed_down;
  in_range_check_pushed_down= true;
  int error= handler::read_range_first(start, end, eq_range_arg, sorted);
  in_range_check_pushed_down= is_checked;
  within_range= !at_point;
  has_range_end= in_range= false;
  return error;
}

int ha_frond::read_range_next()
{
  return eq_range || !within_range ? handler::read_range_next() : ha_index_next(table->record[0]);
}

/* ---------------------------------------------------------------------------------------------------------------
 * Pushdown and multi-range read
 */

Item *ha_frond::idx_cond_push(uint key_number, Item *condition)
{
  /* Of columns that an entry has only a part of the server pushes no condition. */
  if (has_virtual_part(key_number))
    return condition;
  pushed_idx_cond= condition;
  pushed_idx_cond_keyno= key_number;
  in_range_check_pushed_down= true;
  return nullptr;
}

bool ha_frond::rowid_filter_push(Rowid_filter *filter)
{
  pushed_rowid_filter= filter;
  return false;
}

int ha_frond::multi_range_read_init(RANGE_SEQ_IF *seq, void *seq_param, uint ranges, uint mode, HANDLER_BUFFER *buffer)
{
  several_ranges= ranges != 1;
  return multi_range.dsmrr_init(this, seq, seq_param, ranges, mode, buffer);
}

int ha_frond::multi_range_read_next(range_id_t *range)
{
  return multi_range.dsmrr_next(range);
}

ha_rows ha_frond::multi_range_read_info_const(uint index, RANGE_SEQ_IF *seq, void *seq_param, uint ranges,
                                              uint *buffer_bytes, uint *flags, Cost_estimate *cost)
{
  multi_range.init(this, table);
  if (locking())
    *flags|= HA_MRR_USE_DEFAULT_IMPL;
  return multi_range.dsmrr_info_const(index, seq, seq_param, ranges, buffer_bytes, flags, cost);
}

ha_rows ha_frond::multi_range_read_info(uint index, uint ranges, uint keys, uint key_parts, uint *buffer_bytes,
                                        uint *flags, Cost_estimate *cost)
{
  multi_range.init(this, table);
  return multi_range.dsmrr_info(index, ranges, keys, key_parts, buffer_bytes, flags, cost);
}

int ha_frond::multi_range_read_explain_info(uint mode, char *text, size_t size)
{
  return multi_range.dsmrr_explain_info(mode, text, size);
}
