/* Creating, dropping, renaming and emptying tables.

   Each is one transaction of the engine, durable on return: after a crash there is the old or the new. The server's own log of
   DDL statements then drops what a half-done statement left (handlerton::drop_table), so neither side keeps orphans.

   SPDX-License-Identifier: GPL-2.0-or-later */
#include "ddl.h"

#include <signal.h>
#include <unistd.h>

#include <mysql/service_thd_alloc.h>

#include <algorithm>
#include <mutex>

#include "errors.h"
#include "ha_frond.h"
#include "leftovers.h"
#include "plugin.h"
#include "session.h"
#include "variables.h"

using namespace frond;

namespace {

/* Temporary tables that wait for the decision about a prepared transaction. */
std::mutex kept_latch;
std::vector<std::string> kept;

/* The statement whose transaction this thread has committed last; 0: none. */
thread_local query_id_t committed_for= 0;

query_id_t current_statement()
{
  return current_thd ? current_thd->query_id : 0;
}

/* The server's next start decides about what is half done, by its log of DDL statements. */
void kill_server(const char *why)
{
  sql_print_error("FROND: the server is killed, so that its next start decides by its log of DDL statements about one %s: %s", why, last_message());
  kill(getpid(), SIGKILL);
}

/* How long others may hold the count of tables while they create one: as long as they sync, whatever the statement says of rows. */
constexpr int64_t TABLE_ID_WAIT_MS= 50000;

/* A number that no table has had: the count of creations, kept in the tree of counters under an empty key's successor. */
frond_status new_table_id(frond_txn *txn, uint64_t *id)
{
  static const char name[]= "next table id";
  frond_slice key= frond_bytes(name, sizeof name - 1), value;
  frond_status status= frond_txn_get_locked(txn, auto_increment_tree, key, FROND_LOCK_EXCLUSIVE, TABLE_ID_WAIT_MS, &value,
                                            nullptr);
  if (status != FROND_OK)
    return status;
  *id= 1;
  if (value.data && value.size == 8)
    *id= mi_uint8korr(value.data);
  std::string next= auto_increment_key(*id + 1);
  return frond_txn_put(txn, auto_increment_tree, key, frond_bytes(next.data(), next.size()));
}

/* The index trees of a table whose definition cannot be read. */
frond_status drop_index_trees(frond_txn *txn, const std::string &name)
{
  return for_each_tree(name + "/", [txn](const frond_tree_info &tree) { return frond_tree_drop(txn, tree.name); });
}

/* Whether the statement asks for a foreign key on the table that it creates or alters. */
bool asks_for_foreign_key(const Alter_info *alter)
{
  if (!alter)
    return false;
  List_iterator_fast<Key> keys(const_cast<List<Key> &>(alter->key_list));
  while (const Key *key= keys++)
    if (key->type == Key::FOREIGN_KEY)
      return true;
  return false;
}

/* A name that the server gives to a table or partition while it makes it. */
bool is_intermediate(const std::string &name)
{
  return name.find("/#sql") != std::string::npos || name.find("#TMP#") != std::string::npos;
}

/* A name that it gives to one that has been there, for as long as another takes its place. */
bool is_aside(const std::string &name)
{
  return name.find("/#sql-exchange-") != std::string::npos || name.find("/#sql-backup-") != std::string::npos;
}

bool is_partition(const std::string &name)
{
  return partition_mark(name) != std::string::npos;
}

int ddl_error(frond_status status)
{
  return status == FROND_KEY_EXISTS ? HA_ERR_TABLE_EXIST : handler_error(status);
}

/* The option of an index, or false. */
bool is_clustering(const KEY &key)
{
  return key.option_struct && key.option_struct->clustering;
}

} // namespace

