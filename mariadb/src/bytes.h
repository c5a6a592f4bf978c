/* Copyright (c) 2026 The FrondDB maintainers. SPDX-License-Identifier: GPL-2.0-or-later */

#ifndef FROND_BYTES_H
#define FROND_BYTES_H

/*
  Owns: a growing byte buffer and the little readers and writers that the
  codecs share: varints, big endian numbers, a checked reader.

  A Bytes keeps its capacity when it is cleared, so that a buffer that lives as
  long as a handler allocates a handful of times and never again; what is larger
  than KEPT goes when the handler's statement ends, by shrink(), for which there
  is no need to look while no buffer has become so large. It never throws: the
  server's borders carry no exceptions. Running out of memory for a key or a row
  ends the process, as a failed allocation does in the engine.

  Server-free.
*/

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace frond {

class Bytes
{
 public:
  /* What a handler keeps of each of its buffers while it waits for its next
     statement, which the server may let it do for ever. */
  static constexpr size_t KEPT= 64 << 10;
  /* How many times some buffer has become larger than that. */
  static uint64_t times_large() { return s_times_large.load(std::memory_order_relaxed); }

  Bytes() = default;
  ~Bytes() { free(m_data); }
  Bytes(const Bytes &other) { append(other.m_data, other.m_size); }
  Bytes(Bytes &&other) noexcept { swap(other); }
  Bytes &operator=(const Bytes &other)
  {
    if (this != &other)
    {
      clear();
      append(other.m_data, other.m_size);
    }
    return *this;
  }
  Bytes &operator=(Bytes &&other) noexcept
  {
    swap(other);
    return *this;
  }

  unsigned char *data() { return m_data; }
  const unsigned char *data() const { return m_data; }
  size_t size() const { return m_size; }
  bool empty() const { return m_size == 0; }
  size_t capacity() const { return m_capacity; }
  unsigned char *end() { return m_data + m_size; }
  const unsigned char *end() const { return m_data + m_size; }

  void clear() { m_size= 0; }
  /* Clears it, and keeps no more memory than `most`. */
  void shrink(size_t most= KEPT)
  {
    m_size= 0;
    if (m_capacity <= most)
      return;
    free(m_data);
    m_data= nullptr;
    m_capacity= 0;
  }
  /* Drops the bytes from `size` on; `size` is at most size(). */
  void truncate(size_t size) { m_size= size; }
  void swap(Bytes &other) noexcept
  {
    std::swap(m_data, other.m_data);
    std::swap(m_size, other.m_size);
    std::swap(m_capacity, other.m_capacity);
  }

  /* Makes room for `more` bytes behind the end and returns where they go;
     they count once added() says how many were written. */
  unsigned char *reserve(size_t more)
  {
    if (m_capacity - m_size < more)
      grow(more);
    return m_data + m_size;
  }
  void added(size_t count) { m_size+= count; }

  void append(const void *from, size_t count)
  {
    if (count == 0)
      return;
    memcpy(reserve(count), from, count);
    m_size+= count;
  }
  void append_byte(unsigned char byte)
  {
    *reserve(1)= byte;
    m_size++;
  }
  void append_bytes(Bytes const &other) { append(other.m_data, other.m_size); }
  void fill(unsigned char byte, size_t count)
  {
    if (count == 0)
      return;
    memset(reserve(count), byte, count);
    m_size+= count;
  }
  void append_varint(uint64_t value);

 private:
  void grow(size_t more)
  {
    size_t wanted= m_capacity < 32 ? 64 : m_capacity * 2;
    if (wanted - m_size < more)
      wanted= m_size + more;
    auto *data= static_cast<unsigned char *>(realloc(m_data, wanted));
    if (data == nullptr)
    {
      fprintf(stderr, "frond: out of memory for a key or row bytes=%zu\n", wanted);
      abort();
    }
    m_data= data;
    m_capacity= wanted;
    if (wanted > KEPT)
      s_times_large.fetch_add(1, std::memory_order_relaxed);
  }

  static inline std::atomic<uint64_t> s_times_large{0};

  unsigned char *m_data= nullptr;
  size_t m_size= 0;
  size_t m_capacity= 0;
};

/* Varints: seven bits a byte, lowest first, the top bit says that more follow. */

constexpr size_t VARINT_LENGTH_MAX= 10;

inline unsigned char *write_varint(unsigned char *to, uint64_t value)
{
  while (value >= 0x80)
  {
    *to++= static_cast<unsigned char>(value) | 0x80;
    value>>= 7;
  }
  *to++= static_cast<unsigned char>(value);
  return to;
}

inline void Bytes::append_varint(uint64_t value)
{
  unsigned char *to= reserve(VARINT_LENGTH_MAX);
  m_size+= static_cast<size_t>(write_varint(to, value) - to);
}

/* Null when the bytes end inside the number or it does not fit 64 bits. */
inline const unsigned char *read_varint(const unsigned char *from,
                                        const unsigned char *end, uint64_t *value)
{
  if (from < end && *from < 0x80)
  {
    *value= *from;
    return from + 1;
  }
  uint64_t result= 0;
  for (unsigned shift= 0; from < end && shift < 64; shift+= 7)
  {
    unsigned char byte= *from++;
    if (shift == 63 && byte > 1)
      return nullptr;
    result|= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80)
    {
      *value= result;
      return from;
    }
  }
  return nullptr;
}

/* A reader that cannot leave its bytes: after the first failure everything
   reads as zero and ok() is false. */
class Byte_reader
{
 public:
  Byte_reader(const void *data, size_t size)
    : m_next(static_cast<const unsigned char *>(data)), m_end(m_next + size) {}

  bool ok() const { return m_ok; }
  bool at_end() const { return m_next == m_end; }
  size_t left() const { return static_cast<size_t>(m_end - m_next); }

  uint64_t varint()
  {
    uint64_t value= 0;
    if (!m_ok)
      return 0;
    const unsigned char *next= read_varint(m_next, m_end, &value);
    if (next == nullptr)
    {
      m_ok= false;
      return 0;
    }
    m_next= next;
    return value;
  }
  /* Reads a varint that is at most `max`. */
  uint64_t varint_max(uint64_t max)
  {
    uint64_t value= varint();
    if (value > max)
      m_ok= false;
    return m_ok ? value : 0;
  }
  unsigned char byte()
  {
    const unsigned char *at= bytes(1);
    return at == nullptr ? 0 : *at;
  }
  /* Null on failure. */
  const unsigned char *bytes(size_t count)
  {
    if (!m_ok || left() < count)
    {
      m_ok= false;
      return nullptr;
    }
    const unsigned char *at= m_next;
    m_next+= count;
    return at;
  }

 private:
  const unsigned char *m_next;
  const unsigned char *m_end;
  bool m_ok= true;
};

}  // namespace frond

#endif
