/* Copyright (c) 2026 The FrondDB maintainers. SPDX-License-Identifier: GPL-2.0-or-later */

/*
  Owns: the encoding of each column type.

  Why it orders as the server compares (K1 to K5 are in key_codec.h):

  Integers, YEAR, ENUM, SET, TIMESTAMP(0), DATE, TIME and DATETIME of the old
  formats lie little endian in the record: big endian with the sign bit turned.
  FLOAT, DOUBLE: the bits, sign turned, negative numbers inverted. The server
  compares -0.0 and 0.0 as equal, so both are encoded as 0.0 and the sign goes to
  the restore bytes. NaN and infinity cannot be stored.
  DECIMAL, temporal types with fractional digits, UUID, INET4, INET6, BINARY: the
  server itself compares their bytes in the record (Field::cmp is memcmp).
  BIT: the uneven bits as one byte, then the bytes.
  VARBINARY, BLOB prefixes: EXACT sequences of bytes (weights.h).

  Text: the collation's weights (strnxfrm), PADDED or EXACT (weights.h) as the
  collation compares.
    - Binary collations of character sets whose bytes order as their characters do
      (all but the 2 and 4 byte Unicode ones) take the bytes themselves as weights:
      shorter, and the text can be decoded.
    - Collations of several levels (case after accents after letters) compare one
      level after the other: one sequence per level. The server compares the
      lower levels of NOPAD collations with padding, and so do we.
    - CHAR is padded with spaces to its length, so two CHARs always compare as
      PAD SPACE, except where the number of weights is not that of characters
      (Unicode collations, NOPAD): there the padded value itself is encoded.
    - latin2_czech_cs and cp1250_czech_cs strip spaces and compare several passes
      as one sequence; thai collations move vowels and tone marks, so that
      spaces cannot be stripped before, and the NOPAD one, but for CHAR, ends at a zero.
    - big5_chinese_ci compares two-byte characters by code but sorts files by
      strokes, which do not tell all of them apart: an index goes by code.
  A key over the first n characters of a column encodes these alone.
*/

#include "key_codec.h"

#include "field.h"
#include "weights.h"

namespace frond {

enum class Key_kind : uint8_t
{
  INTEGER,      /* `length` bytes, little endian */
  MEMCMP,       /* `length` bytes as they are */
  FLOAT,
  DOUBLE,
  BIT,
  BINARY,       /* variable length, bytes */
  RAW_TEXT,     /* variable length, bytes padded with spaces */
  TEXT,         /* weights */
};

enum class Source : uint8_t
{
  FIXED,        /* the data lies in the record */
  VARCHAR,      /* length bytes before the data */
  BLOB,         /* length bytes and a pointer */
};

constexpr unsigned LEVELS_MAX= MY_STRXFRM_NLEVELS;

struct Level
{
  uint flags= 0;               /* for strnxfrm */
  bool padded= true;
  Weight_unit unit;
};

struct Key_column
{
  Key_kind kind= Key_kind::MEMCMP;
  Source source= Source::FIXED;
  bool nullable= false;
  bool prefix= false;          /* not the whole column */
  bool restored= false;        /* has restore bytes */
  bool plain= false;           /* INTEGER, NOT NULL, whole */
  uchar mask= 0;               /* 255: descending */
  uchar sign= 0;               /* INTEGER: 128 where signed */
  uchar length_bytes= 0;       /* VARCHAR, BLOB in the record */
  uchar null_bit= 0;
  uchar bit_offset= 0, bit_count= 0;   /* BIT: uneven bits */
  uint16 field_index= 0;
  uint32 null_offset= 0;
  uint32 offset= 0;            /* in the record, of the length bytes if any */
  uint32 bits_at= 0;           /* BIT: in the record */
  uint32 length= 0;            /* data bytes in the record, not counting length bytes */
  uint32 key_length= 0;        /* data bytes in the server's key tuple */

  /* TEXT, RAW_TEXT */
  CHARSET_INFO *charset= nullptr;
  uint32 characters= 0;        /* how many are encoded at most */
  bool is_char= false;         /* CHAR, not VARCHAR or TEXT */
  bool cut= true;              /* `characters` may be fewer than there are */
  bool strip= false;           /* spaces at the end go before the weights are made */
  bool ends_at_zero= false;    /* weights end at a zero */
  uchar weights_per_byte= 1;   /* bytes of weights, at most, for a byte of text */
  uchar levels= 0;
  Level level[LEVELS_MAX];