namespace frond {

size_t partition_mark(const std::string &name)
{
  return std::min(name.find("#P#"), name.find("#p#"));
}

frond_status commit_ddl(frond_txn *txn)
{
  const bool was_sound= frond_db_poisoned(database) == FROND_OK;
  const frond_status status= frond_txn_commit(txn);
  if (likely(status == FROND_OK))
    committed_for= current_statement();
  else if (was_sound && frond_db_poisoned(database) != FROND_OK)
    kill_server("whose commit failed");
  return status;
}

frond_status end_step(frond_status status)
{
  if (unlikely(status != FROND_OK) && committed_for != 0 && committed_for == current_statement() && frond_db_poisoned(database) != FROND_OK)
    kill_server("that cannot go on or back");
  return status;
}

bool is_temporary(const std::string &name)
{
  return name.compare(0, strlen(temporary_prefix), temporary_prefix) == 0;
}

bool is_temporary_table(const std::string &name)
{
  return is_temporary(name) && name.find('/', strlen(temporary_prefix)) == std::string::npos;
}

frond_durability ddl_durability(const std::string &name)
{
  return is_temporary(name) ? FROND_DURABILITY_NONE : FROND_DURABILITY_DEFAULT;
}

frond_status drop_trees(frond_txn *txn, const std::string &name, std::vector<uint64_t> *gone)
{
  Table_definition definition;
  frond_status status= read_definition(txn, name, &definition);
  if (status == FROND_NOT_FOUND)
    return status;
  bool damaged= status != FROND_OK;
  if (!damaged) {
    std::string counter= auto_increment_key(definition.table_id);
    status= frond_txn_delete(txn, auto_increment_tree, frond_bytes(counter.data(), counter.size()));
    for (const Index &index : definition.indexes) {
      if (status != FROND_OK)
        return status;
      if (index.id == 0)
        continue;
      status= frond_tree_drop(txn, index_tree_name(name, index.id).c_str());
      if (status == FROND_NOT_FOUND)
        status= FROND_OK;
    }
    if (status != FROND_OK)
      return status;
  }
  /* A damaged definition must not keep a table from being dropped. */
  status= frond_tree_drop(txn, name.c_str());
  if (status == FROND_OK && !damaged)
    gone->push_back(definition.table_id);
  return status == FROND_OK && damaged ? drop_index_trees(txn, name) : status;
}

frond_status rename_trees(frond_txn *txn, const std::string &from, const std::string &to, uint64_t *table_id)
{
  Table_definition definition;
  frond_status status= read_definition(txn, from, &definition);
  if (status == FROND_OK)
    status= frond_tree_rename(txn, from.c_str(), to.c_str());
  for (const Index &index : definition.indexes)
    if (status == FROND_OK && index.id != 0)
      status= frond_tree_rename(txn, index_tree_name(from, index.id).c_str(), index_tree_name(to, index.id).c_str());
  *table_id= definition.table_id;
  return status;
}

/* Whether the table is gone; not where a prepared transaction has locks in it. */
static bool drop_unlocked(const std::string &name)
{
  std::vector<uint64_t> gone;
  frond_txn_options options= {};
  options.durability= ddl_durability(name);
  options.lock_wait_ms= FROND_WAIT_NONE;
  frond_status status= in_transaction(options, [&](frond_txn *txn) { return drop_trees(txn, name, &gone); });
  /* A connection that ends counts as killed, and its waits as cancelled. */
  if (status == FROND_LOCK_TIMEOUT || status == FROND_CANCELLED)
    return false;
  if (status == FROND_OK)
    trees_went(gone);
  else if (status != FROND_NOT_FOUND)
    sql_print_warning("FROND: a temporary table stays until the next start, table=%s: %s", name.c_str(), last_message());
  return true;
}

void drop_temporary(const std::string &name)
{
  if (drop_unlocked(name))
    return;
  {
    std::lock_guard<std::mutex> guard(kept_latch);
    kept.push_back(name);
  }
  /* Who decided about the transaction just now may have looked before it was kept. */
  if (drop_unlocked(name)) {
    std::lock_guard<std::mutex> guard(kept_latch);
    kept.erase(std::remove(kept.begin(), kept.end(), name), kept.end());
  }
}

void drop_kept()
{
  std::vector<std::string> again;
  {
    std::lock_guard<std::mutex> guard(kept_latch);
    again.swap(kept);
  }
  for (const std::string &name : again)
    drop_temporary(name);
}

/* The server does not know the table any more, and a branch that was prepared has locks in it: it waits, under a name that is nobody's, for the
   decision about that, or for the next start. */
static frond_status drop_later(const std::string &name)
{
  std::string hidden= temporary_prefix;
  auto hide= [&](frond_txn *txn) {
    Table_definition definition;
    frond_status known= read_definition(txn, name, &definition);
    if (known != FROND_OK)
      return known;
    hidden+= "dropped-" + std::to_string(definition.table_id);
    uint64_t table_id;
    return rename_trees(txn, name, hidden, &table_id);
  };
  frond_status status= in_ddl_transaction(hide, FROND_WAIT_DEFAULT);
  if (status == FROND_OK)
    drop_temporary(hidden);
  return status;
}

int drop_table(THD *thd, const char *path)
{
  std::string name= tree_name(path);
  Session *session= thd ? Session::find(thd) : nullptr;
  if (session && session->has_transaction()) {
    if (is_temporary(name)) {
      session->drop_at_end(name);
      return 0;
    }
    if (thd_sql_command(thd) == SQLCOM_CREATE_TABLE)
      session->abandon();
  }
  std::vector<uint64_t> gone;
  auto drop= [&name, &gone](frond_txn *txn) {
    frond_status status= drop_trees(txn, name, &gone);
    return status == FROND_NOT_FOUND ? drop_lost_partitions(txn, name, &gone) : status;
  };
  /* Where another table has taken its place the server does not go back; nor in its recovery, of which the rest would be left undone; nor where
     it has removed its list of partitions to drop the table. So such a one is not waited for. */
  const bool must_go= !mysqld_server_started || is_aside(name) || is_partition(name) || (thd && thd_sql_command(thd) == SQLCOM_ALTER_TABLE);
  frond_status status= must_go ? in_ddl_transaction(drop, FROND_WAIT_NONE) : in_ddl_transaction(thd, drop, ddl_durability(name));
  if (status == FROND_LOCK_TIMEOUT && must_go)
    status= drop_later(name);
  if (status == FROND_OK)
    trees_went(gone);
  return ddl_error(status);
}

/* Of ZSTD in a table with COMPRESSION and without COMPRESSION_LEVEL. */
static constexpr int32_t LEVEL= 1;

void table_codec(const ha_table_option_struct *options, frond_codec *codec, int32_t *level)
{
  default_codec(codec, level);
  if (!options)
    return;
  if (options->compression != 0) {
    *codec= options->compression;
    *level= LEVEL;
  }
  if (options->compression_level != 0)
    *level= static_cast<int32_t>(options->compression_level);
}

/* The codec that a tree has stays, but where COMPRESSION itself has changed. */
static void change_options(const ha_table_option_struct *before, const ha_table_option_struct *now, frond_tree_options *options)
{
  if (before->compression != now->compression)
    table_codec(now, &options->codec, &options->codec_level);
  else
    options->codec_level= now->compression_level != 0 ? static_cast<int32_t>(now->compression_level) : LEVEL;
}

/* Only ZSTD has levels. */
static void warn_of_level(const ha_table_option_struct *options, frond_codec codec)
{
  if (options && options->compression_level != 0 && codec != FROND_CODEC_ZSTD)
    push_warning_printf(current_thd, Sql_condition::WARN_LEVEL_WARN, WARN_OPTION_IGNORED, ER_THD(current_thd, WARN_OPTION_IGNORED),
                        "COMPRESSION_LEVEL");
}

frond_status change_codec(frond_txn *txn, const Table_share &share, const Table_definition &definition,
                          const ha_table_option_struct *before, const ha_table_option_struct *now)
{
  if (!before || !now ||
      (before->compression == now->compression && before->compression_level == now->compression_level))
    return FROND_OK;
  std::vector<std::string> names= {share.name};
  for (const Index &index : definition.indexes)
    if (index.id != 0)
      names.push_back(index_tree_name(share.name, index.id));
  for (const std::string &name : names) {
    frond_tree *tree;
    frond_tree_options options;
    frond_status status= frond_tree_open(txn, name.c_str(), &tree);
    if (status != FROND_OK)
      return status;
    status= frond_tree_get_options(txn, tree, &options);
    change_options(before, now, &options);
    if (name == share.name)
      warn_of_level(now, options.codec);
    if (status == FROND_OK)
      status= frond_tree_set_options(txn, tree, &options);
    frond_tree_close(tree);
    if (status != FROND_OK)
      return status;
  }
  return FROND_OK;
}

int refuse_unsupported(const TABLE *form, const Alter_info *alter)
{
  const char *kind= asks_for_foreign_key(alter) ? "FOREIGN KEY" : nullptr;
  for (uint key= 0; key < form->s->keys && !kind; key++) {
    const KEY &info= form->key_info[key];
    if (info.algorithm == HA_KEY_ALG_FULLTEXT || (info.flags & HA_FULLTEXT))
      kind= "FULLTEXT";
    else if (info.flags & HA_SPATIAL)
      kind= "SPATIAL";
  }
  if (!kind)
    return 0;
  my_error(ER_ILLEGAL_HA_CREATE_OPTION, MYF(0), "FROND", kind);
  return HA_ERR_WRONG_COMMAND; /* which the server says as a warning, too */
}

/* HA_ERR_WRONG_COMMAND, reported already. */
int refuse_reserved(const char *path)
{
  if (!is_reserved(path))
    return 0;
  std::string schema(path + 2, strchr(path + 2, '/'));
  my_error(ER_WRONG_DB_NAME, MYF(0), schema.c_str());
  return HA_ERR_WRONG_COMMAND;
}

/* All tables lie in the engine's own directory. */
void warn_of_directories(THD *thd, const HA_CREATE_INFO *info)
{
  if (info->data_file_name)
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, WARN_OPTION_IGNORED, ER_THD(thd, WARN_OPTION_IGNORED),
                        "DATA DIRECTORY");
  if (info->index_file_name)
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, WARN_OPTION_IGNORED, ER_THD(thd, WARN_OPTION_IGNORED),
                        "INDEX DIRECTORY");
}

} // namespace frond

