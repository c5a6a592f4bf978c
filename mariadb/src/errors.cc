/* Statuses to handler errors. See errors.h.

   SPDX-License-Identifier: GPL-2.0-or-later */
#include "server.h"

#include "errors.h"

#include <functional>
#include <string_view>

#include "status.h"
#include "variables.h"

namespace frond {

/* The damage that this thread met last and the engine did not; and what the engine had said last then. */
static thread_local bool met_undecodable= false;
static thread_local size_t engine_said= 0;

static size_t hash_of_message()
{
  return std::hash<std::string_view>()(last_message());
}

int handler_error(frond_status status)
{
  switch (status) {
  case FROND_OK:
    return 0;
  case FROND_DEADLOCK:
    return HA_ERR_LOCK_DEADLOCK;
  case FROND_LOCK_TIMEOUT:
    return HA_ERR_LOCK_WAIT_TIMEOUT;
  case FROND_CONFLICT:
    return HA_ERR_RECORD_CHANGED;
  case FROND_KEY_EXISTS:
    return HA_ERR_FOUND_DUPP_KEY;
  case FROND_NOT_FOUND:
    return HA_ERR_NO_SUCH_TABLE;
  case FROND_READ_ONLY:
    return HA_ERR_READ_ONLY_TRANSACTION;
  case FROND_NO_SPACE:
    return HA_ERR_RECORD_FILE_FULL;
  case FROND_CORRUPTION:
    return HA_ERR_CRASHED;
  case FROND_UNSUPPORTED_FORMAT:
    return HA_ERR_NEW_FILE;
  case FROND_CANCELLED:
    return HA_ERR_ABORTED_BY_USER;
  default: /* FROND_INVALID_ARGUMENT, FROND_IO, FROND_POISONED, FROND_CLOSED, FROND_ALREADY_OPEN, FROND_INTERNAL */
    return HA_ERR_INTERNAL_ERROR;
  }
}

int statement_error(THD *thd, frond_status status)
{
  if (status == FROND_DEADLOCK) {
    note_deadlock(thd, last_message());
    thd->mark_transaction_to_rollback(true);
  } else if (status == FROND_LOCK_TIMEOUT) {
    /* No handler in a function or trigger may go on from it: the server takes back no half of a statement there. */
    thd->mark_transaction_to_rollback(false);
  } else if (status == FROND_CANCELLED && thd_kill_level(thd) == THD_IS_NOT_KILLED) {
    /* The server says why a statement was killed; of one that was not it would say that all went well. */
    my_error(ER_QUERY_INTERRUPTED, MYF(0));
  }
  return handler_error(status);
}

bool is_of_temporary_space(frond_status status)
{
  return status == FROND_NO_SPACE && !tmp_dir().empty();
}

int temporary_space_error()
{
  sql_print_warning("FROND: the directory of temporary files has no room, directory=%s: %s", tmp_dir().c_str(), last_message());
  my_error(ER_TEMP_FILE_WRITE_FAILURE, MYF(0));
  return HA_ERR_ABORTED_BY_USER;
}

const char *last_message()
{
  const char *message;
  frond_last_error(&message);
  return message;
}

int undecodable()
{
  met_undecodable= true;
  engine_said= hash_of_message();
  return HA_ERR_CRASHED;
}

const char *error_words(int error)
{
  if (error == HA_ERR_CRASHED && met_undecodable && engine_said == hash_of_message())
    return "what is stored is no row, entry or definition that this version of FROND knows; CHECK TABLE may tell more";
  return last_message();
}

bool engine_words_wanted(int error)
{
  return error == HA_ERR_INTERNAL_ERROR || error == HA_ERR_CRASHED || error == HA_ERR_NEW_FILE || error == HA_ERR_TO_BIG_ROW;
}

} // namespace frond
