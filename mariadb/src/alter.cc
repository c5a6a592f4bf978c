/* ALTER TABLE in place. See alter.h.

   SPDX-License-Identifier: GPL-2.0-or-later */
#include "alter.h"

#include <algorithm>

#include "create_options.h"
#include "ddl.h"
#include "errors.h"
#include "ha_frond.h"
#include "plugin.h"

namespace frond {

namespace {

/* Nothing of it is in the engine, or the definition alone. */
constexpr alter_table_operations DEFINITION_FLAGS=
  ALTER_OPTIONS | ALTER_CHANGE_COLUMN_DEFAULT | ALTER_COLUMN_NAME | ALTER_RENAME_COLUMN | ALTER_RENAME |
  ALTER_RENAME_INDEX | ALTER_CHANGE_INDEX_COMMENT | ALTER_INDEX_ORDER | ALTER_INDEX_IGNORABILITY | ALTER_COLUMN_OPTION |
  ALTER_COLUMN_STORAGE_TYPE | ALTER_COLUMN_COLUMN_FORMAT | ALTER_DROP_CHECK_CONSTRAINT | ALTER_ADD_CHECK_CONSTRAINT |
  ALTER_ADD_VIRTUAL_COLUMN | ALTER_DROP_VIRTUAL_COLUMN | ALTER_VIRTUAL_COLUMN_ORDER | ALTER_VIRTUAL_GCOL_EXPR |
  ALTER_DROP_FOREIGN_KEY | ALTER_PARTITIONED | ALTER_CONVERT_TO;

/* Rows have another layout from now on. */
constexpr alter_table_operations LAYOUT_FLAGS= ALTER_ADD_STORED_BASE_COLUMN | ALTER_DROP_STORED_COLUMN |
                                               ALTER_STORED_COLUMN_ORDER | ALTER_COLUMN_TYPE_CHANGE_BY_ENGINE |
                                               ALTER_COLUMN_NULLABLE | ALTER_COLUMN_INDEX_LENGTH;

/* The description of rows changes, with them or without: it has the virtual columns, too. */
constexpr alter_table_operations DESCRIPTION_FLAGS=
  LAYOUT_FLAGS | ALTER_ADD_VIRTUAL_COLUMN | ALTER_DROP_VIRTUAL_COLUMN | ALTER_VIRTUAL_COLUMN_ORDER;

constexpr alter_table_operations DROP_INDEX_FLAGS= ALTER_DROP_NON_UNIQUE_NON_PRIM_INDEX | ALTER_DROP_UNIQUE_INDEX;
constexpr alter_table_operations ADD_INDEX_FLAGS= ALTER_ADD_NON_UNIQUE_NON_PRIM_INDEX | ALTER_ADD_UNIQUE_INDEX;

/* Each instant change adds a layout to the definition, and each open of the table reads all of them. */
constexpr size_t LAYOUTS_MAX= 255;

/* And all of it in memory: a layout has the defaults of columns that were added. Beyond this length of the definition rows are
   copied; the engine keeps much more. */
constexpr size_t DEFINITION_BYTES_MAX= 1 << 20;

/* How long others' locks keep the trees of a build that was given up. */
constexpr int64_t DROP_WAIT_MS= 1000;

bool is_integer(enum_field_types type)
{
  return type == MYSQL_TYPE_TINY || type == MYSQL_TYPE_SHORT || type == MYSQL_TYPE_INT24 || type == MYSQL_TYPE_LONG ||
         type == MYSQL_TYPE_LONGLONG;
}

bool is_blob(enum_field_types type)
{
  return type == MYSQL_TYPE_TINY_BLOB || type == MYSQL_TYPE_BLOB || type == MYSQL_TYPE_MEDIUM_BLOB ||
         type == MYSQL_TYPE_LONG_BLOB;
}

bool same_storage(const Column &a, const Column &b)
{
  return a.storage == b.storage && a.length == b.length && a.length_bytes == b.length_bytes && a.bits == b.bits &&
         a.nullable == b.nullable && a.is_unsigned == b.is_unsigned && a.in_key == b.in_key && a.type == b.type &&
         a.charset == b.charset;
}

/* Rows that have the column as `was` can be read as `becomes`: what Row_codec converts. */
bool readable_as(const Column &was, const Column &becomes)
{
  auto is_text= [](Storage s) { return s == Storage::VARCHAR || s == Storage::CHAR || s == Storage::BLOB; };
  if (was.in_key != becomes.in_key || (was.nullable && !becomes.nullable))
    return false;
  if (is_text(was.storage))
    return is_text(becomes.storage) && becomes.length >= was.length;
  if (was.storage != becomes.storage)
    return false;
  if (was.storage == Storage::INTEGER)
    return becomes.length >= was.length && becomes.is_unsigned == was.is_unsigned;
  return was.storage == Storage::VIRTUAL || (becomes.length == was.length && becomes.bits == was.bits);
}

bool has_column(const KEY &key, uint column)
{
  for (uint part= 0; part < key.user_defined_key_parts; part++)
    if (key.key_part[part].fieldnr == column + 1)
      return true;
  return false;
}

bool in_any_key(const TABLE *table, uint column)
{
  for (uint key= 0; key < table->s->keys; key++)
    if (has_column(table->key_info[key], column))
      return true;
  return false;
}

/* A2, for an index that stays. */
bool same_index(const TABLE *table, const KEY &old, const TABLE *altered, const KEY &key, const Alter_map &map)
{
  if (((old.flags ^ key.flags) & (HA_NOSAME | HA_FULLTEXT | HA_SPATIAL)) || old.algorithm != key.algorithm ||
      old.user_defined_key_parts != key.user_defined_key_parts)
    return false;
  for (uint part= 0; part < key.user_defined_key_parts; part++) {
    const KEY_PART_INFO &a= old.key_part[part], &b= key.key_part[part];
    if (map.column_was[b.fieldnr - 1] != a.fieldnr - 1)
      return false;
    if ((a.key_part_flag ^ b.key_part_flag) & (HA_REVERSE_SORT | HA_PART_KEY_SEG))
      return false;
    Column was= make_column(table, a.fieldnr - 1), is= make_column(altered, b.fieldnr - 1);
    bool text= was.storage == Storage::VARCHAR || was.storage == Storage::CHAR || was.storage == Storage::BLOB;
    if (was.storage != is.storage || was.nullable != is.nullable || was.charset != is.charset || was.type != is.type ||
        (!text && !same_storage(was, is)))
      return false;
    if ((b.key_part_flag & HA_PART_KEY_SEG) && a.length != b.length)
      return false;
    if (was.storage == Storage::CHAR && a.length != b.length && padding_is_in_key(table->field[a.fieldnr - 1]->charset()))
      return false;
    if (was.storage == Storage::VIRTUAL && table->field[a.fieldnr - 1]->pack_length() != altered->field[b.fieldnr - 1]->pack_length())
      return false;
  }
  return true;
}

/* Whether every row gets the same value; then altered->record[0] has it. */
bool has_constant_default(const Field *field)
{
  constexpr uint constant= VCOL_TIME_FUNC;
  return !field->default_value || !(field->default_value->flags & ~constant);
}

/* Whether the table's options in words are the same; those of partitions are read from them in the copy alone. */
bool same_options(const engine_option_value *a, const engine_option_value *b)
{
  for (; a && b; a= a->next, b= b->next)
    if (cmp(&a->name, &b->name) || cmp(&a->value, &b->value))
      return false;
  return !a && !b;
}

struct Judgement {
  enum_alter_inplace_result result;
  const char *reason;
};

Judgement copy(const char *reason= nullptr)
{
  return {HA_ALTER_INPLACE_NOT_SUPPORTED, reason};
}

Judgement copy(uint reason)
{
  return copy(my_get_err_msg(reason));
}

/* Why these flags alone ask for a copy. */
Judgement flags_ask_for_copy(alter_table_operations flags)
{
  if (flags & (ALTER_STORED_COLUMN_TYPE | ALTER_VIRTUAL_COLUMN_TYPE))
    return copy(ER_ALTER_OPERATION_NOT_SUPPORTED_REASON_COLUMN_TYPE);
  if ((flags & ALTER_DROP_PK_INDEX) && !(flags & ALTER_ADD_PK_INDEX))
    return copy(ER_ALTER_OPERATION_NOT_SUPPORTED_REASON_NOPK);
  if (flags & (ALTER_DROP_PK_INDEX | ALTER_ADD_PK_INDEX))
    return copy("rows are stored by the primary key");
  if (flags & ALTER_COLUMN_NOT_NULLABLE)
    return copy(ER_ALTER_OPERATION_NOT_SUPPORTED_REASON_NOT_NULL);
  return copy();
}

/* Whether each name of an ENUM or SET stays what it is, to the letter; more may follow. */
bool keeps_names(const TYPELIB *was, const TYPELIB *is)
{
  if (is->count < was->count)
    return false;
  for (uint i= 0; i < was->count; i++)
    if (std::string(was->type_names[i], was->type_lengths[i]) != std::string(is->type_names[i], is->type_lengths[i]))
      return false;
  return true;
}

/* Whether expressions may see another value of a column, or it may have another one computed, though the server takes the type for the same. */
bool means_otherwise(const Field *was, const Field *is)
{
  const bool resized= was->field_length != is->field_length;
  if (((was->flags | is->flags) & ZEROFILL_FLAG) && (resized || ((was->flags ^ is->flags) & ZEROFILL_FLAG)))
    return true;
  if (is->result_type() == REAL_RESULT && (resized || was->decimals() != is->decimals()))
    return true; /* rounded, cut and written so */
  const TYPELIB *names= was->get_typelib(), *names_now= is->get_typelib();
  return names && names_now && (!keeps_names(names, names_now) || (is->vcol_info && names->count != names_now->count));
}

bool generated_columns_may_change(const TABLE *table, const TABLE *altered, const Alter_map &map)
{
  for (uint i= 0; table->s->virtual_fields && i < altered->s->fields; i++)
    if (map.column_was[i] >= 0 && means_otherwise(table->field[map.column_was[i]], altered->field[i]))
      return true;
  return false;
}

std::string words_of(Virtual_column_info *expression)
{
  StringBuffer<MAX_FIELD_WIDTH> words;
  expression->print(&words);
  return std::string(words.ptr(), words.length());
}

/* Whether a column has a CHECK of its own that the rows have not been held against. */
bool brings_check(const TABLE *table, const TABLE *altered, const Alter_inplace_info *info, const Alter_map &map)
{
  List_iterator_fast<Create_field> next(info->alter_info->create_list);
  for (uint i= 0; const Create_field *created= next++; i++) {
    Virtual_column_info *check= altered->field[i]->check_constraint;
    if (!check)
      continue;
    Virtual_column_info *before= map.column_was[i] < 0 ? nullptr : table->field[map.column_was[i]]->check_constraint;
    /* That of a column of which the statement says nothing but the name follows it. */
    if (!before || (created->check_constraint != before && words_of(check) != words_of(before)))
      return true;
  }
  return false;
}

Judgement judge_columns(const TABLE *altered, const Table_definition &definition, const Alter_map &map)
{
  for (uint i= 0; i < altered->s->fields; i++) {
    const Field *field= altered->field[i];
    Column becomes= make_column(altered, i);
    if (map.column_was[i] >= 0) {
      const Column &was= definition.current().columns[map.column_was[i]];
      if (!readable_as(was, becomes))
        return copy(ER_ALTER_OPERATION_NOT_SUPPORTED_REASON_COLUMN_TYPE);
      continue;
    }
    if (becomes.in_key)
      return copy("rows are stored by the primary key");
    if (field->flags & AUTO_INCREMENT_FLAG)
      return copy(ER_ALTER_OPERATION_NOT_SUPPORTED_REASON_AUTOINC);
    if (becomes.storage != Storage::VIRTUAL && !has_constant_default(field))
      return copy("the new column's default is not the same for all rows");
  }
  return {HA_ALTER_INPLACE_INSTANT, nullptr};
}

Judgement judge_indexes(const TABLE *table, const TABLE *altered, const Alter_map &map, alter_table_operations flags)
{
  uint old_primary= table->s->primary_key, primary= altered->s->primary_key;
  if ((old_primary == MAX_KEY) != (primary == MAX_KEY) ||
      (primary != MAX_KEY && map.key_was[primary] != static_cast<int>(old_primary)))
    return copy("rows are stored by the primary key");
  for (uint i= 0; i < altered->s->keys; i++) {
    const KEY &key= altered->key_info[i];
    if (map.key_was[i] >= 0) {
      if (!same_index(table, table->key_info[map.key_was[i]], altered, key, map))
        return copy(ER_ALTER_OPERATION_NOT_SUPPORTED_REASON_COLUMN_TYPE);
      continue;
    }
    if ((key.flags & (HA_FULLTEXT | HA_SPATIAL)) || key.algorithm == HA_KEY_ALG_LONG_HASH)
      return copy("a unique index over long columns needs a computed one");
    for (uint part= 0; part < key.user_defined_key_parts; part++) {
      uint column= key.key_part[part].fieldnr - 1;
      if (!altered->field[column]->stored_in_db() && (flags & ALTER_VIRTUAL_GCOL_EXPR))
        return copy("an index on a virtual column whose values may change");
    }
  }
  /* An expression may have changed, and what indexes and stored columns hold of it. */
  if (flags & ALTER_VIRTUAL_GCOL_EXPR)
    for (uint i= 0; i < table->s->fields; i++) {
      if (!table->field[i]->stored_in_db() && in_any_key(table, i))
        return copy("the expression of an indexed virtual column may change");
      if (table->field[i]->stored_in_db() && table->field[i]->vcol_info)
        return copy("stored columns may be made from the virtual one");
    }
  if (flags & ADD_INDEX_FLAGS)
    return {HA_ALTER_INPLACE_NOCOPY_NO_LOCK, "indexes are built"};
  return {HA_ALTER_INPLACE_INSTANT, nullptr};
}

/* Of the altered table as it is seen in an ALTER that copies nothing. */
std::vector<Column> altered_columns(const TABLE *altered, const Alter_map &map)
{
  std::vector<Column> columns;
  for (uint i= 0; i < altered->s->fields; i++) {
    Column column= make_column(altered, i);
    if (map.column_was[i] < 0)
      set_column_default(altered, i, altered->record[0], &column);
    columns.push_back(std::move(column));
  }
  return columns;
}

/* How long the definition becomes, but for indexes that are added. */
size_t definition_bytes(const TABLE *table, const TABLE *altered, const Table_definition &definition, const Alter_map &map)
{
  Alter alter(nullptr);
  alter.map= map;
  alter.columns= altered_columns(altered, map);
  std::vector<uint32_t> dropped;
  Bytes bytes;
  alter_definition(definition, table, altered, alter, &dropped).encode(bytes);
  return bytes.size();
}

/* Whether what is stored or in an index is computed by an expression whose texts without a character set of their own get another collation. */
bool texts_may_compare_otherwise(const TABLE *table, const TABLE *altered)
{
  if (!table->s->virtual_fields || table->s->table_charset == altered->s->table_charset)
    return false;
  auto is_kept= [](const TABLE *of, uint i) {
    return of->field[i]->vcol_info && (of->field[i]->stored_in_db() || in_any_key(of, i));
  };
  for (uint i= 0; i < table->s->fields; i++)
    if (is_kept(table, i))
      return true;
  for (uint i= 0; i < altered->s->fields; i++)
    if (is_kept(altered, i))
      return true; /* an index comes with it, and may be built by the old table */
  return false;
}

Judgement judge(THD *thd, const TABLE *table, const TABLE *altered, const Table_definition &definition,
                const Alter_inplace_info *info)
{
  alter_table_operations flags= info->handler_flags;
  if (flags & ~(DEFINITION_FLAGS | LAYOUT_FLAGS | DROP_INDEX_FLAGS | ADD_INDEX_FLAGS))
    return flags_ask_for_copy(flags);
  if (info->create_info->used_fields & HA_CREATE_USED_SEQUENCE)
    return copy("SEQUENCE");
  if (info->error_if_not_empty)
    return copy("the new column's default is no valid value");
  if (info->ignore && (flags & ALTER_ADD_UNIQUE_INDEX))
    return copy(ER_ALTER_OPERATION_NOT_SUPPORTED_REASON_IGNORE);
  if ((flags & ALTER_ADD_CHECK_CONSTRAINT) && !thd_test_options(thd, OPTION_NO_CHECK_CONSTRAINT_CHECKS))
    return copy("rows have to be checked against the constraint");
  if (altered->versioned() && (flags & LAYOUT_FLAGS))
    return copy("Not implemented for system-versioned tables");
  if (texts_may_compare_otherwise(table, altered))
    return copy("generated columns may have other values under the table's new default collation");
  if ((flags & DESCRIPTION_FLAGS) && definition.layouts.size() >= LAYOUTS_MAX)
    return copy("the table has had too many instant changes");
  if ((flags & ALTER_PARTITIONED) && !same_options(table->s->option_list, altered->s->option_list))
    return copy("options of partitions change by a copy");
  Alter_map map;
  if (!map_alter(table, altered, info, &map) || definition.current().columns.size() != table->s->fields)
    return copy();
  if (!thd_test_options(thd, OPTION_NO_CHECK_CONSTRAINT_CHECKS) && brings_check(table, altered, info, map))
    return copy("rows have to be checked against the constraint");
  if (generated_columns_may_change(table, altered, map))
    return copy("generated columns may see other zeros, digits or names of a value");
  Judgement columns= judge_columns(altered, definition, map);
  if (columns.result != HA_ALTER_INPLACE_INSTANT)
    return columns;
  auto added= std::count_if(map.column_was.begin(), map.column_was.end(), [](int was) { return was < 0; });
  if (definition.next_column_id + added > UINT16_MAX)
    return copy("the table has had too many columns"); /* a copy numbers them anew */
  if ((flags & DESCRIPTION_FLAGS) && definition_bytes(table, altered, definition, map) > DEFINITION_BYTES_MAX)
    return copy("the table's definition would become too long");
  return judge_indexes(table, altered, map, flags);
}

/* A KEY of the altered table with its parts' numbers of columns as the present table has them. */
class Present_key {
public:
  Present_key(const KEY &altered, const Alter_map &map) : key(altered)
  {
    for (uint part= 0; part < altered.user_defined_key_parts; part++) {
      parts.push_back(altered.key_part[part]);
      parts.back().fieldnr= static_cast<uint16>(map.column_was[altered.key_part[part].fieldnr - 1] + 1);
    }
    key.key_part= parts.data();
  }
  const KEY *get() const { return &key; }

private:
  KEY key;
  std::vector<KEY_PART_INFO> parts;
};

/* Whether a new index has a column that comes with it, or is stored otherwise from now on, or made from one that may be. */
bool builds_on_new_columns(const TABLE *table, const TABLE *altered, const Alter_map &map, alter_table_operations flags)
{
  auto is_new= [&](uint column) {
    const int was= map.column_was[column];
    const bool may_be_made_from_new= !altered->field[column]->stored_in_db() && (flags & ALTER_COLUMN_TYPE_CHANGE_BY_ENGINE);
    return was < 0 || may_be_made_from_new || !same_storage(make_column(table, was), make_column(altered, column));
  };
  for (uint i= 0; i < altered->s->keys; i++) {
    const KEY &key= altered->key_info[i];
    for (uint part= 0; map.key_was[i] < 0 && part < key.user_defined_key_parts; part++)
      if (is_new(key.key_part[part].fieldnr - 1))
        return true;
  }
  return false;
}

bool is_clustering(const KEY &key)
{
  return key.option_struct && key.option_struct->clustering;
}

/* Of a build that was given up. Open transactions may have locks in its trees: start-up drops what is left. */
void drop_build(Index_build *build)
{
  frond_status status= in_transaction([build](frond_txn *txn) { return build->drop_trees(txn); }, DROP_WAIT_MS);
  if (status != FROND_OK)
    sql_print_warning("FROND: trees of an index that was not built stay until the next start: %s", last_message());
}

} // namespace

bool map_alter(const TABLE *table, const TABLE *altered, const Alter_inplace_info *info, Alter_map *map)
{
  List<Create_field> &created= info->alter_info->create_list;
  if (created.elements != altered->s->fields)
    return false;
  List_iterator_fast<Create_field> next(created);
  while (const Create_field *field= next++)
    map->column_was.push_back(field->field ? static_cast<int>(field->field->field_index) : -1);
  if (info->key_count != altered->s->keys)
    return false;
  for (uint i= 0; i < altered->s->keys; i++) {
    int was= -1;
    bool added= std::find(info->index_add_buffer, info->index_add_buffer + info->index_add_count, i) !=
                info->index_add_buffer + info->index_add_count;
    const LEX_CSTRING *name= &altered->key_info[i].name;
    for (const auto &pair : info->rename_keys)
      if (pair.new_key == &info->key_info_buffer[i])
        name= &pair.old_key->name;
    for (uint old= 0; !added && old < table->s->keys; old++)
      if (!my_strcasecmp(system_charset_info, name->str, table->key_info[old].name.str))
        was= static_cast<int>(old);
    if (was < 0 && !added)
      return false;
    map->key_was.push_back(was);
  }
  return true;
}

bool widens(const Field &field, const Column_definition &type)
{
  if (field.vcol_info || type.vcol_info || !field.stored_in_db() || (field.flags & FIELD_IN_PART_FUNC_FLAG) ||
      field.compression_method() || type.compression_method() || (type.check_constraint && !field.check_constraint))
    return false;
  enum_field_types was= field.real_type(), is= type.real_field_type();
  if (is_integer(was))
    return is_integer(is) && type.pack_length >= field.pack_length() &&
           !((type.flags ^ field.flags) & UNSIGNED_FLAG) &&
           (type.flags & AUTO_INCREMENT_FLAG) <= (field.flags & AUTO_INCREMENT_FLAG);
  if (field.cmp_type() != STRING_RESULT)
    return false;
  if (type.charset != field.charset()) {
    /* The same bytes mean the same characters; no expression is kept that compares them otherwise. */
    if (field.table->s->virtual_fields || !Charset(field.charset()).encoding_allows_reinterpret_as(type.charset))
      return false;
  }
  if (was == MYSQL_TYPE_VARCHAR && is == MYSQL_TYPE_VARCHAR)
    return type.type_handler() == field.type_handler() && type.length >= field.field_length &&
           type.char_length >= field.char_length();
  if (was == MYSQL_TYPE_STRING && is == MYSQL_TYPE_STRING)
    return type.type_handler() == field.type_handler() && field.key_type() == HA_KEYTYPE_TEXT &&
           type.length >= field.field_length && type.char_length >= field.char_length();
  if (was == MYSQL_TYPE_VARCHAR && is_blob(is))
    return type.pack_length - portable_sizeof_char_ptr >= (field.field_length > 255 ? 2U : 1U);
  if (is_blob(was) && is_blob(is))
    return type.pack_length >= field.pack_length();
  return false;
}

Table_definition alter_definition(const Table_definition &old, const TABLE *table, const TABLE *altered,
                                  const Alter &alter, std::vector<uint32_t> *dropped)
{
  Table_definition next= old;
  const LEX_CUSTRING &version= altered->s->tabledef_version;
  next.server_version.assign(reinterpret_cast<const char *>(version.str), version.length);
  Layout layout;
  const Layout &current= old.current();
  layout.version= current.version;
  layout.blobs_last= current.blobs_last;
  bool changed= current.columns.size() != alter.columns.size();
  for (size_t i= 0; i < alter.columns.size(); i++) {
    Column column= alter.columns[i];
    int was= alter.map.column_was[i];
    if (was >= 0) {
      const Column &before= current.columns[was];
      changed= changed || was != static_cast<int>(i) || !same_storage(before, column);
      column.id= before.id;
      column.has_default= before.has_default;
      column.default_null= before.default_null;
      column.default_bytes= before.default_bytes;
    } else {
      changed= true;
      column.id= next.next_column_id++;
    }
    layout.columns.push_back(std::move(column));
  }
  if (changed) {
    layout.version++;
    layout.blobs_last= true;
    next.layouts.push_back(std::move(layout));
  } else {
    next.layouts.back()= std::move(layout);
  }
  std::vector<bool> kept(old.indexes.size(), false);
  next.indexes.clear();
  for (uint i= 0; i < altered->s->keys; i++) {
    const KEY &key= altered->key_info[i];
    Index index;
    int was= alter.map.key_was[i];
    int position= was < 0 ? -1 : old.index_by_name(table->key_info[was].name.str, table->key_info[was].name.length);
    if (position >= 0) {
      index= old.indexes[position];
      kept[position]= true;
    }
    index.name.assign(key.name.str, key.name.length);
    if (was < 0 && alter.build)
      for (const Index_build::Index &built : alter.build->indexes)
        if (built.key_number == i) {
          index.id= built.id;
          index.unique= built.unique;
          index.clustering= built.clustering;
          next.next_index_id= std::max(next.next_index_id, built.id + 1);
        }
    next.indexes.push_back(std::move(index));
  }
  for (size_t i= 0; i < old.indexes.size(); i++)
    if (!kept[i])
      dropped->push_back(old.indexes[i].id);
  return next;
}

int check_table_version(const char *path, const LEX_CUSTRING *version)
{
  std::string name= tree_name(path), wanted(reinterpret_cast<const char *>(version->str), version->length);
  std::vector<std::string> candidates= {name};
  /* A partitioned table's partitions change together. */
  std::string partition= name + "#P#";
  for_each_readable_tree(partition, [&](const frond_tree_info &tree) {
    if (!strchr(tree.name + partition.size(), '/'))
      candidates.push_back(tree.name);
  });
  bool found= false;
  in_transaction([&](frond_txn *txn) {
    for (const std::string &candidate : candidates) {
      Table_definition definition;
      if (read_definition(txn, candidate, &definition) == FROND_OK && definition.server_version == wanted)
        found= true;
    }
    return frond_status(FROND_OK);
  });
  return found ? 0 : 1;
}

} // namespace frond

