/* Status variables and SHOW ENGINE FROND STATUS. See status.h.

   SPDX-License-Identifier: GPL-2.0-or-later */
#include "status.h"

#include <mysql/service_thd_alloc.h>

#include <algorithm>
#include <cstdarg>
#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

#include "errors.h"
#include "inspect.h"
#include "plugin.h"
#include "variables.h"

namespace frond {

namespace {

double write_amplification(const frond_statistics &s)
{
  uint64_t written= s.log_bytes_written + s.blob_bytes + s.seal_bytes + s.flush_bytes + s.compact_bytes + s.publish_bytes;
  return static_cast<double>(written) / static_cast<double>(s.user_bytes ? s.user_bytes : 1);
}

double read_amplification(const frond_statistics &s)
{
  uint64_t reads= s.gets + s.write_checks;
  return static_cast<double>(s.blocks_read_point) / static_cast<double>(reads ? reads : 1);
}

/* ---------------------------------------------------------------------------------------------------------------
 * Status variables. Many may ask at once: each has the values in memory of his statement.
 */

struct Values {
  frond_statistics statistics;
  frond_recovery_report report;
  ulonglong recovery_created, recovery_superblocks_skipped; /* of another type in the report */
  ulonglong estimated_recovery_ms;
  double write_amplification, read_amplification;
};

void read_values(Values *values)
{
  memset(static_cast<void *>(values), 0, sizeof *values);
  if (!database || frond_db_statistics(database, &values->statistics, sizeof values->statistics) != FROND_OK)
    return;
  if (frond_db_recovery_report(database, &values->report) == FROND_OK) {
    values->recovery_created= values->report.created;
    values->recovery_superblocks_skipped= values->report.superblocks_skipped;
  }
  frond_recovery_estimate estimate;
  if (frond_db_estimated_recovery(database, &estimate) == FROND_OK)
    values->estimated_recovery_ms= estimate.micros / 1000;
  values->write_amplification= write_amplification(values->statistics);
  values->read_amplification= read_amplification(values->statistics);
}

/* Which variable is where in Values. */
struct Place {
  const char *name;
  size_t offset;
  enum_mysql_show_type type;
};

std::vector<Place> make_places()
{
  std::vector<Place> places;
  const char *name;
  size_t offset;
  for (size_t i= 0; frond_statistics_field(i, &name, &offset); i++)
    places.push_back({name, offsetof(Values, statistics) + offset, SHOW_ULONGLONG});
  const Place others[]= {
    {"estimated_recovery_ms", offsetof(Values, estimated_recovery_ms), SHOW_ULONGLONG},
    {"last_recovery_created", offsetof(Values, recovery_created), SHOW_ULONGLONG},
    {"last_recovery_superblocks_skipped", offsetof(Values, recovery_superblocks_skipped), SHOW_ULONGLONG},
    {"last_recovery_generation", offsetof(Values, report.generation), SHOW_ULONGLONG},
    {"last_recovery_segments", offsetof(Values, report.segments), SHOW_ULONGLONG},
    {"last_recovery_bytes_read", offsetof(Values, report.bytes_read), SHOW_ULONGLONG},
    {"last_recovery_bytes_replayed", offsetof(Values, report.bytes_replayed), SHOW_ULONGLONG},
    {"last_recovery_records", offsetof(Values, report.records), SHOW_ULONGLONG},
    {"last_recovery_messages", offsetof(Values, report.messages), SHOW_ULONGLONG},
    {"last_recovery_log_end", offsetof(Values, report.log_end), SHOW_ULONGLONG},
    {"last_recovery_committed", offsetof(Values, report.committed), SHOW_ULONGLONG},
    {"last_recovery_aborted", offsetof(Values, report.aborted), SHOW_ULONGLONG},
    {"last_recovery_prepared", offsetof(Values, report.prepared), SHOW_ULONGLONG},
    {"last_recovery_roots_micros", offsetof(Values, report.roots_micros), SHOW_ULONGLONG},
    {"last_recovery_log_micros", offsetof(Values, report.log_micros), SHOW_ULONGLONG},
    {"last_recovery_sort_micros", offsetof(Values, report.sort_micros), SHOW_ULONGLONG},
    {"last_recovery_transactions_micros", offsetof(Values, report.transactions_micros), SHOW_ULONGLONG},
    {"last_recovery_total_micros", offsetof(Values, report.total_micros), SHOW_ULONGLONG},
    {"write_amplification", offsetof(Values, write_amplification), SHOW_DOUBLE},
    {"read_amplification", offsetof(Values, read_amplification), SHOW_DOUBLE},
  };
  places.insert(places.end(), std::begin(others), std::end(others));
  return places;
}

int show_variables(MYSQL_THD thd, struct st_mysql_show_var *variable, void *, struct system_status_var *, enum enum_var_type)
{
  static const std::vector<Place> places= make_places();
  auto *values= static_cast<Values *>(thd_alloc(thd, sizeof(Values)));
  auto *all= static_cast<st_mysql_show_var *>(thd_calloc(thd, (places.size() + 1) * sizeof(st_mysql_show_var)));
  variable->type= SHOW_UNDEF;
  if (!values || !all)
    return 1;
  read_values(values);
  for (size_t i= 0; i < places.size(); i++)
    all[i]= {places[i].name, reinterpret_cast<char *>(values) + places[i].offset, places[i].type};
  all[places.size()].type= SHOW_UNDEF;
  variable->type= SHOW_ARRAY;
  variable->value= reinterpret_cast<char *>(all);
  return 0;
}

/* ---------------------------------------------------------------------------------------------------------------
 * SHOW ENGINE FROND STATUS
 */

constexpr size_t TRANSACTIONS_MAX= 100, WAITS_MAX= 100, QUERY_BYTES_MAX= 1000;

/* The latest deadlock, in words. */
std::mutex deadlock_latch;
std::string latest_deadlock;

class Text {
public:
  void section(const char *title) { line("\n%s\n%s", title, std::string(strlen(title), '-').c_str()); }
  void line(const char *format, ...) __attribute__((format(printf, 2, 3)));
  void raw(const std::string &words) { text+= words + "\n"; }
  const std::string &words() const { return text; }

private:
  std::string text;
};

void Text::line(const char *format, ...)
{
  char buffer[2048];
  va_list arguments;
  va_start(arguments, format);
  int length= vsnprintf(buffer, sizeof buffer, format, arguments);
  va_end(arguments);
  text.append(buffer, std::min<size_t>(length < 0 ? 0 : length, sizeof buffer - 1));
  text.push_back('\n');
}

/* "12.3 MiB" */
std::string size_text(uint64_t bytes)
{
  static const char *units[]= {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double shown= static_cast<double>(bytes);
  size_t unit= 0;
  for (; shown >= 1024 && unit + 1 < array_elements(units); unit++)
    shown/= 1024;
  char text[32];
  snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", shown, units[unit]);
  return text;
}

std::string times_text(const frond_distribution &times)
{
  char text[160];
  snprintf(text, sizeof text, "%llu, p50 %llu us, p95 %llu us, p99 %llu us, max %llu us", ulonglong(times.count),
           ulonglong(times.p50_micros), ulonglong(times.p95_micros), ulonglong(times.p99_micros), ulonglong(times.max_micros));
  return text;
}

double ratio(uint64_t part, uint64_t whole)
{
  return whole ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

std::string timestamp(time_t when)
{
  struct tm parts;
  char text[32];
  localtime_r(&when, &parts);
  strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  return text;
}

/* Of the checkpoints of all causes that had something to write. */
std::string checkpoint_times_text()
{
  uint64_t finished= 0, sum= 0, longest= 0;
  for (frond_checkpoint_cause cause :
       {FROND_CHECKPOINT_BY_TIME, FROND_CHECKPOINT_BY_SIZE, FROND_CHECKPOINT_BY_TARGET, FROND_CHECKPOINT_BY_REQUEST}) {
    frond_checkpoint_summary summary;
    if (frond_db_checkpoint_summary(database, cause, &summary) != FROND_OK)
      continue;
    finished+= summary.finished;
    sum+= summary.sum_micros;
    longest= std::max(longest, summary.max_micros);
  }
  if (!finished)
    return "none yet";
  char text[80];
  snprintf(text, sizeof text, "mean %.1f ms, longest %.1f ms", double(sum) / double(finished) / 1000, double(longest) / 1000);
  return text;
}

std::string numbers_text(const std::vector<uint64_t> &numbers)
{
  std::string text;
  for (uint64_t number : numbers)
    text+= (text.empty() ? "" : ", ") + std::to_string(number);
  return text;
}

std::string place_text(THD *thd, const Trees &trees, const Lock_view &lock)
{
  auto found= trees.find(lock.tree);
  if (found == trees.end() || found->second.table.empty())
    return "tree " + std::to_string(lock.tree);
  const Tree_view &tree= found->second;
  std::string text= tree.schema + "." + tree.table;
  if (!tree.partition.empty())
    text+= " partition " + tree.partition;
  text+= " index " + tree.index + (lock.is_range ? " from (" : " key (") + key_text(thd, tree, lock.start) + ")";
  if (lock.is_range)
    text+= lock.end.empty() ? " to the end" : " to before (" + key_text(thd, tree, lock.end) + ")";
  return text;
}

void put_transactions(THD *thd, Text &text, const frond_statistics &s)
{
  std::vector<Lock_view> locks;
  std::vector<Transaction_view> transactions;
  Trees trees;
  bool complete= list_locks(&locks) && list_transactions(locks, &transactions) && (!any_waits(locks) || list_trees(&trees));

  text.section("TRANSACTIONS");
  text.line("open %llu, prepared %llu; begun %llu, committed %llu (%llu without writes), rolled back %llu",
            ulonglong(s.transactions_open), ulonglong(s.transactions_prepared), ulonglong(s.begins),
            ulonglong(s.commits + s.commits_read_only), ulonglong(s.commits_read_only), ulonglong(s.rollbacks));
  text.line("newest commit %llu, oldest snapshot in use %llu, ids of rolled back ones not yet purged %llu",
            ulonglong(s.commit_number), ulonglong(s.oldest_snapshot), ulonglong(s.aborted_ids));
  text.line("commit time: %s", times_text(s.commit).c_str());
  for (size_t i= 0; i < transactions.size(); i++) {
    if (i == TRANSACTIONS_MAX) {
      text.line("... and %zu more", transactions.size() - i);
      break;
    }
    const Transaction_view &one= transactions[i];
    text.line("transaction %llu, thread %llu, %s, %s, %.3f s, writes %llu, locks %llu", ulonglong(one.info.txn),
              ulonglong(one.thread_id), one.state(), isolation_name(one.info.isolation),
              static_cast<double>(one.info.age_ms) / 1000, ulonglong(one.info.messages), ulonglong(one.locks_held));
    if (!one.query.empty())
      text.raw("  " + one.query.substr(0, QUERY_BYTES_MAX));
  }

  text.section("LOCKS");
  text.line("held %llu, in %s; waits %llu, timeouts %llu, deadlocks %llu", ulonglong(s.locks_held),
            size_text(s.memory_lock_bytes).c_str(), ulonglong(s.lock_waits), ulonglong(s.lock_timeouts), ulonglong(s.deadlocks));
  size_t shown= 0;
  for (const Lock_view &lock : locks) {
    if (!lock.waits)
      continue;
    if (++shown > WAITS_MAX) {
      text.line("... and more");
      break;
    }
    text.raw("transaction " + std::to_string(lock.txn) + " waits for " + numbers_text(lock.waits_for) + " since " +
             std::to_string(lock.waited_ms) + " ms, " + (lock.mode == FROND_LOCK_EXCLUSIVE ? "exclusive" : "shared") + ": " +
             place_text(thd, trees, lock));
  }
  if (!complete)
    text.line("not all could be listed: %s", last_message());

  text.section("LATEST DEADLOCK");
  std::lock_guard<std::mutex> guard(deadlock_latch);
  text.raw(latest_deadlock.empty() ? "none" : latest_deadlock);
}

void put_storage(Text &text, const frond_statistics &s)
{
  text.section("LOG");
  text.line("end %llu, a restart would read %s; written %s in %llu records, syncs %llu", ulonglong(s.log_end),
            size_text(s.log_live_bytes).c_str(), size_text(s.log_bytes_written).c_str(), ulonglong(s.log_records),
            ulonglong(s.log_syncs));
  text.line("sync time: %s", times_text(s.log_sync).c_str());

  text.section("LEVEL 0");
  text.line("%s of %s until it is sealed, sealed and not yet in the tree %llu, sealed in all %llu",
            size_text(s.level0_bytes).c_str(), size_text(s.level0_bytes_max).c_str(), ulonglong(s.sealed_memtables),
            ulonglong(s.seals));

  text.section("CHECKPOINTS");
  text.line("by period %llu, by size %llu, by recovery target %llu, on request %llu", ulonglong(s.checkpoints_by_time),
            ulonglong(s.checkpoints_by_size), ulonglong(s.checkpoints_by_target), ulonglong(s.checkpoints_by_request));
  text.line("from the seal of level 0 until it is durable in the tree: %s", checkpoint_times_text().c_str());
  text.line("published %llu times, generation %llu", ulonglong(s.publications), ulonglong(s.generation));

  text.section("TREE");
  text.line("height %llu, runs in the root's buffers %llu, waiting to be moved down %s", ulonglong(s.height),
            ulonglong(s.root_runs), size_text(s.pending_bytes).c_str());
  text.line("file %s, in use %s, of it current %s", size_text(s.file_bytes).c_str(), size_text(s.file_bytes_used).c_str(),
            size_text(s.file_bytes_live).c_str());

  text.section("CACHE AND MEMORY");
  text.line("%s of %s: cache %s, level 0 %s, nodes %s, locks %s, work %s", size_text(s.memory_bytes).c_str(),
            size_text(s.memory_bytes_max).c_str(), size_text(s.memory_cache_bytes).c_str(),
            size_text(s.memory_level0_bytes).c_str(), size_text(s.memory_metadata_bytes).c_str(),
            size_text(s.memory_lock_bytes).c_str(), size_text(s.memory_work_bytes).c_str());
  text.line("cache hits %llu (%llu decoded a packed block), misses %llu, hit rate %.4f", ulonglong(s.cache_hits),
            ulonglong(s.cache_decodes), ulonglong(s.cache_misses), ratio(s.cache_hits, s.cache_hits + s.cache_misses));

  text.section("READS");
  text.line("point reads %llu (found %llu), cursor seeks %llu, cursor steps %llu", ulonglong(s.gets), ulonglong(s.gets_found),
            ulonglong(s.cursor_seeks), ulonglong(s.cursor_steps));
  text.line("blocks read %llu, %s: for point reads %llu (%.3f for each), for scans %llu, indexes and filters %llu; besides, for "
            "compactions %llu",
            ulonglong(s.blocks_read), size_text(s.bytes_read).c_str(), ulonglong(s.blocks_read_point), read_amplification(s),
            ulonglong(s.blocks_read_scan), ulonglong(s.blocks_read_meta), ulonglong(s.blocks_read_bulk));
  text.line("runs asked by point reads %llu, answered by filters %llu, let pass %llu, in vain %llu", ulonglong(s.run_lookups),
            ulonglong(s.filter_negatives), ulonglong(s.filter_positives), ulonglong(s.filter_false_positives));
  text.line("point read time: %s", times_text(s.read).c_str());

  text.section("WRITES");
  text.line("messages %llu, %s of keys and values", ulonglong(s.messages), size_text(s.user_bytes).c_str());
  text.line("write amplification %.2f: log %.2f, sealing %.2f, flushes %.2f, compactions %.2f, publishing %.2f, blobs %.2f",
            write_amplification(s), ratio(s.log_bytes_written, s.user_bytes), ratio(s.seal_bytes, s.user_bytes),
            ratio(s.flush_bytes, s.user_bytes), ratio(s.compact_bytes, s.user_bytes), ratio(s.publish_bytes, s.user_bytes),
            ratio(s.blob_bytes, s.user_bytes));
  text.line("flushes and compactions %llu, of these for readers %llu", ulonglong(s.compactions),
            ulonglong(s.compactions_for_reads));

  text.section("ADMISSION");
  text.line("writers slowed or stopped %llu times", ulonglong(s.stalls));
  text.line("stall time: %s", times_text(s.stall).c_str());
}

void put_recovery(Text &text)
{
  text.section("RECOVERY");
  frond_recovery_estimate estimate;
  if (frond_db_estimated_recovery(database, &estimate) == FROND_OK)
    text.line("if the server died now: %.1f ms, %s of log, %llu messages", static_cast<double>(estimate.micros) / 1000,
              size_text(estimate.bytes).c_str(), ulonglong(estimate.messages));
  frond_recovery_report r;
  if (frond_db_recovery_report(database, &r) != FROND_OK)
    return;
  if (r.created) {
    text.line("the database was made by the last start");
    return;
  }
  text.line("last start: %.1f ms (roots %.1f, log %.1f, sort %.1f, transactions %.1f), %s of log, %llu records, %llu messages",
            static_cast<double>(r.total_micros) / 1000, static_cast<double>(r.roots_micros) / 1000,
            static_cast<double>(r.log_micros) / 1000, static_cast<double>(r.sort_micros) / 1000,
            static_cast<double>(r.transactions_micros) / 1000, size_text(r.bytes_read).c_str(), ulonglong(r.records),
            ulonglong(r.messages));
  text.line("committed %llu, aborted because unfinished %llu, prepared %llu", ulonglong(r.committed), ulonglong(r.aborted),
            ulonglong(r.prepared));
}

} // namespace

struct st_mysql_show_var status_variables[]= {
  {"Frond", reinterpret_cast<char *>(&show_variables), SHOW_FUNC},
  {NullS, NullS, SHOW_UNDEF},
};

bool show_status(handlerton *, THD *thd, stat_print_fn *print, enum ha_stat_type type)
{
  if (type != HA_ENGINE_STATUS)
    return false;
  frond_statistics s;
  Text text;
  text.line("%s FROND STATUS, engine %s", timestamp(my_time(0)).c_str(), frond_version());
  if (frond_db_statistics(database, &s, sizeof s) != FROND_OK) {
    text.line("%s", last_message());
  } else {
    if (frond_db_poisoned(database) != FROND_OK)
      text.line("WRITES ARE REFUSED until the server is restarted: %s", last_message());
    text.line("up for %llu s", ulonglong(s.uptime_micros / 1000000));
    put_transactions(thd, text, s);
    put_storage(text, s);
    put_recovery(text);
  }
  const std::string &words= text.words();
  return print(thd, STRING_WITH_LEN("FROND"), "", 0, words.data(), words.size());
}

void note_deadlock(THD *thd, const char *message)
{
  std::string words= timestamp(my_time(0)) + " " + message + "\nvictim: thread " + std::to_string(thd_get_thread_id(thd));
  const std::string query= query_of(thd);
  if (!query.empty())
    words+= "\n  " + query.substr(0, QUERY_BYTES_MAX);
  std::lock_guard<std::mutex> guard(deadlock_latch);
  latest_deadlock= words;
}

void log_event(void *, frond_log_level level, const char *message)
{
  if (level == FROND_LOG_ERROR)
    sql_print_error("FROND: %s", message);
  else if (level == FROND_LOG_WARNING)
    sql_print_warning("FROND: %s", message);
  else
    sql_print_information("FROND: %s", message);
}

void log_failed_start(frond_status status, const char *doing)
{
  const char *advice;
  switch (status) {
  case FROND_ALREADY_OPEN:
    advice= "another process has these files open: stop it, or set frond_data_dir to another directory";
    break;
  case FROND_INVALID_ARGUMENT:
    advice= "correct the option that the message names (frond_level0_size is 0, or 64 KiB to a quarter of frond_cache_size)";
    break;
  case FROND_UNSUPPORTED_FORMAT:
    advice= "the files were written by another version of FROND: use that version";
    break;
  case FROND_CORRUPTION:
    advice= "if frond_log_dir is the right directory and mounted, the files are damaged: `frond check` names what is; see \"Damage\" in the manual, or restore a backup";
    break;
  case FROND_NO_SPACE:
    advice= "free space on the disk";
    break;
  case FROND_IO:
  case FROND_NOT_FOUND:
    advice= "make sure that frond_data_dir and frond_log_dir exist, belong to the server's user and can be written, or see the kernel's log";
    break;
  default:
    advice= "see the messages before this one";
  }
  sql_print_error("FROND: cannot %s: %s", doing, last_message());
  sql_print_error("FROND: %s; then restart the server or say INSTALL SONAME 'ha_frond'", advice);
}

} // namespace frond
