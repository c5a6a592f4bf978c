/* Copyright (c) 2026 The FrondDB maintainers. SPDX-License-Identifier: GPL-2.0-or-later */

#include "definition.h"

#include "my_global.h"
#include "sql_class.h"
#include "table.h"

#include "key_codec.h"

namespace frond {

namespace {

Storage storage_of(const Field *field)
{
  if (!field->stored_in_db())
    return Storage::VIRTUAL;
  if (field->flags & BLOB_FLAG)
    return Storage::BLOB;
  switch (field->real_type()) {
  case MYSQL_TYPE_VARCHAR:
  case MYSQL_TYPE_VARCHAR_COMPRESSED:
    return Storage::VARCHAR;
  case MYSQL_TYPE_BIT:
    return Storage::BIT;
  case MYSQL_TYPE_TINY:
  case MYSQL_TYPE_SHORT:
  case MYSQL_TYPE_INT24:
  case MYSQL_TYPE_LONG:
  case MYSQL_TYPE_LONGLONG:
  case MYSQL_TYPE_ENUM:
  case MYSQL_TYPE_SET:
    return Storage::INTEGER;
  case MYSQL_TYPE_STRING:
    return field->key_type() == HA_KEYTYPE_TEXT ? Storage::CHAR : Storage::FIXED;
  default:
    return Storage::FIXED;
  }
}

bool is_unsigned(const Field *field)
{
  switch (field->real_type()) {
  case MYSQL_TYPE_ENUM:
  case MYSQL_TYPE_SET:
    return true;
  default:
    return field->flags & UNSIGNED_FLAG;
  }
}

bool in_primary_key(const TABLE *table, const Field *field)
{
  if (table->s->primary_key >= MAX_KEY)
    return false;
  const KEY *key= &table->key_info[table->s->primary_key];
  for (uint i= 0; i < key->user_defined_key_parts; i++)
    if (key->key_part[i].fieldnr == field->field_index + 1 &&
        key_part_restorable(table, &key->key_part[i]))
      return true;
  return false;
}

}  // namespace

Column make_column(const TABLE *table, unsigned index)
{
  const Field *field= table->field[index];
  Column column;
  column.name.assign(field->field_name.str, field->field_name.length);
  column.storage= storage_of(field);
  column.length= field->pack_length();
  column.nullable= field->real_maybe_null();
  column.is_unsigned= is_unsigned(field);
  column.type= static_cast<uint16_t>(field->real_type());
  column.charset= field->charset()->number;
  column.in_key= column.storage != Storage::VIRTUAL && in_primary_key(table, field);
  switch (column.storage) {
  case Storage::VARCHAR:
    column.length= field->field_length;
    column.length_bytes=
        static_cast<uint8_t>(static_cast<const Field_varstring *>(field)->length_bytes);
    break;
  case Storage::BLOB:
    column.length_bytes=
        static_cast<uint8_t>(static_cast<const Field_blob *>(field)->pack_length_no_ptr());
    column.length= static_cast<uint32_t>((1ULL << (8 * column.length_bytes)) - 1);
    break;
  case Storage::BIT:
  {
    auto *bit= static_cast<const Field_bit *>(field);
    column.length= bit->bytes_in_rec;
    column.bits= static_cast<uint8_t>(bit->bit_len);
    break;
  }
  default:
    break;
  }
  return column;
}

void set_column_default(const TABLE *table, unsigned index, const uchar *record,
                        Column *column)
{
  const Field *field= table->field[index];
  const uchar *at= record + (field->ptr - table->record[0]);
  auto text= [](const uchar *from, size_t size) {
    return std::string(reinterpret_cast<const char *>(from), size);
  };
  column->has_default= column->storage != Storage::VIRTUAL;
  column->default_null= column->has_default && field->is_null_in_record(record);
  column->default_bytes.clear();
  if (!column->has_default || column->default_null)
    return;
  switch (column->storage) {
  case Storage::VARCHAR:
    column->default_bytes= text(at + column->length_bytes,
                                column->length_bytes == 1 ? *at : uint2korr(at));
    break;
  case Storage::BLOB:
  {
    auto *blob= static_cast<const Field_blob *>(field);
    const uchar *data;
    memcpy(&data, at + column->length_bytes, sizeof data);
    if (data)
      column->default_bytes= text(data, blob->get_length(at));
    break;
  }
  case Storage::CHAR:
    column->default_bytes= text(
        at, field->charset()->lengthsp(reinterpret_cast<const char *>(at), column->length));
    break;
  case Storage::BIT:
  {
    auto *bit= static_cast<const Field_bit *>(field);
    if (bit->bit_len > 0)
    {
      const uchar *bits= record + (bit->bit_ptr - table->record[0]);
      column->default_bytes.push_back(
          static_cast<char>(get_rec_bits(bits, bit->bit_ofs, bit->bit_len)));
    }
    column->default_bytes+= text(at, column->length);
    break;
  }
  default:
    column->default_bytes= text(at, column->length);
  }
}

Table_definition make_definition(const TABLE *table, uint64_t table_id, uint64_t clustering)
{
  Table_definition definition;
  definition.table_id= table_id;
  const LEX_CUSTRING &version= table->s->tabledef_version;
  definition.server_version.assign(reinterpret_cast<const char *>(version.str), version.length);
  Layout layout;
  layout.version= 1;
  layout.blobs_last= true;
  for (uint i= 0; i < table->s->fields; i++)
  {
    Column column= make_column(table, i);
    column.id= definition.next_column_id++;
    layout.columns.push_back(std::move(column));
  }
  definition.layouts.push_back(std::move(layout));
  for (uint i= 0; i < table->s->keys; i++)
  {
    const KEY *key= &table->key_info[i];
    Index index;
    index.id= i == table->s->primary_key ? 0 : definition.next_index_id++;
    index.name.assign(key->name.str, key->name.length);
    index.unique= key->flags & HA_NOSAME;
    index.hashed= key->algorithm == HA_KEY_ALG_LONG_HASH;
    index.clustering= clustering >> i & 1;
    definition.indexes.push_back(std::move(index));
  }
  return definition;
}

}  // namespace frond