int ha_frond::create(const char *path, TABLE *form, HA_CREATE_INFO *info)
{
  int error= refuse_reserved(path);
  if (!error)
    error= refuse_unsupported(form, info->alter_info);
  if (error)
    return error;
  warn_of_directories(ha_thd(), info);
  uint64_t clustering= 0;
  for (uint key= 0; key < form->s->keys; key++)
    if (key != form->s->primary_key && is_clustering(form->key_info[key]))
      clustering|= 1ULL << key;
  std::string name= tree_name(path);
  uint64_t id;
  frond_tree_options options= {};
  table_codec(info->option_struct, &options.codec, &options.codec_level);
  warn_of_level(info->option_struct, options.codec);
  frond_status status= in_ddl_transaction(ha_thd(), [&](frond_txn *txn) {
    frond_status created= new_table_id(txn, &id);
    if (created != FROND_OK)
      return created;
    Table_definition definition= make_definition(form, id, clustering);
    if (info->auto_increment_value > 0)
      definition.auto_increment_start= info->auto_increment_value;
    Bytes metadata;
    definition.encode(metadata);
    options.metadata= frond_bytes(metadata.data(), metadata.size());
    frond_tree *tree;
    created= frond_tree_create(txn, name.c_str(), &options, &tree);
    if (created == FROND_OK)
      frond_tree_close(tree);
    options.metadata= frond_slice{nullptr, 0};
    for (const Index &index : definition.indexes) {
      if (created != FROND_OK)
        return created;
      if (index.id == 0)
        continue;
      created= frond_tree_create(txn, index_tree_name(name, index.id).c_str(), &options, &tree);
      if (created == FROND_OK)
        frond_tree_close(tree);
    }
    return created;
  }, ddl_durability(name));
  if (status == FROND_OK && !is_temporary(name))
    trees_came(id);
  return ddl_error(status);
}

