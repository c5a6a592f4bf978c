/* How an index entry is made of a row: the key and the value as ha_frond.h describes them.

   Copyright (c) 2026 The FrondDB maintainers. SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef FROND_MARIADB_ENTRY_H
#define FROND_MARIADB_ENTRY_H

#include "server.h"

#include "bytes.h"
#include "frond.h"
#include "key_codec.h"
#include "row_codec.h"
#include "slices.h"

namespace frond {

/* What the value of an entry of a unique index begins with: the key of its row. unique_entry_primary reads it. */
inline void append_unique_primary(frond_slice primary_key, Bytes &out)
{
  out.append_varint(primary_key.size);
  out.append(primary_key.data, primary_key.size);
}

/* What the entries of one secondary index are made by. */
struct Entry_form {
  const Key_codec &columns;
  const Key_codec *primary; /* null: hidden */
  const Row_codec &rows;
  bool unique;
  bool clustering;

  /* Whether the key alone says that there is one such row. */
  bool checked(const uchar *record) const { return unique && !columns.has_null(record); }
  void append_key(const uchar *record, const Bytes &primary_key, Bytes &out) const
  {
    columns.encode(record, out);
    if (!checked(record))
      out.append_bytes(primary_key);
  }
  void append_value(const uchar *record, const Bytes &primary_key, Bytes &out) const
  {
    if (unique)
      append_unique_primary(slice(primary_key), out);
    columns.encode_restore(record, out);
    if (primary)
      primary->encode_restore(record, out);
    if (clustering)
      rows.encode(record, out);
  }
};

/* The key of its row that an entry of a unique index holds, and what follows it; false on damage. */
inline bool unique_entry_primary(frond_slice value, frond_slice *key, const uchar **rest)
{
  uint64_t size;
  const uchar *end= value.data + value.size;
  const uchar *at= read_varint(value.data, end, &size);
  if (!at || size > static_cast<size_t>(end - at))
    return false;
  *key= frond_bytes(at, size);
  *rest= at + size;
  return true;
}

} // namespace frond

#endif
