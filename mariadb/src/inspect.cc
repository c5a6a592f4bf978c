/* What goes on inside. See inspect.h.

   SPDX-License-Identifier: GPL-2.0-or-later */
#include "inspect.h"

#include <algorithm>
#include <shared_mutex>

#include "ddl.h"
#include "errors.h"
#include "key_codec.h"
#include "plugin.h"
#include "row_codec.h"
#include "session.h"
#include "share.h"

namespace frond {

namespace {

/* A value in a decoded key that is longer is cut. */
constexpr size_t VALUE_BYTES_MAX= 256;

/* A part of a tree's name as users write it. */
std::string user_name(const std::string &encoded)
{
  char name[NAME_LEN * 5 + 1];
  uint length= filename_to_tablename(encoded.c_str(), name, sizeof name, true); /* or the names of tables that ALTER makes are complained of */
  return std::string(name, length);
}

/* "p0", or "p0/s1" of "p0#SP#s1": a subpartition. */
std::string partition_name(const std::string &encoded)
{
  constexpr char mark[]= "#SP#";
  size_t at= encoded.find(mark);
  if (at == std::string::npos)
    return user_name(encoded);
  return user_name(encoded.substr(0, at)) + "/" + user_name(encoded.substr(at + strlen(mark)));
}

/* "shop/orders#P#p0/3" → schema, table, partition, table_tree and index_id. Trees of FROND itself have none of them. */
void split_name(Tree_view *view)
{
  const std::string &name= view->name;
  size_t slash= name.find('/');
  if (slash == std::string::npos || name.compare(0, 7, "#frond/") == 0 ||
      name.compare(0, strlen(temporary_prefix), temporary_prefix) == 0)
    return;
  size_t end= name.find('/', slash + 1);
  view->table_tree= name.substr(0, end);
  if (end != std::string::npos)
    view->index_id= static_cast<uint32_t>(strtoul(name.c_str() + end + 1, nullptr, 10));
  std::string table= view->table_tree.substr(slash + 1);
  size_t partition= table.find("#P#");
  if (partition != std::string::npos) {
    view->partition= partition_name(table.substr(partition + 3));
    table.erase(partition);
  }
  view->schema= user_name(name.substr(0, slash));
  view->table= user_name(table);
}

std::string bytes_of(frond_slice slice)
{
  return slice.data ? std::string(reinterpret_cast<const char *>(slice.data), slice.size) : std::string();
}

struct Connections {
  std::map<uint64_t, Transaction_view *> by_id; /* frond_txn_info.id */
};

my_bool note_connection(THD *thd, Connections *connections)
{
  mysql_mutex_lock(&thd->LOCK_thd_data);
  Session *session= Session::find(thd);
  if (session && session->id()) {
    auto found= connections->by_id.find(session->id());
    if (found != connections->by_id.end()) {
      found->second->thread_id= thd_get_thread_id(thd);
      found->second->rows= session->rows();
      found->second->query= query_of(thd);
    }
  }
  mysql_mutex_unlock(&thd->LOCK_thd_data);
  return 0;
}

void append_hex(std::string &text, const uchar *bytes, size_t size)
{
  static const char digits[]= "0123456789ABCDEF";
  text+= "0x";
  for (size_t i= 0; i < std::min(size, VALUE_BYTES_MAX); i++) {
    text.push_back(digits[bytes[i] >> 4]);
    text.push_back(digits[bytes[i] & 15]);
  }
  if (size > VALUE_BYTES_MAX)
    text+= "...";
}

std::string hex(const std::string &bytes)
{
  std::string text;
  append_hex(text, reinterpret_cast<const uchar *>(bytes.data()), bytes.size());
  return text;
}

/* Fields of a table over a record of its own: enough of a TABLE for the codecs, made from the definition that the server
   keeps while the table is open. */
class Record_view {
public:
  Record_view(THD *thd, TABLE_SHARE *share)
  {
    init_alloc_root(PSI_NOT_INSTRUMENTED, &root, 1024, 0, MYF(0));
    memset(static_cast<void *>(&storage), 0, sizeof storage);
    table= reinterpret_cast<TABLE *>(&storage);
    table->in_use= thd;
    table->s= share;
    auto *record= static_cast<uchar *>(alloc_root(&root, share->rec_buff_length));
    auto **fields= static_cast<Field **>(alloc_root(&root, (share->fields + 1) * sizeof(Field *)));
    if (!record || !fields)
      return;
    memcpy(record, share->default_values, share->rec_buff_length);
    table->record[0]= table->record[1]= record;
    table->field= fields;
    table->key_info= share->key_info;
    for (uint i= 0; i < share->fields; i++, fields++)
      if (!(*fields= share->field[i]->clone(&root, table)))
        return;
    *fields= nullptr;
    complete= true;
  }
  ~Record_view()
  {
    if (table->field)
      for (Field **field= table->field; *field; field++)
        delete *field;
    free_root(&root, MYF(0));
  }
  Record_view(const Record_view &)= delete;
  Record_view &operator=(const Record_view &)= delete;

