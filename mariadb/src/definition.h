/* Copyright (c) 2026 The FrondDB maintainers. SPDX-License-Identifier: GPL-2.0-or-later */

#ifndef FROND_DEFINITION_H
#define FROND_DEFINITION_H

/*
  Owns: what the engine remembers about a table beside its rows: the metadata
  of the primary tree. How rows of every layout version look, which index has
  which permanent number, index statistics.

  Columns and indexes have permanent ids, so that renaming, dropping and adding
  them rewrites this definition and no row. A layout lists one column per field
  of the table, in the server's order (layout.columns[i] belongs to
  table->field[i] for the current layout), virtual columns included, with kind
  VIRTUAL.

  Invariants
    D1  layouts are in ascending order of version; the last one is current and
        is the one that is written; an older one stays as long as rows may have it.
    D2  a column id is given once in the life of a table (next_column_id).
    D3  an index id is given once in the life of a table (next_index_id); the
        primary key has id 0 and lives in the primary tree.
    D4  in_key of a column is the same in every layout: changing the primary key
        rebuilds the table.

  Format: `format version` then the fields in the order of the
  structures below, numbers as varints, strings and byte strings as varint
  length and bytes, lists as varint count and elements. Decoding is checked: a
  damaged definition is refused, never half read.

  Server-free; make_definition alone knows the server and lives in
  make_definition.cc.
*/

#include <cstdint>
#include <string>
#include <vector>

#include "bytes.h"

struct TABLE;

namespace frond {

/* How a column lies in the server's record and in the row. Stored: numbers
   are never given a new meaning. */
enum class Storage : uint8_t
{
  FIXED= 0,     /* `length` bytes, kept as they are */
  INTEGER= 1,   /* `length` bytes, little endian; may be widened in place */
  VARCHAR= 2,   /* `length_bytes` (1, 2) of length, then the characters */
  CHAR= 3,      /* `length` bytes, trailing pad left out of the row */
  BLOB= 4,      /* `length_bytes` (1..4) of length, then a pointer */
  BIT= 5,       /* `length` whole bytes, `bits` more beside the null bits */
  VIRTUAL= 6,   /* computed on reading: not in the row */
};

struct Column
{
  uint16_t id= 0;
  std::string name;
  Storage storage= Storage::FIXED;
  uint32_t length= 0;        /* bytes in the record, length bytes not counted */
  uint8_t length_bytes= 0;   /* VARCHAR, BLOB */
  uint8_t bits= 0;           /* BIT: bits beside the null bits (0..7) */
  bool nullable= false;
  bool is_unsigned= false;
  bool in_key= false;        /* read from the primary key, not in the row */
  uint16_t type= 0;          /* the server's real_type(), to tell types apart */
  uint32_t charset= 0;       /* collation number, 63 is binary */
  /* What rows written before the column existed hold. Meaningful where
     has_default; default_null wins over default_bytes. default_bytes: the
     record's bytes for FIXED, INTEGER, CHAR, (BIT: `bits` as one byte first
     where bits > 0); the characters alone for VARCHAR and BLOB. */
  bool has_default= false;
  bool default_null= false;
  std::string default_bytes;

  bool operator==(const Column &other) const;
};

struct Layout
{
  uint32_t version= 0;
  /* Rows have their BLOB columns behind all others, so that a row's first bytes
     have the others; before format 3, where each comes in its order. */
  bool blobs_last= false;
  std::vector<Column> columns;

  bool operator==(const Layout &other) const;
};

struct Index
{
  uint32_t id= 0;            /* 0: the primary key */
  std::string name;
  bool unique= false;
  bool clustering= false;
  /* Over the hash of a unique key's long columns, which rows may have in common:
     the server compares the columns. Not set where the table is of the time when
     its entries were made as if the hash were unique. */
  bool hashed= false;
  /* Rows per distinct value of the first 1, 2, … key parts, as ANALYZE or a
     look at a few places counted them; empty: never counted. */
  std::vector<uint64_t> rec_per_key;

  bool operator==(const Index &other) const;
};

struct Table_definition
{
  uint64_t table_id= 0;
  uint64_t auto_increment_start= 0;   /* given by CREATE or ALTER; 0: none */
  uint64_t analyzed_rows= 0;          /* rows when rec_per_key was counted; 0: never */
  uint64_t row_bytes= 0;              /* of a row before compression, but for what lies apart, on average then; 0: not known */
  /* The server's version of the table's definition (16 bytes, as in its .frm): after a crash inside an ALTER TABLE
     it asks which one the engine has. */
  std::string server_version;
  uint16_t next_column_id= 0;
  uint32_t next_index_id= 1;
  std::vector<Layout> layouts;
  std::vector<Index> indexes;         /* in the order of table->key_info at CREATE */

  void encode(Bytes &out) const;
  /* False where the bytes are damaged or of a newer format; *this is then
     unspecified. */
  bool decode(const void *data, size_t size);

  const Layout &current() const { return layouts.back(); }
  Layout &current() { return layouts.back(); }
  const Layout *layout(uint32_t version) const;
  /* Position in `indexes`, -1 where there is none. Names of indexes are
     compared as the server compares identifiers, without case. */
  int index_by_name(const char *name, size_t length) const;
  int index_by_name(const char *name) const { return index_by_name(name, strlen(name)); }
  /* Position in the current layout, -1 where there is none. */
  int column_by_id(uint16_t id) const;

  bool operator==(const Table_definition &other) const;
};

/* The column as `field` number `index` of the table asks for it: everything
   but id and default. */
Column make_column(const TABLE *table, unsigned index);

/* The bytes that `field` number `index` has in `record`, for rows that are older
   than the column. `record` is laid out as table->record[0]. */
void set_column_default(const TABLE *table, unsigned index,
                        const unsigned char *record, Column *column);

/* The first definition of a table: layout version 1, ids in the order of
   table->field, indexes in the order of table->key_info. `clustering` has a bit
   set per key number that keeps the whole row (the handler reads that option). */
Table_definition make_definition(const TABLE *table, uint64_t table_id,
                                 uint64_t clustering= 0);

}  // namespace frond

#endif
