#!/usr/bin/env python3
"""Publishes a finished run of `make experiments`: its report goes to docs/report, its main figures into README.md and
docs/benchmarks.md, between `<!-- report: NAME -->` and `<!-- end -->`. Nothing else of these pages is touched.

    experiments/publish.py [FOLDER]      the folder of the run; target/experiments/desk by default
"""

import json
import re
import shutil
import statistics
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
ENGINES = ["frond", "innodb", "rocksdb"]
PUBLISHED = ["report.html", "rate.svg", "rate-limited.svg", "recovery.svg"]
# What the pages call the limited volume, and what the server may take where they call a table beyond memory.
PUBLISHED_IOPS = 2_000
PUBLISHED_MEMORY = 1 << 30
TESTS = ["point_select", "read_only", "read_write", "update_index", "update_non_index", "write_only", "insert"]


class Run:
    """The figures of a run: medians of the repeats of each part."""

    def __init__(self, folder):
        report = json.loads((folder / "report.json").read_text())
        if not report["complete"] or report["identity"]["scale"] != "desk":
            sys.exit(f"publish: not a complete desk run: {folder}")
        identity = report["identity"]
        if "with changes" in identity["commit"]:
            sys.exit(f"publish: the run is of no commit, but of one with changes: {identity['commit']}")
        if report["missing"]:
            sys.exit(f"publish: the run was not as meant: {'; '.join(report['missing'])}")
        if identity["sizing"]["iops"] != PUBLISHED_IOPS:
            sys.exit(f"publish: the pages tell of {PUBLISHED_IOPS} I/Os per second, the run had {identity['sizing']['iops']}")
        if identity["sizing"]["memory_bytes"] != PUBLISHED_MEMORY:
            sys.exit(f"publish: the pages tell of {PUBLISHED_MEMORY} bytes of memory, the run had {identity['sizing']['memory_bytes']}")
        self.findings = report["findings"]
        for finding in self.findings:
            if finding["faults"] or finding["failed"]:
                place = " ".join(finding[field] for field in ("experiment", "engine", "variant"))
                sys.exit(f"publish: wrong or not measured: {place}: {finding['failed'] or '; '.join(finding['faults'])}")
        self.commit = identity["commit"][:7]
        page = (folder / "report.html").read_text()
        self.reached, self.missed = re.search(r"(\d+) goals reached, (\d+) not reached", page).groups()
        # What, goal, seen.
        self.losses = re.findall(r"<tr><td>([^<]*)</td><td>([^<]*)</td><td>([^<]*)</td><td class='loss'>not reached", page)
        if len(self.losses) != int(self.missed):
            sys.exit(f"publish: the report's table of goals is not understood: {len(self.losses)} of {self.missed} losses found")

    def repeats(self, part, engine, of):
        experiment, variant = part
        same = [f for f in self.findings if (f["experiment"], f["variant"], f["engine"]) == (experiment, variant, engine)]
        if not same:
            sys.exit(f"publish: the run has no {experiment} {variant} of {engine}")
        return [of(finding) for finding in sorted(same, key=lambda finding: finding["repeat"])]

    def median(self, part, engine, of):
        return statistics.median(self.repeats(part, engine, of))

    def number(self, part, engine, name):
        return self.median(part, engine, lambda finding: finding["numbers"][name])

    def rates(self, part, engine, work):
        return self.repeats(part, engine, lambda f: f["works"][work]["units"] / f["works"][work]["seconds"])

    def rate(self, part, engine, work):
        return statistics.median(self.rates(part, engine, work))

    def advantage(self, part, work):
        """FROND's rate over that of the rival against which it is lowest, each the median over the rounds, as in the report."""
        own, *rivals = [self.rates(part, engine, work) for engine in ENGINES]
        return min(statistics.median(own / other for own, other in zip(own, rival, strict=True)) for rival in rivals)

    def each(self, part, engine, work, field):
        return self.median(part, engine, lambda f: f["works"][work][field] / f["works"][work]["units"])


def count(value):
    return f"{value:,.0f}"


def size(value):
    return f"{value:.0f} B" if value < 1000 else f"{value / 1000:.2f} KB"


def seconds(value):
    return f"{value * 1000:.1f} ms" if value < 0.01 else f"{value:.2f} s"


