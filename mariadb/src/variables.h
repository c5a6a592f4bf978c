/* System variables: what a DBA sets, with defaults that are those of the engine's Options, but for
   frond_sync_log_period (1000, the engine's 0). Each takes effect at the next start,
   or at once where it says "dynamic" below.

     frond_data_dir, frond_log_dir, frond_tmp_dir     where files are
     frond_cache_size (dynamic), frond_level0_size    memory
     frond_checkpoint_period, frond_recovery_target_ms, frond_sync_log_period (dynamic), frond_log_segment_size
     frond_checkpoint_now (dynamic)                   a deed and no setting: it reads as 0
     frond_default_compression, frond_default_compression_level (dynamic), frond_block_size, frond_filter_bits
     frond_direct_io, frond_large_pages, frond_background_threads
     frond_commit_sync, frond_lock_wait_timeout       per session

   Status variables and SHOW ENGINE FROND STATUS are in status.h. docs/mariadb.md is the manual; a test compares the names.

   Copyright (c) 2026 The FrondDB maintainers. SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef FROND_MARIADB_VARIABLES_H
#define FROND_MARIADB_VARIABLES_H

#include "server.h"

#include <string>

#include "frond.h"

namespace frond {

extern struct st_mysql_sys_var *system_variables[];

/* What a commit of this session waits for: frond_commit_sync. */
frond_durability commit_durability(THD *thd);
/* Milliseconds that it waits for a lock: what NOWAIT, WAIT n and SET STATEMENT lock_wait_timeout say, or
   frond_lock_wait_timeout. FROND_WAIT_NONE for 0. */
int64_t lock_wait_ms(THD *thd);
/* What the running statement says alone; FROND_WAIT_DEFAULT where it says nothing. */
int64_t said_lock_wait_ms(THD *thd);
/* lock_wait_ms of a statement that says this. */
int64_t lock_wait_ms(THD *thd, int64_t said);
/* Codec that new trees get when the table names none. */
void default_codec(frond_codec *codec, int32_t *level);

/* While anybody holds them, there are no checkpoints because of time. Nests. */
frond_status hold_checkpoints(bool hold);
constexpr const char *DEFAULT_DATA_DIR= "#frond";

/* Where the database lives: frond_data_dir, "#frond" in the server's data directory by default. */
std::string data_dir();
/* Where rows are sorted that do not fit into memory: frond_tmp_dir; empty for the engine's own folder in the data directory. */
std::string tmp_dir();
/* Memory of the engine, in bytes: frond_cache_size. */
uint64_t cache_bytes();
/* frond_large_pages. */
bool wants_large_pages();
/* The database's options as the variables say; to be freed with frond_options_free. Null after an error (last_message). */
frond_options *database_options();

} // namespace frond

#endif
