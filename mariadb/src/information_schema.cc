/* The tables of information_schema. See information_schema.h.

   SPDX-License-Identifier: GPL-2.0-or-later */
#include "information_schema.h"

#include <algorithm>

#include <mysql/plugin.h>
#include "sql_acl.h"
#include "sql_i_s.h"
#include "tztime.h"

#include "errors.h"
#include "inspect.h"
#include "plugin.h"

namespace frond {

struct st_mysql_information_schema information_schema_interface= {MYSQL_INFORMATION_SCHEMA_INTERFACE_VERSION};

namespace {

/* One row on its way into the table of the query: columns in order. */
class Row {
public:
  Row(THD *thd_arg, TABLE *table_arg) : thd(thd_arg), table(table_arg), field(table_arg->field) {
    restore_record(table, s->default_values);
  }

  void number(uint64_t value) { take()->store(static_cast<longlong>(value), true); }
  void signed_number(int64_t value) { take()->store(value, false); }
  void ratio(uint64_t part, uint64_t whole) { take()->store(static_cast<double>(part) / static_cast<double>(whole)); }
  void text(const std::string &value) { take()->store(value.data(), value.size(), &my_charset_utf8mb4_general_ci); }
  void text(const char *value) { text(std::string(value)); }
  void null() { (*field++)->set_null(); }
  void number_or_null(uint64_t value) { value ? number(value) : null(); }
  void text_or_null(const std::string &value) { value.empty() ? null() : text(value); }
  void time_before_now(uint64_t milliseconds)
  {
    /* Of the clock not only the seconds, or what began at one moment would be shown at two. */
    my_hrtime_t then= my_hrtime();
    then.val-= std::min<ulonglong>(then.val, milliseconds * 1000);
    MYSQL_TIME time;
    thd->variables.time_zone->gmt_sec_to_TIME(&time, hrtime_to_my_time(then));
    take()->store_time(&time);
  }
  /* True on an error. */
  bool store() { return schema_table_store_record(thd, table); }

private:
  Field *take()
  {
    (*field)->set_notnull();
    return *field++;
  }
  THD *thd;
  TABLE *table;
  Field **field;
};

std::string join(const std::vector<uint64_t> &numbers)
{
  std::string text;
  for (uint64_t number : numbers)
    text+= (text.empty() ? "" : ",") + std::to_string(number);
  return text;
}

const char *mode_name(frond_lock_mode mode)
{
  return mode == FROND_LOCK_EXCLUSIVE ? "X" : "S";
}

/* What every table asks first. Without the privilege it is an error, as with InnoDB. */
bool may_look(THD *thd, const Database_use &use)
{
  return !check_global_access(thd, PROCESS_ACL) && use.is_open();
}

/* Of very many locks only some are listed. */
void tell_of_unlisted(THD *thd, const std::vector<Lock_view> &locks)
{
  size_t listed= std::count_if(locks.begin(), locks.end(), [](const Lock_view &lock) { return !lock.waits; });
  frond_statistics statistics;
  if (listed >= FROND_LOCKS_LISTED_MAX && frond_db_statistics(database, &statistics, sizeof statistics) == FROND_OK &&
      statistics.locks_held > listed)
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_GET_ERRNO, "FROND: of %llu locks held %llu are listed",
                        ulonglong(statistics.locks_held), ulonglong(listed));
}

int failed()
{
  /* Of a table that could not be filled the server says that the error is unknown, where there is none. */
  my_printf_error(ER_GET_ERRMSG, "FROND: %s", MYF(0), last_message());
  return 1;
}

const Tree_view &tree_of(const Trees &trees, uint32_t id)
{
  static const Tree_view unknown;
  auto found= trees.find(id);
  return found == trees.end() ? unknown : found->second;
}

void put_table(Row &row, const Tree_view &tree)
{
  row.text_or_null(tree.schema);
  row.text_or_null(tree.table);
  row.text_or_null(tree.partition);
  row.text_or_null(tree.index);
}

int fill_trx(THD *thd, TABLE_LIST *tables, COND *)
{
  Database_use use;
  if (!may_look(thd, use))
    return 0;
  std::vector<Lock_view> locks;
  std::vector<Transaction_view> transactions;
  if (!list_locks(&locks) || !list_transactions(locks, &transactions))
    return failed();
  tell_of_unlisted(thd, locks);
  for (const Transaction_view &one : transactions) {
    Row row(thd, tables->table);
    row.number(one.info.txn);
    row.text(one.state());
    row.time_before_now(one.info.age_ms);
    row.number(one.info.age_ms);
    row.text(isolation_name(one.info.isolation));
    row.number_or_null(one.thread_id);
    row.text_or_null(one.query);
    one.thread_id ? row.number(one.rows) : row.null();
    row.number(one.info.messages);
    row.number(one.locks_held);
    row.text_or_null(join(one.waits_for));
    if (row.store())
      return 1;
  }
  return 0;
}

int fill_locks(THD *thd, TABLE_LIST *tables, COND *)
{
  Database_use use;
  if (!may_look(thd, use))
    return 0;
  std::vector<Lock_view> locks;
  Trees trees;
  if (!list_locks(&locks) || (!locks.empty() && !list_trees(&trees)))
    return failed();
  tell_of_unlisted(thd, locks);
  for (const Lock_view &lock : locks) {
    const Tree_view &tree= tree_of(trees, lock.tree);
    Row row(thd, tables->table);
    row.number(lock.txn);
    row.text(lock.waits ? "WAITING" : "GRANTED");
    row.text(mode_name(lock.mode));
    row.text(lock.is_range ? "RANGE" : "RECORD");
    put_table(row, tree);
    row.text(key_text(thd, tree, lock.start));
    if (lock.is_range && !lock.end.empty())
      row.text(key_text(thd, tree, lock.end));
    else
      row.null();
    if (row.store())
      return 1;
  }
  return 0;
}

int fill_lock_waits(THD *thd, TABLE_LIST *tables, COND *)
{
  Database_use use;
  if (!may_look(thd, use))
    return 0;
  std::vector<Lock_view> locks;
  std::vector<Transaction_view> transactions;
  Trees trees;
  if (!list_locks(&locks) || !list_transactions(locks, &transactions) || (any_waits(locks) && !list_trees(&trees)))
    return failed();
  std::map<uint64_t, uint64_t> threads;
  for (const Transaction_view &one : transactions)
    threads[one.info.txn]= one.thread_id;
  for (const Lock_view &lock : locks) {
    const Tree_view &tree= tree_of(trees, lock.tree);
    for (uint64_t blocker : lock.waits_for) {
      Row row(thd, tables->table);
      row.number(lock.txn);
      row.number_or_null(threads[lock.txn]);
      row.number(blocker);
      row.number_or_null(threads[blocker]);
      row.text(mode_name(lock.mode));
      put_table(row, tree);
      row.text(key_text(thd, tree, lock.start));
      row.number(lock.waited_ms);
      if (row.store())
        return 1;
    }
  }
  return 0;
}

int fill_trees(THD *thd, TABLE_LIST *tables, COND *)
{
  Database_use use;
  if (!may_look(thd, use))
    return 0;
  Trees trees;
  frond_txn *txn;
  if (!list_trees(&trees) || frond_txn_begin(database, nullptr, &txn) != FROND_OK)
    return failed();
  int error= 0;
  for (const auto &entry : trees) {
    const Tree_view &tree= entry.second;
    frond_tree *handle;
    frond_estimate estimate;
    const frond_slice everything= {nullptr, 0};
    if (frond_tree_open(txn, tree.name.c_str(), &handle) != FROND_OK)
      continue; /* dropped meanwhile */
    frond_status status= frond_db_estimate(database, handle, everything, everything, &estimate);
    frond_tree_close(handle);
    if (status != FROND_OK)
      continue;
    Row row(thd, tables->table);
    row.number(tree.id);
    row.text(tree.name);
    put_table(row, tree);
    row.text(codec_name(tree.codec));
    row.signed_number(tree.codec_level);
    row.number(estimate.rows);
    row.number(estimate.bytes);
    row.number(tree.user_bytes);
    row.number(tree.bytes_written);
    tree.user_bytes ? row.ratio(tree.bytes_written, tree.user_bytes) : row.null();
    if ((error= row.store()))
      break;
  }
  frond_txn_rollback(txn);
  return error;
}

int fill_recovery(THD *thd, TABLE_LIST *tables, COND *)
{
  Database_use use;
  if (!may_look(thd, use))
    return 0;
  frond_recovery_report report;
  if (frond_db_recovery_report(database, &report) != FROND_OK)
    return failed();
  const struct {
    const char *phase;
    uint64_t micros;
    std::string detail;
  } phases[]= {
    {"ROOTS", report.roots_micros,
     (report.created ? std::string("created") : "generation=" + std::to_string(report.generation)) +
       " superblocks_skipped=" + std::to_string(report.superblocks_skipped)},
    {"LOG", report.log_micros,
     "segments=" + std::to_string(report.segments) + " bytes_read=" + std::to_string(report.bytes_read) +
       " bytes_replayed=" + std::to_string(report.bytes_replayed) + " records=" + std::to_string(report.records) +
       " log_end=" + std::to_string(report.log_end)},
    {"SORT", report.sort_micros, "messages=" + std::to_string(report.messages)},
    {"TRANSACTIONS", report.transactions_micros,
     "committed=" + std::to_string(report.committed) + " aborted=" + std::to_string(report.aborted) +
       " prepared=" + std::to_string(report.prepared)},
    {"TOTAL", report.total_micros, ""},
  };
  for (const auto &phase : phases) {
    Row row(thd, tables->table);
    row.text(phase.phase);
    row.number(phase.micros);
    row.text(phase.detail);
    if (row.store())
      return 1;
  }
  return 0;
}

int fill_checkpoints(THD *thd, TABLE_LIST *tables, COND *)
{
  Database_use use;
  if (!may_look(thd, use))
    return 0;
  const struct {
    const char *name;
    frond_checkpoint_cause cause;
  } causes[]= {
    {"PERIOD", FROND_CHECKPOINT_BY_TIME},
    {"SIZE", FROND_CHECKPOINT_BY_SIZE},
    {"RECOVERY TARGET", FROND_CHECKPOINT_BY_TARGET},
    {"REQUEST", FROND_CHECKPOINT_BY_REQUEST},
  };
  for (const auto &cause : causes) {
    frond_checkpoint_summary summary;
    if (frond_db_checkpoint_summary(database, cause.cause, &summary) != FROND_OK)
      return failed();
    Row row(thd, tables->table);
    row.text(cause.name);
    row.number(summary.count);
    summary.count ? row.time_before_now(summary.age_micros / 1000) : row.null();
    summary.finished ? row.number(summary.last_micros) : row.null();
    summary.finished ? row.number(summary.max_micros) : row.null();
    row.number(summary.sum_micros);
    if (row.store())
      return 1;
  }
  return 0;
}

using Show::CEnd;
using Show::Column;
using Show::Datetime;
using Show::Double;
using Show::Longtext;
using Show::SLong;
using Show::ULonglong;
using Show::Varchar;

constexpr uint NAME_CHARACTERS= NAME_CHAR_LEN;
constexpr uint KEY_CHARACTERS= 4096;

/* Columns of put_table. */
#define FROND_TABLE_COLUMNS                                                                                                  \
  Column("TABLE_SCHEMA", Varchar(NAME_CHARACTERS), NULLABLE), Column("TABLE_NAME", Varchar(NAME_CHARACTERS), NULLABLE),       \
    Column("PARTITION_NAME", Varchar(2 * NAME_CHARACTERS + 1), NULLABLE), Column("INDEX_NAME", Varchar(NAME_CHARACTERS), NULLABLE)

ST_FIELD_INFO trx_fields[]= {
  Column("TRX_ID", ULonglong(), NOT_NULL),
  Column("TRX_STATE", Varchar(16), NOT_NULL),
  Column("TRX_STARTED", Datetime(0), NOT_NULL),
  Column("TRX_AGE_MS", ULonglong(), NOT_NULL),
  Column("TRX_ISOLATION_LEVEL", Varchar(16), NOT_NULL),
  Column("TRX_THREAD_ID", ULonglong(), NULLABLE),
  Column("TRX_QUERY", Longtext(QUERY_CHARACTERS_MAX), NULLABLE),
  Column("TRX_ROWS_MODIFIED", ULonglong(), NULLABLE),
  Column("TRX_WRITES", ULonglong(), NOT_NULL),
  Column("TRX_LOCKS", ULonglong(), NOT_NULL),
  Column("TRX_WAITS_FOR", Varchar(1024), NULLABLE),
  CEnd(),
};

ST_FIELD_INFO lock_fields[]= {
  Column("LOCK_TRX_ID", ULonglong(), NOT_NULL),
  Column("LOCK_STATE", Varchar(8), NOT_NULL),
  Column("LOCK_MODE", Varchar(1), NOT_NULL),
  Column("LOCK_TYPE", Varchar(8), NOT_NULL),
  FROND_TABLE_COLUMNS,
  Column("LOCK_DATA", Varchar(KEY_CHARACTERS), NOT_NULL),
  Column("LOCK_END", Varchar(KEY_CHARACTERS), NULLABLE),
  CEnd(),
};

ST_FIELD_INFO lock_wait_fields[]= {
  Column("REQUESTING_TRX_ID", ULonglong(), NOT_NULL),
  Column("REQUESTING_THREAD_ID", ULonglong(), NULLABLE),
  Column("BLOCKING_TRX_ID", ULonglong(), NOT_NULL),
  Column("BLOCKING_THREAD_ID", ULonglong(), NULLABLE),
  Column("LOCK_MODE", Varchar(1), NOT_NULL),
  FROND_TABLE_COLUMNS,
  Column("LOCK_DATA", Varchar(KEY_CHARACTERS), NOT_NULL),
  Column("WAIT_MS", ULonglong(), NOT_NULL),
  CEnd(),
};

ST_FIELD_INFO tree_fields[]= {
  Column("TREE_ID", ULonglong(), NOT_NULL),
  Column("TREE_NAME", Varchar(FROND_TREE_NAME_BYTES_MAX), NOT_NULL),
  FROND_TABLE_COLUMNS,
  Column("COMPRESSION", Varchar(8), NOT_NULL),
  Column("COMPRESSION_LEVEL", SLong(), NOT_NULL),
  Column("TREE_ROWS", ULonglong(), NOT_NULL),
  Column("TREE_BYTES", ULonglong(), NOT_NULL),
  Column("USER_BYTES", ULonglong(), NOT_NULL),
  Column("BYTES_WRITTEN", ULonglong(), NOT_NULL),
  Column("WRITE_AMPLIFICATION", Double(MAX_DOUBLE_STR_LENGTH), NULLABLE),
  CEnd(),
};

ST_FIELD_INFO recovery_fields[]= {
  Column("PHASE", Varchar(16), NOT_NULL),
  Column("MICROSECONDS", ULonglong(), NOT_NULL),
  Column("DETAIL", Varchar(512), NOT_NULL),
  CEnd(),
};

ST_FIELD_INFO checkpoint_fields[]= {
  Column("CAUSE", Varchar(16), NOT_NULL),
  Column("CHECKPOINTS", ULonglong(), NOT_NULL),
  Column("LAST_BEGAN", Datetime(0), NULLABLE),
  Column("LAST_MICROSECONDS", ULonglong(), NULLABLE),
  Column("MAX_MICROSECONDS", ULonglong(), NULLABLE),
  Column("TOTAL_MICROSECONDS", ULonglong(), NOT_NULL),
  CEnd(),
};

int init_table(void *schema, ST_FIELD_INFO *fields, int (*fill)(THD *, TABLE_LIST *, COND *))
{
  auto *table= static_cast<ST_SCHEMA_TABLE *>(schema);
  table->fields_info= fields;
  table->fill_table= fill;
  return 0;
}

} // namespace

int init_trx(void *schema)
{
  return init_table(schema, trx_fields, fill_trx);
}

int init_locks(void *schema)
{
  return init_table(schema, lock_fields, fill_locks);
}

int init_lock_waits(void *schema)
{
  return init_table(schema, lock_wait_fields, fill_lock_waits);
}

int init_trees(void *schema)
{
  return init_table(schema, tree_fields, fill_trees);
}

int init_recovery(void *schema)
{
  return init_table(schema, recovery_fields, fill_recovery);
}

int init_checkpoints(void *schema)
{
  return init_table(schema, checkpoint_fields, fill_checkpoints);
}

} // namespace frond
