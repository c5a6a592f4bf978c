/* DDL that is not a method of the handler. See ddl.cc.

   Copyright (c) 2026 The FrondDB maintainers. SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef FROND_MARIADB_DDL_H
#define FROND_MARIADB_DDL_H

#include "server.h"

#include "frond.h"

namespace frond {

/* Drops a table without opening it, damaged or not. 0 or an HA_ERR_*. */
int drop_table(const char *path);
/* Drops temporary tables that an earlier process left. */
int drop_leftovers();
/* Reports what FROND does not have: HA_ERR_UNSUPPORTED. */
int refuse_unsupported(const TABLE *form, const HA_CREATE_INFO *info);
/* The codec of a table's trees. */
void table_codec(const HA_CREATE_INFO *info, frond_codec *codec, int32_t *level);

} // namespace frond

#endif
