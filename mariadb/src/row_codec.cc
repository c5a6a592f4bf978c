/* Copyright (c) 2026 The FrondDB maintainers. SPDX-License-Identifier: GPL-2.0-or-later */

#include "row_codec.h"

#include "errors.h"
#include "field.h"

#include <algorithm>

namespace frond {

/*
  A step moves one column, or several that lie together, between record and row.
  `length` is what the row has; the target is what the record has: they differ
  where the row is older than the column's present form.
*/
enum class Step : uint8_t
{
  RUN,       /* NOT NULL columns side by side: `length` bytes both here and there */
  FIXED,     /* `length` bytes */
  INTEGER,   /* `length` bytes in the row, more in the record */
  BIT,
  TEXT,      /* varint length, bytes; VARCHAR, CHAR or BLOB in the record */
};

constexpr int NO_FIELD= -1;   /* the column was dropped */

struct Row_step
{
  Step step= Step::FIXED;
  Storage target= Storage::FIXED;
  bool nullable= false;            /* has a null bit in the row */
  bool is_unsigned= false;
  bool space_padded= false;        /* CHAR: the pad is the byte ' ' */
  uchar null_bit= 0;               /* in the record; 0: NOT NULL there */
  uchar length_bytes= 0;           /* target VARCHAR, BLOB */
  uchar bit_offset= 0, bit_count= 0;
  int field= NO_FIELD;             /* the first one of a RUN */
  int field_last= NO_FIELD;
  uint64_t columns= 0;             /* of this step: see columns_of */
  uint64_t columns_on= 0;          /* of this step and those behind it */
  uint32 length= 0;
  uint32 target_length= 0;
  uint32 offset= 0;
  uint32 record_length= 0;         /* bytes at `offset` that are the column's */
  uint32 null_offset= 0;
  uint32 bits_at= 0;
  CHARSET_INFO *charset= nullptr;
};

/* A column that rows of this layout do not have. */
struct Row_default
{
  Row_step step;
  bool null= false;
  std::string bytes;
};

struct Row_plan
{
  uint32_t version= 0;
  uint32_t null_count= 0;
  uint32_t null_bytes= 0;
  std::vector<Row_step> steps;
  std::vector<Row_default> defaults;
};

namespace {

constexpr ulonglong EIGHT_SPACES= 0x2020202020202020ULL;

/* ---- plans ------------------------------------------------------------ */

bool is_text(Storage storage)
{
  return storage == Storage::VARCHAR || storage == Storage::CHAR ||
         storage == Storage::BLOB;
}

/* Where `field` lies in the record and what it takes there. */
Row_step make_target(const TABLE *table, int index, const Column &column)
{
  const Field *field= table->field[index];
  const uchar *record= table->record[0];
  Row_step step;
  step.field= step.field_last= index;
  step.target= column.storage;
  step.is_unsigned= column.is_unsigned;
  step.length_bytes= column.length_bytes;
  step.target_length= column.length;
  step.offset= static_cast<uint32>(field->ptr - record);
  step.record_length= field->pack_length_in_rec();
  if (column.nullable)
  {
    step.null_offset= static_cast<uint32>(field->null_ptr - record);
    step.null_bit= field->null_bit;
  }
  if (column.bits > 0)
  {
    auto *bit= static_cast<const Field_bit *>(field);
    step.bits_at= static_cast<uint32>(bit->bit_ptr - record);
    step.bit_offset= bit->bit_ofs;
  }
  step.bit_count= column.bits;
  step.charset= field->charset();
  step.space_padded= step.charset->mbminlen == 1 && step.charset->pad_char == ' ';
  return step;
}

/* How a column that the row has as `source` is read; false where the present
   column cannot take it. */
bool set_source(Row_step *step, const Column &source)
{
  step->nullable= source.nullable;
  step->length= source.length;
  const bool dropped= step->field == NO_FIELD;
  if (dropped)
  {
    step->bit_count= source.bits;
    step->is_unsigned= source.is_unsigned;
    step->target= source.storage;
    step->target_length= source.length;
  }
  if (is_text(source.storage))
  {
    step->step= Step::TEXT;
    return is_text(step->target);
  }
  if (step->target != source.storage)
    return false;
  switch (source.storage) {
  case Storage::BIT:
    step->step= Step::BIT;
    return step->target_length == source.length && step->bit_count == source.bits;
  case Storage::INTEGER:
    step->step= step->target_length == source.length ? Step::FIXED : Step::INTEGER;
    return step->target_length >= source.length &&
           step->is_unsigned == source.is_unsigned;
  default:
    step->step= Step::FIXED;
    return step->target_length == source.length;
  }
}

bool joins(const Row_step &run, const Row_step &step)
{
  return run.step == Step::RUN && step.step == Step::RUN &&
         run.field != NO_FIELD && step.field == run.field_last + 1 &&
         run.offset + run.length == step.offset;
}

void add_step(Row_plan *plan, Row_step step)
{
  /* A column that has become nullable since has a NULL bit to clear. */
  if (step.step == Step::FIXED && !step.nullable && step.null_bit == 0 && step.field != NO_FIELD)
    step.step= Step::RUN;
  plan->null_count+= step.nullable;
  if (!plan->steps.empty() && joins(plan->steps.back(), step))
  {
    Row_step &run= plan->steps.back();
    run.length+= step.length;
    run.field_last= step.field_last;
    return;
  }
  plan->steps.push_back(step);
}

/* What is not given is NULL, or zero and empty where that is not allowed. */
Row_default make_default(const TABLE *table, int index, const Column &column)
{
  Row_default result;
  result.step= make_target(table, index, column);
  result.null= column.has_default ? column.default_null : column.nullable;
  result.bytes= column.default_bytes;
  if (column.storage == Storage::INTEGER)
    result.step.step= Step::INTEGER;
  else if (column.storage == Storage::BIT)
    result.step.step= Step::BIT;
  else if (is_text(column.storage))
    result.step.step= Step::TEXT;
  if (!is_text(column.storage) && column.storage != Storage::INTEGER)
    result.bytes.resize(column.length + (column.bits > 0), '\0');
  if (result.bytes.empty() && column.storage == Storage::INTEGER)
    result.bytes.assign(1, '\0');
  result.step.length= static_cast<uint32>(result.bytes.size());
  return result;
}

const Column *find_column(const Layout &layout, uint16_t id)
{
  for (const Column &column : layout.columns)
    if (column.id == id)
      return &column;
  return nullptr;
}

bool in_row(const Column &column)
{
  return column.storage != Storage::VIRTUAL && !column.in_key;
}

bool make_plan(const TABLE *table, const Table_definition &definition,
               const Layout &layout, Row_plan *plan)
{
  plan->version= layout.version;
  std::vector<const Column *> sources;
  for (const Column &source : layout.columns)
    if (in_row(source))
      sources.push_back(&source);
  if (layout.blobs_last)
    std::stable_partition(sources.begin(), sources.end(),
                          [](const Column *source) { return source->storage != Storage::BLOB; });
  for (const Column *source : sources)
  {
    int index= definition.column_by_id(source->id);
    Row_step step;
    if (index >= 0 && definition.current().columns[size_t(index)].storage != Storage::VIRTUAL)
    {
      step= make_target(table, index, definition.current().columns[size_t(index)]);
    }
    if (!set_source(&step, *source))
      return false;
    add_step(plan, step);
  }
  plan->null_bytes= (plan->null_count + 7) / 8;
  const std::vector<Column> &columns= definition.current().columns;
  for (size_t i= 0; i < columns.size(); i++)
  {
    const Column *source= find_column(layout, columns[i].id);
    if (in_row(columns[i]) && (source == nullptr || source->storage == Storage::VIRTUAL))
      plan->defaults.push_back(make_default(table, int(i), columns[i]));
  }
  return true;
}

/* Default and name apart: does the table still have what the definition says? */
bool fits(const Column &column, const Column &actual)
{
  return column.storage == actual.storage && column.length == actual.length &&
         column.length_bytes == actual.length_bytes && column.bits == actual.bits &&
         column.nullable == actual.nullable && column.in_key == actual.in_key;
}

/* ---- encode ----------------------------------------------------------- */

size_t trimmed_length(const Row_step &step, const uchar *text, size_t size)
{
  if (!step.space_padded)
    return step.charset->pad_char == ' '
               ? step.charset->lengthsp(reinterpret_cast<const char *>(text), size)
               : size;
  ulonglong word;
  while (size >= sizeof word)
  {
    memcpy(&word, text + size - sizeof word, sizeof word);
    if (word != EIGHT_SPACES)
      break;
    size-= sizeof word;
  }
  while (size > 0 && text[size - 1] == ' ')
    size--;
  return size;
}

inline size_t read_length(const uchar *at, uint length_bytes)
{
  switch (length_bytes) {
  case 1: return *at;
  case 2: return uint2korr(at);
  case 3: return uint3korr(at);
  default: return uint4korr(at);
  }
}

inline void write_length(uchar *at, uint length_bytes, size_t size)
{
  switch (length_bytes) {
  case 1: *at= uchar(size); return;
  case 2: int2store(at, uint16(size)); return;
  case 3: int3store(at, uint32(size)); return;
  default: int4store(at, uint32(size)); return;
  }
}

uchar read_bits(const Row_step &step, const uchar *record)
{
  const uchar *at= record + step.bits_at;
  uint bits= at[0];
  if (step.bit_offset + step.bit_count > 8)
    bits|= uint(at[1]) << 8;
  return uchar((bits >> step.bit_offset) & ((1U << step.bit_count) - 1));
}

void write_bits(const Row_step &step, uchar *record, uchar bits)
{
  uchar *at= record + step.bits_at;
  uint mask= ((1U << step.bit_count) - 1) << step.bit_offset;
  uint value= (uint(bits) << step.bit_offset) & mask;
  at[0]= uchar((at[0] & ~mask) | value);
  if (step.bit_offset + step.bit_count > 8)
    at[1]= uchar((at[1] & ~(mask >> 8)) | (value >> 8));
}

/* Where the text of a column lies in the record. */
const uchar *text_in_record(const Row_step &step, const uchar *record, size_t *size)
{
  const uchar *at= record + step.offset;
  switch (step.target) {
  case Storage::VARCHAR:
    *size= read_length(at, step.length_bytes);
    return at + step.length_bytes;
  case Storage::BLOB:
  {
    const uchar *data;
    *size= read_length(at, step.length_bytes);
    memcpy(&data, at + step.length_bytes, sizeof data);
    return data;
  }
  default:
    *size= trimmed_length(step, at, step.target_length);
    return at;
  }
}

/* ---- decode ----------------------------------------------------------- */

/* A set of columns in one word, a bit for each; in tables of more columns, 64 apart share one, so that a set may seem to have
   more than it has. */
inline uint64_t columns_of(const MY_BITMAP *wanted)
{
  if (wanted == nullptr)
    return ~0ULL;
  uint64_t columns= wanted->bitmap[0];
  for (const my_bitmap_map *word= wanted->bitmap; word != wanted->last_word_ptr;)
    columns|= *++word;
  return columns;
}

inline uint64_t column_bit(uint field)
{
  return 1ULL << (field % 64);
}

/* Once all steps are there. */
void set_columns(Row_plan *plan)
{
  uint64_t behind= 0;
  for (size_t i= plan->steps.size(); i > 0; i--)
  {
    Row_step &step= plan->steps[i - 1];
    if (step.field != NO_FIELD)
      for (int field= step.field; field <= step.field_last; field++)
        step.columns|= column_bit(uint(field));
    step.columns_on= behind|= step.columns;
  }
}

bool store_text(const Row_step &step, uchar *record, const uchar *text, size_t size)
{
  uchar *at= record + step.offset;
  if (size > step.target_length)
    return false;
  switch (step.target) {
  case Storage::VARCHAR:
    write_length(at, step.length_bytes, size);
    memcpy(at + step.length_bytes, text, size);
    return true;
  case Storage::BLOB:
    write_length(at, step.length_bytes, size);
    memcpy(at + step.length_bytes, &text, sizeof text);
    return true;
  default:
    memcpy(at, text, size);
    if (step.space_padded)
      memset(at + size, ' ', step.target_length - size);
    else
      step.charset->fill(reinterpret_cast<char *>(at) + size, step.target_length - size,
                         step.charset->pad_char);
    return true;
  }
}

void store_integer(const Row_step &step, uchar *record, const uchar *from)
{
  const bool negative= !step.is_unsigned && (from[step.length - 1] & 128);
  uchar *at= record + step.offset;
  memcpy(at, from, step.length);
  memset(at + step.length, negative ? 255 : 0, step.target_length - step.length);
}

/* Bytes that a value takes in the row, its varint length not counted. */
inline size_t fixed_length(const Row_step &step)
{
  return step.length + (step.step == Step::BIT && step.bit_count > 0);
}

/* Columns are mostly short, and a copy of a length that is known beforehand is no call. */
inline void copy_short(uchar *to, const uchar *from, size_t size)
{
  switch (size) {
  case 1: *to= *from; return;
  case 4: memcpy(to, from, 4); return;
  case 8: memcpy(to, from, 8); return;
  default: memcpy(to, from, size);
  }
}

/* One value, `size` bytes at `from`; false on damage. */
inline bool store_value(const Row_step &step, uchar *record, const uchar *from, size_t size)
{
  switch (step.step) {
  case Step::RUN:
  case Step::FIXED:
    memcpy(record + step.offset, from, size);
    return true;
  case Step::INTEGER:
    store_integer(step, record, from);
    return true;
  case Step::BIT:
    if (step.bit_count > 0)
      write_bits(step, record, *from++);
    memcpy(record + step.offset, from, step.target_length);
    return true;
  case Step::TEXT:
    return store_text(step, record, from, size);
  }
  return false;
}

/* The bytes of a column that is NULL are those of the default record: the server compares them, too, when it looks
   whether an UPDATE has changed a row. */
inline void set_null(const Row_step &step, uchar *record, const uchar *defaults, bool null)
{
  if (null)
  {
    record[step.null_offset]|= step.null_bit;
    memcpy(record + step.offset, defaults + step.offset, step.record_length);
  }
  else
    record[step.null_offset]&= uchar(~step.null_bit);
}

/* The steps from `at` on, up to the last one that is wanted; false on damage. */
bool decode_steps(const Row_plan &plan, const uchar *nulls, const uchar *at, const uchar *end, uint64_t wanted,
                  const uchar *defaults, uchar *record)
{
  uint null_index= 0;
  for (const Row_step &step : plan.steps)
  {
    if ((step.columns_on & wanted) == 0)
      break;
    if (step.step == Step::RUN)
    {
      if (size_t(end - at) < step.length)
        return false;
      copy_short(record + step.offset, at, step.length);
      at+= step.length;
      continue;
    }
    const bool used= (step.columns & wanted) != 0;
    if (step.nullable)
    {
      const bool null= nulls[null_index / 8] >> (null_index % 8) & 1;
      null_index++;
      if (used && step.null_bit != 0)
        set_null(step, record, defaults, null);
      if (null)
        continue;
    }
    else if (used && step.null_bit != 0)   /* has become nullable since */
      set_null(step, record, defaults, false);
    size_t size= fixed_length(step);
    if (step.step == Step::TEXT)
    {
      uint64_t length;
      at= read_varint(at, end, &length);
      if (at == nullptr)
        return false;
      size= size_t(length);
    }
    if (size_t(end - at) < size)
      return false;
    if (used && !store_value(step, record, at, size))
      return false;
    at+= size;
  }
  return true;
}

void decode_defaults(const Row_plan &plan, const uchar *defaults, uchar *record)
{
  for (const Row_default &missing : plan.defaults)
  {
    const Row_step &step= missing.step;
    if (step.null_bit != 0)
      set_null(step, record, defaults, missing.null);
    if (!missing.null)
      store_value(step, record, reinterpret_cast<const uchar *>(missing.bytes.data()),
                  missing.bytes.size());
  }
}

}  // namespace

/* ---- Row_codec -------------------------------------------------------- */

Row_codec::Row_codec()= default;
Row_codec::~Row_codec()= default;

int Row_codec::init(const TABLE *table, const Table_definition &definition,
                    const Key_codec *primary)
{
  m_plans.clear();
  m_key_columns= m_blob_columns= 0;
  m_primary= primary;
  m_defaults= table->s->default_values;
  m_null_bytes= table->s->null_bytes;
  if (definition.layouts.empty())
    return HA_ERR_TABLE_DEF_CHANGED;
  const std::vector<Column> &columns= definition.current().columns;
  if (columns.size() != table->s->fields)
    return HA_ERR_TABLE_DEF_CHANGED;
  m_length_max= VARINT_LENGTH_MAX;
  for (uint i= 0; i < table->s->fields; i++)
  {
    if (!fits(columns[i], make_column(table, i)))
      return HA_ERR_TABLE_DEF_CHANGED;
    if (columns[i].in_key)
      m_key_columns|= column_bit(i);
    if (columns[i].storage == Storage::BLOB)
      m_blob_columns|= column_bit(i);
    else
      m_length_max+= columns[i].length;
    m_length_max+= VARINT_LENGTH_MAX + 1;
  }
  if (m_key_columns != 0 && primary == nullptr)
    return HA_ERR_TABLE_DEF_CHANGED;
  for (const Layout &layout : definition.layouts)
  {
    Row_plan plan;
    if (!make_plan(table, definition, layout, &plan))
      return HA_ERR_TABLE_DEF_CHANGED;
    set_columns(&plan);
    m_plans.push_back(std::move(plan));
  }
  return 0;
}

void Row_codec::encode(const uchar *record, Bytes &out) const
{
  const Row_plan &plan= m_plans.back();
  uchar *start= out.reserve(m_length_max);
  uchar *to= write_varint(start, plan.version);
  size_t nulls= out.size() + size_t(to - start);   /* survives growing */
  memset(to, 0, plan.null_bytes);
  to+= plan.null_bytes;
  uint null_index= 0;
  for (const Row_step &step : plan.steps)
  {
    if (step.nullable)
    {
      const uint at= null_index++;
      if (record[step.null_offset] & step.null_bit)
      {
        out.data()[nulls + at / 8]|= uchar(1 << (at % 8));
        continue;
      }
    }
    switch (step.step) {
    case Step::RUN:
    case Step::FIXED:
    case Step::INTEGER:
      memcpy(to, record + step.offset, step.length);
      to+= step.length;
      break;
    case Step::BIT:
      if (step.bit_count > 0)
        *to++= read_bits(step, record);
      memcpy(to, record + step.offset, step.length);
      to+= step.length;
      break;
    case Step::TEXT:
    {
      size_t size= 0;
      const uchar *text= text_in_record(step, record, &size);
      to= write_varint(to, size);
      if (step.target == Storage::BLOB)
      {
        out.added(size_t(to - start));
        out.append(text, size);
        start= to= out.reserve(m_length_max);
      }
      else
      {
        memcpy(to, text, size);
        to+= size;
      }
      break;
    }
    }
  }
  out.added(size_t(to - start));
}

const Row_plan *Row_codec::plan_of(uint64_t version) const
{
  if (m_plans.back().version == version)
    return &m_plans.back();
  for (const Row_plan &plan : m_plans)
    if (plan.version == version)
      return &plan;
  return nullptr;
}

bool Row_codec::wants_blobs(const MY_BITMAP *wanted) const
{
  return (m_blob_columns & columns_of(wanted)) != 0;
}

int Row_codec::decode(const uchar *key, size_t key_size, const uchar *value,
                      size_t value_size, const MY_BITMAP *wanted, uchar *record) const
{
  const uint64_t columns= columns_of(wanted);
  const uchar *at= value, *end= value + value_size;
  uint64_t version;
  at= read_varint(at, end, &version);
  const Row_plan *plan= at == nullptr ? nullptr : plan_of(version);
  if (plan == nullptr || size_t(end - at) < plan->null_bytes)
    return undecodable();
  copy_short(record, m_defaults, m_null_bytes);
  if (!decode_steps(*plan, at, at + plan->null_bytes, end, columns, m_defaults, record))
    return undecodable();
  if (!plan->defaults.empty())
    decode_defaults(*plan, m_defaults, record);
  if ((m_key_columns & columns) != 0 &&
      m_primary->decode(key, key_size, nullptr, nullptr, wanted, record) == 0)
    return undecodable();
  return 0;
}

bool same_column(Field *field, const uchar *a, const uchar *b)
{
  const uchar *low= std::min(a, b), *high= std::max(a, b);
  const my_ptrdiff_t start= low - field->table->record[0], distance= high - low;
  field->move_field_offset(start);
  const bool null= field->is_null();
  /* Bits of a BIT among those that say what is NULL are looked at by cmp_offset alone. */
  auto differ= [&] { return field->type() == MYSQL_TYPE_BIT ? field->cmp_offset(distance) : field->cmp_binary(field->ptr, field->ptr + distance); };
  const bool same= null == field->is_null(distance) && (null || differ() == 0);
  field->move_field_offset(-start);
  return same;
}

}  // namespace frond
