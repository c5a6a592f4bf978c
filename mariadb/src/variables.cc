/* System variables. See variables.h.

   SPDX-License-Identifier: GPL-2.0-or-later */
#include "variables.h"

#include <mutex>

#include "errors.h"
#include "plugin.h"
#include "status.h"
#include "waits.h"

namespace frond {

namespace {

char *data_dir_variable, *log_dir_variable, *tmp_dir_variable;
unsigned long long cache_size, level0_size, log_segment_size;
unsigned long checkpoint_period, recovery_target_ms, sync_log_period, block_size;
unsigned int filter_bits, background_threads;
char direct_io, checkpoint_now, large_pages;
unsigned long default_compression;
int default_compression_level;

constexpr int READ_ONLY= PLUGIN_VAR_READONLY | PLUGIN_VAR_RQCMDARG;
constexpr unsigned long long MEBIBYTE= 1 << 20, KIBIBYTE= 1 << 10;
constexpr unsigned long SECONDS_MAX= 24UL * 3600;

const char *commit_sync_names[]= {"SYNC", "WRITE", "NONE", NullS};
TYPELIB commit_sync_type= {array_elements(commit_sync_names) - 1, "", commit_sync_names, nullptr};
/* In the order of FROND_CODEC_NONE, _LZ4, _ZSTD. */
const char *compression_names[]= {"NONE", "LZ4", "ZSTD", NullS};
TYPELIB compression_type= {array_elements(compression_names) - 1, "", compression_names, nullptr};

/* Who keeps checkpoints by time from happening; under checkpoint_latch, as what the engine is told about them. */
std::mutex checkpoint_latch;
int checkpoint_holders= 0;

/* A dynamic variable takes its value when the engine has; else it stays, with a warning that says why. */
template <typename Value> void set_if(THD *thd, frond_status status, void *variable, const void *value)
{
  if (status == FROND_OK)
    *static_cast<Value *>(variable)= *static_cast<const Value *>(value);
  else
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_WRONG_ARGUMENTS, "FROND: not changed: %s", last_message());
}

void update_cache_size(THD *thd, st_mysql_sys_var *, void *variable, const void *value)
{
  unsigned long long bytes= *static_cast<const unsigned long long *>(value);
  static std::mutex one_by_one; /* so that the variable says what is so */
  /* To give back much memory takes a while, in which everybody wants to read variables. */
  mysql_mutex_unlock(&LOCK_global_system_variables);
  std::lock_guard<std::mutex> guard(one_by_one);
  frond_status status= frond_db_set_memory_bytes(database, bytes);
  mysql_mutex_lock(&LOCK_global_system_variables);
  set_if<unsigned long long>(thd, status, variable, value);
}

void update_checkpoint_period(THD *thd, st_mysql_sys_var *, void *variable, const void *value)
{
  uint64_t seconds= *static_cast<const unsigned long *>(value);
  std::lock_guard<std::mutex> guard(checkpoint_latch);
  frond_status status= checkpoint_holders ? FROND_OK : frond_db_set_checkpoint_interval_ms(database, seconds * 1000);
  set_if<unsigned long>(thd, status, variable, value);
}

void update_recovery_target(THD *thd, st_mysql_sys_var *, void *variable, const void *value)
{
  uint64_t target= *static_cast<const unsigned long *>(value);
  set_if<unsigned long>(thd, frond_db_set_recovery_target_ms(database, target), variable, value);
}

void update_sync_log_period(THD *thd, st_mysql_sys_var *, void *variable, const void *value)
{
  uint64_t period= *static_cast<const unsigned long *>(value);
  set_if<unsigned long>(thd, frond_db_set_log_sync_period_ms(database, period), variable, value);
}

/* Whether a value given for a BOOL is ON. False when it is none at all. */
bool read_bool(st_mysql_value *value, bool *on)
{
  if (value->value_type(value) == MYSQL_VALUE_TYPE_STRING) {
    char buffer[8];
    int length= sizeof buffer;
    const char *text= value->val_str(value, buffer, &length);
    bool known= text && (length == 2 || length == 3);
    *on= known && length == 2 && strncasecmp(text, "ON", 2) == 0;
    return *on || (known && length == 3 && strncasecmp(text, "OFF", 3) == 0);
  }
  longlong number= 0;
  bool given= value->val_int(value, &number) == 0;
  *on= number != 0;
  return given;
}

/* A checkpoint is made where the value is checked, so that one that fails fails the statement; the server holds no latch
   there. */
int check_checkpoint_now(THD *thd, st_mysql_sys_var *, void *save, st_mysql_value *value)
{
  bool asked;
  if (!read_bool(value, &asked))
    return 1;
  *static_cast<char *>(save)= 0;
  if (!asked || !database)
    return 0;
  frond_status status= frond_db_checkpoint(database);
  if (status == FROND_OK)
    return 0;
  my_printf_error(ER_GET_ERRMSG, "FROND: no checkpoint: %s", MYF(0), last_message());
  return 1;
}

/* It reads as 0 always. */
void update_checkpoint_now(THD *, st_mysql_sys_var *, void *, const void *) {}

MYSQL_SYSVAR_STR(data_dir, data_dir_variable, READ_ONLY,
                 "Directory of FROND's files. Empty: #frond in the server's data directory", nullptr, nullptr, nullptr);
MYSQL_SYSVAR_STR(log_dir, log_dir_variable, READ_ONLY,
                 "Directory of the recovery log. Empty: log in frond_data_dir", nullptr, nullptr, nullptr);
MYSQL_SYSVAR_STR(tmp_dir, tmp_dir_variable, READ_ONLY,
                 "Directory of the temporary files of bulk loads. Empty: tmp in frond_data_dir", nullptr, nullptr, nullptr);
MYSQL_SYSVAR_ULONGLONG(cache_size, cache_size, PLUGIN_VAR_RQCMDARG,
                       "Memory that FROND uses in all: cache, newest changes, locks, cursors, buffers; in bytes", nullptr,
                       update_cache_size, 256 * MEBIBYTE, FROND_MEMORY_BYTES_MIN, 1ULL << 50, MEBIBYTE);
MYSQL_SYSVAR_ULONGLONG(level0_size, level0_size, READ_ONLY,
                       "Bytes of newest changes at which they are sealed and written out, at most a quarter of "
                       "frond_cache_size. 0: an eighth of it, at most 32 MiB", nullptr, nullptr, 0, 0, 1ULL << 40, KIBIBYTE);
MYSQL_SYSVAR_ULONGLONG(log_segment_size, log_segment_size, READ_ONLY, "Most bytes of a file of the recovery log",
                       nullptr, nullptr, 100000000, MEBIBYTE, 16ULL << 30, 1);
MYSQL_SYSVAR_ULONG(checkpoint_period, checkpoint_period, PLUGIN_VAR_RQCMDARG,
                   "Seconds after which there is a checkpoint at the latest. 0: none because of time", nullptr,
                   update_checkpoint_period, 60, 0, SECONDS_MAX, 1);
MYSQL_SYSVAR_BOOL(checkpoint_now, checkpoint_now, PLUGIN_VAR_NOCMDOPT,
                  "Setting it to 1 makes a checkpoint and waits until it is published. Reads as 0", check_checkpoint_now,
                  update_checkpoint_now, 0);
MYSQL_SYSVAR_ULONG(recovery_target_ms, recovery_target_ms, PLUGIN_VAR_RQCMDARG,
                   "Milliseconds that recovery after a crash may take: newest changes are written out as soon as replaying the "
                   "log would take longer. 0: no target", nullptr, update_recovery_target, 200, 0, SECONDS_MAX * 1000, 1);
MYSQL_SYSVAR_ULONG(sync_log_period, sync_log_period, PLUGIN_VAR_RQCMDARG,
                   "Milliseconds after which commits that did not wait for the disk (frond_commit_sync) are made durable. "
                   "0: never because of time", nullptr, update_sync_log_period, 1000, 0, SECONDS_MAX * 1000, 1);
MYSQL_SYSVAR_ULONG(block_size, block_size, READ_ONLY,
                   "Bytes that are compressed, stored and read together, before compression", nullptr, nullptr, 16 * KIBIBYTE,
                   KIBIBYTE, 512 * KIBIBYTE, KIBIBYTE);
MYSQL_SYSVAR_UINT(filter_bits, filter_bits, READ_ONLY,
                  "Bits per key of the filters that keep reads away from where a key is not. 0: no filters", nullptr, nullptr,
                  10, 0, 32, 1);
MYSQL_SYSVAR_UINT(background_threads, background_threads, READ_ONLY, "Threads that write out, flush and compact", nullptr,
                  nullptr, 2, 1, 64, 1);
MYSQL_SYSVAR_BOOL(direct_io, direct_io, READ_ONLY, "Whether data is read and written past the operating system's cache",
                  nullptr, nullptr, 1);
MYSQL_SYSVAR_BOOL(large_pages, large_pages, READ_ONLY,
                  "Whether FROND's memory may be of the processor's large pages, although the server turns these off for its "
                  "process. Where the system gives them only to memory that asks for them, or is Linux 6.18 or newer",
                  nullptr, nullptr, 1);
MYSQL_SYSVAR_ENUM(default_compression, default_compression, PLUGIN_VAR_RQCMDARG,
                  "Compression of tables that are created without COMPRESSION", nullptr, nullptr, 2, &compression_type);
MYSQL_SYSVAR_INT(default_compression_level, default_compression_level, PLUGIN_VAR_RQCMDARG,
                 "Level of ZSTD for tables that are created without COMPRESSION", nullptr, nullptr, 1, -7, 22, 1);
MYSQL_THDVAR_ENUM(commit_sync, PLUGIN_VAR_RQCMDARG,
                  "What a commit waits for. SYNC: the disk; it survives power loss. WRITE: the operating system; it survives "
                  "the end of the server. NONE: nothing; a crash may lose it, and leaves an earlier consistent state", nullptr,
                  nullptr, 0, &commit_sync_type);
MYSQL_THDVAR_ULONG(lock_wait_timeout, PLUGIN_VAR_RQCMDARG,
                   "Seconds that a row lock is waited for. 0: not at all", nullptr, nullptr, 50, 0, 1024UL * 1024 * 1024, 0);

} // namespace