/* Whether the statement reads the table to put a copy in its place, or to see whether its rows may go to another. (One of a session alone it
   may have changed itself, in a transaction that goes on.) */
bool ha_frond::copies_table(THD *thd) const
{
  if (table_share->tmp_table != NO_TMP_TABLE)
    return false;
  switch (thd_sql_command(thd)) {
  case SQLCOM_ALTER_TABLE:
    return !(thd->lex->alter_info.partition_flags & ALTER_PARTITION_ADMIN);
  case SQLCOM_CREATE_INDEX:
  case SQLCOM_DROP_INDEX:
  case SQLCOM_OPTIMIZE:
  case SQLCOM_REPAIR:
    return true;
  default:
    return false;
  }
}

/* Whether the statement drops this partition: it is asked to lock the table first. */
bool ha_frond::drops_partition(THD *thd) const
{
  if (likely(!table->part_info) || thd_sql_command(thd) != SQLCOM_ALTER_TABLE || !(thd->lex->alter_info.partition_flags & ALTER_PARTITION_DROP))
    return false;
  const size_t mark= partition_mark(share->name);
  if (mark == std::string::npos)
    return false;
  const char *own= share->name.c_str() + mark + 3;
  List_iterator<partition_element> partitions(table->part_info->partitions);
  while (const partition_element *partition= partitions++) {
    char name[FN_REFLEN];
    const size_t length= tablename_to_filename(partition->partition_name, name, sizeof name);
    if (partition->part_state == PART_TO_BE_DROPPED && strncasecmp(own, name, length) == 0 &&
        (own[length] == 0 || strncasecmp(own + length, "#SP#", 4) == 0))
      return true;
  }
  return false;
}

