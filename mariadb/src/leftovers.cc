/* What nobody uses. See leftovers.h.

   SPDX-License-Identifier: GPL-2.0-or-later */
#include "leftovers.h"

#include "server.h"

#include <unistd.h>

#include <cerrno>
#include <map>
#include <set>
#include <sstream>
#include <tuple>

#include "ddl_log.h"
#include "sql_table.h"

#include "ddl.h"
#include "errors.h"

namespace frond {

namespace {

/* Names of a table that was being renamed, "schema/table". */
struct Renaming {
  std::string from, to;

  bool operator<(const Renaming &other) const { return std::tie(from, to) < std::tie(other.from, other.to); }
};

/* What the server's log of DDL statements found under way, for after the server's recovery. The log is a file of blocks: a header, then entries;
   a statement under way has an entry to be executed, which leads to the others. */
struct Under_way {
  std::set<std::string> tables;   /* paths ("./schema/table") of those that were being created or dropped */
  std::set<Renaming> altered_to;  /* what an ALTER TABLE in place was about to rename partitioned tables to */
  std::set<std::string> altered;  /* and the paths ("./schema/#sql-alter…") under which it described the new ones */

  bool empty() const { return tables.empty() && altered_to.empty() && altered.empty(); }
};
Under_way under_way;

/* Where things are, in the header and in an entry; numbers are little endian. */
constexpr size_t HEADER_BLOCK_BYTES= 4, HEADER_NAMES= 6, HEADER_BYTES= 8;
constexpr size_t ENTRY_TYPE= 0, ENTRY_ACTION= 1, ENTRY_PHASE= 2, ENTRY_NEXT= 4, ENTRY_FLAGS= 8;
/* Names in an entry, each with two bytes of length before it and a zero behind: which one is what. */
constexpr size_t NAME_ENGINE= 0, NAME_SCHEMA= 1, NAME_TABLE= 2, NAME_OLD_SCHEMA= 4, NAME_OLD_TABLE= 5, NAME_PATH= 6, NAME_NEW_TABLE= 7;
constexpr size_t DDL_LOG_BYTES_MAX= 64 << 20;

/* A name that an entry has; empty where there is none. */
std::string entry_name(const std::string &block, size_t names, size_t which)
{
  size_t at= names;
  for (size_t skipped= 0;; skipped++) {
    if (at + 2 > block.size())
      return std::string();
    size_t length= uint2korr(reinterpret_cast<const uchar *>(block.data()) + at);
    if (skipped == which)
      return block.substr(at + 2, length);
    at+= 2 + length + 1;
  }
}

/* "schema/table" as in the names of files and trees. */
std::string file_name(const std::string &schema, const std::string &table)
{
  char path[FN_REFLEN + 1];
  build_table_filename(path, sizeof path - 1, schema.c_str(), table.c_str(), "", 0);
  return tree_name(path);
}

void read_entry(const std::string &entry, size_t names, std::vector<Renaming> *renamings)
{
  const uchar *bytes= reinterpret_cast<const uchar *>(entry.data());
  auto renaming= [&](size_t to) {
    return Renaming{file_name(entry_name(entry, names, NAME_OLD_SCHEMA), entry_name(entry, names, NAME_OLD_TABLE)),
                    file_name(entry_name(entry, names, NAME_SCHEMA), entry_name(entry, names, to))};
  };
  switch (bytes[ENTRY_ACTION]) {
  case DDL_LOG_CREATE_TABLE_ACTION:
    if (uint2korr(bytes + ENTRY_FLAGS) & DDL_LOG_FLAG_ONLY_FRM)
      break; /* what is in the engine was there before */
    /* fall through */
  case DDL_LOG_DROP_TABLE_ACTION:
    under_way.tables.insert(entry_name(entry, names, NAME_PATH));
    break;
  case DDL_LOG_RENAME_TABLE_ACTION:
    if (bytes[ENTRY_PHASE] == DDL_LOG_FINAL_PHASE)
      break; /* undone already */
    renamings->push_back(renaming(NAME_TABLE));
    break;
  case DDL_LOG_ALTER_TABLE_ACTION: {
    /* Of partitioned tables the entry names their partitions' engine. A copy leaves files under its own name, too: what they are is not clear. */
    const uint flags= uint2korr(bytes + ENTRY_FLAGS);
    const uchar phase= bytes[ENTRY_PHASE];
    if (entry_name(entry, names, NAME_ENGINE) != "FROND" || !(flags & DDL_LOG_FLAG_ALTER_PARTITION) ||
        (phase != DDL_ALTER_TABLE_PHASE_PREPARE_INPLACE && phase != DDL_ALTER_TABLE_PHASE_INPLACE &&
         phase != DDL_ALTER_TABLE_PHASE_INPLACE_COPIED))
      break;
    under_way.altered.insert(entry_name(entry, names, NAME_PATH));
    if (flags & DDL_LOG_FLAG_ALTER_RENAME)
      under_way.altered_to.insert(renaming(NAME_NEW_TABLE));
    break;
  }
  default:
    break;
  }
}

void read_ddl_log(const std::string &log, std::vector<Renaming> *renamings)
{
  if (log.size() < HEADER_BYTES)
    return;
  const uchar *header= reinterpret_cast<const uchar *>(log.data());
  size_t block_bytes= uint2korr(header + HEADER_BLOCK_BYTES), names= uint2korr(header + HEADER_NAMES);
  if (names < ENTRY_FLAGS + 2 || block_bytes <= names)
    return; /* no version of it that this one knows */
  size_t count= log.size() / block_bytes;
  for (size_t first= 1; first < count; first++) {
    if (log[first * block_bytes + ENTRY_TYPE] != DDL_LOG_EXECUTE_CODE)
      continue;
    size_t at= first;
    for (size_t steps= 0; steps < count; steps++) {
      at= uint4korr(header + at * block_bytes + ENTRY_NEXT);
      if (at == 0 || at >= count)
        break;
      read_entry(log.substr(at * block_bytes, block_bytes), names, renamings);
    }
  }
}

/* The server empties its log when it has recovered. What it found under way is kept here until what is left has been dropped, in case this start is
   killed before: a line for each, tabs between its words. No name in a path has such characters. */
constexpr const char *KEPT_FILE= "frond_ddl_recovery.log";
constexpr const char *KEPT_TABLE= "table", *KEPT_ALTERED= "altered", *KEPT_RENAMED= "renamed";

std::string read_file(const char *path)
{
  std::string contents;
  FILE *file= fopen(path, "rb");
  if (!file)
    return contents;
  std::string part(IO_SIZE, 0);
  size_t bytes;
  while ((bytes= fread(&part[0], 1, part.size(), file)) > 0 && contents.size() < DDL_LOG_BYTES_MAX)
    contents.append(part, 0, bytes);
  fclose(file);
  return contents;
}

void read_kept()
{
  std::istringstream lines(read_file(KEPT_FILE));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string what, first, second;
    std::getline(words, what, '\t');
    std::getline(words, first, '\t');
    std::getline(words, second, '\t');
    if (what == KEPT_TABLE)
      under_way.tables.insert(first);
    else if (what == KEPT_ALTERED)
      under_way.altered.insert(first);
    else if (what == KEPT_RENAMED)
      under_way.altered_to.insert({first, second});
  }
}

/* Whole or not at all, and for good: what it is kept for is a machine that fails once more. */
bool write_kept(const std::string &contents)
{
  const std::string unfinished= std::string(KEPT_FILE) + ".new";
  File file= my_create(unfinished.c_str(), 0, O_WRONLY | O_TRUNC, MYF(0));
  if (file < 0)
    return false;
  bool written= my_write(file, reinterpret_cast<const uchar *>(contents.data()), contents.size(), MYF(MY_NABP)) == 0 &&
                my_sync(file, MYF(0)) == 0;
  written= my_close(file, MYF(0)) == 0 && written;
  return written && my_rename(unfinished.c_str(), KEPT_FILE, MYF(MY_SYNC_DIR)) == 0;
}

void keep_under_way()
{
  if (under_way.empty())
    return;
  std::ostringstream lines;
  for (const std::string &table : under_way.tables)
    lines << KEPT_TABLE << '\t' << table << '\n';
  for (const std::string &path : under_way.altered)
    lines << KEPT_ALTERED << '\t' << path << '\n';
  for (const Renaming &renaming : under_way.altered_to)
    lines << KEPT_RENAMED << '\t' << renaming.from << '\t' << renaming.to << '\n';
  if (!write_kept(lines.str()))
    sql_print_warning("FROND: what DDL was cut short could not be kept for another start, file=%s: %s", KEPT_FILE, strerror(my_errno));
}

/* A tree that no definition names yet: of an index, with metadata. Other index trees have none. */
bool is_being_built(const frond_tree_info &tree)
{
  const char *table= strchr(tree.name, '/');
  return tree.metadata_bytes > 0 && table && strchr(table + 1, '/');
}

/* "schema/table" for a tree of one of its partitions, otherwise empty. */
std::string partitioned_table(const std::string &tree)
{
  const size_t mark= partition_mark(tree);
  return mark == std::string::npos ? std::string() : tree.substr(0, mark);
}

/* What the names of all trees of its partitions begin with, and of few others. */
std::string before_partitions(const std::string &table)
{
  return table + "#";
}

/* Whether there is certainly no such file. */
bool is_absent(const std::string &path)
{
  return access(path.c_str(), F_OK) != 0 && errno == ENOENT;
}

/* Files of a table: what it is, and the list of its partitions. The server's working directory is its data directory. */
std::string definition_file(const std::string &table)
{
  return "./" + table + ".frm";
}
std::string partition_list_file(const std::string &table)
{
  return "./" + table + ".par";
}

/* A renaming that was cut short, or its undoing: what went ahead of the table's .frm, which comes last both ways. */
void put_partitions_back(const Renaming &renaming)
{
  bool stays= !is_absent(definition_file(renaming.from));
  const std::string &table= stays ? renaming.from : renaming.to, &from= stays ? renaming.to : renaming.from;
  bool has_list= !is_absent(partition_list_file(table)), list_moved= !is_absent(partition_list_file(from));
  if (is_absent(definition_file(table)) || !is_absent(definition_file(from)) || has_list == list_moved)
    return;
  std::vector<std::string> moved;
  for_each_tree(before_partitions(from), [&](const frond_tree_info &tree) {
    if (partitioned_table(tree.name) == from && !strchr(tree.name + from.size(), '/'))
      moved.push_back(tree.name);
    return frond_status(FROND_OK);
  });
  if (moved.empty() && !list_moved)
    return;
  auto put_back= [&](frond_txn *txn) {
    frond_status status= FROND_OK;
    uint64_t table_id;
    for (size_t i= 0; i < moved.size() && status == FROND_OK; i++)
      status= rename_trees(txn, moved[i], table + moved[i].substr(from.size()), &table_id);
    return status;
  };
  frond_status status= in_ddl_transaction(put_back, FROND_WAIT_NONE);
  if (status == FROND_OK &&
      (!list_moved || rename(partition_list_file(from).c_str(), partition_list_file(table).c_str()) == 0))
    sql_print_information("FROND: put the partitions under one name again, because a renaming was cut short, table=%s", table.c_str());
  else
    sql_print_warning("FROND: partitions of table %s are under the name %s and could not be put back: %s", table.c_str(),
                      from.c_str(), status == FROND_OK ? strerror(errno) : last_message());
}

enum class Partitions { used, orphaned, unclear };

Partitions judge_partitions(const std::string &table)
{
  if (!is_absent(definition_file(table)))
    return Partitions::used;
  return under_way.tables.count("./" + table) ? Partitions::orphaned : Partitions::unclear;
}

/* What the server's recovery does not know of an ALTER TABLE that changes a partitioned table in place. */
void finish_alters()
{
  for (const Renaming &renaming : under_way.altered_to)
    put_partitions_back(renaming);
  for (const std::string &path : under_way.altered)
    if (is_absent(path + ".frm"))
      unlink((path + ".par").c_str());
}

/* All trees of partitions that nobody uses go by one transaction: what says so does not last beyond this start, once it serves. */
void drop_orphaned_partitions()
{
  std::map<std::string, Partitions> judged;
  std::vector<std::string> orphans;
  for_each_tree("", [&](const frond_tree_info &tree) {
    std::string table= partitioned_table(tree.name);
    if (table.empty() || strchr(tree.name + table.size(), '/'))
      return frond_status(FROND_OK); /* no partition, or an index of one, which goes with it */
    auto found= judged.find(table);
    if (found == judged.end())
      found= judged.emplace(table, judge_partitions(table)).first;
    if (found->second == Partitions::orphaned)
      orphans.push_back(tree.name);
    return frond_status(FROND_OK);
  });
  std::vector<uint64_t> gone;
  frond_status status= orphans.empty() ? frond_status(FROND_OK) : in_transaction([&](frond_txn *txn) {
    frond_status dropped= FROND_OK;
    for (size_t i= 0; i < orphans.size() && dropped == FROND_OK; i++)
      dropped= drop_trees(txn, orphans[i], &gone);
    return dropped;
  }, FROND_WAIT_NONE);
  if (status == FROND_OK)
    trees_went(gone);
  else
    sql_print_warning("FROND: partitions that no table has could not be dropped: %s", last_message());
  for (const auto &table : judged) {
    if (table.second == Partitions::orphaned && status == FROND_OK) {
      unlink(partition_list_file(table.first).c_str());
      sql_print_information("FROND: dropped the partitions that a CREATE or DROP TABLE which was cut short had left, table=%s",
                            table.first.c_str());
    } else if (table.second != Partitions::used)
      sql_print_warning("FROND: there are partitions of a table that the server does not know, table=%s: they stay; restore its "
                        ".frm and .par files", table.first.c_str());
  }
}

/* One by one, because a prepared transaction may have locks in some, and without waiting for the disk: there may be thousands, and
   what a crash brings back is dropped again. */
void drop_unused_trees()
{
  std::set<std::string> tables;
  std::vector<std::string> others;
  for_each_tree("", [&](const frond_tree_info &tree) {
    if (is_temporary_table(tree.name))
      tables.insert(tree.name);
    else if (is_temporary(tree.name) || is_being_built(tree))
      others.push_back(tree.name);
    return frond_status(FROND_OK);
  });
  for (const std::string &table : tables)
    drop_temporary(table);
  frond_txn_options options= {};
  options.durability= FROND_DURABILITY_NONE;
  options.lock_wait_ms= FROND_WAIT_NONE;
  for (const std::string &name : others) {
    if (is_temporary(name) && tables.count(name.substr(0, name.rfind('/'))))
      continue; /* has gone with its table, or will */
    if (in_transaction(options, [&name](frond_txn *txn) { return frond_tree_drop(txn, name.c_str()); }) != FROND_OK)
      sql_print_warning("FROND: a tree that nobody uses stays until the next start, tree=%s: %s", name.c_str(), last_message());
  }
}

/* A tree of a table or partition itself, not one of its indexes; after the '/' behind the schema. */
bool is_primary_tree(const char *tree)
{
  const char *table= strchr(tree, '/');
  return table && !strchr(table + 1, '/');
}

} // namespace