using namespace frond;

/* ---------------------------------------------------------------------------------------------------------------
 * The handler's part
 */

/* Whether the rows of both tables are stored by the key of the same name. Without a PRIMARY KEY it is the first unique one of each. */
static bool stored_by_same_key(const TABLE_SHARE *a, const TABLE_SHARE *b)
{
  if (a->primary_key == MAX_KEY || b->primary_key == MAX_KEY)
    return a->primary_key == b->primary_key;
  return !my_strcasecmp(system_charset_info, a->key_info[a->primary_key].name.str, b->key_info[b->primary_key].name.str);
}

/* A table that becomes a partition comes as it is stored; the server compares the rest, but neither the order of the keys, nor whether the table has
   a plain column where the partitions have a generated one. */
bool ha_frond::check_if_incompatible_data(HA_CREATE_INFO *, uint changes)
{
  const LEX *lex= ha_thd()->lex;
  if (changes != IS_EQUAL_YES)
    return COMPATIBLE_DATA_NO;
  if (!(lex->alter_info.partition_flags & (ALTER_PARTITION_EXCHANGE | ALTER_PARTITION_CONVERT_IN)))
    return COMPATIBLE_DATA_YES;
  const TABLE *partitioned= lex->query_tables->table;
  bool same= table_share->fields == partitioned->s->fields && stored_by_same_key(table_share, partitioned->s);
  for (uint i= 0; same && i < table_share->fields; i++)
    same= same_storage(make_column(table, i), make_column(partitioned, i)) && !table->field[i]->vcol_info == !partitioned->field[i]->vcol_info;
  return same ? COMPATIBLE_DATA_YES : COMPATIBLE_DATA_NO;
}