/* Waits for branches that were prepared and left by their sessions: they have locks on rows, but hold no metadata lock any more, which keeps all others
   away. What they have written, and may yet commit, would go with the rows that a copy replaces, or that are dropped with a partition when the server cannot go back. */
int ha_frond::wait_for_branches()
{
  const frond_slice everything= {nullptr, 0};
  frond_status status= in_ddl_transaction(ha_thd(), [&](frond_txn *txn) {
    frond_status waited= frond_txn_lock_range(txn, share->primary, everything, everything, FROND_LOCK_SHARED, FROND_WAIT_DEFAULT);
    for (const Index_tree &index : share->indexes)
      if (waited == FROND_OK && index.tree)
        waited= frond_txn_lock_range(txn, index.tree, everything, everything, FROND_LOCK_SHARED, FROND_WAIT_DEFAULT);
    return waited;
  }, FROND_DURABILITY_NONE);
  return handler_error(status);
}

int ha_frond::delete_table(const char *path)
{
  return frond::drop_table(ha_thd(), path);
}

int ha_frond::rename_table(const char *from, const char *to)
{
  if (int error= refuse_reserved(to))
    return error;
  std::string old_name= tree_name(from), new_name= tree_name(to);
  uint64_t id= 0;
  frond_status status=
    in_ddl_transaction(ha_thd(), [&](frond_txn *txn) { return rename_trees(txn, old_name, new_name, &id); });
  if (status == FROND_OK && is_intermediate(old_name) && !is_aside(old_name))
    trees_came(id); /* its rows came with it */
  return ddl_error(status);
}

int ha_frond::truncate()
{
  bool restarts= false; /* the counter, also after a restart of the server */
  frond_status status= in_ddl_transaction(ha_thd(), [this, &restarts](frond_txn *txn) {
    frond_status done= frond_tree_truncate(txn, share->primary);
    for (const Index_tree &index : share->indexes)
      if (done == FROND_OK && index.tree)
        done= frond_tree_truncate(txn, index.tree);
    if (done == FROND_OK && table->found_next_number_field) {
      std::string counter= auto_increment_key(share->definition.table_id);
      done= frond_txn_delete(txn, auto_increment_tree, frond_bytes(counter.data(), counter.size()));
    }
    if (done == FROND_OK && share->definition.auto_increment_start > 1) {
      Table_definition definition;
      done= read_definition(txn, share->name, &definition);
      definition.auto_increment_start= 0;
      if (done == FROND_OK)
        done= write_definition(txn, share->primary, definition);
      restarts= done == FROND_OK;
      /* On a full disk the rows go all the same: then the counter begins at its old start again when the table is next opened. */
      if (done == FROND_NO_SPACE)
        done= FROND_OK;
    }
    return done;
  });
  if (status == FROND_OK) {
    if (restarts)
      share->definition.auto_increment_start= 0;
    share->set_auto_increment(1);
    share->all_changed();
  }
  return handler_error(status);
}
