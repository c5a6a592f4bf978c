# shellcheck shell=bash disable=SC2034
# Where the tools of this folder find and put things, and how they speak. Sourced by each of them.
#
#   $stock   what is fetched: packages, unpacked server, headers. Shared by checkouts when FROND_SERVER_DIR says where;
#            nothing but fetch.sh writes there.
#   $out     what this checkout makes: the plugin, the private server's data, test runs.

set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
out=$repo/target/mariadb
stock=$(realpath -m "${FROND_SERVER_DIR:-$out/stock}")
prefix=$stock/prefix
headers=$stock/headers
plugin_dir=$out/plugin

tool=$(basename "$0" .sh)

say() {
    echo "$tool: $*"
}

die() {
    echo "$tool: $*" >&2
    exit 1
}

# Ends with a plain message unless the stock server has been fetched.
require_stock() {
    [ -e "$stock/headers.done" ] || die "there is no stock server in $stock: run 'make server' or 'make plugin' first"
}

# True when the process has ended: it is gone, or waits as a zombie for a parent that may never ask. A process that was killed
# can show a dead first thread while others have not let go of its files yet.
has_ended() {
    local fields
    fields=$(awk '/^(State|Threads):/ { printf "%s ", $2 }' "/proc/$1/status" 2>/dev/null) || return 0
    [[ -z $fields || $fields == [ZX]" 1 " ]]
}

# The options that every program of the private server needs: as root mariadbd wants to be told that this is meant.
as_user=()
if [ "$(id -u)" -eq 0 ]; then
    as_user=(--user=root)
fi