struct st_mysql_sys_var *system_variables[]= {
  MYSQL_SYSVAR(background_threads), MYSQL_SYSVAR(block_size), MYSQL_SYSVAR(cache_size), MYSQL_SYSVAR(checkpoint_now),
  MYSQL_SYSVAR(checkpoint_period), MYSQL_SYSVAR(commit_sync), MYSQL_SYSVAR(data_dir), MYSQL_SYSVAR(default_compression),
  MYSQL_SYSVAR(default_compression_level), MYSQL_SYSVAR(direct_io), MYSQL_SYSVAR(filter_bits), MYSQL_SYSVAR(large_pages),
  MYSQL_SYSVAR(level0_size), MYSQL_SYSVAR(lock_wait_timeout), MYSQL_SYSVAR(log_dir), MYSQL_SYSVAR(log_segment_size),
  MYSQL_SYSVAR(recovery_target_ms), MYSQL_SYSVAR(sync_log_period), MYSQL_SYSVAR(tmp_dir), nullptr,
};

frond_durability commit_durability(THD *thd)
{
  return FROND_DURABILITY_SYNC + static_cast<frond_durability>(THDVAR(thd, commit_sync));
}

namespace {

/* Whether a SET STATEMENT that holds now, of this statement, sets the server's own variable, which is about metadata locks; to
   the server WAIT n and NOWAIT are that, too. A replica's threads leave it out. */
bool sets_lock_wait(LEX *lex)
{
  List_iterator_fast<set_var_base> settings(lex->old_var_list);
  while (set_var_base *setting= settings++)
    if (!strcmp(static_cast<set_var *>(setting)->var->name.str, "lock_wait_timeout"))
      return true;
  return false;
}

int64_t wait_of(ulonglong seconds)
{
  return seconds == 0 ? FROND_WAIT_NONE : static_cast<int64_t>(seconds) * 1000;
}

} // namespace

