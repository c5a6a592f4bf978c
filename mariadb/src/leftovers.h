/* What an earlier process left and nobody uses: dropped when the server has finished or undone the DDL that was cut short.

     temporary tables             their sessions are gone
     trees of indexes being built no definition names them
     partitions without a table   DROP of a partitioned table removes the server's list of partitions first (the .par file),
                                  then one partition after the other. Killed in between, the server's own recovery finds no
                                  list and drops the table's .frm alone. After a CREATE that was killed it asks this engine
                                  to drop the table as if it were not partitioned, and leaves the list as well.

   And what it left under another name: RENAME of a partitioned table moves one partition after the other, then the list, the
   .frm last; so does undoing it, when a later table of the same statement could not be renamed. The server's own recovery
   needs all three under one name, and stops at the first partition that is not there. So what went ahead is put back where
   the .frm is, before that recovery: it moves all of them or none, and may want to give their names to another table. After an ALTER TABLE
   which renames a partitioned table and changes it in place, the server's recovery moves the .frm alone, and the rest follows it;
   and a list of partitions goes that any ALTER TABLE in place has made under a name of its own.

   What the server's log said is kept in a file of this engine's (frond_ddl_recovery.log in the server's data directory) from before the server's
   recovery, which empties that log, until all this is done: so a start that is killed in between has not forgotten it.

   A partition is dropped only when two things say so: the server's log of DDL statements, as it was found at this start or kept from one that was cut short, was about
   to create or drop the table, and the table has no .frm after the server's recovery. A data directory that lacks such files
   for another reason (restored in part, not mounted, the wrong one) thus costs no rows; the error log tells of the
   partitions. They are put back only where the log was about that renaming, one of the two names has a .frm and one has a
   list; the last renaming first, as the server undoes them, because names may change places. Those that stay go when the user drops
   the table, or its database.

   Copyright (c) 2026 The FrondDB maintainers. SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef FROND_MARIADB_LEFTOVERS_H
#define FROND_MARIADB_LEFTOVERS_H

#include "server.h"

#include <string>

#include "frond.h"

namespace frond {

/* The user drops a table of which there are neither files nor a tree, "schema/table": drops its partitions. FROND_NOT_FOUND.
   `gone` as in drop_trees. */
frond_status drop_lost_partitions(frond_txn *txn, const std::string &table, std::vector<uint64_t> *gone);
/* The user drops a database, "./schema/", and the server has dropped the tables that it knows: drops all others. */
void drop_schema(THD *thd, const char *path);
/* Reads the server's log of DDL statements, and puts back what was being renamed. To be called when the database is open and the
   server has not yet recovered from its log, which empties it; a server that runs writes there what goes on. */
void before_ddl_recovery();
/* What was kept of an earlier start is true no more. */
void forget_ddl();
/* Drops what is left. To be called when the server has recovered DDL and decided about transactions that were prepared: they hold
   locks in such trees, too. */
void drop_leftovers();

} // namespace frond

#endif
