#!/usr/bin/env bash
# The parts of tools/ that judge a run, without a server.

set -euo pipefail
tools=$(cd "$(dirname "$0")/../tools" && pwd)
work=$(realpath "$(mktemp -d)")
tests=0
failed=0

finish() {
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

echo "1..$tests"
[ "$failed" -eq 0 ] || { echo "# $failed of $tests failed"; exit 1; }
