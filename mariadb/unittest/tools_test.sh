#!/usr/bin/env bash
# The parts of tools/ that judge a run or end a process, without a server: a shell that sleeps stands for mariadbd.

set -euo pipefail
tools=$(cd "$(dirname "$0")/../tools" && pwd)
work=$(realpath "$(mktemp -d)")
started=()
tests=0
failed=0

finish() {
    [ ${#started[@]} -eq 0 ] || kill -9 "${started[@]}" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT

# check NAME COMMAND...: holds when the command succeeds.
check() {
    if "${@:2}"; then
        echo "ok $((tests += 1)) - $1"
    else
        echo "not ok $((tests += 1)) - $1"
        ((failed += 1))
    fi
}

# --- mtr-summary.sh

source "$tools/mtr-summary.sh"

# A run as the runner tells it: two tests, of which one failed by the name of the engine; then its arguments, a line each.
log() {
    cat <<'LOG'
suite.other                              w1 [ pass ]     12
suite.named 'row'                        w2 [ fail ]
        Test ended at 2026-01-01 00:00:00

CURRENT_TEST: suite.named
--- suite/named.result	2026-01-01 00:00:00
+++ suite/named.reject	2026-01-01 00:00:00
@@ -4,7 +4,7 @@
 SHOW CREATE TABLE t;
-) ENGINE=MyISAM
+) ENGINE=FROND

Result length mismatch

LOG
    printf '%s\n' "$@"
}

# judged LINE...: whether a run with these lines passes.
judged() {
    log "$@" >"$work/log"
    summary "$work/log" 1 >"$work/told"
}

not_judged() { ! judged "$@"; }

total='Completed: Failed 1/2 tests, 50.00% were successful.'
end='mysql-test-run: *** ERROR: there were failing test cases'
shutdown='***Warnings generated in error logs during shutdown after running tests:'

check "a failure by the engine's name alone passes" judged "$total" "$end"
check "it is counted apart" grep -q "^2 passed, 0 failed.*(1 passed but for" "$work/told"
not_as_default() { ! summary "$work/log" 0 >/dev/null; }
check "only with --as-default" not_as_default
check "another failure does not" not_judged "suite.third  w1 [ fail ]" "Completed: Failed 2/3 tests, 33.33% were successful." "$end"
check "a runner that ended without its totals does not" not_judged
check "nor one that was cut short" not_judged "Timeout: Failed 1/2 tests, 50.00% were successful." "$end"
check "nor one that counts other failures" not_judged "Completed: Failed 2/3 tests, 33.33% were successful." "$end"
check "nor one with tests left" not_judged "Only  2  of 900 completed." "$total" "$end"
check "it says so" grep -q "besides: Only  2  of 900" "$work/told"
check "nor one with another error" not_judged "$total" "mysql-test-run: *** ERROR: Test suite aborted"
check "warnings at the end of a server are complaints" \
    not_judged "$shutdown suite.other" "" "2026-01-01 [Warning] something" "" "$total" "$end"
check "but those after the test that failed by name" \
    judged "$shutdown suite.named" "" "2026-01-01 [Warning] something" "" "$total" "$end"
check "unless no test expects them" \
    not_judged "$shutdown suite.named" "" "2026-01-01 [Warning] something" "Attempting backtrace" "" "$total" "$end"

says_why() {
    log 'suite.third  w1 [ fail ]' 'mysqltest: At line 5: query failed' '' 'suite.fourth  w1 [ pass ]' 'mysqltest: not this' >"$work/log"
    [ "$(reasons "$work/log" | sed -n '3,$p')" = "suite.third: mysqltest: At line 5: query failed" ] &&
        reasons "$work/log" | grep -qxF "suite.named: +) ENGINE=FROND"
}
check "what failed is told with the reason" says_why

# --- server.sh

export FROND_SERVER_DIR=$work/stock FROND_DATA=$work/data FROND_SERVER_WAIT=3
mkdir -p "$work/data.run" "$work/stock/prefix/usr/sbin" "$work/other" "$work/stock/prefix/usr/bin"
touch "$work/stock/headers.done"
cp "$BASH" "$work/stock/prefix/usr/sbin/mariadbd"
cp "$BASH" "$work/other/mariadbd"
ln -s "$(type -P true)" "$work/stock/prefix/usr/bin/mariadb-admin"
mkfifo "$work/never"

# server PROGRAM OPTION...: starts one whose parent never asks how it ended; its pid goes to the pid file.
server() {
    bash -c '"$1" -c "read -r line <>\"\$0\"" "${@:2}" & echo $! >"$0"; exec sleep 60' "$work/data.run/pid" "$1" "$work/never" "${@:2}" &
    started+=($!)
    disown
    until [ -s "$work/data.run/pid" ] && readlink "/proc/$(<"$work/data.run/pid")/exe" | grep -qx "$1"; do sleep 0.01; done
    pid=$(<"$work/data.run/pid")
    started+=("$pid")
}

status_is() { local status=0; "$tools/server.sh" status >/dev/null 2>&1 || status=$?; [ "$status" -eq "$1" ]; }
stops() { "$tools/server.sh" stop >/dev/null 2>&1; }
runs() { readlink -q "/proc/$pid/exe" >/dev/null; }
ended() { ! runs; }

server "$work/other/mariadbd" --datadir=/var/lib/mysql
check "another server with the pid of a stale file is not ours" status_is 3
check "to stop ours" stops
check "does not touch it" runs
rm "$work/data.run/pid"
server "$work/stock/prefix/usr/sbin/mariadbd" "--datadir=$work/data"
check "the one on our data is" status_is 0
check "it is stopped, though its parent leaves a zombie" stops
check "and has ended" ended

# --- scripts that have a server of their own

# In a checkout of their own: they stop and clear what is in its target/.
mkdir -p "$work/checkout/mariadb"
cp -r "$tools" "$work/checkout/mariadb/tools"
keeps() {
    mkdir -p "$work/precious/session1"
    touch "$work/precious/kept"
    ! FROND_DATA=$work/precious/data "$work/checkout/mariadb/tools/$1" 1 >/dev/null 2>&1 && [ -e "$work/precious/kept" ] && [ -e "$work/precious/session1" ]
}
check "ddl-crash.sh leaves alone what FROND_DATA names, and what is beside it" keeps ddl-crash.sh
check "rr-trx.sh too" keeps rr-trx.sh

echo "1..$tests"
[ "$failed" -eq 0 ] || { echo "# $failed of $tests failed"; exit 1; }