def main_figures(run):
    free, limited, table = ("e1", "unlimited"), ("e1", "limited"), ("e6", "iibench")
    rows = [
        ("iiBench beyond memory, durable, rows/s", lambda e: count(run.rate(free, e, "insert"))),
        ("the same on a volume of 2,000 I/Os per second", lambda e: count(run.rate(limited, e, "insert"))),
        ("written per row", lambda e: size(run.each(free, e, "insert", "bytes_written"))),
        ("size of the iiBench table per row", lambda e: size(run.number(table, e, "bytes_on_disk") / run.number(table, e, "rows"))),
        ("first query after a kill at full speed", lambda e: seconds(run.number(free, e, "ready_seconds"))),
        ("the same on that volume", lambda e: seconds(run.number(limited, e, "ready_seconds"))),
        ("rollback of 1 M inserted rows", lambda e: seconds(run.number(("e7", "insert"), e, "rollback_seconds"))),
        ("sysbench read_write, 10 M rows, 16 threads, that volume, tx/s",
         lambda e: count(run.rate(("e4", "large"), e, "oltp_read_write, 16 threads"))),
        ("sysbench read_write, in memory, 16 threads, tx/s",
         lambda e: count(run.rate(("e4", "in-turn"), e, "oltp_read_write, 16 threads"))),
        ("TPC-C in memory, tpmC", lambda e: count(run.number(("e5", "memory"), e, "tpmc"))),
        ("TPC-C beyond memory on that volume, tpmC", lambda e: count(run.number(("e5", "limited"), e, "tpmc"))),
    ]
    lines = [
        "The published experiments that decide between such engines, side by side in one server ([the whole",
        f"report](docs/report/report.html), {run.reached} goals reached and {run.missed} not; "
        f"`make experiments`, 2 cores, commit {run.commit}):",
        "",
        "| | FROND | InnoDB | MyRocks |",
        "|---|---:|---:|---:|",
    ]
    lines += ["| " + " | ".join([what] + [of(engine) for engine in ENGINES]) + " |" for what, of in rows]
    buffered = [count(run.rate(("e1", f"buffered-{volume}"), "innodb", "insert")) for volume in ("unlimited", "limited")]
    return lines + [
        "",
        "InnoDB runs without change buffering, which is 10.11's default. With `innodb_change_buffering=all`, deprecated there, it inserted",
        f"{buffered[0]} rows/s in the first line's experiment and {buffered[1]} in the second's.",
    ]


def losses(run):
    lines = ["Not reached, and in it as plainly:", "", "| | goal | seen |", "|---|---|---|"]
    return lines + [f"| {what} | {goal} | {seen} |" for what, goal, seen in run.losses]


def memory_figures(run):
    part = ("e4", "in-turn")
    lines = [
        f"`make experiments ONLY=e4`, commit {run.commit}. Against the better rival, over all turns.",
        "",
        "| test, threads | FROND | InnoDB | MyRocks | BLACKHOLE | FROND against the better rival | engine's µs: FROND / InnoDB / MyRocks |",
        "|---|---:|---:|---:|---:|---|---:|",
    ]
    for threads in (16, 1):
        for test in TESTS:
            work = f"oltp_{test}, {threads} threads"
            rates = [run.rate(part, engine, work) for engine in ENGINES + ["blackhole"]]
            floor = run.each(part, "blackhole", work, "server_cpu_seconds")
            own = [(run.each(part, engine, work, "server_cpu_seconds") - floor) * 1e6 for engine in ENGINES]
            # What throws rows away was slower than what keeps them: then it was no floor.
            own = [f"{us:.1f}" if rates[3] > max(rates[:3]) else "–" for us in own]
            ratio = run.advantage(part, work)
            verdict = f"{ratio:.2f} × better" if ratio >= 1 else f"{1 / ratio:.2f} × worse"
            cells = [f"{test}, {threads}"] + [count(rate) for rate in rates] + [verdict, " / ".join(own)]
            lines.append("| " + " | ".join(cells) + " |")
    return lines


def replace(path, name, lines):
    page = path.read_text()
    block = f"<!-- report: {name} -->\n" + "\n".join(lines) + "\n<!-- end -->"
    page, times = re.subn(rf"<!-- report: {name} -->\n.*?<!-- end -->", lambda _: block, page, flags=re.S)
    if times != 1:
        sys.exit(f"publish: no single place for the figures, name={name} page={path}")
    path.write_text(page)


def main():
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else CHECKOUT / "target/experiments/desk"
    run = Run(folder)
    replace(CHECKOUT / "README.md", "main", main_figures(run))
    replace(CHECKOUT / "README.md", "losses", losses(run))
    replace(CHECKOUT / "docs/benchmarks.md", "memory", memory_figures(run))
    for name in PUBLISHED:
        shutil.copy(folder / name, CHECKOUT / "docs/report" / name)
    # On one line: for programs, and small in the repository.
    report = json.loads((folder / "report.json").read_text())
    (CHECKOUT / "docs/report/report.json").write_text(json.dumps(report, separators=(",", ":")) + "\n")
    print(f"publish: the run of {run.commit}, {run.reached} goals reached, {run.missed} not")


if __name__ == "__main__":
    main()
