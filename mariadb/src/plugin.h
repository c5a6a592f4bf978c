/* What the whole plugin shares: the handlerton and the open database. Set by the plugin's init, read-only after.

   Copyright (c) 2026 The FrondDB maintainers. SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef FROND_MARIADB_PLUGIN_H
#define FROND_MARIADB_PLUGIN_H

#include "server.h"

#include "frond.h"

namespace frond {

extern handlerton *hton;
extern frond_db *database;

} // namespace frond

#endif
