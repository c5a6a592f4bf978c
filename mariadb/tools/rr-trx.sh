#!/usr/bin/env bash
# rr-trx.sh [SECONDS [SESSIONS]]: the server's stress suite engines/rr_trx, REPEATABLE READ under concurrent transactions.
#
# It is no suite of mysql-test-run: one test makes the tables, then sessions run tests picked at random from its run.txt, all on
# the same tables, until the time is over. A test fails when its output differs from the stock result; one that a deadlock or
# a lock wait timeout ends says so and is no failure, unless all do. In the end the stock check_consistency.sql must find the sums that the
# transactions keep, and a whole table.
#
# The suite is older than the server, so the tests are a private copy: without the warnings of INSERT IGNORE, which an old
# server did not give; with a counter that begins at 0, which mariadb-test wants to be said; with the folder that the suite is
# in now (not suite/stress_tx_rr); and without a variable whose name is a reserved word (rows). Connection numbers are unsigned,
# and the tests subtract them: NO_UNSIGNED_SUBTRACTION.
# Those that fail are shown with what they printed, and the server's directory stays.
#
# Environment: ENGINE (FROND), SEED (1). Its server has a folder of its own, target/mariadb/rr-trx.

source "$(dirname "$0")/common.sh"

seconds=${1:-120}
sessions=${2:-10}
engine=${ENGINE:-FROND}
work=$out/rr-trx
export FROND_DATA=$work/data # not the caller's: that is where a server of his has its data
server=$repo/mariadb/tools/server.sh
tests=$work/mysql-test
suite=$tests/suite/engines/rr_trx
SKIPPED=62 # what mariadb-test ends with after --skip

copy_suite() {
    local source=$prefix/usr/share/mysql/mysql-test
    rm -rf "$tests"
    mkdir -p "$(dirname "$suite")"
    cp -r "$source/include" "$tests/include"
    cp -r "$source/suite/engines/rr_trx" "$suite"
    sed -i 's#suite/stress_tx_rr/#suite/engines/rr_trx/#' "$suite"/include/*.inc
    sed -i -e 's/insertRows(rows INT)/insertRows(wanted INT)/' -e 's/UNTIL @n > rows/UNTIL @n > wanted/' "$suite/include/rr_init.test"
    sed -i -e '1i let $query_count= 0;\n--disable_warnings' -e 's/^--enable_warnings/#&/' "$suite"/t/rr_*.test
    sed -i "s/'InnoDB'/'$engine'/" "$suite/t/init_innodb.test"
}

# run_test SESSION NAME [OPTION...]: runs a test; its output goes to the session's file.
run_test() {
    local folder=$work/session$1
    mkdir -p "$folder"
    (cd "$tests" && "$prefix/usr/bin/mariadb-test" --no-defaults --socket="$socket" --user=root --database=test --silent \
        --tmpdir="$folder" --logdir="$folder" --test-file="$suite/t/$2.test" "${@:3}") >"$folder/output" 2>&1 </dev/null
}

# Runs tests until the time is over, and writes how each ended.
session() {
    local name status
    RANDOM=$((${SEED:-1} * 1000 + $1))
    while [ "$SECONDS" -lt "$seconds" ]; do
        name=${names[RANDOM % ${#names[@]}]}
        status=0
        run_test "$1" "$name" --result-file="$suite/r/$name.result" || status=$?
        if [ "$status" -eq 0 ]; then
            echo "passed $name"
        elif [ "$status" -eq "$SKIPPED" ]; then
            echo "ended-by-lock $name"
        else
            echo "failed $name"
            { echo "--- session $1, $name, status $status"; head -n 100 "$work/session$1/output"; } >>"$work/failures"
        fi
    done >"$work/session$1.ran"
}

# The stock queries: CHECK says OK, the sum is 0, no row that should not be seen, 200 rows that nobody deletes.
check_consistency() {
    local told
    told=$("$server" client --batch --skip-column-names <"$suite/check_consistency.sql") || die "the check of the tables failed"
    echo "$told" | grep -v $'\tanalyze\t' | awk -F '\t' '
        NR == 1 { good = $0 == "test.t1\tcheck\tstatus\tOK" }
        NR == 2 { good = good && $0 == "0" }
        NR == 3 { good = good && $0 + 0 > 0 && NF == 1 }
        NR == 4 { good = good && $0 == "200" }
        END { exit !(good && NR == 5) }' || { echo "$told" >&2; die "the tables are not consistent (above: check_consistency.sql)"; }
}

finish() {
    "$server" stop >/dev/null || true
}

require_stock
finish
copy_suite
rm -rf "$FROND_DATA" "$FROND_DATA.run" "$work"/session* "$work/failures"
mapfile -t names < <(sed '/^[[:space:]]*$/d' "$suite/run.txt")
say "$seconds s, $sessions sessions, ENGINE=$engine, ${#names[@]} tests"
trap finish EXIT
started=$("$server" start --sql-mode=NO_ENGINE_SUBSTITUTION,NO_UNSIGNED_SUBTRACTION --explicit-defaults-for-timestamp=OFF \
    --innodb-lock-wait-timeout=2 --loose-frond-lock-wait-timeout=2) ||
    die "the server did not start"
socket=$(sed -n 's/.*--socket=\([^ ]*\).*/\1/p' <<<"$started")
run_test 0 init_innodb || { cat "$work/session0/output" >&2; die "the tables could not be made"; }

SECONDS=0
for ((i = 1; i <= sessions; i++)); do
    session "$i" &
done
wait
sort "$work"/session*.ran | uniq -c
[ ! -e "$work/failures" ] || { head -n 300 "$work/failures"; die "tests failed; all that they printed is in $work/failures"; }
grep -qs '^passed ' "$work"/session*.ran || die "no test has run to its end"
check_consistency
finish
say "passed"
rm -rf "$FROND_DATA" "$FROND_DATA.run" "$work"/session* "$tests"
