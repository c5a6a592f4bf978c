/* System and status variables. See variables.h.

   SPDX-License-Identifier: GPL-2.0-or-later */
#include "variables.h"

#include <vector>

#include "plugin.h"

namespace frond {

namespace {

char *data_dir_variable, *log_dir_variable;
unsigned long long cache_size;

const char *commit_sync_names[]= {"SYNC", "WRITE", "NONE", NullS};
TYPELIB commit_sync_type= {array_elements(commit_sync_names) - 1, "", commit_sync_names, nullptr};

MYSQL_SYSVAR_STR(data_dir, data_dir_variable, PLUGIN_VAR_READONLY | PLUGIN_VAR_RQCMDARG,
                 "Directory of the database; by default #frond in the server's data directory", nullptr, nullptr, nullptr);
MYSQL_SYSVAR_STR(log_dir, log_dir_variable, PLUGIN_VAR_READONLY | PLUGIN_VAR_RQCMDARG,
                 "Directory of the log; by default log in the database's directory", nullptr, nullptr, nullptr);
MYSQL_SYSVAR_ULONGLONG(cache_size, cache_size, PLUGIN_VAR_READONLY | PLUGIN_VAR_RQCMDARG,
                       "Memory of the engine in all, in bytes", nullptr, nullptr, 256ULL << 20, FROND_MEMORY_BYTES_MIN,
                       ~0ULL, 1 << 20);
MYSQL_THDVAR_ENUM(commit_sync, PLUGIN_VAR_RQCMDARG, "What a commit waits for", nullptr, nullptr, 0, &commit_sync_type);
MYSQL_THDVAR_ULONG(lock_wait_timeout, PLUGIN_VAR_RQCMDARG, "Seconds that a row lock is waited for", nullptr, nullptr, 50,
                   0, 1024UL * 1024 * 1024, 0);

} // namespace

struct st_mysql_sys_var *system_variables[]= {
  MYSQL_SYSVAR(data_dir), MYSQL_SYSVAR(log_dir), MYSQL_SYSVAR(cache_size),
  MYSQL_SYSVAR(commit_sync), MYSQL_SYSVAR(lock_wait_timeout), nullptr,
};

namespace {

/* Every field of the engine's statistics, as the engine names them. SHOW STATUS reads one session at a time
   (LOCK_status), so that one copy serves. */
frond_statistics statistics;
std::vector<st_mysql_show_var> statistics_variables;

int show_statistics(MYSQL_THD, struct st_mysql_show_var *variable, void *, struct system_status_var *, enum enum_var_type)
{
  if (statistics_variables.empty()) {
    const char *name;
    size_t offset;
    for (size_t i= 0; frond_statistics_field(i, &name, &offset); i++)
      statistics_variables.push_back({name, reinterpret_cast<char *>(&statistics) + offset, SHOW_ULONGLONG});
    statistics_variables.push_back({NullS, NullS, SHOW_UNDEF});
  }
  if (!database || frond_db_statistics(database, &statistics, sizeof statistics) != FROND_OK)
    memset(&statistics, 0, sizeof statistics);
  variable->type= SHOW_ARRAY;
  variable->value= reinterpret_cast<char *>(statistics_variables.data());
  return 0;
}

} // namespace

struct st_mysql_show_var status_variables[]= {
  {"Frond", reinterpret_cast<char *>(&show_statistics), SHOW_FUNC},
  {NullS, NullS, SHOW_UNDEF},
};

frond_durability commit_durability(THD *thd)
{
  return FROND_DURABILITY_SYNC + static_cast<frond_durability>(THDVAR(thd, commit_sync));
}

int64_t lock_wait_ms(THD *thd)
{
  /* WAIT n and NOWAIT set the server's own variable for the statement. */
  ulonglong seconds= THDVAR(thd, lock_wait_timeout);
  if (thd->variables.lock_wait_timeout != global_system_variables.lock_wait_timeout)
    seconds= thd->variables.lock_wait_timeout;
  return seconds == 0 ? FROND_WAIT_NONE : static_cast<int64_t>(seconds) * 1000;
}

void default_codec(frond_codec *codec, int32_t *level)
{
  *codec= FROND_CODEC_DEFAULT;
  *level= 0;
}

std::string data_dir()
{
  if (data_dir_variable && *data_dir_variable)
    return data_dir_variable;
  return std::string(mysql_real_data_home) + DEFAULT_DATA_DIR;
}

frond_options *database_options()
{
  frond_options *options= frond_options_new();
  frond_status status= frond_options_set(options, FROND_OPTION_CREATE_IF_MISSING, 1);
  if (status == FROND_OK)
    status= frond_options_set(options, FROND_OPTION_MEMORY_BYTES, cache_size);
  if (status == FROND_OK && log_dir_variable && *log_dir_variable)
    status= frond_options_set_log_dir(options, log_dir_variable);
  if (status == FROND_OK)
    return options;
  const char *message;
  frond_last_error(&message);
  sql_print_error("FROND: %s", message);
  frond_options_free(options);
  return nullptr;
}

} // namespace frond
