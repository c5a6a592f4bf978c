/* Copyright (c) 2026 The FrondDB maintainers. SPDX-License-Identifier: GPL-2.0-or-later */

#ifndef FROND_WEIGHTS_H
#define FROND_WEIGHTS_H

/*
  Owns: how a sequence of collation weights, of any length, becomes bytes that
  memcmp orders and that say themselves where they end.

  A collation gives a string as a sequence of units of 1 to 4 bytes. There are
  two ways to compare two sequences when one of them ends:

  PADDED (PAD SPACE collations): both go on for ever with the unit of a space.
    Trailing space units are dropped. What is left is written as it is, only that
    each run of space units is one space unit and a marker that tells how what
    follows the run compares with more spaces:
      1 .. 126    something less follows; the longer the run, the greater the
                  string, so the marker is the length of the run
      128         nothing but spaces: the end
      129 .. 254  something greater follows; the longer the run, the less the
                  string: 255 minus the length of the run
    A run of more than 126 is written as several, each followed by the next.
    So text costs one byte more per run of spaces and one unit and a byte at the end.

  EXACT (NOPAD collations, binary strings): the one that ends is less.
    A unit of zeros is followed by 255, the end is a unit of zeros followed by 0.

  `mask` is 0, or 255 where all bytes are inverted for a descending column.

  Server-free.
*/

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace frond {

constexpr unsigned RUN_LENGTH_MAX= 126;
constexpr unsigned char RUN_IS_END= 128;
constexpr unsigned char ZERO_IS_UNIT= 255;
constexpr unsigned char ZERO_IS_END= 0;

struct Weight_unit
{
  unsigned width= 1;              /* 1 to 4 */
  unsigned char space[4]= {' '};  /* the unit of a space, `width` bytes */

  bool is_space(const unsigned char *at) const
  {
    return memcmp(at, space, width) == 0;
  }
};

/* The most bytes that `size` bytes of weights can become. */
inline size_t weights_length_max(size_t size, const Weight_unit &unit)
{
  return size + size / unit.width + unit.width + 1;
}

namespace weights_detail {

inline unsigned char *put(unsigned char *to, const unsigned char *from, size_t size)
{
  memcpy(to, from, size);
  return to + size;
}

/* Writes runs for `run` spaces followed by a unit that is `less` than a space or
   greater. */
inline unsigned char *put_run(unsigned char *to, size_t run, bool less,
                              const Weight_unit &unit)
{
  while (run > 0)
  {
    unsigned part= run > RUN_LENGTH_MAX ? RUN_LENGTH_MAX : static_cast<unsigned>(run);
    to= put(to, unit.space, unit.width);
    *to++= static_cast<unsigned char>(less ? part : 255 - part);
    run-= part;
  }
  return to;
}

inline unsigned run_length(unsigned char marker)
{
  return marker < RUN_IS_END ? marker : 255u - marker;
}

inline bool is_run(unsigned char marker)
{
  return marker != 0 && marker != 127 && marker != 255;
}

}  // namespace weights_detail

/* `from` is a whole number of units. Returns the end of what was written. */
inline unsigned char *put_padded(unsigned char *to, const unsigned char *from,
                                 size_t size, const Weight_unit &unit)
{
  using namespace weights_detail;
  const unsigned width= unit.width;
  const unsigned char *end= from + size;
  while (end > from && unit.is_space(end - width))
    end-= width;
  while (from < end)
  {
    const unsigned char *literal= from;
    if (width == 1)
    {
      auto *at= static_cast<const unsigned char *>(
          memchr(from, unit.space[0], static_cast<size_t>(end - from)));
      from= at == nullptr ? end : at;
    }
    else
      while (from < end && !unit.is_space(from))
        from+= width;
    to= put(to, literal, static_cast<size_t>(from - literal));
    if (from == end)
      break;
    const unsigned char *run= from;
    while (unit.is_space(from))   /* ends: the last unit is not a space */
      from+= width;
    to= put_run(to, static_cast<size_t>(from - run) / width,
                memcmp(from, unit.space, width) < 0, unit);
  }
  to= put(to, unit.space, width);
  *to++= RUN_IS_END;
  return to;
}

inline unsigned char *put_exact(unsigned char *to, const unsigned char *from,
                                size_t size, unsigned width)
{
  using namespace weights_detail;
  static const unsigned char zeros[4]= {};
  const unsigned char *end= from + size;
  while (from < end)
  {
    const unsigned char *literal= from;
    if (width == 1)
    {
      auto *at= static_cast<const unsigned char *>(
          memchr(from, 0, static_cast<size_t>(end - from)));
      from= at == nullptr ? end : at;
    }
    else
      while (from < end && memcmp(from, zeros, width) != 0)
        from+= width;
    to= put(to, literal, static_cast<size_t>(from - literal));
    if (from < end)
    {
      to= put(to, zeros, width);
      *to++= ZERO_IS_UNIT;
      from+= width;
    }
  }
  to= put(to, zeros, width);
  *to++= ZERO_IS_END;
  return to;
}

/* Both: the first byte behind the encoding, null where there is no end. */

inline const unsigned char *skip_padded(const unsigned char *from,
                                        const unsigned char *end,
                                        const Weight_unit &unit, unsigned char mask)
{
  const unsigned width= unit.width;
  unsigned char space[4];
  for (unsigned i= 0; i < width; i++)
    space[i]= unit.space[i] ^ mask;
  while (static_cast<size_t>(end - from) > width)
  {
    if (width == 1)
    {
      from= static_cast<const unsigned char *>(
          memchr(from, space[0], static_cast<size_t>(end - from)));
      if (from == nullptr || end - from < 2)
        return nullptr;
    }
    else if (memcmp(from, space, width) != 0)
    {
      from+= width;
      continue;
    }
    unsigned char marker= from[width] ^ mask;
    from+= width + 1;
    if (marker == RUN_IS_END)
      return from;
    if (!weights_detail::is_run(marker))
      return nullptr;
  }
  return nullptr;
}

inline const unsigned char *skip_exact(const unsigned char *from,
                                       const unsigned char *end, unsigned width,
                                       unsigned char mask)
{
  const unsigned char zeros[4]= {mask, mask, mask, mask};
  while (static_cast<size_t>(end - from) > width)
  {
    if (width == 1)
    {
      from= static_cast<const unsigned char *>(
          memchr(from, mask, static_cast<size_t>(end - from)));
      if (from == nullptr || end - from < 2)
        return nullptr;
    }
    else if (memcmp(from, zeros, width) != 0)
    {
      from+= width;
      continue;
    }
    unsigned char marker= from[width] ^ mask;
    from+= width + 1;
    if (marker == ZERO_IS_END)
      return from;
    if (marker != ZERO_IS_UNIT)
      return nullptr;
  }
  return nullptr;
}

/* Where the units are the bytes of the string themselves (width 1), it comes
   back: at most `to_size` bytes into `to`, *to_length says how many. Returns the
   first byte behind the encoding, null on damage or where it does not fit. */

inline const unsigned char *get_padded(const unsigned char *from,
                                       const unsigned char *end, unsigned char space,
                                       unsigned char mask, unsigned char *to,
                                       size_t to_size, size_t *to_length)
{
  unsigned char *next= to, *to_end= to + to_size;
  while (from < end)
  {
    unsigned char byte= *from++ ^ mask;
    if (byte != space)
    {
      if (next == to_end)
        return nullptr;
      *next++= byte;
      continue;
    }
    if (from == end)
      return nullptr;
    unsigned char marker= *from++ ^ mask;
    if (marker == RUN_IS_END)
    {
      *to_length= static_cast<size_t>(next - to);
      return from;
    }
    size_t run= weights_detail::run_length(marker);
    if (!weights_detail::is_run(marker) || static_cast<size_t>(to_end - next) < run)
      return nullptr;
    memset(next, space, run);
    next+= run;
  }
  return nullptr;
}

inline const unsigned char *get_exact(const unsigned char *from,
                                      const unsigned char *end, unsigned char mask,
                                      unsigned char *to, size_t to_size,
                                      size_t *to_length)
{
  unsigned char *next= to, *to_end= to + to_size;
  while (from < end)
  {
    unsigned char byte= *from++ ^ mask;
    if (byte == 0)
    {
      if (from == end)
        return nullptr;
      unsigned char marker= *from++ ^ mask;
      if (marker == ZERO_IS_END)
      {
        *to_length= static_cast<size_t>(next - to);
        return from;
      }
      if (marker != ZERO_IS_UNIT)
        return nullptr;
    }
    if (next == to_end)
      return nullptr;
    *next++= byte;
  }
  return nullptr;
}

}  // namespace frond

#endif
