/* What the plugin includes of the server, in the order that the server's headers want.

   Copyright (c) 2026 The FrondDB maintainers. SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef FROND_MARIADB_SERVER_H
#define FROND_MARIADB_SERVER_H

#define MYSQL_SERVER 1

#include <my_global.h>

#include <mysql/plugin.h>

#include "sql_class.h"
#include "sql_base.h"
#include "sql_plugin.h"
#include "sql_show.h"
#include "sql_table.h"
#include "field.h"
#include "handler.h"
#include "key.h"
#include "log.h"
#include "partition_info.h"
#include "set_var.h"
#include "sql_select.h"
#include "table.h"

#endif
