/* The writes of one row. See row_writes.h.

   SPDX-License-Identifier: GPL-2.0-or-later */
#include "row_writes.h"

#include <algorithm>

#include "bulk_load.h"
#include "slices.h"

namespace frond {

void Row_writes::clear()
{
  buffer.clear();
  writes.clear();
}

void Row_writes::shrink()
{
  clear();
  operations.clear();
  buffer.shrink();
}

void Row_writes::begin(const frond_tree *tree, frond_op op, uint32_t flags, uint key_number)
{
  writes.push_back({tree, op, flags, key_number, buffer.size(), SIZE_MAX});
}

void Row_writes::value()
{
  writes.back().value_start= buffer.size();
}

void Row_writes::make_operations()
{
  operations.resize(writes.size());
  size_t end= buffer.size();
  for (size_t i= writes.size(); i-- > 0;) {
    const Write &write= writes[i];
    frond_operation &operation= operations[i];
    size_t value_start= write.value_start == SIZE_MAX ? end : write.value_start;
    operation.tree= write.tree;
    operation.op= write.op;
    operation.flags= write.flags;
    operation.key= frond_bytes(buffer.data() + write.key_start, value_start - write.key_start);
    operation.value= frond_bytes(buffer.data() + value_start, end - value_start);
    end= write.key_start;
  }
}

frond_status Row_writes::run(frond_txn *txn, uint *key_number)
{
  make_operations();
  size_t failed= FROND_NONE;
  frond_status status= frond_txn_write(txn, operations.data(), operations.size(), &failed);
  *key_number= failed < writes.size() ? writes[failed].key_number : MAX_KEY;
  return status;
}

frond_status Row_writes::load(Bulk_load *load)
{
  make_operations();
  frond_status status= FROND_OK;
  for (size_t i= 0; i < operations.size() && status == FROND_OK; i++)
    status= load->add(i, operations[i].key, operations[i].value);
  return status;
}

bool Row_writes::too_long() const
{
  return std::any_of(operations.begin(), operations.end(), [](const frond_operation &one) { return !fits(one.key, one.value); });
}

} // namespace frond
