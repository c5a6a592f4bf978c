/* Decisions about prepared transactions that the engine could not write down, for want of space in the log.

   The server has decided, and the binary log with it, and both count on the engine, which still has the transaction prepared: its rows are locked, and
   its name is known here alone. So the decision is kept, and made again: at the ends of other transactions, once in a while; whenever the
   server wants to forget a binary log; and at the end.

     X1  while a decision is kept the server is not told that it may forget a binary log: after a crash the decision is in that.
     X2  while branches that users have prepared wait for a decision the plugin cannot be uninstalled: the server does not look for one that is,
         and acknowledges an XA COMMIT that nobody has made.

   Any thread. Copyright (c) 2026 The FrondDB maintainers. SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef FROND_MARIADB_DECISIONS_H
#define FROND_MARIADB_DECISIONS_H

#include <atomic>
#include <string>

#include "frond.h"

namespace frond {

/* The engine has answered a decision about a prepared transaction with `status`: keeps the decision where it is not made, for the reason `why`,
   and forgets it where it is. */
void keep_undone_decision(frond_status status, const std::string &xid, bool commits, const std::string &why);
/* The same in a hurry, before the thread itself tries once more and says how that went: X1 holds from here on. */
void note_decision(frond_status status, const std::string &xid, bool commits);

/* Decisions are kept, or requests of the binary log that wait for one. */
extern std::atomic<bool> has_kept_decisions;

/* Makes what is kept, if it was not tried just now. */
void retry_decisions();

/* The binary log wants to forget what is committed: answers when it may, now or later. */
void answer_checkpoint_request(void *cookie);

/* The last time, before the server ends, or the database is closed. False when some are left. */
bool make_last_decisions();

/* A user is about to prepare a branch (X2); then it is told whether that was done. False: the plugin is being uninstalled. */
bool begin_branch();
void end_branch(bool prepared);
/* The plugin may go, if no branch waits for a decision. */
void stay_while_prepared();
/* A user's branch was decided: what waited for that goes on. */
void branch_decided();

} // namespace frond

#endif
