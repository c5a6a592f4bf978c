/* Copyright (c) 2026 The FrondDB maintainers. SPDX-License-Identifier: GPL-2.0-or-later */

#include "definition.h"

namespace frond {

namespace {

/* 1 had no row_bytes. */
/* 2: with the length of rows; 3: with flags of layouts. */
constexpr uint64_t FORMAT_VERSION= 3;

constexpr uint64_t LAYOUT_BLOBS_LAST= 1, LAYOUT_FLAGS= 1;

/* What one element takes at least: a count that cannot be true is refused
   before memory is taken for it. */
constexpr size_t COLUMN_BYTES_MIN= 10;
constexpr size_t INDEX_BYTES_MIN= 4;

constexpr uint64_t COLUMN_NULLABLE= 1;
constexpr uint64_t COLUMN_UNSIGNED= 2;
constexpr uint64_t COLUMN_IN_KEY= 4;
constexpr uint64_t COLUMN_HAS_DEFAULT= 8;
constexpr uint64_t COLUMN_DEFAULT_NULL= 16;
constexpr uint64_t COLUMN_FLAGS= 31;

constexpr uint64_t INDEX_UNIQUE= 1;
constexpr uint64_t INDEX_CLUSTERING= 2;
constexpr uint64_t INDEX_HASHED= 4;
constexpr uint64_t INDEX_FLAGS= 7;

void put_string(Bytes &out, const std::string &text)
{
  out.append_varint(text.size());
  out.append(text.data(), text.size());
}

std::string get_string(Byte_reader &in)
{
  size_t length= static_cast<size_t>(in.varint_max(in.left()));
  const unsigned char *at= in.bytes(length);
  return at == nullptr ? std::string()
                       : std::string(reinterpret_cast<const char *>(at), length);
}

uint64_t get_count(Byte_reader &in, size_t bytes_min)
{
  return in.varint_max(in.left() / bytes_min);
}

uint64_t flag(bool set, uint64_t bit) { return set ? bit : 0; }

void put_column(Bytes &out, const Column &column)
{
  out.append_varint(column.id);
  put_string(out, column.name);
  out.append_varint(static_cast<uint64_t>(column.storage));
  out.append_varint(column.length);
  out.append_varint(column.length_bytes);
  out.append_varint(column.bits);
  out.append_varint(flag(column.nullable, COLUMN_NULLABLE) |
                    flag(column.is_unsigned, COLUMN_UNSIGNED) |
                    flag(column.in_key, COLUMN_IN_KEY) |
                    flag(column.has_default, COLUMN_HAS_DEFAULT) |
                    flag(column.default_null, COLUMN_DEFAULT_NULL));
  out.append_varint(column.type);
  out.append_varint(column.charset);
  put_string(out, column.default_bytes);
}

Column get_column(Byte_reader &in)
{
  Column column;
  column.id= static_cast<uint16_t>(in.varint_max(UINT16_MAX));
  column.name= get_string(in);
  column.storage= static_cast<Storage>(
      in.varint_max(static_cast<uint64_t>(Storage::VIRTUAL)));
  column.length= static_cast<uint32_t>(in.varint_max(UINT32_MAX));
  column.length_bytes= static_cast<uint8_t>(in.varint_max(4));
  column.bits= static_cast<uint8_t>(in.varint_max(7));
  uint64_t flags= in.varint_max(COLUMN_FLAGS);
  column.nullable= flags & COLUMN_NULLABLE;
  column.is_unsigned= flags & COLUMN_UNSIGNED;
  column.in_key= flags & COLUMN_IN_KEY;
  column.has_default= flags & COLUMN_HAS_DEFAULT;
  column.default_null= flags & COLUMN_DEFAULT_NULL;
  column.type= static_cast<uint16_t>(in.varint_max(UINT16_MAX));
  column.charset= static_cast<uint32_t>(in.varint_max(UINT32_MAX));
  column.default_bytes= get_string(in);
  return column;
}

void put_index(Bytes &out, const Index &index)
{
  out.append_varint(index.id);
  put_string(out, index.name);
  out.append_varint(flag(index.unique, INDEX_UNIQUE) |
                    flag(index.clustering, INDEX_CLUSTERING) |
                    flag(index.hashed, INDEX_HASHED));
  out.append_varint(index.rec_per_key.size());
  for (uint64_t count : index.rec_per_key)
    out.append_varint(count);
}

Index get_index(Byte_reader &in)
{
  Index index;
  index.id= static_cast<uint32_t>(in.varint_max(UINT32_MAX));
  index.name= get_string(in);
  uint64_t flags= in.varint_max(INDEX_FLAGS);
  index.unique= flags & INDEX_UNIQUE;
  index.clustering= flags & INDEX_CLUSTERING;
  index.hashed= flags & INDEX_HASHED;
  uint64_t parts= get_count(in, 1);
  for (uint64_t i= 0; i < parts && in.ok(); i++)
    index.rec_per_key.push_back(in.varint());
  return index;
}

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

}  // namespace

void Table_definition::encode(Bytes &out) const
{
  out.append_varint(FORMAT_VERSION);
  out.append_varint(table_id);
  out.append_varint(auto_increment_start);
  out.append_varint(analyzed_rows);
  out.append_varint(row_bytes);
  put_string(out, server_version);
  out.append_varint(next_column_id);
  out.append_varint(next_index_id);
  out.append_varint(layouts.size());
  for (const Layout &layout : layouts)
  {
    out.append_varint(layout.version);
    out.append_varint(flag(layout.blobs_last, LAYOUT_BLOBS_LAST));
    out.append_varint(layout.columns.size());
    for (const Column &column : layout.columns)
      put_column(out, column);
  }
  out.append_varint(indexes.size());
  for (const Index &index : indexes)
    put_index(out, index);
}

bool Table_definition::decode(const void *data, size_t size)
{
  Byte_reader in(data, size);
  *this= Table_definition();
  uint64_t version= in.varint();
  if (version == 0 || version > FORMAT_VERSION)
    return false;
  table_id= in.varint();
  auto_increment_start= in.varint();
  analyzed_rows= in.varint();
  if (version > 1)
    row_bytes= in.varint();
  server_version= get_string(in);
  next_column_id= static_cast<uint16_t>(in.varint_max(UINT16_MAX));
  next_index_id= static_cast<uint32_t>(in.varint_max(UINT32_MAX));
  uint64_t layout_count= get_count(in, 2);
  for (uint64_t i= 0; i < layout_count && in.ok(); i++)
  {
    Layout layout;
    layout.version= static_cast<uint32_t>(in.varint_max(UINT32_MAX));
    if (!layouts.empty() && layout.version <= layouts.back().version)
      return false;
    if (version > 2)
      layout.blobs_last= in.varint_max(LAYOUT_FLAGS) & LAYOUT_BLOBS_LAST;
    uint64_t columns= get_count(in, COLUMN_BYTES_MIN);
    for (uint64_t c= 0; c < columns && in.ok(); c++)
      layout.columns.push_back(get_column(in));
    layouts.push_back(std::move(layout));
  }
  uint64_t index_count= get_count(in, INDEX_BYTES_MIN);
  for (uint64_t i= 0; i < index_count && in.ok(); i++)
    indexes.push_back(get_index(in));
  return in.ok() && in.at_end() && !layouts.empty();
}

const Layout *Table_definition::layout(uint32_t version) const
{
  for (const Layout &layout : layouts)
    if (layout.version == version)
      return &layout;
  return nullptr;
}

int Table_definition::index_by_name(const char *name, size_t length) const
{
  for (size_t i= 0; i < indexes.size(); i++)
  {
    const std::string &other= indexes[i].name;
    size_t at= 0;
    while (at < length && at < other.size() && lower(name[at]) == lower(other[at]))
      at++;
    if (at == length && at == other.size())
      return static_cast<int>(i);
  }
  return -1;
}

int Table_definition::column_by_id(uint16_t id) const
{
  const std::vector<Column> &columns= current().columns;
  for (size_t i= 0; i < columns.size(); i++)
    if (columns[i].id == id)
      return static_cast<int>(i);
  return -1;
}

bool Column::operator==(const Column &other) const
{
  return id == other.id && name == other.name && storage == other.storage &&
         length == other.length && length_bytes == other.length_bytes &&
         bits == other.bits && nullable == other.nullable &&
         is_unsigned == other.is_unsigned && in_key == other.in_key &&
         type == other.type && charset == other.charset &&
         has_default == other.has_default && default_null == other.default_null &&
         default_bytes == other.default_bytes;
}

bool Layout::operator==(const Layout &other) const
{
  return version == other.version && blobs_last == other.blobs_last && columns == other.columns;
}

bool Index::operator==(const Index &other) const
{
  return id == other.id && name == other.name && unique == other.unique &&
         clustering == other.clustering && hashed == other.hashed &&
         rec_per_key == other.rec_per_key;
}

bool Table_definition::operator==(const Table_definition &other) const
{
  return table_id == other.table_id &&
         auto_increment_start == other.auto_increment_start &&
         analyzed_rows == other.analyzed_rows && row_bytes == other.row_bytes &&
         server_version == other.server_version &&
         next_column_id == other.next_column_id &&
         next_index_id == other.next_index_id && layouts == other.layouts &&
         indexes == other.indexes;
}

}  // namespace frond
