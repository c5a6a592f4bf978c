/* Virtual columns that are computed here and not by the server: of rows that it does not see.

   They are made of the stored columns in record[0], generated ones as they are stored: those may have been computed under other settings
   of a session. (TABLE::update_virtual_field, the server's own way for one column, computes the stored ones that it names anew.)

   Copyright (c) 2026 The FrondDB maintainers. SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef FROND_MARIADB_VIRTUAL_COLUMNS_H
#define FROND_MARIADB_VIRTUAL_COLUMNS_H

#include "server.h"

#include <set>

namespace frond {

/* While it lives a table has a bit among the tables of a statement, if none gave it one: without it CONVERT_TZ takes a column for a constant, and
   what it made of the first row's for what it makes of all. */
class Own_bit {
public:
  explicit Own_bit(TABLE *table_arg) : table(table_arg), given(table_arg->map) { table->map= given ? given : 1; }
  ~Own_bit() { table->map= given; }
  Own_bit(const Own_bit &)= delete;
  Own_bit &operator=(const Own_bit &)= delete;

private:
  TABLE *table;
  const table_map given;
};

/* The server's way to all virtual columns that the statement reads. */
inline int update_virtual_fields(TABLE *table, handler *file)
{
  Own_bit own(table);
  return table->vfield ? table->update_virtual_fields(file, VCOL_UPDATE_FOR_READ) : 0;
}

class Virtual_columns {
public:
  /* Adds a column of the table, and what it is made from, if it is virtual; of a stored one only its name. */
  void add(Field *field);

  /* Computes those that were added, and the virtual ones that they are made from, in record[0]. False when a value cannot be computed or,
     where the statement is strict, does not fit its column; why is told. */
  bool compute(THD *thd) const;
  /* The same of a row that nobody shall hear of: what does not fit is cut, and nothing is told. */
  bool compute_quietly(THD *thd) const;

  /* The numbers of all, stored ones too, that those added are or are made from. */
  const std::set<uint> &sources() const { return columns; }

private:
  void compute_each() const;

  TABLE *table= nullptr;
  std::set<uint> columns; /* a column is made from ones before it, or stored */
};

} // namespace frond

#endif
