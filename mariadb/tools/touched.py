#!/usr/bin/env python3
"""Counts what one statement does in the thread of its session, whatever else the machine does: instructions, cache lines of
code and of data, pages, and locked instructions, by shared object and by function.

    mariadb/tools/touched.py --client "CLIENT COMMAND" [--object ha_frond.so] [--top 40] [--count 5] STATEMENT

The session's thread is single-stepped (ptrace), so a statement takes seconds; it must not wait for locks. `{}` in STATEMENT becomes a random number
below --below. A line counts where the statement comes to it first: what it costs when no cache has it. Of `rep` each
repetition counts as an instruction, and what is prefetched as data. The first statement is left out of the medians.

For example, beside `make server`:

    mariadb/tools/touched.py --client "mariadb/tools/server.sh client test" "SELECT c FROM t WHERE id = {}"

Needs Linux on x86-64, the right to trace the server, binutils' nm and readelf, and the Python package `capstone`.
"""

import argparse
import bisect
import collections
import ctypes
import os
import random
import shlex
import signal
import statistics
import subprocess
import sys
import threading
import time

try:
    import capstone
    from capstone import x86
except ImportError:
    sys.exit("touched: the Python package capstone is missing: pip install capstone")

LINE_BITS, PAGE_BITS = 6, 12
# <sys/ptrace.h>
GETREGS, SINGLESTEP, DETACH, SEIZE, INTERRUPT = 12, 9, 17, 0x4206, 0x4207
WALL = 0x40000000  # waitpid: threads as well
# <sys/user.h>, struct user_regs_struct
REGISTERS = "r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss fs_base gs_base ds es fs gs"
INDEX = {name: index for index, name in enumerate(REGISTERS.split())}
for whole in "rax rbx rcx rdx rsi rdi rbp rsp".split():
    INDEX["e" + whole[1:]] = INDEX[whole]
for number in range(8, 16):
    INDEX[f"r{number}d"] = INDEX[f"r{number}"]
QUIET_SECONDS = 0.05  # without a step: the thread waits for the next statement
MARK = "'statement done'"


