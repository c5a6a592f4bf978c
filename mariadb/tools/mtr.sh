#!/usr/bin/env bash
# The server's own test runner, from the fetched packages, with the plugin and the suites of mariadb/mysql-test.
#
#   mtr.sh [--as-default] [OPTION...] [TEST...]
#
#   --as-default      load the plugin in every server and make FROND the default engine (own suites load it themselves);
#                     what mysql-test/lists/ names stays out, and a test passes when nothing but the engine's name differs
#   anything else     goes to mysql-test-run: --suite=LIST, --parallel=N, --mysqld=--OPTION, --record, tests by name
#
#   mtr.sh --suite=frond                         our suite
#   mtr.sh --suite=storage_engine-frond          the server's suite for any engine, as our overlay sees it
#   mtr.sh --as-default --suite=engines/funcs    a stock suite with FROND as the default engine
#   mtr.sh --suite=main 1st                      one stock test, without us
#
# lists/SUITE.txt (engines-funcs.txt for engines/funcs) has a line for each case of a stock suite that says nothing about
# FROND, with the reason, in the form of the runner's own disabled.def.
#
# A folder of mysql-test/ whose name is that of a stock suite overlays it; any other is a suite of its own. The runner
# looks for both in plugin/*/ of its own tree, so it gets a tree of its own under target/mariadb/mtr: links to the
# fetched files, and to our suites, so that --record writes into this checkout.
#
# Defaults, given first so that options can change them: 2 at a time, go on after failures, nothing tried again, files in
# memory where /dev/shm has 4 GB free. Environment: FROND_VARDIR (target/mariadb/var).

source "$(dirname "$0")/common.sh"
source "$(dirname "$0")/mtr-summary.sh"

tree=$out/mtr/usr
tests=$tree/share/mysql/mysql-test
vardir=$(realpath -ms "${FROND_VARDIR:-$out/var}")

build_tree() {
    local stamp=$out/mtr/stamp source=$prefix/usr name
    if [ "$(cat "$stamp" 2>/dev/null)" != "$stock $(<"$stock/version")" ]; then
        say "linking the test runner's tree into $out/mtr"
        rm -rf "$out/mtr"
        mkdir -p "$tree/share/mysql" "$tree/lib/mysql"
        ln -s "$source"/{bin,sbin} "$tree/"
        ln -s "$source"/share/mysql/* "$tree/share/mysql/"
        rm "$tests"
        cp -al "$source/share/mysql/mysql-test" "$tests" 2>/dev/null || {
            rm -rf "$tests"
            cp -a "$source/share/mysql/mysql-test" "$tests"
        }
        for name in "$source"/lib/*; do
            [ "$name" = "$source/lib/mysql" ] || ln -s "$name" "$tree/lib/"
        done
        ln -s "$plugin_dir" "$tree/lib/mysql/plugin"
        echo "$stock $(<"$stock/version")" >"$stamp"
    fi
    rm -rf "$tests/plugin/frond"
    mkdir "$tests/plugin/frond"
    for name in "$repo"/mariadb/mysql-test/*/; do
        [ ! -d "$name" ] || [ "$(basename "$name")" = lists ] || ln -s "$name" "$tests/plugin/frond/$(basename "$name")"
    done
    ln -sf "$source"/lib/mysql/plugin/*.so "$plugin_dir/"
    # The runner's own look at the logs of servers that it shuts down after a failed test lacks the server's suppression of the
    # warning that every plugin below "stable" gets. And a worker that tells of warnings when it ends is written to after it
    # has gone, which would end the runner by SIGPIPE, without a word.
    rm -f "$tests/mysql-test-run.pl"
    sed -e 's/^     @global_suppressions,$/&\n     qr|Plugin .* is of maturity level .* while the server is|,/' \
        -e 's/^\$SIG{HUP}= /$SIG{PIPE}= sub {};\n&/' \
        "$source/share/mysql/mysql-test/mysql-test-run.pl" >"$tests/mysql-test-run.pl"
    [ "$(diff "$source/share/mysql/mysql-test/mysql-test-run.pl" "$tests/mysql-test-run.pl" | grep -c '^>')" -eq 2 ] ||
        die "mysql-test-run.pl of this server looks otherwise: see build_tree"
    # Combinations that are left out: engines/* with the expected results of MyISAM, which cannot be those of a transactional
    # engine; versioning by transaction, which is InnoDB's alone.
    for name in "$source"/share/mysql/mysql-test/suite/{engines/*/,versioning/*.}combinations; do
        rm -f "$tests/${name#*/mysql-test/}"
        if [[ $name == */engines/* ]]; then
            sed '/^\[myisam\]/,/^$/d' "$name"
        else
            sed '/^\[trx_id\]/,/^$/d' "$name"
        fi >"$tests/${name#*/mysql-test/}"
    done
}

require_stock
[ -e "$plugin_dir/ha_frond.so" ] || die "the plugin is missing: $plugin_dir/ha_frond.so; run 'make plugin'"

# Files in memory are a folder that $vardir links to; they go when all passed, and stay to be looked at when not.
memory=
files=$vardir
free=$(df --output=avail -k /dev/shm 2>/dev/null | tail -1)
if [ -w /dev/shm ] && [ "${free:-0}" -ge 4000000 ]; then
    memory=/dev/shm/frond-mtr-$(cksum <<<"$vardir" | cut -d' ' -f1)
    files=$memory
fi
options=(--force --max-test-fail=0 --retry=0 --parallel=2 --vardir="$files" "${as_user[@]}")
as_default=0
for argument in "$@"; do
    case $argument in
    --as-default)
        as_default=1
        options+=(--mysqld=--plugin-load-add=ha_frond --mysqld=--default-storage-engine=FROND)
        for list in "$repo"/mariadb/mysql-test/lists/*.txt; do
            options+=(--skip-test-list="$list")
        done
        ;;
    *) options+=("$argument") ;;
    esac
done

build_tree
mkdir -p "$(dirname "$vardir")"
# For tests of a disk that fails.
export FROND_FAILING_LOG=$out/failing-log.so
"${CC:-cc}" -shared -fPIC -O1 -o "$FROND_FAILING_LOG" "$repo/mariadb/tools/failing-log.c" -ldl
# What a test that failed has left mounted.
awk -v files="$files/" 'index($2, files) == 1 { print $2 }' /proc/mounts | xargs -r umount
rm -rf "$vardir"
[ -z "$memory" ] || ln -s "$memory" "$vardir"
log=$vardir.log
status=0
(cd "$tests" && perl mysql-test-run.pl "${options[@]}") 2>&1 | tee "$log" || status=$?
echo
if told=$(summary "$log" "$as_default"); then
    status=0
fi
say "$told"
if [ "$status" -ne 0 ]; then
    reasons "$log" | while IFS= read -r line; do say "$line"; done
    say "the runner says $status; what failed left its files in $vardir/log, and all output is in $log"
elif [ -n "$memory" ]; then
    rm -rf "$memory" "$vardir"
fi
exit "$status"
