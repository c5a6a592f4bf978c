#!/bin/sh
# What a run of the experiments leaves behind that is ended in mid-work, by Ctrl-C and by a SIGKILL that it cannot catch: no server, no
# control group, no report that looks whole; and what bad input is told. Part of `make test`.
#   experiments/killed.sh RUNNER        the binary of frond-experiments
set -eu
runner=$1
root=$(cd "$(dirname "$0")/.." && pwd)
out=$root/target/experiments
log=$(mktemp)
trap 'rm -f "$log"' EXIT

fail() {
  echo "killed.sh: $1" >&2
  cat "$log" >&2
  exit 1
}
servers() { pgrep -f "mariadbd .*$out/work" || true; }
sockets() { find "$out/work" -name socket -type s 2>/dev/null || true; }
groups() { find /sys/fs/cgroup -maxdepth 3 -type d -name "frond-experiments-$1" 2>/dev/null; }
# Waits for at most a minute until the command prints something (or, `not`, nothing).
wait_for() {
  tries=0
  while [ $tries -lt 600 ]; do
    if [ "$1" = not ]; then
      [ -n "$(shift; "$@")" ] || return 0
    else
      [ -z "$("$@")" ] || return 0
    fi
    tries=$((tries + 1))
    sleep 0.1
  done
  fail "waited in vain: $*"
}

for signal in KILL INT; do
  "$runner" --scale smoke --engines frond --only e1,e2,e3,e7 --fresh >"$log" 2>&1 &
  run=$!
  # The first as early as can be, when the server's process has hardly begun; the second in the midst of it.
  wait_for servers
  [ $signal = KILL ] || wait_for sockets
  kill -$signal $run
  status=0
  wait $run || status=$?
  [ $status -ne 0 ] || fail "a run ended by SIG$signal says that all is well"
  wait_for not servers
  wait_for not groups $run
  [ ! -e "$out/smoke/report.html" ] || fail "a report that looks whole, after SIG$signal"
done
[ ! -d "$out/work" ] && [ ! -d "$out/datasets" ] || fail "directories of unfinished parts stay after Ctrl-C"

refused() {
  wanted=$1
  shift
  if "$runner" "$@" >"$log" 2>&1; then fail "accepted: $*"; fi
  grep -q "$wanted" "$log" || fail "not told '$wanted': $*"
  [ -z "$(servers)" ] || fail "a server stays after: $*"
}
refused "invalid value 'oracle'" --engines oracle
refused "too little memory for a server" --memory 12M
refused "10 is not in 50" --iops 10

# On a disk of 64 MB: one in memory, in a mount namespace of its own, which not every machine permits.
small_disk() {
  # shellcheck disable=SC2016
  unshare --mount sh -c 'mount -t tmpfs -o size=64m none "$1" && shift && "$@"' small_disk "$out" "$@"
}
if small_disk true 2>/dev/null; then
  if small_disk "$runner" --scale smoke --fresh >"$log" 2>&1; then fail "accepted: a disk of 64 MB"; fi
  grep -q "no disk space: [0-9]* MB are free, and this scale wants [0-9]* MB" "$log" || fail "not told that there is no space"
  [ -z "$(servers)" ] || fail "a server stays when there is no space"
else
  echo "killed.sh: a full disk is not tried, because this machine permits no mount of its own"
fi
echo "experiments: what is ended in mid-work leaves nothing behind"
