/* What nobody uses. See leftovers.h.

   SPDX-License-Identifier: GPL-2.0-or-later */
#include "leftovers.h"

#include "server.h"

#include <unistd.h>

#include <cerrno>
#include <map>
#include <set>

#include "ddl_log.h"

#include "ddl.h"
#include "errors.h"

namespace frond {

namespace {

/* Paths of the tables ("./schema/table") whose creation or removal the server's log of DDL statements found under way. The log
   is a file of blocks: a header, then entries; a statement under way has an entry to be executed, which leads to the others. */
std::set<std::string> tables_under_way;

/* Where things are, in the header and in an entry; numbers are little endian. */
constexpr size_t HEADER_BLOCK_BYTES= 4, HEADER_NAMES= 6, HEADER_BYTES= 8;
constexpr size_t ENTRY_TYPE= 0, ENTRY_ACTION= 1, ENTRY_NEXT= 4;
/* Names in an entry, each with two bytes of length before it and a zero behind; the path is this one. */
constexpr size_t NAMES_BEFORE_PATH= 6;
constexpr size_t DDL_LOG_BYTES_MAX= 64 << 20;

/* The path that an entry names; empty where there is none. */
std::string entry_path(const std::string &block, size_t names)
{
  size_t at= names;
  for (size_t skipped= 0;; skipped++) {
    if (at + 2 > block.size())
      return std::string();
    size_t length= uint2korr(reinterpret_cast<const uchar *>(block.data()) + at);
    if (skipped == NAMES_BEFORE_PATH)
      return block.substr(at + 2, length);
    at+= 2 + length + 1;
  }
}

void read_ddl_log(const std::string &log)
{
  if (log.size() < HEADER_BYTES)
    return;
  const uchar *header= reinterpret_cast<const uchar *>(log.data());
  size_t block_bytes= uint2korr(header + HEADER_BLOCK_BYTES), names= uint2korr(header + HEADER_NAMES);
  size_t count= block_bytes > names ? log.size() / block_bytes : 0;
  auto block= [&](size_t number) { return log.substr(number * block_bytes, block_bytes); };
  for (size_t first= 1; first < count; first++) {
    if (log[first * block_bytes + ENTRY_TYPE] != DDL_LOG_EXECUTE_CODE)
      continue;
    size_t at= first;
    for (size_t steps= 0; steps < count; steps++) {
      at= uint4korr(header + at * block_bytes + ENTRY_NEXT);
      if (at == 0 || at >= count)
        break;
      std::string entry= block(at);
      if (entry[ENTRY_ACTION] == DDL_LOG_DROP_TABLE_ACTION || entry[ENTRY_ACTION] == DDL_LOG_CREATE_TABLE_ACTION)
        tables_under_way.insert(entry_path(entry, names));
    }
  }
}

/* A tree that no definition names yet: of an index, with metadata. Other index trees have none. */
bool is_being_built(const frond_tree_info &tree)
{
  const char *table= strchr(tree.name, '/');
  return tree.metadata_bytes > 0 && table && strchr(table + 1, '/');
}

/* "schema/table" for a tree of one of its partitions, otherwise empty. In file names a '#' of the user's is written
   otherwise. */
std::string partitioned_table(const char *tree)
{
  const char *mark= strstr(tree, "#P#");
  if (!mark)
    mark= strstr(tree, "#p#");
  return mark ? std::string(tree, mark - tree) : std::string();
}

/* Whether there is certainly no such file. */
bool is_absent(const std::string &path)
{
  return access(path.c_str(), F_OK) != 0 && errno == ENOENT;
}

enum class Partitions { used, orphaned, unclear };

/* The server's working directory is its data directory. */
Partitions judge_partitions(const std::string &table)
{
  std::string path= "./" + table;
  if (!is_absent(path + ".frm") || !is_absent(path + ".par"))
    return Partitions::used;
  return tables_under_way.count(path) ? Partitions::orphaned : Partitions::unclear;
}

/* All trees of partitions that nobody uses go by one transaction: what says so does not last beyond this start. */
void drop_orphaned_partitions()
{
  std::map<std::string, Partitions> judged;
  std::vector<std::string> orphans;
  for_each_tree([&](const frond_tree_info &tree) {
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
  tables_under_way.clear();
  frond_status status= orphans.empty() ? frond_status(FROND_OK) : in_transaction([&](frond_txn *txn) {
    frond_status dropped= FROND_OK;
    for (size_t i= 0; i < orphans.size() && dropped == FROND_OK; i++)
      dropped= drop_trees(txn, orphans[i]);
    return dropped;
  }, FROND_WAIT_NONE);
  if (status != FROND_OK)
    sql_print_warning("FROND: partitions that no table has could not be dropped: %s", last_message());
  for (const auto &table : judged) {
    if (table.second == Partitions::orphaned && status == FROND_OK)
      sql_print_information("FROND: dropped the partitions that a CREATE or DROP TABLE which was cut short had left, table=%s",
                            table.first.c_str());
    else if (table.second != Partitions::used)
      sql_print_warning("FROND: there are partitions of a table that the server does not know, table=%s: they stay; restore its "
                        ".frm and .par files", table.first.c_str());
  }
}

void drop_unused_trees()
{
  std::vector<std::string> left;
  for_each_tree([&left](const frond_tree_info &tree) {
    if (is_temporary(tree.name) || is_being_built(tree))
      left.push_back(tree.name);
    return frond_status(FROND_OK);
  });
  for (const std::string &name : left) {
    auto drop= [&name](frond_txn *txn) { return frond_tree_drop(txn, name.c_str()); };
    if (in_transaction(drop, FROND_WAIT_NONE) != FROND_OK)
      sql_print_warning("FROND: a tree that nobody uses stays until the next start, tree=%s: %s", name.c_str(), last_message());
  }
}

} // namespace

void remember_ddl_log()
{
  tables_under_way.clear();
  char path[FN_REFLEN];
  fn_format(path, opt_ddl_recovery_file, mysql_real_data_home, ".log", MYF(MY_REPLACE_EXT));
  FILE *file= fopen(path, "rb");
  if (!file)
    return;
  std::string log;
  char part[IO_SIZE];
  size_t bytes;
  while ((bytes= fread(part, 1, sizeof part, file)) > 0 && log.size() < DDL_LOG_BYTES_MAX)
    log.append(part, bytes);
  fclose(file);
  read_ddl_log(log);
}

void drop_leftovers()
{
  drop_unused_trees();
  drop_orphaned_partitions();
}

} // namespace frond
