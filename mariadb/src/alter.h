/* ALTER TABLE in place: what of it FROND does without copying the table, and how.

   Three outcomes (check_if_supported_inplace_alter):
     instant   the definition is rewritten, no row is: dropping indexes; names, defaults, comments, options, codec; adding
               and dropping columns; order of columns; columns that become wider or may be NULL from now on. Rows keep the
               layout that they were written in (definition.h, D1).
     no copy   the same, and indexes are added, online, on columns too that are added or widened with them: index_build.h.
     copy      the rest, with a reason for the user where one was given.

   A1  what the engine has changes in one transaction, at commit: definition, codec, trees of dropped and of new indexes,
       of all partitions at once. The definition carries the version of the .frm that it belongs to, so that the server
       knows after a crash which of both to keep (check_version).
   A2  a column keeps its id and its kind of storage. An index that is kept has the same bytes before and after: its
       columns' types do not change, but for texts that become longer (K5), and it names the same columns.

   Copyright (c) 2026 The FrondDB maintainers. SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef FROND_MARIADB_ALTER_H
#define FROND_MARIADB_ALTER_H

#include "server.h"

#include <memory>
#include <vector>

#include "definition.h"
#include "index_build.h"

namespace frond {

/* Which column and key of the present table each of the altered one was; -1: it is new. */
struct Alter_map {
  std::vector<int> column_was;
  std::vector<int> key_was;
};

/* What one ALTER TABLE does to one table or partition. */
class Alter final : public inplace_alter_handler_ctx {
public:
  explicit Alter(Table_share *share_arg) : share(share_arg) {}

  /* Of partitions, one after the other, each learns of the one before it. */
  void set_shared_data(const inplace_alter_handler_ctx &ctx) override
  {
    before= static_cast<const Alter *>(&ctx);
  }

  Table_share *share;
  const Alter *before= nullptr;
  Alter_map map;
  std::vector<Column> columns; /* of the altered table; id 0 where the column is new and has_default says what rows have */
  std::unique_ptr<Index_build> build;
  /* What reads the rows as the altered table has them, if the build does (B7). */
  struct Altered_rows {
    Key_codec primary;
    Row_codec rows;
  };
  std::unique_ptr<Altered_rows> altered_rows;
};

/* False when the table's definitions cannot be matched. */
bool map_alter(const TABLE *table, const TABLE *altered, const Alter_inplace_info *info, Alter_map *map);

/* The definition after an ALTER TABLE; the ids of trees that are no longer needed go to *dropped. */
Table_definition alter_definition(const Table_definition &old, const TABLE *table, const TABLE *altered,
                                  const Alter &alter, std::vector<uint32_t> *dropped);

/* Whether a change of a column's type needs no change of rows and indexes. */
bool widens(const Field &field, const Column_definition &type);

/* handlerton::check_version: 0 when the engine has this version of the table. */
int check_table_version(const char *path, const LEX_CUSTRING *version);

} // namespace frond

#endif
