#!/usr/bin/env python3
"""Shows where the time of a session's statements goes: the stretches between the system calls of a server's threads, while clients work.

    mariadb/tools/stretches.py [--seconds 5] [--top 12] PROCESS

PROCESS is the server's number; let one client run, so that nothing is waited for but its statements. "recvfrom > pwritev2" is then what
server and engine do from the arrival of a statement until the log is written, "in pwritev2" the disk's part, "sendto > recvfrom" the
client's. Rates of two engines mix all these, and the machine's noise; here the disk's and the client's are told apart from the engine's.

For example, beside `make server` and a client that updates rows:

    mariadb/tools/stretches.py $(pidof mariadbd)

Microseconds; a tracepoint costs less than one. Needs Linux, the right to trace the server, and `perf`.
"""

import argparse
import collections
import re
import statistics
import subprocess
import sys
import tempfile

CALLS = ["recvfrom", "sendto", "pwrite64", "pwritev2", "fdatasync"]
AGAIN = -11  # recvfrom found nothing: the session is about to wait for its client
LINE = re.compile(r"\s*(\d+)\s+([\d.]+):\s+syscalls:sys_(enter|exit)_(\w+):\s*(.*)")


def record(process, seconds):
    """Lines of `perf script` for the calls of a process."""
    events = ",".join(f"syscalls:sys_{end}_{call}" for call in CALLS for end in ("enter", "exit"))
    with tempfile.NamedTemporaryFile(prefix="stretches-") as file:
        commands = (
            ["perf", "record", "-q", "-e", events, "-o", file.name, "-p", str(process), "sleep", str(seconds)],
            ["perf", "script", "-i", file.name, "-F", "tid,time,event,trace"],
        )
        try:
            for command in commands:
                done = subprocess.run(command, capture_output=True, text=True)
                if done.returncode != 0:
                    sys.exit(f"stretches: {command[0]} {command[1]} failed: {done.stderr.strip()}")
        except FileNotFoundError:
            sys.exit("stretches: perf is missing: apt-get install linux-perf")
    return done.stdout.splitlines()


def came_back_empty(text):
    """Whether a call's result is AGAIN; perf prints it as an unsigned or a signed number."""
    result = re.search(r"0x[0-9a-f]+|-?\d+", text)
    return result is not None and int(result[0], 0) in (AGAIN, AGAIN + (1 << 64))


def stretches(lines):
    """Microseconds of each kind of stretch, by its name."""
    last, found = {}, collections.defaultdict(list)
    for line in lines:
        match = LINE.match(line)
        if match is None:
            continue
        thread, seconds, end, call, text = match.groups()
        now = float(seconds) * 1e6
        if thread in last:
            (began, before), then = last[thread]
            if before == "enter":
                name = f"in {began}"
            else:
                name = f"{began} > {call}"
            found[name].append(now - then)
        name = "waiting" if call == "recvfrom" and end == "exit" and came_back_empty(text) else call
        last[thread] = (name, end), now
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("process", type=int)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--top", type=int, default=12, help="how many kinds are listed")
    arguments = parser.parse_args()
    found = stretches(record(arguments.process, arguments.seconds))
    statements = len(found.get("in sendto", []))
    if statements == 0:
        sys.exit(f"stretches: no session of process {arguments.process} has answered a statement in these {arguments.seconds:g} s")
    print(f"{statements} answers; microseconds\n{'each':>6} {'p10':>7} {'median':>7} {'p90':>7} {'mean':>7}  stretch")
    for name, times in sorted(found.items(), key=lambda item: -sum(item[1]))[: arguments.top]:
        times.sort()
        at = lambda part: times[int(part * (len(times) - 1))]
        mean = statistics.mean(times)
        print(f"{len(times) / statements:6.2f} {at(0.1):7.1f} {at(0.5):7.1f} {at(0.9):7.1f} {mean:7.1f}  {name}")


if __name__ == "__main__":
    main()