  bool exact() const           /* equal encodings are equal bytes in the record */
  {
    return kind <= Key_kind::MEMCMP || kind == Key_kind::BIT ||
           kind == Key_kind::BINARY || (kind == Key_kind::RAW_TEXT && is_char);
  }
};

namespace {

constexpr uint COLLATION_LATIN2_CZECH= 2;
constexpr uint COLLATION_CP1250_CZECH= 34;
constexpr size_t WEIGHTS_EXTRA= 64;

/* ---- what a column is ------------------------------------------------- */

bool is_czech(CHARSET_INFO *cs)
{
  return cs->number == COLLATION_LATIN2_CZECH || cs->number == COLLATION_CP1250_CZECH;
}

bool is_thai(CHARSET_INFO *cs)
{
  return cs == &my_charset_tis620_thai_ci || cs == &my_charset_tis620_thai_nopad_ci;
}

bool bytes_are_weights(CHARSET_INFO *cs)
{
  return (cs->state & MY_CS_BINSORT) && cs->mbminlen == 1;
}

bool is_multilevel(CHARSET_INFO *cs)
{
  return cs->uca != nullptr && my_count_bits(cs->levels_for_order) > 1;
}

bool is_big5_chinese(CHARSET_INFO *cs)
{
  return cs == &my_charset_big5_chinese_ci || cs == &my_charset_big5_chinese_nopad_ci;
}

size_t make_big5_weights(CHARSET_INFO *cs, const uchar *text, size_t size, uchar *to)
{
  const uchar *end= text + size;
  uchar *next= to;
  while (text < end)
  {
    if (cs->charlen(text, end) > 1)
    {
      *next++= *text++;
      *next++= *text++;
    }
    else
      *next++= cs->sort_order[*text++];
  }
  return size_t(next - to);
}

/* `to_size` is enough for all weights. */
size_t make_weights(CHARSET_INFO *cs, uint flags, const uchar *text, size_t size,
                    uchar *to, size_t to_size)
{
  if (is_big5_chinese(cs))
    return make_big5_weights(cs, text, size, to);
  return cs->coll->strnxfrm(cs, to, to_size, UINT_MAX32, text, size, flags);
}

/* The unit of a space on a level: false where there is none that we know. */
bool find_space(CHARSET_INFO *cs, Level *level)
{
  uchar space[8], weights[WEIGHTS_EXTRA];
  int bytes= cs->wc_mb(' ', space, space + sizeof space);
  if (bytes <= 0)
    return false;
  size_t width= make_weights(cs, level->flags, space, static_cast<size_t>(bytes),
                             weights, sizeof weights);
  if (width == 0 || width > sizeof level->unit.space)
    return false;
  level->unit.width= static_cast<unsigned>(width);
  memcpy(level->unit.space, weights, width);
  return true;
}

bool init_text(Key_column *column, CHARSET_INFO *cs, bool is_char)
{
  const bool nopad= cs->state & MY_CS_NOPAD;
  column->kind= Key_kind::TEXT;
  column->charset= cs;
  column->is_char= is_char;
  column->characters= column->key_length / cs->mbmaxlen;
  column->levels= 1;
  Level *level= column->level;
  if (is_czech(cs))
  {
    column->strip= true;
    column->weights_per_byte= 4;
    level->padded= false;
    return true;
  }
  if (bytes_are_weights(cs))
  {
    column->kind= Key_kind::RAW_TEXT;
    column->strip= is_char;
    level->padded= is_char || !nopad;
    return true;
  }
  column->ends_at_zero= !is_char && cs == &my_charset_tis620_thai_nopad_ci;
  column->weights_per_byte=
      static_cast<uchar>(cs->uca != nullptr ? 16 : MY_MAX(4U, cs->strxfrm_multiply * 2));
  if (is_multilevel(cs))
  {
    column->levels= 0;
    for (uint i= 0; i < LEVELS_MAX; i++)
      if (cs->levels_for_order & (1U << i))
      {
        level= &column->level[column->levels++];
        level->flags= MY_STRXFRM_LEVEL1 << i;
        level->padded= !nopad || (i > 0 && !is_char);
        if (!find_space(cs, level))
          return false;
      }
    return true;
  }
  /* A NOPAD CHAR whose weights are one per character compares as if padded. */
  const bool as_padded= is_char && cs->uca == nullptr;
  level->padded= !nopad || as_padded;
  column->strip= is_char && level->padded && !is_thai(cs);
  return find_space(cs, level);
}

bool init_kind(Key_column *column, const Field *field)
{
  switch (field->key_type()) {
  case HA_KEYTYPE_INT8:
  case HA_KEYTYPE_SHORT_INT:
  case HA_KEYTYPE_INT24:
  case HA_KEYTYPE_LONG_INT:
  case HA_KEYTYPE_LONGLONG:
    column->kind= Key_kind::INTEGER;
    column->sign= 128;
    return true;
  case HA_KEYTYPE_USHORT_INT:
  case HA_KEYTYPE_UINT24:
  case HA_KEYTYPE_ULONG_INT:
  case HA_KEYTYPE_ULONGLONG:
    column->kind= Key_kind::INTEGER;
    return true;
  case HA_KEYTYPE_FLOAT:
    column->kind= Key_kind::FLOAT;
    return true;
  case HA_KEYTYPE_DOUBLE:
    column->kind= Key_kind::DOUBLE;
    return true;
  case HA_KEYTYPE_BIT:
  {
    auto *bit= static_cast<const Field_bit *>(field);
    column->kind= Key_kind::BIT;
    column->length= bit->bytes_in_rec;
    column->bit_count= static_cast<uchar>(bit->bit_len);
    column->bit_offset= bit->bit_ofs;
    if (bit->bit_len > 0)
      column->bits_at= static_cast<uint32>(bit->bit_ptr - field->table->record[0]);
    return true;
  }
  case HA_KEYTYPE_BINARY:
    column->kind= Key_kind::MEMCMP;
    if (field->real_type() == MYSQL_TYPE_STRING)   /* may be a prefix */
      column->length= column->key_length;
    return true;
  case HA_KEYTYPE_VARBINARY1:
  case HA_KEYTYPE_VARBINARY2:
    column->kind= Key_kind::BINARY;
    return true;
  case HA_KEYTYPE_TEXT:
    return init_text(column, field->charset(), true);
  case HA_KEYTYPE_VARTEXT1:
  case HA_KEYTYPE_VARTEXT2:
    return init_text(column, field->charset(), false);
  default:
    return false;
  }
}

bool init_column(Key_column *column, const TABLE *table, const KEY_PART_INFO *part)
{
  const Field *field= table->field[part->fieldnr - 1];
  const uchar *record= table->record[0];
  column->field_index= static_cast<uint16>(part->fieldnr - 1);
  column->offset= static_cast<uint32>(field->ptr - record);
  column->nullable= field->real_maybe_null();
  if (column->nullable)
  {
    column->null_offset= static_cast<uint32>(field->null_ptr - record);
    column->null_bit= field->null_bit;
  }
  column->key_length= part->length;
  column->length= field->pack_length();
  column->mask= part->key_part_flag & HA_REVERSE_SORT ? 255 : 0;
  column->prefix= (part->key_part_flag & HA_PART_KEY_SEG) || (field->flags & BLOB_FLAG);
  if (field->flags & BLOB_FLAG)
  {
    column->source= Source::BLOB;
    column->length_bytes=
        static_cast<uchar>(static_cast<const Field_blob *>(field)->pack_length_no_ptr());
    column->length= part->length;
  }
  else if (field->real_type() == MYSQL_TYPE_VARCHAR)
  {
    column->source= Source::VARCHAR;
    column->length_bytes=
        static_cast<uchar>(static_cast<const Field_varstring *>(field)->length_bytes);
    column->length= field->field_length;
  }
  else if (field->real_type() == MYSQL_TYPE_VARCHAR_COMPRESSED ||
           field->real_type() == MYSQL_TYPE_BLOB_COMPRESSED)
    return false;
  if (!init_kind(column, field))
    return false;
  column->cut= column->prefix || column->is_char;
  column->restored=
      !column->prefix &&
      (column->kind == Key_kind::FLOAT || column->kind == Key_kind::DOUBLE ||
       column->kind == Key_kind::TEXT ||
       (column->kind == Key_kind::RAW_TEXT && !column->is_char && column->level[0].padded));
  column->plain= column->kind == Key_kind::INTEGER && !column->nullable && !column->prefix;
  return true;
}

size_t encoded_length_max(const Key_column &column)
{
  size_t length= column.nullable;
  switch (column.kind) {
  case Key_kind::INTEGER:
  case Key_kind::MEMCMP:
    return length + column.length;
  case Key_kind::FLOAT:
    return length + sizeof(float);
  case Key_kind::DOUBLE:
    return length + sizeof(double);
  case Key_kind::BIT:
    return length + column.length + (column.bit_count > 0);
  case Key_kind::BINARY:
    return length + weights_length_max(column.key_length, Weight_unit());
  case Key_kind::RAW_TEXT:
  case Key_kind::TEXT:
    for (uint i= 0; i < column.levels; i++)
      length+= weights_length_max(
          size_t(column.key_length) * column.weights_per_byte + WEIGHTS_EXTRA,
          column.level[i].unit);
    return length;
  }
  return length;
}

bool has_fixed_length(const Key_column &column)
{
  return !column.nullable && column.kind <= Key_kind::BIT;
}

/* ---- numbers ---------------------------------------------------------- */

/* The low `length` bytes of `value` end up at `to`, greatest first. */
inline uchar *put_big_endian(uchar *to, ulonglong value, uint length)
{
  value= __builtin_bswap64(value << (64 - 8 * length));
  memcpy(to, &value, sizeof value);   /* callers reserve eight bytes */
  return to + length;
}

inline ulonglong get_big_endian(const uchar *from, uint length, uchar mask)
{
  const ulonglong flip= mask == 0 ? 0 : ~0ULL;
  uint32 word;
  ulonglong value= 0;
  switch (length) {
  case 4:
    memcpy(&word, from, sizeof word);
    return uint32(be32toh(word) ^ flip);
  case 8:
    memcpy(&value, from, sizeof value);
    return be64toh(value) ^ flip;
  default:
    for (uint i= 0; i < length; i++)
      value= value << 8 | uchar(from[i] ^ mask);
    return value;
  }
}

inline ulonglong get_little_endian(const uchar *from, uint length)
{
  ulonglong value= 0;
  switch (length) {
  case 1: return *from;
  case 2: return uint2korr(from);
  case 4: return uint4korr(from);
  case 8: return uint8korr(from);
  default:
    for (uint i= length; i-- > 0; )
      value= value << 8 | from[i];
    return value;
  }
}

inline void put_little_endian(uchar *to, ulonglong value, uint length)
{
  switch (length) {
  case 4: int4store(to, uint32(value)); return;
  case 8: int8store(to, value); return;
  default:
    for (uint i= 0; i < length; i++, value>>= 8)
      to[i]= uchar(value);
  }
}

inline uchar *put_integer(uchar *to, const Key_column &column, const uchar *data)
{
  uint length= column.length;
  ulonglong sign= ulonglong(column.sign) << (8 * (length - 1));
  return put_big_endian(to, get_little_endian(data, length) ^ sign, length);
}

/* Bits of a float or double, `sign` its top bit. */
inline ulonglong order_of_float(ulonglong bits, ulonglong sign)
{
  if ((bits & ~sign) == 0)
    return sign;
  return bits & sign ? ~bits : bits | sign;
}

inline ulonglong float_of_order(ulonglong order, ulonglong sign)
{
  return order & sign ? order ^ sign : ~order;
}

inline uint float_bytes(const Key_column &column)
{
  return column.kind == Key_kind::FLOAT ? sizeof(float) : sizeof(double);
}

inline ulonglong float_sign(const Key_column &column)
{
  return 1ULL << (8 * float_bytes(column) - 1);
}

inline uchar get_bits(const Key_column &column, const uchar *record)
{
  const uchar *at= record + column.bits_at;
  uint bits= at[0];
  if (column.bit_offset + column.bit_count > 8)
    bits|= uint(at[1]) << 8;
  return uchar((bits >> column.bit_offset) & ((1U << column.bit_count) - 1));
}

/* ---- text ------------------------------------------------------------- */

size_t text_length(const Key_column &column, const uchar *text, size_t size)
{
  CHARSET_INFO *cs= column.charset;
  if (column.cut)
  {
    if (cs->mbmaxlen == 1)
      size= MY_MIN(size, column.characters);
    else if (size > column.characters)
    {
      size_t bytes= cs->charpos(text, text + size, column.characters);
      size= MY_MIN(size, bytes);
    }
  }
  if (column.strip)
    size= cs->lengthsp(reinterpret_cast<const char *>(text), size);
  return size;
}

void put_text(const Key_column &column, const uchar *text, size_t size, Bytes &out)
{
  size= text_length(column, text, size);
  const size_t weights_max= size * column.weights_per_byte + WEIGHTS_EXTRA;
  for (uint i= 0; i < column.levels; i++)
  {
    const Level &level= column.level[i];
    const size_t encoded_max= weights_length_max(weights_max, level.unit);
    uchar *to= out.reserve(encoded_max + weights_max);
    uchar *weights= to + encoded_max;
    size_t count= make_weights(column.charset, level.flags, text, size, weights, weights_max);
    if (column.ends_at_zero)
      if (auto *zero= static_cast<uchar *>(memchr(weights, 0, count)))
        count= size_t(zero - weights);
    uchar *end= level.padded ? put_padded(to, weights, count, level.unit)
                             : put_exact(to, weights, count, level.unit.width);
    out.added(size_t(end - to));
  }
}

void put_raw_text(const Key_column &column, const uchar *text, size_t size, Bytes &out)
{
  size= text_length(column, text, size);
  const Level &level= column.level[0];
  uchar *to= out.reserve(weights_length_max(size, level.unit));
  uchar *end= level.padded ? put_padded(to, text, size, level.unit)
                           : put_exact(to, text, size, 1);
  out.added(size_t(end - to));
}

void put_binary(const Key_column &column, const uchar *data, size_t size, Bytes &out)
{
  if (column.prefix)
    size= MY_MIN(size, column.key_length);
  uchar *to= out.reserve(weights_length_max(size, Weight_unit()));
  out.added(size_t(put_exact(to, data, size, 1) - to));
}

/* ---- one column ------------------------------------------------------- */

/* The value without its NULL byte and not yet inverted. `bits` are the uneven
   ones of a BIT. */
inline void put_value(const Key_column &column, const uchar *data, size_t size,
                      uchar bits, Bytes &out)
{
  switch (column.kind) {
  case Key_kind::INTEGER:
  {
    uchar *to= out.reserve(sizeof(ulonglong));
    out.added(size_t(put_integer(to, column, data) - to));
    return;
  }
  case Key_kind::MEMCMP:
    out.append(data, column.length);
    return;
  case Key_kind::FLOAT:
  case Key_kind::DOUBLE:
  {
    uint length= float_bytes(column);
    ulonglong order= order_of_float(get_little_endian(data, length), float_sign(column));
    uchar *to= out.reserve(sizeof(ulonglong));
    out.added(size_t(put_big_endian(to, order, length) - to));
    return;
  }
  case Key_kind::BIT:
    if (column.bit_count > 0)
      out.append_byte(bits);
    out.append(data, column.length);
    return;
  case Key_kind::BINARY:
    put_binary(column, data, size, out);
    return;
  case Key_kind::RAW_TEXT:
    put_raw_text(column, data, size, out);
    return;
  case Key_kind::TEXT:
    put_text(column, data, size, out);
    return;
  }
}

inline void invert(Bytes &out, size_t from)
{
  for (uchar *at= out.data() + from; at < out.end(); at++)
    *at= uchar(~*at);
}

/* Where the value lies in a record, and how long it is. */
inline const uchar *value_in_record(const Key_column &column, const uchar *record,
                                    size_t *size)
{
  const uchar *at= record + column.offset;
  switch (column.source) {
  case Source::FIXED:
    *size= column.length;
    return at;
  case Source::VARCHAR:
    *size= column.length_bytes == 1 ? *at : uint2korr(at);
    return at + column.length_bytes;
  case Source::BLOB:
  {
    const uchar *data;
    *size= get_little_endian(at, column.length_bytes);
    memcpy(&data, at + column.length_bytes, sizeof data);
    return data;
  }
  }
  return at;
}

inline bool is_null(const Key_column &column, const uchar *record)
{
  return column.nullable && (record[column.null_offset] & column.null_bit);
}

inline void put_column(const Key_column &column, const uchar *record, Bytes &out)
{
  const size_t start= out.size();
  const bool null= is_null(column, record);
  if (column.nullable)
    out.append_byte(null ? 0 : 1);
  if (!null)
  {
    size_t size= 0;
    const uchar *data= value_in_record(column, record, &size);
    uchar bits= column.kind == Key_kind::BIT && column.bit_count > 0
                    ? get_bits(column, record) : 0;
    put_value(column, data, size, bits, out);
  }
  if (column.mask != 0)
    invert(out, start);
}

/* ---- decoding --------------------------------------------------------- */

/* What is encoded of the value behind `at`; null on damage. */
const uchar *skip_value(const Key_column &column, const uchar *at, const uchar *end)
{
  size_t length= 0;
  switch (column.kind) {
  case Key_kind::INTEGER:
  case Key_kind::MEMCMP:
    length= column.length;
    break;
  case Key_kind::FLOAT:
  case Key_kind::DOUBLE:
    length= float_bytes(column);
    break;
  case Key_kind::BIT:
    length= column.length + (column.bit_count > 0);
    break;
  case Key_kind::BINARY:
    return skip_exact(at, end, 1, column.mask);
  case Key_kind::RAW_TEXT:
  case Key_kind::TEXT:
    for (uint i= 0; i < column.levels && at != nullptr; i++)
    {
      const Level &level= column.level[i];
      at= level.padded ? skip_padded(at, end, level.unit, column.mask)
                       : skip_exact(at, end, level.unit.width, column.mask);
    }
    return at;
  }
  return size_t(end - at) < length ? nullptr : at + length;
}

/* The NULL byte; null on damage. */
inline const uchar *get_null(const Key_column &column, const uchar *at, const uchar *end,
                             bool *null)
{
  *null= false;
  if (!column.nullable)
    return at;
  if (at == end)
    return nullptr;
  uchar byte= *at ^ column.mask;
  *null= byte == 0;
  return byte > 1 ? nullptr : at + 1;
}

const uchar *skip_column(const Key_column &column, const uchar *at, const uchar *end)
{
  bool null;
  at= get_null(column, at, end, &null);
  return at == nullptr || null ? at : skip_value(column, at, end);
}

void store_length(const Key_column &column, uchar *record, size_t size)
{
  uchar *at= record + column.offset;
  if (column.length_bytes == 1)
    *at= uchar(size);
  else
    int2store(at, uint16(size));
}

void store_bits(const Key_column &column, uchar *record, uchar bits)
{
  uchar *at= record + column.bits_at;
  uint mask= ((1U << column.bit_count) - 1) << column.bit_offset;
  uint value= uint(bits) << column.bit_offset;
  at[0]= uchar((at[0] & ~mask) | (value & mask));
  if (column.bit_offset + column.bit_count > 8)
    at[1]= uchar((at[1] & ~(mask >> 8)) | ((value & mask) >> 8));
}

/* Text as it was, from restore bytes; false on damage. */
bool store_text(const Key_column &column, uchar *record, const uchar *text, size_t size)
{
  if (size > column.length)
    return false;
  uchar *at= record + column.offset;
  if (column.source == Source::VARCHAR)
  {
    store_length(column, record, size);
    memcpy(at + column.length_bytes, text, size);
    return true;
  }
  memcpy(at, text, size);
  if (size < column.length)
    column.charset->fill(reinterpret_cast<char *>(at) + size, column.length - size,
                         column.charset->pad_char);
  return true;
}

/* Bytes of VARBINARY or of text whose bytes are its weights. */
const uchar *get_raw(const Key_column &column, const uchar *at, const uchar *end,
                     uchar *record, uint64_t spaces)
{
  uchar *to= record + column.offset + column.length_bytes;
  size_t size= 0;
  const bool padded= column.kind == Key_kind::RAW_TEXT && column.level[0].padded;
  at= padded ? get_padded(at, end, ' ', column.mask, to, column.length, &size)
             : get_exact(at, end, column.mask, to, column.length, &size);
  if (at == nullptr || spaces > column.length - size)
    return nullptr;
  if (column.source == Source::FIXED)
    memset(to + size, ' ', column.length - size);
  else
  {
    memset(to + size, ' ', spaces);
    store_length(column, record, size + spaces);
  }
  return at;
}

inline void get_integer(const Key_column &column, const uchar *at, uchar *record)
{
  ulonglong sign= ulonglong(column.sign) << (8 * (column.length - 1));
  put_little_endian(record + column.offset, get_big_endian(at, column.length, column.mask) ^ sign, column.length);
}

/* The value of a whole column into the record, with the restore bytes that
   belong to it. The end of what was read of the key, null on damage. */
const uchar *get_value(const Key_column &column, const uchar *at, const uchar *end,
                       const uchar *restore, size_t restore_size, uint64_t restore_number,
                       uchar *record)
{
  uchar *to= record + column.offset;
  if (column.kind <= Key_kind::BIT && skip_value(column, at, end) == nullptr)
    return nullptr;
  switch (column.kind) {
  case Key_kind::INTEGER:
    get_integer(column, at, record);
    return at + column.length;
  case Key_kind::MEMCMP:
    for (uint32 i= 0; i < column.length; i++)
      to[i]= at[i] ^ column.mask;
    return at + column.length;
  case Key_kind::FLOAT:
  case Key_kind::DOUBLE:
  {
    uint length= float_bytes(column);
    ulonglong sign= float_sign(column);
    ulonglong bits= float_of_order(get_big_endian(at, length, column.mask), sign);
    if (restore_number != 0)
      bits|= sign;
    put_little_endian(to, bits, length);
    return at + length;
  }
  case Key_kind::BIT:
    if (column.bit_count > 0)
      store_bits(column, record, *at++ ^ column.mask);
    for (uint32 i= 0; i < column.length; i++)
      to[i]= at[i] ^ column.mask;
    return at + column.length;
  case Key_kind::BINARY:
  case Key_kind::RAW_TEXT:
    return get_raw(column, at, end, record, restore_number);
  case Key_kind::TEXT:
    if (!store_text(column, record, restore, restore_size))
      return nullptr;
    return skip_value(column, at, end);
  }
  return nullptr;
}

inline void set_null(const Key_column &column, uchar *record, bool null)
{
  if (!column.nullable)
    return;
  if (null)
    record[column.null_offset]|= column.null_bit;
  else
    record[column.null_offset]&= uchar(~column.null_bit);
}

}  // namespace

/* ---- Key_codec -------------------------------------------------------- */

bool padding_is_in_key(CHARSET_INFO *cs)
{
  return is_thai(cs) || (cs->uca && (cs->state & MY_CS_NOPAD));
}

Key_codec::Key_codec()= default;
Key_codec::~Key_codec()= default;

int Key_codec::init(const TABLE *table, const KEY *key)
{
  m_columns.clear();
  m_columns.resize(key->user_defined_key_parts);
  m_length_max= m_fixed_length= 0;
  m_restore_needed= m_nullable= false;
  bool fixed= true;
  for (uint i= 0; i < key->user_defined_key_parts; i++)
  {
    Key_column &column= m_columns[i];
    if (!init_column(&column, table, &key->key_part[i]))
      return HA_ERR_UNSUPPORTED;
    m_length_max+= encoded_length_max(column);
    m_restore_needed|= column.restored;
    m_nullable|= column.nullable;
    fixed= fixed && has_fixed_length(column);
  }
  if (fixed)
    m_fixed_length= m_length_max;
  return 0;
}

uint Key_codec::columns() const { return static_cast<uint>(m_columns.size()); }

void Key_codec::encode(const uchar *record, Bytes &out) const
{
  for (const Key_column &column : m_columns)
    put_column(column, record, out);
}

void Key_codec::encode_tuple(const uchar *tuple, key_part_map parts, Bytes &out) const
{
  for (const Key_column &column : m_columns)
  {
    if (!(parts & 1))
      return;
    parts>>= 1;
    const size_t start= out.size();
    const bool null= column.nullable && *tuple != 0;
    if (column.nullable)
    {
      out.append_byte(null ? 0 : 1);
      tuple++;
    }
    const bool with_length= column.source != Source::FIXED;
    if (!null)
    {
      const uchar *data= tuple;
      size_t size= column.key_length;
      uchar bits= 0;
      if (with_length)
      {
        size= uint2korr(data);
        data+= HA_KEY_BLOB_LENGTH;
      }
      else if (column.kind == Key_kind::BIT && column.bit_count > 0)
        bits= *data++;
      put_value(column, data, size, bits, out);
    }
    if (column.mask != 0)
      invert(out, start);
    tuple+= column.key_length + (with_length ? HA_KEY_BLOB_LENGTH : 0);
  }
}

bool Key_codec::has_null(const uchar *record) const
{
  if (m_nullable)
    for (const Key_column &column : m_columns)
      if (is_null(column, record))
        return true;
  return false;
}

bool Key_codec::differs(const uchar *record_a, const uchar *record_b) const
{
  for (const Key_column &column : m_columns)
  {
    const bool null= is_null(column, record_a);
    if (null != is_null(column, record_b))
      return true;
    if (null)
      continue;
    size_t size_a= 0, size_b= 0;
    const uchar *a= value_in_record(column, record_a, &size_a);
    const uchar *b= value_in_record(column, record_b, &size_b);
    bool bits_equal= column.kind != Key_kind::BIT || column.bit_count == 0 ||
                     get_bits(column, record_a) == get_bits(column, record_b);
    if (bits_equal && size_a == size_b && (size_a == 0 || memcmp(a, b, size_a) == 0))
      continue;
    if (column.exact() && !column.prefix)
      return true;
    Bytes encoded_a, encoded_b;
    put_column(column, record_a, encoded_a);
    put_column(column, record_b, encoded_b);
    if (encoded_a.size() != encoded_b.size() ||
        memcmp(encoded_a.data(), encoded_b.data(), encoded_a.size()) != 0)
      return true;
  }
  return false;
}

void Key_codec::encode_restore(const uchar *record, Bytes &out) const
{
  if (!m_restore_needed)
    return;
  for (const Key_column &column : m_columns)
  {
    if (!column.restored || is_null(column, record))
      continue;
    size_t size= 0;
    const uchar *data= value_in_record(column, record, &size);
    switch (column.kind) {
    case Key_kind::FLOAT:
    case Key_kind::DOUBLE:
      out.append_byte(get_little_endian(data, float_bytes(column)) == float_sign(column));
      break;
    case Key_kind::RAW_TEXT:
    {
      size_t kept= size;
      while (kept > 0 && data[kept - 1] == ' ')
        kept--;
      out.append_varint(size - kept);
      break;
    }
    default:
      if (column.is_char)
        size= column.charset->lengthsp(reinterpret_cast<const char *>(data), size);
      out.append_varint(size);
      out.append(data, size);
    }
  }
}

size_t Key_codec::decode(const uchar *key, size_t size, const uchar **restore,
                         const uchar *restore_end, uchar *record) const
{
  return decode(key, size, restore, restore_end, nullptr, record);
}

size_t Key_codec::decode(const uchar *key, size_t size, const uchar **restore,
                         const uchar *restore_end, const MY_BITMAP *wanted,
                         uchar *record) const
{
  const uchar *at= key, *end= key + size;
  for (const Key_column &column : m_columns)
  {
    if (column.plain)
    {
      if (size_t(end - at) < column.length)
        return 0;
      if (wanted == nullptr || bitmap_is_set(wanted, column.field_index))
        get_integer(column, at, record);
      at+= column.length;
      continue;
    }
    bool null;
    at= get_null(column, at, end, &null);
    if (at == nullptr)
      return 0;
    const uchar *text= nullptr;
    uint64_t number= 0;
    const bool restored= column.restored && restore != nullptr;
    if (restored && !null)
    {
      *restore= read_varint(*restore, restore_end, &number);
      if (*restore == nullptr)
        return 0;
      if (column.kind == Key_kind::TEXT)
      {
        text= *restore;
        if (number > uint64_t(restore_end - text))
          return 0;
        *restore+= number;
      }
    }
    if (column.prefix || (column.restored && restore == nullptr) ||
        (wanted != nullptr && !bitmap_is_set(wanted, column.field_index)))
    {
      if (!null)
        at= skip_value(column, at, end);
      /* Who reads from an index alone copies the columns of the index whole: a pointer must not be what was there before. */
      if (column.prefix && restore != nullptr && wanted == nullptr && column.source == Source::BLOB)
        memset(record + column.offset, 0, column.length_bytes + sizeof(uchar *));
    }
    else
    {
      set_null(column, record, null);
      if (!null)
        at= get_value(column, at, end, text, size_t(number), number, record);
    }
    if (at == nullptr)
      return 0;
  }
  return size_t(at - key);
}

size_t Key_codec::skip(const uchar *key, size_t size) const
{
  if (m_fixed_length != 0)
    return size < m_fixed_length ? 0 : m_fixed_length;
  return skip(key, size, columns());
}

size_t Key_codec::skip(const uchar *key, size_t size, uint columns) const
{
  const uchar *at= key, *end= key + size;
  for (uint i= 0; i < columns; i++)
  {
    at= skip_column(m_columns[i], at, end);
    if (at == nullptr)
      return 0;
  }
  return size_t(at - key);
}

bool Key_codec::restorable(uint key_part) const
{
  const Key_column &column= m_columns[key_part];
  return !column.prefix && !column.restored;
}

bool key_part_restorable(const TABLE *table, const KEY_PART_INFO *part)
{
  Key_column column;
  return init_column(&column, table, part) && !column.prefix && !column.restored;
}

}  // namespace frond
