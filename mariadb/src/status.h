/* Status variables, SHOW ENGINE FROND STATUS, and what the error log is told.

   Status variables
     Frond_<field>                     every number of frond_statistics, under the engine's own names
     Frond_last_recovery_<field>       every number of frond_recovery_report
     Frond_estimated_recovery_ms       what a restart would take if the server died now
     Frond_write_amplification         bytes written to storage per byte that users wrote
     Frond_read_amplification          blocks read from storage for point reads, per point read
   docs/mariadb.md lists them; a test compares.

   Copyright (c) 2026 The FrondDB maintainers. SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef FROND_MARIADB_STATUS_H
#define FROND_MARIADB_STATUS_H

#include "server.h"

#include "frond.h"

namespace frond {

extern struct st_mysql_show_var status_variables[];

/* handlerton::show_status. */
bool show_status(handlerton *hton, THD *thd, stat_print_fn *print, enum ha_stat_type type);

/* The engine chose this connection's transaction as the victim of a deadlock: kept for SHOW ENGINE FROND STATUS. */
void note_deadlock(THD *thd, const char *message);

/* A frond_log_fn: events of the engine go to the server's error log. */
void log_event(void *context, frond_log_level level, const char *message);

/* Tells the error log why FROND did not start, and what to do. */
void log_failed_start(frond_status status, const char *doing);

} // namespace frond

#endif