bool ha_frond::can_convert_nocopy(const Field &field, const Column_definition &type) const
{
  return widens(field, type);
}

/* Only asks whether the key may stay; check_if_supported_inplace_alter looks at both tables. */
Compare_keys ha_frond::compare_key_parts(const Field &old_field, const Column_definition &new_field,
                                         const KEY_PART_INFO &old_part, const KEY_PART_INFO &new_part) const
{
  if (old_field.is_equal(new_field) || !widens(old_field, new_field))
    return handler::compare_key_parts(old_field, new_field, old_part, new_part);
  bool text= old_field.cmp_type() == STRING_RESULT && old_field.charset() == new_field.charset;
  if (!text)
    return Compare_keys::NotEqual;
  if (old_part.length == new_part.length)
    return Compare_keys::Equal;
  return old_part.key_part_flag & HA_PART_KEY_SEG ? Compare_keys::NotEqual : Compare_keys::EqualButKeyPartLength;
}

enum_alter_inplace_result ha_frond::check_if_supported_inplace_alter(TABLE *altered, Alter_inplace_info *info)
{
  if (refuse_unsupported(altered, info->alter_info))
    return HA_ALTER_ERROR;
  Judgement judgement= judge(ha_thd(), table, altered, share->definition, info);
  if (judgement.reason)
    info->unsupported_reason= judgement.reason;
  /* Of what the partitions say, the server takes the least of the enumeration, in which a copy comes after what is instant. Where one needs a copy, by
     what it has been through, this lets all say so: they are asked again when they are asked for more. */
  if (judgement.result == HA_ALTER_INPLACE_NOT_SUPPORTED && table->part_info)
    info->handler_flags|= ALTER_RECREATE;
  return judgement.result;
}