frond_status drop_lost_partitions(frond_txn *txn, const std::string &table, std::vector<uint64_t> *gone)
{
  if (!mysqld_server_started || !is_absent(definition_file(table)) || !is_absent(partition_list_file(table)))
    return FROND_NOT_FOUND;
  bool found= false;
  frond_status status= for_each_tree(before_partitions(table), [&](const frond_tree_info &tree) {
    if (!is_primary_tree(tree.name) || partitioned_table(tree.name) != table)
      return frond_status(FROND_OK);
    found= true;
    return drop_trees(txn, tree.name, gone);
  });
  return status == FROND_OK && !found ? frond_status(FROND_NOT_FOUND) : status;
}

void drop_schema(THD *thd, const char *path)
{
  std::string schema= tree_name(path);
  if (schema.back() != '/')
    schema.push_back('/');
  std::vector<std::string> tables, others;
  for_each_tree(schema, [&](const frond_tree_info &tree) {
    (is_primary_tree(tree.name) ? tables : others).push_back(tree.name);
    return frond_status(FROND_OK);
  });
  if (tables.empty() && others.empty())
    return;
  std::vector<uint64_t> gone;
  frond_status status= in_ddl_transaction(thd, [&](frond_txn *txn) {
    frond_status dropped= FROND_OK;
    for (size_t i= 0; i < tables.size() && dropped == FROND_OK; i++)
      dropped= drop_trees(txn, tables[i], &gone);
    /* Most have gone with their tables. */
    for (size_t i= 0; i < others.size() && dropped == FROND_OK; i++) {
      dropped= frond_tree_drop(txn, others[i].c_str());
      if (dropped == FROND_NOT_FOUND)
        dropped= FROND_OK;
    }
    return dropped;
  });
  if (status == FROND_OK) {
    trees_went(gone);
    sql_print_information("FROND: dropped with its database what no table had any more, database=%.*s, trees=%zu",
                          static_cast<int>(schema.size() - 1), schema.c_str(), tables.size() + others.size());
  } else
    sql_print_warning("FROND: of a dropped database there are trees still, database=%.*s: %s", static_cast<int>(schema.size() - 1),
                      schema.c_str(), last_message());
}

void before_ddl_recovery()
{
  under_way= Under_way();
  read_kept();
  char path[FN_REFLEN];
  fn_format(path, opt_ddl_recovery_file, mysql_real_data_home, ".log", MYF(MY_REPLACE_EXT));
  std::vector<Renaming> renamings;
  read_ddl_log(read_file(path), &renamings);
  keep_under_way();
  for (const Renaming &renaming : renamings)
    put_partitions_back(renaming);
}

void forget_ddl()
{
  unlink(KEPT_FILE);
}

void drop_leftovers()
{
  finish_alters();
  drop_unused_trees();
  drop_orphaned_partitions();
  if (!under_way.empty())
    forget_ddl();
  under_way= Under_way();
}

} // namespace frond
