/* Copyright (c) 2026 The FrondDB maintainers. SPDX-License-Identifier: GPL-2.0-or-later */

#include "definition.h"

#include <random>

#include "check.h"

using namespace frond;

namespace {

Table_definition example()
{
  Table_definition definition;
  definition.table_id= 0x1234567890abcdefULL;
  definition.auto_increment_start= 1ULL << 63;
  definition.analyzed_rows= 1000;
  definition.row_bytes= 321;
  definition.server_version= std::string("\0version of a frm", 17);
  definition.next_column_id= 4;
  definition.next_index_id= 3;
  Column id;
  id.name= "id";
  id.storage= Storage::INTEGER;
  id.length= 8;
  id.is_unsigned= id.in_key= true;
  id.type= 8;
  id.charset= 8;
  Column name;
  name.id= 3;
  name.name= std::string("n\0m", 3);
  name.storage= Storage::VARCHAR;
  name.length= 400;
  name.length_bytes= 2;
  name.nullable= name.has_default= true;
  name.charset= 2048;
  name.default_bytes= "none";
  Column flag;
  flag.id= 2;
  flag.name= "flag";
  flag.storage= Storage::BIT;
  flag.bits= 5;
  flag.has_default= flag.default_null= flag.nullable= true;
  Layout old_layout, layout;
  old_layout.version= 1;
  old_layout.columns= {id};
  layout.version= 300;
  layout.columns= {id, name, flag};
  layout.blobs_last= true;
  definition.layouts= {old_layout, layout};
  Index primary, by_name;
  primary.name= "PRIMARY";
  primary.unique= true;
  by_name.id= 2;
  by_name.name= "by_Name";
  by_name.clustering= by_name.hashed= true;
  by_name.rec_per_key= {3, 1, 1ULL << 40};
  definition.indexes= {primary, by_name};
  return definition;
}

void a_definition_comes_back()
{
  Table_definition definition= example(), back;
  Bytes bytes;
  definition.encode(bytes);
  CHECK(back.decode(bytes.data(), bytes.size()));
  CHECK(back == definition);
  CHECK(!(back == Table_definition()));
  CHECK(back.current().version == 300);
  CHECK(back.layout(1)->columns.size() == 1);
  CHECK(back.layout(2) == nullptr);
}

void every_cut_is_refused()
{
  Bytes bytes;
  example().encode(bytes);
  Table_definition back;
  for (size_t size= 0; size < bytes.size(); size++)
    CHECK(!back.decode(bytes.data(), size));
  bytes.append_byte(0);
  CHECK(!back.decode(bytes.data(), bytes.size()));
}

std::string without(std::string bytes, size_t at)
{
  return bytes.erase(at, 1);
}

/* Where the flags of a layout lie, which take one byte. */
size_t flags_of(Table_definition definition, size_t layout)
{
  definition.layouts.resize(layout + 1);
  definition.layouts.back().columns.clear();
  definition.indexes.clear();
  Bytes bytes;
  definition.encode(bytes);
  constexpr size_t NO_COLUMNS_AND_NO_INDEXES= 2;
  return bytes.size() - NO_COLUMNS_AND_NO_INDEXES - 1;
}

/* Of the second format, whose layouts had no flags, and of the first, which did not say how long rows are either. */
void older_formats_come_back()
{
  Table_definition definition= example(), back;
  for (Layout &layout : definition.layouts)
    layout.blobs_last= false;
  Bytes bytes, before;
  definition.row_bytes= 0;
  definition.encode(bytes);
  std::string old(reinterpret_cast<const char *>(bytes.data()), bytes.size());
  for (size_t layout= definition.layouts.size(); layout > 0; layout--)
    old= without(old, flags_of(definition, layout - 1));
  old[0]= 2;
  CHECK(back.decode(old.data(), old.size()));
  CHECK(back == definition);
  for (uint64_t number : {uint64_t{2}, definition.table_id, definition.auto_increment_start, definition.analyzed_rows})
    before.append_varint(number);
  old= without(old, before.size());
  old[0]= 1;
  CHECK(back.decode(old.data(), old.size()));
  CHECK(back == definition);
}

void a_newer_format_is_refused()
{
  Bytes bytes;
  example().encode(bytes);
  bytes.data()[0]= 4;
  Table_definition back;
  CHECK(!back.decode(bytes.data(), bytes.size()));
}

void damage_is_refused_or_reads_as_another_definition()
{
  Bytes good;
  example().encode(good);
  std::mt19937 random(11);
  for (int i= 0; i < 20000; i++)
  {
    Bytes bytes(good);
    for (unsigned changes= 1 + random() % 3; changes > 0; changes--)
      bytes.data()[random() % bytes.size()]= static_cast<unsigned char>(random());
    Table_definition back, again;
    if (!back.decode(bytes.data(), bytes.size()))
      continue;
    Bytes encoded;
    back.encode(encoded);
    CHECK(again.decode(encoded.data(), encoded.size()));
    CHECK(again == back);
  }
}

void indexes_are_found_without_case()
{
  Table_definition definition= example();
  CHECK(definition.index_by_name("primary") == 0);
  CHECK(definition.index_by_name("BY_name") == 1);
  CHECK(definition.index_by_name("by_nam") == -1);
  CHECK(definition.index_by_name("by_names") == -1);
  CHECK(definition.column_by_id(2) == 2);
  CHECK(definition.column_by_id(1) == -1);
}

void varints_come_back_and_long_ones_are_refused()
{
  for (int shift= 0; shift < 64; shift++)
    for (uint64_t value : {(1ULL << shift) - 1, 1ULL << shift, ~0ULL >> shift})
    {
      Bytes bytes;
      bytes.append_varint(value);
      Byte_reader in(bytes.data(), bytes.size());
      CHECK(in.varint() == value);
      CHECK(in.ok() && in.at_end());
      Byte_reader cut(bytes.data(), bytes.size() - 1);
      CHECK(cut.varint() == 0 && !cut.ok());
    }
  const unsigned char over[]= {255, 255, 255, 255, 255, 255, 255, 255, 255, 2};
  Byte_reader in(over, sizeof over);
  CHECK(in.varint() == 0 && !in.ok());
}

void bytes_keep_what_they_hold_while_growing()
{
  Bytes bytes;
  for (int i= 0; i < 1000; i++)
    bytes.append_byte(static_cast<unsigned char>(i));
  Bytes copy(bytes), moved(std::move(bytes));
  CHECK(copy.size() == 1000 && moved.size() == 1000);
  CHECK(memcmp(copy.data(), moved.data(), 1000) == 0);
  size_t capacity= moved.capacity();
  moved.clear();
  CHECK(moved.empty() && moved.capacity() == capacity);
  moved.fill(7, 3);
  CHECK(moved.size() == 3 && moved.data()[2] == 7);
}

}  // namespace

int main()
{
  TEST("a definition comes back", a_definition_comes_back);
  TEST("every cut is refused", every_cut_is_refused);
  TEST("older formats come back", older_formats_come_back);
  TEST("a newer format is refused", a_newer_format_is_refused);
  TEST("damage is refused or reads as another definition",
       damage_is_refused_or_reads_as_another_definition);
  TEST("indexes are found without case", indexes_are_found_without_case);
  TEST("varints come back and long ones are refused",
       varints_come_back_and_long_ones_are_refused);
  TEST("bytes keep what they hold while growing", bytes_keep_what_they_hold_while_growing);
  return check::finish();
}