int ha_frond::read_as_altered(TABLE *altered, Alter *alter)
{
  alter->build->note_rows_of(table);
  alter->altered_rows= std::make_unique<Alter::Altered_rows>();
  Alter::Altered_rows &as= *alter->altered_rows;
  const bool has_primary= altered->s->primary_key != MAX_KEY;
  if (int error= has_primary ? as.primary.init(altered, &altered->key_info[altered->s->primary_key]) : 0)
    return error;
  std::vector<uint32_t> dropped;
  Table_definition next= alter_definition(share->definition, table, altered, *alter, &dropped);
  return as.rows.init(altered, next, has_primary ? &as.primary : nullptr);
}

Builder ha_frond::builder_of(TABLE *altered, const Alter &alter) const
{
  if (const Alter::Altered_rows *as= alter.altered_rows.get())
    return {altered, &as->rows, altered->s->primary_key != MAX_KEY ? &as->primary : nullptr};
  return {table, &rows, primary_codec()};
}

bool ha_frond::prepare_inplace_alter_table(TABLE *altered, Alter_inplace_info *info)
{
  auto *alter= new (ha_thd()->mem_root) Alter(share);
  info->handler_ctx= alter;
  if (!alter || !map_alter(table, altered, info, &alter->map)) {
    print_error(HA_ERR_OUT_OF_MEM, MYF(0));
    return true;
  }
  alter->columns= altered_columns(altered, alter->map);
  if (!(info->handler_flags & ADD_INDEX_FLAGS))
    return false;
  alter->build= std::make_unique<Index_build>(share);
  const bool by_altered= builds_on_new_columns(table, altered, alter->map, info->handler_flags);
  uint32_t id= share->definition.next_index_id;
  int error= 0;
  for (uint i= 0; i < altered->s->keys && !error; i++)
    if (alter->map.key_was[i] < 0) {
      const KEY &key= altered->key_info[i];
      error= by_altered ? alter->build->add(altered, &key, i, is_clustering(key), id++)
                        : alter->build->add(table, Present_key(key, alter->map).get(), i, is_clustering(key), id++);
    }
  if (!error && by_altered)
    error= read_as_altered(altered, alter);
  if (!error) {
    frond_status status= in_ddl_transaction(ha_thd(), [&](frond_txn *txn) {
      frond_tree_options options;
      frond_status got= frond_tree_get_options(txn, share->primary, &options);
      return got == FROND_OK ? alter->build->create_trees(txn, options) : got;
    });
    error= handler_error(status);
  }
  if (error) {
    print_error(error, MYF(0));
    return true;
  }
  alter->build->publish();
  return false;
}