int64_t said_lock_wait_ms(THD *thd)
{
  /* Of the statement that runs, or of the CALL or EXECUTE that the client sent. */
  LEX *running;
  thd->backup_and_reset_current_lex(&running);
  bool said= sets_lock_wait(thd->lex) || sets_lock_wait(running);
  thd->restore_current_lex(running);
  return said ? wait_of(thd->variables.lock_wait_timeout) : FROND_WAIT_DEFAULT;
}

int64_t lock_wait_ms(THD *thd, int64_t said)
{
  return said == FROND_WAIT_DEFAULT ? wait_of(THDVAR(thd, lock_wait_timeout)) : said;
}

int64_t lock_wait_ms(THD *thd)
{
  return lock_wait_ms(thd, said_lock_wait_ms(thd));
}

void default_codec(frond_codec *codec, int32_t *level)
{
  *codec= FROND_CODEC_NONE + static_cast<frond_codec>(default_compression);
  *level= *codec == FROND_CODEC_ZSTD ? default_compression_level : 0;
}

frond_status hold_checkpoints(bool hold)
{
  std::lock_guard<std::mutex> guard(checkpoint_latch);
  if (!hold && checkpoint_holders == 0)
    return FROND_OK;
  checkpoint_holders+= hold ? 1 : -1;
  return frond_db_set_checkpoint_interval_ms(database, checkpoint_holders ? 0 : checkpoint_period * 1000ULL);
}

