/* Copyright (c) 2026 The FrondDB maintainers. SPDX-License-Identifier: GPL-2.0-or-later */

#ifndef FROND_KEY_CODEC_H
#define FROND_KEY_CODEC_H

/*
  Owns: how the columns of one index become the bytes that the engine orders.

  See key_codec.cc for the encoding of each type and why it orders as the
  server compares. In short:
    K1  memcmp of two encodings orders as the server compares the columns; equal
        bytes are equal columns, so uniqueness is uniqueness of bytes.
    K2  each column is self-delimiting: the encoding of leading columns is a
        prefix of the whole, and what follows it (a primary key) is found by
        skipping.
    K3  a column that may be NULL begins with one byte, 0 for NULL, 1 for a value.
    K4  a descending column has all its bytes inverted, that one included.
    K5  the encoding does not depend on the declared length of a VARCHAR, CHAR or
        TEXT column: making one longer leaves its index as it is; but for a CHAR
        with padding_is_in_key.
*/

#include "my_global.h"
#include "sql_class.h"
#include "table.h"

#include "bytes.h"

#include <vector>

namespace frond {

struct Key_column;

/* Whether the spaces that pad a CHAR come into its encoding: UCA collations
   without padding weigh them, and Thai ones put tone marks behind them. */
bool padding_is_in_key(CHARSET_INFO *cs);

class Key_codec
{
 public:
  Key_codec();
  ~Key_codec();
  Key_codec(const Key_codec &)= delete;
  Key_codec &operator=(const Key_codec &)= delete;

  /* One per KEY of an open TABLE, immutable afterwards (and then free to be
     used by any thread that may use the TABLE's fields). User-defined key parts
     only. 0, or HA_ERR_UNSUPPORTED for a column that cannot be a key. */
  int init(const TABLE *table, const KEY *key);

  /* Appends the encoding of the columns; `record` is laid out as
     table->record[0]. */
  void encode(const uchar *record, Bytes &out) const;
  /* The same from the server's key tuple: leading columns that `parts` names. */
  void encode_tuple(const uchar *tuple, key_part_map parts, Bytes &out) const;
  bool has_null(const uchar *record) const;
  /* Whether the encodings of the two records differ, without making them
     where that is easy to see. */
  bool differs(const uchar *record_a, const uchar *record_b) const;

  /* Some whole column cannot be decoded from the encoding alone. */
  bool restore_needed() const { return m_restore_needed; }
  void encode_restore(const uchar *record, Bytes &out) const;
  /* Entry key → record columns. Column prefixes and blobs are skipped: the
     server never reads them from an index (part_of_key). Returns the bytes of
     `key` consumed, 0 on damage. *restore is advanced. With `restore` null,
     columns that need it are left alone. */
  size_t decode(const uchar *key, size_t size, const uchar **restore,
                const uchar *restore_end, uchar *record) const;
  /* The same for the columns in `wanted` alone (null: all); the others stay as they are. */
  size_t decode(const uchar *key, size_t size, const uchar **restore,
                const uchar *restore_end, const MY_BITMAP *wanted, uchar *record) const;
  /* Length of the encoding of all columns, 0 on damage. */
  size_t skip(const uchar *key, size_t size) const;
  /* Length of the encoding of the first `columns` columns, 0 on damage. */
  size_t skip(const uchar *key, size_t size, uint columns) const;
  /* The whole column is decodable from the encoding alone (a Row_codec leaves
     such primary key columns out of the row). */
  bool restorable(uint key_part) const;
  size_t length_max() const { return m_length_max; }
  uint columns() const;

 private:
  std::vector<Key_column> m_columns;
  size_t m_length_max= 0;
  bool m_restore_needed= false;
  bool m_nullable= false;
  /* Every column is NOT NULL and of fixed length: skip() is this number. */
  size_t m_fixed_length= 0;
};

/* Whether Key_codec::restorable would hold for this part of a key. */
bool key_part_restorable(const TABLE *table, const KEY_PART_INFO *part);

}  // namespace frond

#endif