/* The key of the row in record[0] into that of the altered table, to be told. */
void ha_frond::show_as_altered(TABLE *altered, const KEY &key, const Alter &alter)
{
  restore_record(altered, s->default_values);
  for (uint part= 0; part < key.user_defined_key_parts; part++) {
    Field *to= altered->field[key.key_part[part].fieldnr - 1];
    Field *from= table->field[alter.map.column_was[to->field_index]];
    if (from->is_null()) {
      to->set_null();
    } else {
      to->set_notnull();
      field_conv(to, from);
    }
  }
}

bool ha_frond::report_build_failure(TABLE *altered, const Alter &alter, int error)
{
  if (ha_thd()->is_error()) {
    /* It has been said. */
  } else if (error == HA_ERR_ABORTED_BY_USER) {
    my_error(ER_QUERY_INTERRUPTED, MYF(0));
  } else if (error == HA_ERR_FOUND_DUPP_KEY) {
    KEY *key= &altered->key_info[alter.build->duplicate_key()];
    if (!alter.altered_rows)
      show_as_altered(altered, *key, alter);
    print_keydup_error(altered, key, MYF(0));
  } else {
    print_error(error, MYF(0));
  }
  return true;
}

/* A step of a build, which reads rows into record[0]; true, and the reason told, when it failed. */
template <typename Step> bool ha_frond::run_build(TABLE *altered, const Alter &alter, Step step)
{
  TABLE *its= builder_of(altered, alter).table;
  MY_BITMAP *old_read= tmp_use_all_columns(its, &its->read_set);
  MY_BITMAP *old_write= tmp_use_all_columns(its, &its->write_set);
  int error= step(alter.build.get());
  bool failed= error && report_build_failure(altered, alter, error);
  tmp_restore_column_map(&its->read_set, old_read);
  tmp_restore_column_map(&its->write_set, old_write);
  return failed;
}

