/* Large pages. See large_pages.h.

   SPDX-License-Identifier: GPL-2.0-or-later */
#include "large_pages.h"

#ifdef __linux__
#include <sys/prctl.h>

#include <fstream>
#include <string>
#endif

#include "variables.h"

namespace frond {

#ifdef __linux__
namespace {

/* Of Linux 6.18; older headers have no name for it. */
constexpr unsigned long EXCEPT_ADVISED= 1 << 1;
constexpr int DISABLED= 1; /* PR_GET_THP_DISABLE, of all memory */

/* Whether the system gives large pages only to memory that asks for them. */
bool system_wants_advice()
{
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string modes;
  return std::getline(file, modes) && modes.find("[madvise]") != std::string::npos;
}

} // namespace

void allow_large_pages()
{
  if (!wants_large_pages() || prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) != DISABLED)
    return;
  if (prctl(PR_SET_THP_DISABLE, 1, EXCEPT_ADVISED, 0, 0) != 0 && system_wants_advice())
    prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
}
#else
void allow_large_pages() {}
#endif

} // namespace frond
