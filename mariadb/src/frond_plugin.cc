/* The plugin: the handlerton, start and stop.

   Start opens the database; that is recovery, always. A failed start leaves nothing behind: correct the cause and load the
   plugin again.

   Copyright (c) 2026 The FrondDB maintainers. SPDX-License-Identifier: GPL-2.0-or-later */
#include "plugin.h"

#include "alter.h"
#include "ddl.h"
#include "decisions.h"
#include "errors.h"
#include "ha_frond.h"
#include "information_schema.h"
#include "inspect.h"
#include "large_pages.h"
#include "leftovers.h"
#include "session.h"
#include "share.h"
#include "status.h"
#include "variables.h"

/* In no header of the server: adds a folder of the data directory that is not a schema to @@ignore_db_dirs. Without that
   the server complains about the folder whenever it lists schemas. */
void ignore_db_dirs_append(const char *name);

namespace frond {

handlerton *hton= nullptr;
frond_db *database= nullptr;

} // namespace frond

using namespace frond;

namespace {

/* Whether statements are served. Others find a plugin that a running server is loading, but the handlerton gets its place in
   each connection's memory only when init() has returned: until then FROND is as unknown to them as before. (But for DROP TABLE, which asks the
   server's own tables for that place first.) */
std::atomic<bool> serving{false};

handler *create_handler(handlerton *engine, TABLE_SHARE *table, MEM_ROOT *mem_root)
{
  return serving.load(std::memory_order_acquire) ? new (mem_root) ha_frond(engine, table) : nullptr;
}

void serve()
{
  hton->flags&= ~HTON_NOT_USER_SELECTABLE;
  serving.store(true, std::memory_order_release);
}

int close_connection(handlerton *, THD *thd)
{
  Session::close(thd);
  return 0;
}

void kill_query(handlerton *, THD *thd, enum thd_kill_levels)
{
  if (Session *session= Session::find(thd))
    session->kill();
}

int commit(handlerton *, THD *thd, bool all)
{
  Session *session= Session::find(thd);
  return session ? session->commit(thd, all) : 0;
}

void commit_ordered(handlerton *, THD *thd, bool all)
{
  if (Session *session= Session::find(thd))
    session->commit_ordered(thd, all);
}

int rollback(handlerton *, THD *thd, bool all)
{
  Session *session= Session::find(thd);
  return session ? session->rollback(thd, all) : 0;
}

int prepare(handlerton *, THD *thd, bool all)
{
  Session *session= Session::find(thd);
  return session ? session->prepare(thd, all) : 0;
}

int savepoint_set(handlerton *, THD *thd, void *place)
{
  Session *session= Session::of(thd);
  return session ? session->savepoint_set(thd, static_cast<uint32_t *>(place)) : HA_ERR_OUT_OF_MEM;
}

int savepoint_rollback(handlerton *, THD *thd, void *place)
{
  Session *session= Session::of(thd);
  return session ? session->savepoint_rollback(thd, *static_cast<uint32_t *>(place)) : HA_ERR_OUT_OF_MEM;
}

int savepoint_release(handlerton *, THD *thd, void *place)
{
  if (Session *session= Session::find(thd))
    session->savepoint_release(*static_cast<uint32_t *>(place));
  return 0;
}

/* Row locks stay at a rollback to a savepoint, and with them the metadata locks of their tables. A transaction that has only read gives
   these back: a dump of all tables in one snapshot keeps DDL from none that it is done with. */
bool savepoint_rollback_can_release_mdl(handlerton *, THD *thd)
{
  Session *session= Session::find(thd);
  return !session || !session->may_hold_locks();
}

int start_consistent_snapshot(handlerton *, THD *thd)
{
  Session *session= Session::of(thd);
  return session ? session->start_consistent_snapshot(thd) : HA_ERR_OUT_OF_MEM;
}

/* Fills `list` with transactions that wait for a decision, `length` at most; the server asks until it gets fewer. */
int recover(handlerton *, XID *list, uint length)
{
  static size_t told= 0;
  frond_list *items;
  const frond_prepared_info *prepared;
  size_t count;
  if (length == 0 || frond_db_prepared(database, &items, &prepared, &count) != FROND_OK)
    return 0;
  uint filled= 0;
  for (; told < count && filled < length; told++)
    if (prepared[told].recovered && decode_xid(prepared[told].xid, &list[filled]))
      filled++;
  if (told >= count && filled < length)
    told= 0;
  frond_list_free(items);
  return static_cast<int>(filled);
}

/* Answers of the X/Open XA interface. */
constexpr int XA_OK= 0, XAER_RMERR= -3, XAER_NOTA= -4;

int decide_by_xid(XID *xid, bool commits)
{
  std::string bytes= encode_xid(*xid);
  frond_slice id= frond_bytes(bytes.data(), bytes.size());
  frond_status status= commits ? frond_db_commit_prepared(database, id, FROND_DURABILITY_SYNC)
                               : frond_db_rollback_prepared(database, id);
  /* Its own the server decides by the binary log when it starts, and forgets. Those of users it keeps, to be decided once more, if the statement ends
     in an error: it does not look at what is returned here. */
  if (xid->get_my_xid())
    keep_undone_decision(status, bytes, commits, last_message());
  else if (status != FROND_OK && status != FROND_NOT_FOUND && current_thd)
    my_printf_error(ER_XAER_RMERR, "%s: %s", MYF(0), ER_THD(current_thd, ER_XAER_RMERR), last_message());
  drop_kept();
  if (!xid->get_my_xid())
    stay_while_prepared();
  if (status == FROND_NOT_FOUND)
    return XAER_NOTA;
  return status == FROND_OK ? XA_OK : XAER_RMERR;
}

int commit_by_xid(handlerton *, XID *xid)
{
  return decide_by_xid(xid, true);
}

int rollback_by_xid(handlerton *, XID *xid)
{
  int outcome= decide_by_xid(xid, false);
  if (outcome == XA_OK)
    rows_undone_somewhere();
  return outcome;
}

void commit_checkpoint_request(void *cookie)
{
  answer_checkpoint_request(cookie);
}

bool flush_logs(handlerton *)
{
  return frond_db_sync_log(database) != FROND_OK;
}

/* FLUSH TABLES WITH READ LOCK AND DISABLE CHECKPOINT: no checkpoint begins because of time. Those that memory asks for go on. */
int checkpoint_state(handlerton *, bool disabled)
{
  return hold_checkpoints(disabled) == FROND_OK ? 0 : 1;
}

/* BACKUP STAGE START: the log that belongs to the backup is short, and no checkpoint because of time moves it. They are held also where the
   checkpoint fails: the end of the backup lets them go in any case, and must not let go what another session holds. */
void prepare_for_backup()
{
  if (hold_checkpoints(true) != FROND_OK || frond_db_checkpoint(database) != FROND_OK)
    sql_print_warning("FROND: no checkpoint before the backup: %s", last_message());
}

/* BACKUP STAGE END, however the backup came out. */
void end_backup()
{
  hold_checkpoints(false);
}

int drop_table_by_path(handlerton *, const char *path)
{
  return drop_table(current_thd, path);
}

/* The tables that the server knew are dropped. */
void drop_database(handlerton *, char *path)
{
  if (serving.load(std::memory_order_acquire) && !is_reserved(path))
    drop_schema(current_thd, path);
}

/* Recovery of the server's log of DDL statements asks which version of a table is here. */
int check_version(handlerton *, const char *path, const LEX_CUSTRING *version, ulonglong)
{
  return check_table_version(path, version);
}

/* Transactions that were prepared are decided, half-done DDL is finished or undone; or a running server has loaded the plugin. */
int signal_ddl_recovery_done(handlerton *)
{
  drop_leftovers();
  stay_while_prepared();
  serve();
  return 0;
}

/* Connections have ended. After this the server marks its binary log as closed in order, and the next start asks such a log for nothing: it would refuse
   to start where transactions of its own are still prepared. So where a decision could not be written down, or commits may be on no
   disk, the server ends here as if it had been killed: then its next start is the recovery that they need. */
void pre_shutdown()
{
  if (make_last_decisions() && frond_db_poisoned(database) == FROND_OK && frond_db_sync_log(database) == FROND_OK)
    return;
  sql_print_error("FROND: the server ends without an orderly shutdown, so that the next start decides by the binary logs what is not decided: %s",
                  last_message());
  _exit(EXIT_FAILURE);
}

ha_create_table_option table_options[]= {
  HA_TOPTION_ENUM("COMPRESSION", compression, "DEFAULT,NONE,LZ4,ZSTD", 0),
  HA_TOPTION_NUMBER("COMPRESSION_LEVEL", compression_level, 0, 0, 22, 1),
  HA_TOPTION_END,
};

ha_create_table_option index_options[]= {
  HA_IOPTION_BOOL("CLUSTERING", clustering, 0),
  HA_IOPTION_END,
};

/* How many transactions were prepared before the database was opened; the server alone knows what to do with them. */
size_t count_recovered()
{
  frond_list *items;
  const frond_prepared_info *prepared;
  size_t count, recovered= 0;
  if (frond_db_prepared(database, &items, &prepared, &count) != FROND_OK)
    return 0;
  for (size_t i= 0; i < count; i++)
    recovered+= prepared[i].recovered;
  frond_list_free(items);
  return recovered;
}

void close_all()
{
  frond_tree_close(auto_increment_tree);
  auto_increment_tree= nullptr;
  close_database();
}

int init(void *p)
{
  hton= static_cast<handlerton *>(p);
  /* The server has one when it has read its plugins; then it recovers. */
  const bool server_recovers= tc_log == nullptr;
  hton->flags= HTON_SUPPORTS_EXTENDED_KEYS | (server_recovers ? 0 : HTON_NOT_USER_SELECTABLE);
  hton->create= create_handler;
  hton->close_connection= close_connection;
  hton->kill_query= kill_query;
  hton->commit= commit;
  hton->commit_ordered= commit_ordered;
  hton->rollback= rollback;
  hton->prepare= prepare;
  hton->recover= recover;
  hton->commit_by_xid= commit_by_xid;
  hton->rollback_by_xid= rollback_by_xid;
  hton->commit_checkpoint_request= commit_checkpoint_request;
  hton->savepoint_offset= sizeof(uint32_t);
  hton->savepoint_set= savepoint_set;
  hton->savepoint_rollback= savepoint_rollback;
  hton->savepoint_release= savepoint_release;
  hton->savepoint_rollback_can_release_mdl= savepoint_rollback_can_release_mdl;
  hton->start_consistent_snapshot= start_consistent_snapshot;
  hton->flush_logs= flush_logs;
  hton->drop_table= drop_table_by_path;
  hton->drop_database= drop_database;
  hton->check_version= check_version;
  hton->signal_ddl_recovery_done= signal_ddl_recovery_done;
  hton->show_status= show_status;
  hton->checkpoint_state= checkpoint_state;
  hton->prepare_for_backup= prepare_for_backup;
  hton->end_backup= end_backup;
  hton->pre_shutdown= pre_shutdown;
  hton->table_options= table_options;
  hton->index_options= index_options;
  hton->tablefile_extensions= hton_no_exts;

  /* Who reads the variable holds this. */
  mysql_mutex_lock(&LOCK_global_system_variables);
  ignore_db_dirs_append(DEFAULT_DATA_DIR);
  mysql_mutex_unlock(&LOCK_global_system_variables);
  frond_options *options= database_options();
  if (!options) {
    log_failed_start(FROND_INVALID_ARGUMENT, "take the options");
    return 1;
  }
  std::string directory= data_dir();
  frond_status status= frond_db_open(directory.c_str(), options, &database);
  frond_options_free(options);
  if (status != FROND_OK) {
    database= nullptr;
    log_failed_start(status, "open the database");
    return 1;
  }
  status= frond_db_open_tree(database, "#frond/auto_increment", &auto_increment_tree);
  if (status == FROND_NOT_FOUND)
    status= frond_db_create_tree(database, "#frond/auto_increment", nullptr, &auto_increment_tree);
  if (status != FROND_OK) {
    log_failed_start(status, "prepare the database");
    close_all();
    return 1;
  }
  size_t undecided= server_recovers ? 0 : count_recovered();
  if (undecided > 0) {
    sql_print_error("FROND: cannot be loaded by a running server: transactions wait for a decision, which the server makes when it "
                    "starts, transactions=%zu", undecided);
    sql_print_error("FROND: restart the server with the plugin, by an option or in mysql.plugin; see the manual where it has a binary log");
    close_all();
    return 1;
  }
  if (server_recovers) {
    before_ddl_recovery();
    serve(); /* recovery of DDL */
  } else {
    forget_ddl(); /* the server has served without this engine since */
  }
  begin_large_pages();
  return 0;
}

int deinit(void *)
{
  serving.store(false, std::memory_order_release);
  end_large_pages();
  make_last_decisions();
  frond_tree_close(auto_increment_tree);
  auto_increment_tree= nullptr;
  /* The handle has ended whatever is said. Of a plugin that fails here the server would keep a part, which it takes for the plugin at the next INSTALL. */
  if (close_database() != FROND_OK)
    sql_print_warning("FROND: the database was not closed in order, and recovers when it is opened next: %s", last_message());
  return 0;
}

struct st_mysql_storage_engine engine= {MYSQL_HANDLERTON_INTERFACE_VERSION};

/* Of all plugins of this library. The stock server loads what is one step below its own maturity, "stable", without being told
   to; of whatever is not stable itself it says so in the error log, a line for each plugin. */
constexpr unsigned int MATURITY= MariaDB_PLUGIN_MATURITY_GAMMA;

/* A table of information_schema as a plugin of this library. */
#define FROND_INFORMATION_SCHEMA(NAME, INIT, DESCRIPTION)                                                                     \
  {                                                                                                                          \
    MYSQL_INFORMATION_SCHEMA_PLUGIN, &information_schema_interface, NAME, "The FrondDB maintainers", DESCRIPTION,            \
      PLUGIN_LICENSE_GPL, INIT, nullptr, 0x0001, nullptr, nullptr, FROND_VERSION, MATURITY                                     \
  }

} // namespace

maria_declare_plugin(frond){
  MYSQL_STORAGE_ENGINE_PLUGIN,
  &engine,
  "FROND",
  "The FrondDB maintainers",
  "Write-optimised transactional engine: fractal tree, constant-time recovery and rollback",
  PLUGIN_LICENSE_GPL,
  init,
  deinit,
  0x0001,
  frond::status_variables,
  frond::system_variables,
  FROND_VERSION,
  MATURITY,
},
FROND_INFORMATION_SCHEMA("FROND_TRX", init_trx, "Open and prepared transactions of FROND"),
FROND_INFORMATION_SCHEMA("FROND_LOCKS", init_locks, "Locks held and waited for in FROND"),
FROND_INFORMATION_SCHEMA("FROND_LOCK_WAITS", init_lock_waits, "Who waits for whom in FROND"),
FROND_INFORMATION_SCHEMA("FROND_TREES", init_trees, "Trees of FROND: tables and their indexes"),
FROND_INFORMATION_SCHEMA("FROND_RECOVERY", init_recovery, "The last recovery of FROND, by phase"),
FROND_INFORMATION_SCHEMA("FROND_CHECKPOINTS", init_checkpoints, "Checkpoints of FROND, by cause")
maria_declare_plugin_end;
