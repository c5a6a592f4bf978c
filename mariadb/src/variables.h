/* System variables and status variables.

   Copyright (c) 2026 The FrondDB maintainers. SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef FROND_MARIADB_VARIABLES_H
#define FROND_MARIADB_VARIABLES_H

#include "server.h"

#include <string>

#include "frond.h"

namespace frond {

extern struct st_mysql_sys_var *system_variables[];
extern struct st_mysql_show_var status_variables[];

/* What a commit of this session waits for: frond_commit_sync. */
frond_durability commit_durability(THD *thd);
/* Milliseconds that it waits for a lock: frond_lock_wait_timeout, or what NOWAIT and WAIT n say. FROND_WAIT_NONE for 0. */
int64_t lock_wait_ms(THD *thd);
/* Codec that new trees get when the table names none. */
void default_codec(frond_codec *codec, int32_t *level);

constexpr const char *DEFAULT_DATA_DIR= "#frond";

/* Where the database lives: frond_data_dir, "#frond" in the server's data directory by default. */
std::string data_dir();
/* The database's options as the variables say; to be freed with frond_options_free. Null after an error, which is reported. */
frond_options *database_options();

} // namespace frond

#endif