std::string tmp_dir()
{
  return tmp_dir_variable ? tmp_dir_variable : "";
}

uint64_t cache_bytes()
{
  return cache_size;
}

bool wants_large_pages()
{
  return large_pages;
}

std::string data_dir()
{
  if (data_dir_variable && *data_dir_variable)
    return data_dir_variable;
  return std::string(mysql_real_data_home) + DEFAULT_DATA_DIR;
}

namespace {

frond_status set_options(frond_options *options)
{
  const struct {
    frond_option option;
    uint64_t value;
  } settings[]= {
    {FROND_OPTION_CREATE_IF_MISSING, 1},
    {FROND_OPTION_MEMORY_BYTES, cache_size},
    {FROND_OPTION_LEVEL0_BYTES, level0_size},
    {FROND_OPTION_LOG_SEGMENT_BYTES, log_segment_size},
    {FROND_OPTION_LOG_SYNC_PERIOD_MS, sync_log_period},
    {FROND_OPTION_CHECKPOINT_INTERVAL_MS, checkpoint_period * 1000ULL},
    {FROND_OPTION_RECOVERY_TARGET_MS, recovery_target_ms},
    {FROND_OPTION_BACKGROUND_THREADS, background_threads},
    {FROND_OPTION_DIRECT_IO, static_cast<uint64_t>(direct_io)},
    {FROND_OPTION_BLOCK_BYTES, block_size},
    {FROND_OPTION_FILTER_BITS_PER_KEY, filter_bits},
  };
  for (const auto &setting : settings) {
    frond_status status= frond_options_set(options, setting.option, setting.value);
    if (status != FROND_OK)
      return status;
  }
  frond_codec codec;
  int32_t level;
  default_codec(&codec, &level);
  frond_status status= frond_options_set_codec(options, codec, level);
  if (status == FROND_OK)
    status= frond_options_set_log(options, log_event, nullptr);
  if (status == FROND_OK)
    status= frond_options_set_wait_observer(options, wait_begins, nullptr);
  if (status == FROND_OK)
    status= frond_options_set_wait_end(options, wait_ends, nullptr);
  if (status == FROND_OK)
    status= frond_options_set_victim_preference(options, preferred_victim, nullptr);
  if (status == FROND_OK && log_dir_variable && *log_dir_variable)
    status= frond_options_set_log_dir(options, log_dir_variable);
  return status;
}

} // namespace

frond_options *database_options()
{
  frond_options *options= frond_options_new();
  if (set_options(options) == FROND_OK)
    return options;
  frond_options_free(options);
  return nullptr;
}

} // namespace frond