  bool is_complete() const { return complete; }
  TABLE *operator->() const { return table; }
  TABLE *get() const { return table; }

private:
  MEM_ROOT root;
  std::aligned_storage_t<sizeof(TABLE), alignof(TABLE)> storage;
  TABLE *table;
  bool complete= false;
};

void append_value(std::string &text, Field *field)
{
  if (field->is_real_null()) {
    text+= "NULL";
    return;
  }
  if (field->type() == MYSQL_TYPE_BIT) {
    text+= std::to_string(static_cast<ulonglong>(field->val_int()));
    return;
  }
  String buffer;
  String *value= field->val_str(&buffer, &buffer);
  if (field->result_type() != STRING_RESULT) {
    text.append(value->ptr(), value->length());
    return;
  }
  if (value->charset() == &my_charset_bin && field->cmp_type() != TIME_RESULT) {
    append_hex(text, reinterpret_cast<const uchar *>(value->ptr()), value->length());
    return;
  }
  String shown;
  uint errors;
  shown.copy(value->ptr(), std::min<size_t>(value->length(), VALUE_BYTES_MAX), value->charset(), &my_charset_utf8mb4_general_ci,
             &errors);
  text.push_back('\'');
  for (uint32 i= 0; i < shown.length(); i++) {
    if (shown[i] == '\'')
      text.push_back('\'');
    text.push_back(shown[i]);
  }
  text.push_back('\'');
}

void append_comma(std::string &text)
{
  if (!text.empty())
    text+= ", ";
}

/* Decodes the columns of one index from the front of `key`, as far as it goes. Returns how much of it was used. `known`: the
   record has all columns already. */
size_t append_columns(std::string &text, const Record_view &table, const KEY &info, const uchar *key, size_t size,
                      bool known)
{
  Key_codec codec;
  if (codec.init(table.get(), &info))
    return 0;
  if (!known)
    codec.decode(key, size, nullptr, nullptr, table->record[0]);
  size_t used= 0;
  for (uint part= 0; part < codec.columns(); part++) {
    size_t end= codec.skip(key, size, part + 1);
    if (end == 0)
      break;
    append_comma(text);
    Field *field= table->field[info.key_part[part].fieldnr - 1];
    if (codec.restorable(part) || known)
      append_value(text, field);
    else if (field->real_maybe_null() && key[used] == (info.key_part[part].key_part_flag & HA_REVERSE_SORT ? 0xff : 0))
      text+= "NULL";
    else
      append_hex(text, key + used, end - used);
    used= end;
  }
  return used;
}

/* Fills the record from the row that a primary key names, as it is committed; false when there is none. */
bool read_row(const Record_view &table, const Table_share &share, const uchar *key, size_t size, std::string *value_memory)
{
  frond_list *list;
  frond_slice value;
  if (frond_db_get(database, share.primary, frond_bytes(key, size), &list, &value) != FROND_OK)
    return false;
  *value_memory= bytes_of(value);
  bool found= value.data != nullptr;
  frond_list_free(list);
  if (!found)
    return false;
  Key_codec primary;
  bool has_key= table->s->primary_key != MAX_KEY;
  if (has_key && primary.init(table.get(), &table->key_info[table->s->primary_key]))
    return false;
  /* The share's own definition may be changing. */
  Table_definition definition;
  frond_txn *txn;
  if (frond_txn_begin(database, nullptr, &txn) != FROND_OK)
    return false;
  frond_status status= read_definition(txn, share.name, &definition);
  frond_txn_rollback(txn);
  Row_codec rows;
  return status == FROND_OK && rows.init(table.get(), definition, has_key ? &primary : nullptr) == 0 &&
         rows.decode(key, size, reinterpret_cast<const uchar *>(value_memory->data()), value_memory->size(), nullptr,
                     table->record[0]) == 0;
}

void append_primary_key(std::string &text, const Record_view &table, const Table_share &share, const uchar *key, size_t size)
{
  if (size == 0)
    return;
  uint primary= table->s->primary_key;
  if (primary == MAX_KEY) {
    append_comma(text);
    if (size != 8)
      append_hex(text, key, size);
    else
      text+= "row " + std::to_string(mi_uint8korr(key));
    return;
  }
  std::string value_memory;
  bool known= read_row(table, share, key, size, &value_memory);
  size_t used= append_columns(text, table, table->key_info[primary], key, size, known);
  if (used < size) {
    append_comma(text);
    append_hex(text, key + used, size - used);
  }
}

std::string decode_key(THD *thd, const Table_share &share, uint32_t index_id, const std::string &bytes)
{
  Record_view table(thd, share.table_share);
  std::string text;
  if (!table.is_complete())
    return hex(bytes);
  auto *key= reinterpret_cast<const uchar *>(bytes.data());
  size_t used= 0;
  if (index_id != 0) {
    for (uint i= 0; i < share.indexes.size() && used == 0; i++)
      if (share.indexes[i].tree && share.indexes[i].id == index_id)
        used= append_columns(text, table, table->key_info[i], key, bytes.size(), false);
    if (used == 0)
      return hex(bytes);
  }
  append_primary_key(text, table, share, key + used, bytes.size() - used);
  return text;
}

std::shared_mutex database_latch;

} // namespace

Database_use::Database_use()
{
  database_latch.lock_shared();
}

Database_use::~Database_use()
{
  database_latch.unlock_shared();
}

bool Database_use::is_open() const
{
  return database != nullptr;
}

frond_status close_database()
{
  std::unique_lock<std::shared_mutex> guard(database_latch);
  frond_status status= frond_db_close(database);
  database= nullptr;
  return status;
}

const char *Transaction_view::state() const
{
  return info.prepared ? "PREPARED" : waits ? "LOCK WAIT" : "RUNNING";
}

std::string query_of(THD *thd)
{
  String text;
  uint errors;
  if (!thd->query())
    return std::string();
  /* No more than is shown: somebody waits for LOCK_thd_data. */
  CHARSET_INFO *charset= thd->query_charset();
  const size_t bytes= std::min<size_t>(thd->query_length(), QUERY_CHARACTERS_MAX * charset->mbmaxlen);
  if (text.copy(thd->query(), bytes, charset, &my_charset_utf8mb4_general_ci, &errors))
    return std::string();
  return std::string(text.ptr(), text.length());
}

const char *isolation_name(frond_isolation isolation)
{
  switch (isolation) {
  case FROND_ISOLATION_READ_UNCOMMITTED:
    return "READ UNCOMMITTED";
  case FROND_ISOLATION_READ_COMMITTED:
    return "READ COMMITTED";
  case FROND_ISOLATION_SERIALIZABLE:
    return "SERIALIZABLE";
  default:
    return "REPEATABLE READ";
  }
}

const char *codec_name(frond_codec codec)
{
  return codec == FROND_CODEC_ZSTD ? "ZSTD" : codec == FROND_CODEC_LZ4 ? "LZ4" : "NONE";
}

bool list_trees(Trees *trees)
{
  bool is_listed= for_each_readable_tree("", [&](const frond_tree_info &tree) {
    Tree_view &view= (*trees)[tree.id];
    view.name= tree.name;
    view.id= tree.id;
    view.codec= tree.codec;
    view.codec_level= tree.codec_level;
    view.user_bytes= tree.user_bytes;
    view.bytes_written= tree.bytes_written;
    split_name(&view);
  });
  if (!is_listed)
    return false;

  /* Names of indexes are in the definitions of their tables. */
  frond_txn *txn;
  if (frond_txn_begin(database, nullptr, &txn) != FROND_OK)
    return false;
  std::map<std::string, Table_definition> definitions;
  for (auto &entry : *trees) {
    Tree_view &view= entry.second;
    if (view.table_tree.empty())
      continue;
    auto known= definitions.find(view.table_tree);
    if (known == definitions.end()) {
      known= definitions.emplace(view.table_tree, Table_definition()).first;
      if (read_definition(txn, view.table_tree, &known->second) != FROND_OK)
        known->second.indexes.clear();
    }
    view.index= view.index_id == 0 ? "PRIMARY" : "";
    for (const Index &index : known->second.indexes)
      if (index.id == view.index_id)
        view.index= index.name;
  }
  frond_txn_rollback(txn);
  return true;
}

bool list_locks(std::vector<Lock_view> *locks)
{
  frond_list *list;
  const frond_lock_info *items;
  size_t count;
  if (frond_db_locks(database, &list, &items, &count) != FROND_OK)
    return false;
  locks->resize(count);
  for (size_t i= 0; i < count; i++) {
    Lock_view &view= (*locks)[i];
    view.txn= items[i].txn;
    view.tree= items[i].tree;
    view.mode= items[i].mode;
    view.start= bytes_of(items[i].start);
    view.end= bytes_of(items[i].end);
    view.is_range= items[i].end.data != nullptr;
    view.waits= items[i].waits_for_count > 0;
    view.waited_ms= items[i].waited_ms;
    view.waits_for.assign(items[i].waits_for, items[i].waits_for + items[i].waits_for_count);
  }
  frond_list_free(list);
  return true;
}

bool list_transactions(const std::vector<Lock_view> &locks, std::vector<Transaction_view> *transactions)
{
  frond_list *list;
  const frond_txn_info *items;
  size_t count;
  if (frond_db_transactions(database, &list, &items, &count) != FROND_OK)
    return false;
  transactions->resize(count);
  Connections connections;
  std::map<uint64_t, Transaction_view *> by_txn;
  for (size_t i= 0; i < count; i++) {
    Transaction_view &view= (*transactions)[i];
    view.info= items[i];
    if (items[i].id)
      connections.by_id[items[i].id]= &view;
    if (items[i].txn)
      by_txn[items[i].txn]= &view;
  }
  frond_list_free(list);
  for (const Lock_view &lock : locks) {
    auto found= by_txn.find(lock.txn);
    if (found == by_txn.end())
      continue;
    if (lock.waits) {
      found->second->waits= true;
      found->second->waits_for= lock.waits_for;
    } else {
      found->second->locks_held++;
    }
  }
  server_threads.iterate(note_connection, &connections);
  return true;
}

std::string key_text(THD *thd, const Tree_view &tree, const std::string &key)
{
  std::string text;
  bool open= !tree.table_tree.empty() && with_open_table(tree.table_tree, [&](const Table_share &share) {
    text= decode_key(thd, share, tree.index_id, key);
  });
  return open ? text : hex(key);
}

} // namespace frond