bool ha_frond::inplace_alter_table(TABLE *altered, Alter_inplace_info *info)
{
  Alter *alter= static_cast<Alter *>(info->handler_ctx);
  if (!alter || !alter->build)
    return false;
  bool failed= run_build(altered, *alter, [&](Index_build *build) {
    return build->run(ha_thd(), builder_of(altered, *alter), stats.records);
  });
  /* Of the partitions that are built others have written to meanwhile: what is left to the end keeps everybody waiting. */
  for (const Alter *one= alter->before; one && !failed; one= one->before)
    failed= run_build(altered, *one, [this](Index_build *build) { return build->follow(ha_thd()); });
  return failed;
}

/* One table's or partition's share of the commit. */
frond_status ha_frond::commit_alter(frond_txn *txn, const Alter &alter, const TABLE *altered, const Alter_inplace_info *info)
{
  Table_definition old;
  std::vector<uint32_t> dropped;
  Table_share *changed= alter.share;
  frond_status status= read_definition(txn, changed->name, &old);
  if (status != FROND_OK)
    return status;
  Table_definition next= alter_definition(old, table, altered, alter, &dropped);
  if (info->create_info->used_fields & HA_CREATE_USED_AUTO) {
    next.auto_increment_start= info->create_info->auto_increment_value;
    std::string counter= auto_increment_key(next.table_id);
    const frond_slice key= frond_bytes(counter.data(), counter.size());
    const std::string kept= changed->kept_when_lowered(next.auto_increment_start);
    status= kept.empty() ? frond_txn_delete(txn, auto_increment_tree, key)
                         : frond_txn_put(txn, auto_increment_tree, key, frond_bytes(kept.data(), kept.size()));
  } else if (table->found_next_number_field) {
    next.auto_increment_start= std::max(next.auto_increment_start, changed->next_auto_increment());
  }
  for (uint32_t id : dropped)
    if (status == FROND_OK) {
      status= frond_tree_drop(txn, index_tree_name(changed->name, id).c_str());
      if (status == FROND_NOT_FOUND)
        status= FROND_OK;
    }
  if (status == FROND_OK && alter.build)
    status= alter.build->adopt_trees(txn);
  if (status == FROND_OK)
    status= write_definition(txn, changed->primary, next);
  if (status == FROND_OK)
    status= change_codec(txn, *changed, next, table->s->option_struct, altered->s->option_struct);
  return status;
}

