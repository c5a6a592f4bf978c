/* Copyright (c) 2026 The FrondDB maintainers. SPDX-License-Identifier: GPL-2.0-or-later */

#ifndef FROND_ROW_CODEC_H
#define FROND_ROW_CODEC_H

/*
  Owns: how a record of the server becomes the value of a row and back.

  Row: varint layout version · null bits of the nullable columns that are in
  the row, lowest bit first · the columns in layout order, those of kind BLOB
  behind all others where the layout says so:
    FIXED, INTEGER  their bytes            (nothing where NULL)
    BIT             the uneven bits as one byte where there are any, the bytes
    VARCHAR, BLOB   varint length, bytes
    CHAR            varint length without trailing pad, bytes
  Virtual columns, and the primary key columns that Key_codec decodes from the
  key, are left out.

  Both directions follow a plan made at open: neighbouring NOT NULL columns of
  fixed size are one copy, the common kinds need no call into the server. Rows
  of an older layout have a plan of their own: columns that the row does not
  have get the default kept in the definition, dropped ones are skipped, widened
  integers and strings are converted.
*/

#include "my_global.h"
#include "sql_class.h"
#include "table.h"

#include "bytes.h"
#include "definition.h"
#include "key_codec.h"

#include <vector>

namespace frond {

struct Row_step;
struct Row_plan;

class Row_codec
{
 public:
  Row_codec();
  ~Row_codec();
  Row_codec(const Row_codec &)= delete;
  Row_codec &operator=(const Row_codec &)= delete;

  /* One per open TABLE, immutable afterwards; `primary` is null for a hidden
     key. 0, or HA_ERR_TABLE_DEF_CHANGED where definition and table do not fit. */
  int init(const TABLE *table, const Table_definition &definition,
           const Key_codec *primary);

  /* Appends the row. */
  void encode(const uchar *record, Bytes &out) const;

  /* Whether one of these (null: all that are stored) is a BLOB. The others are in
     the first bytes of a row, but of one in an older layout or of very long ones. */
  bool wants_blobs(const MY_BITMAP *wanted) const;

  /* Fills the columns in `wanted` (null: all that are stored) of `record`, NULL
     bits included; others may be filled too or stay as they are. Null bytes
     and filler bits are set from the table's default record. Blobs point into
     `value` or `key`: the caller keeps them alive. 0 or HA_ERR_CRASHED, also where
     of the row there is too little. */
  int decode(const uchar *key, size_t key_size, const uchar *value,
             size_t value_size, const MY_BITMAP *wanted, uchar *record) const;

 private:
  const Row_plan *plan_of(uint64_t version) const;

  std::vector<Row_plan> m_plans;     /* one per layout; the last is current */
  uint64_t m_key_columns= 0;         /* read from the key */
  uint64_t m_blob_columns= 0;
  const Key_codec *m_primary= nullptr;
  const uchar *m_defaults= nullptr;  /* the table's default record */
  size_t m_null_bytes= 0;
  size_t m_length_max= 0;            /* of a row without its blobs */
};

/* Whether two records of its table have the same in this column, to the last byte. */
bool same_column(Field *field, const uchar *a, const uchar *b);

}  // namespace frond

#endif
