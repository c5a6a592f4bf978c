/* Slices of the engine: how they are made of bytes, their order, their limits.

   Copyright (c) 2026 The FrondDB maintainers. SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef FROND_MARIADB_SLICES_H
#define FROND_MARIADB_SLICES_H

#include <algorithm>
#include <cstring>

#include "bytes.h"
#include "frond.h"

namespace frond {

/* Stays while the bytes do. */
inline frond_slice slice(const Bytes &bytes)
{
  return frond_bytes(bytes.data(), bytes.size());
}

/* The order of keys in a tree: as memcmp, a prefix first. */
inline int compare(frond_slice a, frond_slice b)
{
  size_t common= std::min(a.size, b.size);
  int order= common ? memcmp(a.data, b.data, common) : 0;
  return order != 0 || a.size == b.size ? order : a.size < b.size ? -1 : 1;
}

inline bool same(frond_slice a, frond_slice b)
{
  return a.size == b.size && compare(a, b) == 0;
}

/* The lowest bytes above everything that begins with `prefix`; empty when there are none. */
inline void prefix_end(const Bytes &prefix, Bytes &end)
{
  end.clear();
  end.append(prefix.data(), prefix.size());
  while (end.size() > 0 && end.data()[end.size() - 1] == 0xff)
    end.truncate(end.size() - 1);
  if (end.size() > 0)
    end.data()[end.size() - 1]++;
}

/* Makes a key the lowest above it. Above the highest there is none: what it makes of that is refused as too long. */
inline void to_successor(Bytes &key)
{
  Bytes end;
  if (key.size() == FROND_KEY_BYTES_MAX)
    prefix_end(key, end); /* none is longer */
  if (end.empty())
    key.append_byte(0);
  else
    key= end;
}

/* Whether an entry is within the engine's limits. */
inline bool fits(frond_slice key, frond_slice value)
{
  return key.size <= FROND_KEY_BYTES_MAX && value.size <= FROND_VALUE_BYTES_MAX;
}

} // namespace frond

#endif
