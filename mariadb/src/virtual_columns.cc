/* Virtual columns that are computed here. See virtual_columns.h.

   SPDX-License-Identifier: GPL-2.0-or-later */
#include "virtual_columns.h"

namespace frond {

namespace {

/* Takes what is said while it lives, and knows whether there were errors. */
class Silence final : public Internal_error_handler {
public:
  bool handle_condition(THD *, uint, const char *, Sql_condition::enum_warning_level *level, const char *,
                        Sql_condition **condition) override
  {
    *condition= nullptr;
    failed|= *level == Sql_condition::WARN_LEVEL_ERROR;
    return true;
  }
  bool failed= false;
};

} // namespace

void Virtual_columns::add(Field *field)
{
  table= field->table;
  columns.insert(field->field_index);
  if (field->stored_in_db())
    return;
  /* The server's walk marks what an expression reads, through DEFAULT() and other generated columns, in the set of what the statement reads. */
  MY_BITMAP read, *kept= table->read_set;
  my_bitmap_map bits[bitmap_buffer_size(MAX_FIELDS) / sizeof(my_bitmap_map)];
  my_bitmap_init(&read, bits, table->s->fields);
  table->read_set= &read;
  field->vcol_info->expr->walk(&Item::register_field_in_read_map, true, nullptr);
  table->read_set= kept;
  for (uint column= bitmap_get_first_set(&read); column != MY_BIT_NONE; column= bitmap_get_next_set(&read, column))
    columns.insert(column);
}

void Virtual_columns::compute_each() const
{
  THD *thd= table->in_use;
  Query_arena kept;
  thd->set_n_backup_active_arena(table->expr_arena, &kept);
  MY_BITMAP *write_set= dbug_tmp_use_all_columns(table, &table->write_set);
  Own_bit own(table);
  for (uint column : columns) {
    Field *field= table->field[column];
    if (!field->stored_in_db())
      field->vcol_info->expr->save_in_field(field, 0);
  }
  dbug_tmp_restore_column_map(&table->write_set, write_set);
  thd->restore_active_arena(table->expr_arena, &kept);
}

bool Virtual_columns::compute(THD *thd) const
{
  if (columns.empty())
    return true;
  Counting_error_handler said;
  thd->push_internal_handler(&said);
  compute_each();
  thd->pop_internal_handler();
  return said.errors == 0;
}

bool Virtual_columns::compute_quietly(THD *thd) const
{
  if (columns.empty())
    return true;
  Silence silence;
  const bool strict= thd->abort_on_warning;
  thd->abort_on_warning= false;
  thd->push_internal_handler(&silence);
  compute_each();
  thd->pop_internal_handler();
  thd->abort_on_warning= strict;
  return !silence.failed;
}

} // namespace frond
