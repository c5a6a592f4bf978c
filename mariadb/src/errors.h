/* The one place where an engine status becomes an error of the server.

   Copyright (c) 2026 The FrondDB maintainers. SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef FROND_MARIADB_ERRORS_H
#define FROND_MARIADB_ERRORS_H

#include "frond.h"

class THD;

namespace frond {

/* The HA_ERR_* number of a status; 0 for FROND_OK. Does nothing else. That an entry is too long, of all that
   FROND_INVALID_ARGUMENT may say, is known where it is written: fits() in slices.h tells, and the error is HA_ERR_TO_BIG_ROW. */
int handler_error(frond_status status);

/* The same inside a statement: marks the transaction for rollback where the status says that it has ended
   (deadlock), and keeps the engine's words for handler::get_error_message. */
int statement_error(THD *thd, frond_status status);

/* Whether what a bulk load says, before it writes to its trees, is of frond_tmp_dir. */
bool is_of_temporary_space(frond_status status);
/* frond_tmp_dir has no room for what is sorted: says so, and not that a table is full. The HA_ERR_* number is one of which the server says no more. */
int temporary_space_error();

/* The engine's words for the failure that this thread met last. */
const char *last_message();

/* HA_ERR_CRASHED, of what is no row or entry although the engine finds nothing wrong with it. */
int undecodable();

/* The words for an HA_ERR_* number that this thread was given last by one of these. */
const char *error_words(int error);

/* Whether the server's own text for a handler error says less than the engine's. */
bool engine_words_wanted(int error);

} // namespace frond

#endif