bool ha_frond::commit_inplace_alter_table(TABLE *altered, Alter_inplace_info *info, bool commit)
{
  Alter *alter= static_cast<Alter *>(info->handler_ctx);
  if (!commit) {
    if (alter && alter->build) {
      alter->build->withdraw();
      drop_build(alter->build.get());
    }
    return false;
  }
  std::vector<Alter *> all;
  if (info->group_commit_ctx)
    for (inplace_alter_handler_ctx **next= info->group_commit_ctx; *next; next++)
      all.push_back(static_cast<Alter *>(*next));
  else
    all.push_back(alter);
  /* The server is strict while the build runs, and not any more when it commits. */
  THD *thd= ha_thd();
  thd->abort_on_warning= !info->ignore && thd->is_strict_mode();
  bool failed= false;
  for (const Alter *one : all)
    failed= failed || (one->build && run_build(altered, *one, [thd](Index_build *build) { return build->finish(thd); }));
  thd->abort_on_warning= false;
  if (failed)
    return true;
  frond_status status= in_ddl_transaction(thd, [&](frond_txn *txn) {
    frond_status done= FROND_OK;
    for (Alter *one : all)
      if (done == FROND_OK)
        done= commit_alter(txn, *one, altered, info);
    return done;
  });
  if (status != FROND_OK) {
    print_error(handler_error(status), MYF(0));
    return true;
  }
  for (Alter *one : all) {
    if (info->create_info->used_fields & HA_CREATE_USED_AUTO)
      one->share->set_auto_increment(info->create_info->auto_increment_value);
    if (one->build) {
      one->build->withdraw();
      trees_came(one->share->definition.table_id);
    }
  }
  info->group_commit_ctx= nullptr;
  return false;
}
