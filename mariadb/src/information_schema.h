/* The tables that FROND adds to information_schema. They want the PROCESS privilege, as those of InnoDB do.

     FROND_TRX          open and prepared transactions, with their connection and statement
     FROND_LOCKS        locks held and waited for, keys as column values
     FROND_LOCK_WAITS   who waits for whom
     FROND_TREES        one row per tree: each table's rows, each of its secondary indexes
     FROND_RECOVERY     what the last start-up found and did, phase by phase
     FROND_CHECKPOINTS  how often there was a checkpoint, by cause

   Copyright (c) 2026 The FrondDB maintainers. SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef FROND_MARIADB_INFORMATION_SCHEMA_H
#define FROND_MARIADB_INFORMATION_SCHEMA_H

#include "server.h"

namespace frond {

extern struct st_mysql_information_schema information_schema_interface;

int init_trx(void *schema);
int init_locks(void *schema);
int init_lock_waits(void *schema);
int init_trees(void *schema);
int init_recovery(void *schema);
int init_checkpoints(void *schema);

} // namespace frond

#endif
