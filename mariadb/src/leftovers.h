/* What an earlier process left and nobody uses: dropped when the server has finished or undone the DDL that was cut short.

     temporary tables             their sessions are gone
     trees of indexes being built no definition names them
     partitions without a table   DROP of a partitioned table removes the server's list of partitions first (the .par file),
                                  then one partition after the other. Killed in between, the server's own recovery finds no
                                  list and drops the table's .frm alone.

   A partition is dropped only when two things say so: the server's log of DDL statements, as it was found at start, was about
   to create or drop the table, and the table has neither .frm nor .par after the server's recovery. A data directory that
   lacks such files for another reason (restored in part, not mounted, the wrong one) thus costs no rows; the error log tells
   of the partitions.

   Copyright (c) 2026 The FrondDB maintainers. SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef FROND_MARIADB_LEFTOVERS_H
#define FROND_MARIADB_LEFTOVERS_H

namespace frond {

/* Reads the server's log of DDL statements; to be called before the server recovers from it, which empties it. */
void remember_ddl_log();
/* Drops all that. To be called when the server has recovered DDL and decided about transactions that were prepared: they hold
   locks in such trees, too. */
void drop_leftovers();

} // namespace frond

#endif