class Session:
    """A client process in batch mode, and the server's thread behind it."""

    def __init__(self, command):
        options = ["-N", "-B", "-n"]
        self.client = subprocess.Popen(
            shlex.split(command) + options, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.answers, self.said = 0, ""
        threading.Thread(target=self.listen, daemon=True).start()
        self.ask("SELECT CONCAT('thread ', TID) FROM information_schema.PROCESSLIST WHERE ID = CONNECTION_ID()")
        self.thread = int(self.said.split()[1])
        with open(f"/proc/{self.thread}/status") as status:
            self.process = next(int(line.split()[1]) for line in status if line.startswith("Tgid:"))

    def listen(self):
        for line in self.client.stdout:
            if line.strip() == MARK.strip("'"):
                self.answers += 1
            elif line.startswith("thread "):
                self.said = line

    def send(self, statement):
        self.client.stdin.write(f"{statement};\n")

    def ask(self, statement):
        before = self.answers
        self.send(statement)
        self.send(f"SELECT {MARK}")
        while self.answers == before:
            if self.client.poll() is not None:
                sys.exit("touched: the client has ended; see what it says above")
            time.sleep(0.001)


class Tracer:
    """Single-steps a thread; a step is (address, [(address, bytes) of data])."""

    def __init__(self, session):
        self.session, self.decoded, self.stopped = session, {}, False
        self.memory = open(f"/proc/{session.process}/mem", "rb", 0)
        self.machine = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
        self.machine.detail = True
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
        self.libc.ptrace.restype = ctypes.c_long
        self.registers = (ctypes.c_ulonglong * len(REGISTERS.split()))()

    def ptrace(self, request, data=None):
        if self.libc.ptrace(request, self.session.thread, None, data) != 0:
            sys.exit(f"touched: ptrace failed: {os.strerror(ctypes.get_errno())}")

    def decode(self, address):
        """The data operands of an instruction, as what to add up for each; and whether it is locked."""
        found = self.decoded.get(address)
        if found is not None:
            return found
        self.memory.seek(address)
        instruction = next(self.machine.disasm(self.memory.read(15), address, 1), None)
        operands, locked = [], False
        if instruction is not None:
            name = instruction.mnemonic
            for operand in instruction.operands:
                if operand.type != x86.X86_OP_MEM or name in ("lea", "nop"):
                    continue
                register = lambda number: self.machine.reg_name(number) if number else None
                base, index = register(operand.mem.base), register(operand.mem.index)
                constant = operand.mem.disp + (address + instruction.size if base == "rip" else 0)
                parts = [(INDEX[base], 1)] if base in INDEX and base != "rip" else []
                parts += [(INDEX[index], operand.mem.scale)] if index in INDEX else []
                parts += [(INDEX["fs_base"], 1)] if register(operand.mem.segment) == "fs" else []
                operands.append((constant, parts, max(operand.size, 1)))
            if name in ("push", "call"):
                operands.append((-8, [(INDEX["rsp"], 1)], 8))
            elif name in ("pop", "ret"):
                operands.append((0, [(INDEX["rsp"], 1)], 8))
            locked = name.startswith("lock") or (name == "xchg" and bool(operands))
        self.decoded[address] = operands, locked
        return self.decoded[address]

    def step(self):
        """One step on; None when the thread waits for the client."""
        before = time.monotonic()
        while True:
            thread, status = os.waitpid(self.session.thread, WALL | os.WNOHANG)
            waited = time.monotonic() - before
            if thread:
                break
            if waited > 0.0005:
                time.sleep(0.0005)
            if waited > QUIET_SECONDS:
                return None
        if os.WIFSTOPPED(status) and os.WSTOPSIG(status) != signal.SIGTRAP:
            return ()
        self.ptrace(GETREGS, ctypes.byref(self.registers))
        address = self.registers[INDEX["rip"]]
        operands, locked = self.decode(address)
        data = [
            ((constant + sum(self.registers[number] * scale for number, scale in parts)) % (1 << 64), size)
            for constant, parts, size in operands
        ]
        return address, data, locked

    def trace(self, statement, steps_max=None):
        if not self.stopped:
            self.ptrace(SEIZE)
            self.ptrace(INTERRUPT)
            os.waitpid(self.session.thread, WALL)
        steps = []
        self.session.send(statement)
        waits_for_step, self.stopped = self.stopped, True
        while True:
            if not waits_for_step:
                self.ptrace(SINGLESTEP)
            waits_for_step = False
            step = self.step()
            if step is None:
                return steps
            if step:
                steps.append(step)
            # Between two instructions of its own is where a thread can be let go.
            if steps_max is not None and len(steps) > steps_max:
                self.ptrace(DETACH)
                return steps


class Symbols:
    """Which function of which object an address belongs to."""

    def __init__(self, process):
        self.maps, self.objects, self.known = [], {}, {}
        with open(f"/proc/{process}/maps") as maps:
            for line in maps:
                fields = line.split(None, 5)
                if "x" in fields[1] and len(fields) == 6:
                    low, high = (int(end, 16) for end in fields[0].split("-"))
                    self.maps.append((low, high, int(fields[2], 16), fields[5].strip()))

    def functions(self, path):
        if path not in self.objects:
            symbols, loads = {}, []
            for options in (["-C"], ["-CD"]):
                listed = subprocess.run(["nm", *options, path], capture_output=True, text=True).stdout
                for line in listed.splitlines():
                    fields = line.split(" ", 2)
                    if len(fields) == 3 and fields[0] and fields[1] in "tTwWiV":
                        symbols.setdefault(int(fields[0], 16), fields[2])
            headers = subprocess.run(["readelf", "-lW", path], capture_output=True, text=True).stdout
            for line in headers.splitlines():
                fields = line.split()
                if fields and fields[0] == "LOAD":
                    loads.append(tuple(int(fields[at], 16) for at in (1, 2, 4)))
            self.objects[path] = sorted(symbols.items()), loads
        return self.objects[path]

    def name(self, address):
        if address not in self.known:
            self.known[address] = self.look_up(address)
        return self.known[address]

    def look_up(self, address):
        for low, high, offset, path in self.maps:
            if low <= address < high:
                at = address - low + offset
                symbols, loads = self.functions(path) if path.startswith("/") else ([], [])
                for start, virtual, size in loads:
                    if start <= at < start + size:
                        at += virtual - start
                        break
                place = bisect.bisect_right(symbols, at, key=lambda symbol: symbol[0]) - 1
                return os.path.basename(path), symbols[place][1] if place >= 0 else "?"
        return "?", "?"


def lines(address, size):
    return range(address >> LINE_BITS, (address + size - 1 >> LINE_BITS) + 1)


def add_up(steps, symbols):
    """For each object and function: instructions, new lines of code, new lines of data, locked instructions. And pages."""
    code, data, counts = set(), set(), collections.defaultdict(lambda: [0, 0, 0, 0])
    for address, accesses, locked in steps:
        count = counts[symbols.name(address)]
        line = address >> LINE_BITS
        new = {line for access in accesses for line in lines(*access)} - data
        count[0] += 1
        count[1] += line not in code
        count[2] += len(new)
        count[3] += locked
        code.add(line)
        data |= new
    shift = PAGE_BITS - LINE_BITS
    return counts, len({line >> shift for line in code}), len({line >> shift for line in data})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("statement")
    parser.add_argument("--client", required=True, help="a command of the mariadb client, with the schema")
    parser.add_argument("--object", default="ha_frond.so", help="the object whose functions are listed")
    parser.add_argument("--top", type=int, default=40, help="how many of them")
    parser.add_argument("--count", type=int, default=5, help="statements that are traced")
    parser.add_argument("--below", type=int, default=1_000_000, help="bound of the random numbers")
    parser.add_argument("--warm", type=int, default=20, help="statements before them")
    arguments = parser.parse_args()
    session = Session(arguments.client)
    statement = lambda: arguments.statement.replace("{}", str(random.randrange(1, arguments.below)))
    for _ in range(arguments.warm):
        session.ask(statement())
    time.sleep(0.1)
    tracer, symbols = Tracer(session), Symbols(session.process)
    traces = []
    for number in range(arguments.count + 1):
        traces.append(tracer.trace(statement()))
        print(f"touched: statement {number} of {arguments.count}: {len(traces[-1])} instructions", file=sys.stderr)
    tracer.trace(statement(), steps_max=1000)
    session.client.stdin.close()
    session.client.wait()

    added = [add_up(steps, symbols) for steps in traces[1:]]
    median = lambda values: statistics.median(values)
    objects = sorted({place[0] for counts, _, _ in added for place in counts})
    print(f"{'instructions':>12} {'code lines':>10} {'data lines':>10} {'locked':>7}  first touched by")
    totals = []
    for name in objects:
        sums = [[sum(count[i] for place, count in counts.items() if place[0] == name) for i in range(4)] for counts, _, _ in added]
        totals.append((name, [median(one[i] for one in sums) for i in range(4)]))
    totals.sort(key=lambda total: -total[1][0])
    everything = [[sum(count[i] for count in counts.values()) for i in range(4)] for counts, _, _ in added]
    totals.insert(0, ("all", [median(one[i] for one in everything) for i in range(4)]))
    for name, count in totals:
        print(f"{count[0]:12.0f} {count[1]:10.0f} {count[2]:10.0f} {count[3]:7.0f}  {name}")
    print(f"pages: {median(pages for _, pages, _ in added):.0f} of code, {median(pages for _, _, pages in added):.0f} of data\n")
    means = collections.defaultdict(lambda: [0.0] * 4)
    for counts, _, _ in added:
        for (name, function), count in counts.items():
            if name == arguments.object:
                means[function] = [mean + one / len(added) for mean, one in zip(means[function], count)]
    for function, count in sorted(means.items(), key=lambda item: -(item[1][1] + item[1][2]))[: arguments.top]:
        print(f"{count[0]:12.0f} {count[1]:10.1f} {count[2]:10.1f} {count[3]:7.1f}  {function[:120]}")


if __name__ == "__main__":
    main()
