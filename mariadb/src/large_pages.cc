/* Large pages. See large_pages.h.

   SPDX-License-Identifier: GPL-2.0-or-later */
#include "large_pages.h"

#include "variables.h"

#ifdef __linux__
#include <sys/prctl.h>

#include <fstream>
#include <string>
#include <system_error>
#include <thread>
#endif

namespace frond {

#ifdef __linux__
namespace {

/* Of Linux 6.18; older headers have no name for it. */
constexpr unsigned long EXCEPT_ADVISED= 1 << 1;
constexpr int DISABLED= 1; /* PR_GET_THP_DISABLE, of all memory */

std::thread waiter;
bool is_ending; /* under LOCK_server_started */

/* Whether the system gives large pages only to memory that asks for them. */
bool system_wants_advice()
{
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string modes;
  return std::getline(file, modes) && modes.find("[madvise]") != std::string::npos;
}

void allow()
{
  if (prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) != DISABLED)
    return;
  if (prctl(PR_SET_THP_DISABLE, 1, EXCEPT_ADVISED, 0, 0) != 0 && system_wants_advice())
    prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
}

/* The server has turned them off by the time that it says it has started. */
void wait_and_allow()
{
  mysql_mutex_lock(&LOCK_server_started);
  while (!mysqld_server_started && !is_ending)
    mysql_cond_wait(&COND_server_started, &LOCK_server_started);
  bool started= mysqld_server_started;
  mysql_mutex_unlock(&LOCK_server_started);
  if (started)
    allow();
}

} // namespace

void begin_large_pages()
{
  if (!wants_large_pages())
    return;
  is_ending= false;
  try {
    waiter= std::thread(wait_and_allow);
  } catch (const std::system_error &) {
    /* Without a thread to spare it stays as the server has it. */
  }
}

void end_large_pages()
{
  if (!waiter.joinable())
    return;
  mysql_mutex_lock(&LOCK_server_started);
  is_ending= true;
  mysql_cond_broadcast(&COND_server_started);
  mysql_mutex_unlock(&LOCK_server_started);
  waiter.join();
}
#else
void begin_large_pages() {}
void end_large_pages() {}
#endif

} // namespace frond
