/* The processor's large pages, for the memory that the engine asks them for.

   Rows of a cache that is read all over are found much sooner with them, above all in a virtual machine. The server turns large
   pages off for its whole process as soon as it has started (MDEV-33279): where the system gives them to everybody, they
   make allocators keep memory. Here they are allowed again for memory that asks for them, which is FROND's level 0 and cache,
   and for no other: by Linux 6.18 and newer in any mode, by older ones where the system's mode is `madvise`. In other modes,
   and with frond_large_pages=OFF, everything stays as the server has it.

   Copyright (c) 2026 The FrondDB maintainers. SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef FROND_MARIADB_LARGE_PAGES_H
#define FROND_MARIADB_LARGE_PAGES_H

namespace frond {

/* Allows them as soon as the server has started, in a thread that waits for that; to be followed by end_large_pages. */
void begin_large_pages();
/* The plugin goes: nobody waits any more. What is allowed stays. */
void end_large_pages();

} // namespace frond

#endif
