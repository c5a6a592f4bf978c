/* Rows that a transaction has read and locked. See locked_rows.h.

   Copyright (c) 2026 The FrondDB maintainers. SPDX-License-Identifier: GPL-2.0-or-later */
#include "locked_rows.h"

#include <cstring>
#include <functional>
#include <string_view>

namespace frond {

namespace {

uint64_t hash_of(uint32_t tree, frond_slice key)
{
  std::string_view bytes(reinterpret_cast<const char *>(key.data), key.size);
  return std::hash<std::string_view>{}(bytes) + tree;
}

} // namespace

const Locked_rows::Row *Locked_rows::look_up(uint32_t tree, frond_slice key) const
{
  uint64_t hash= hash_of(tree, key);
  for (const Row *row= rows; row < rows + count; row++)
    if (row->hash == hash && row->tree == tree && row->key_size == key.size &&
        memcmp(key_of(*row).data, key.data, key.size) == 0)
      return row;
  return nullptr;
}

void Locked_rows::keep(const frond_tree *tree, frond_slice key, frond_slice value, frond_lock_mode mode)
{
  forget(tree, key); /* locked more strongly now, or read twice by this statement */
  if (key.size + value.size > BYTES_MAX / 4)
    return;
  if (count == ROWS_MAX || bytes.size() + key.size + value.size > BYTES_MAX)
    clear();
  uint32_t number= frond_tree_id(tree);
  rows[count++]= {hash_of(number, key), number, mode, statement, bytes.size(), key.size, value.size};
  bytes.append(key.data, key.size);
  bytes.append(value.data, value.size);
}

bool Locked_rows::find(const frond_tree *tree, frond_slice key, frond_lock_mode mode, frond_slice *value) const
{
  if (count == 0)
    return false;
  const Row *row= look_up(frond_tree_id(tree), key);
  if (!row || row->statement == statement || (row->mode != mode && row->mode != FROND_LOCK_EXCLUSIVE))
    return false;
  *value= {key_of(*row).data + row->key_size, row->value_size};
  return true;
}

void Locked_rows::forget(const frond_tree *tree, frond_slice key)
{
  if (count == 0)
    return;
  if (const Row *row= look_up(frond_tree_id(tree), key))
    rows[row - rows]= rows[--count];
  if (count == 0)
    bytes.clear();
}

} // namespace frond
