"""Inputs are judged in children, many in each; a child that dies or hangs is a finding."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.samples import certificates, documents

ROOT = str(Path(__file__).resolve().parents[2])
BATCH = 1_000
LOOK_S = 0.25
FINDINGS = ("crash", "wrong verdict", "time", "memory", "died")


@dataclass
class Tally:
    """What came of the inputs of a format."""

    outcomes: Counter = field(default_factory=Counter)
    findings: list = field(default_factory=list)
    worst_s: float = 0.0
    worst_mb: float = 0.0

    def row(self) -> dict[str, object]:
        counts = {name: self.outcomes[name] for name in ("accepted", "refused")}
        return {
            "inputs": sum(self.outcomes.values()), **counts, "findings": len(self.findings),
            "worst_s": round(self.worst_s, 2), "worst_mb": round(self.worst_mb),
        }  # fmt: skip


def prepare(folder: Path, forms) -> None:
    """Write the samples for the children."""
    (folder / "current").mkdir(parents=True, exist_ok=True)
    samples = documents()
    samples["certificate"] = certificates() if "certificate" in forms else []
    (folder / "samples.json").write_text(json.dumps(samples))


def fuzz(form, seed, indices, folder, *, seconds=10.0, megabytes=1_000) -> Tally:
    """Judge a range of inputs of a format; findings are saved in ``folder``."""
    tally, at = Tally(), indices.start
    while at < indices.stop:
        end = min(at + BATCH, indices.stop)
        at = _batch(form, seed, at, end, folder, seconds, megabytes, tally)
    return tally


def _batch(form, seed, start, end, folder, seconds, megabytes, tally):
    """Run a child until it is done or lost; returns the index to go on with."""
    arguments = (form, seed, start, end, folder.resolve(), seconds, megabytes)
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.fuzz.child", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([ROOT, *sys.path])},
    )
    index, begun = start, False
    try:
        for line in _lines(child, 60 + 2 * seconds, 8 * seconds + 1):
            record = json.loads(line)
            index, begun = record["index"], "outcome" not in record
            if begun:
                continue
            tally.outcomes[record["outcome"]] += 1
            tally.worst_s = max(tally.worst_s, record["s"])
            tally.worst_mb = max(tally.worst_mb, record["mb"])
            if record["outcome"] in FINDINGS:
                _save(form, seed, record, folder, tally)
    finally:
        child.kill()
        code = child.wait()
        child.stdout.close()
    if not begun and index == end - 1:
        return end
    what = {"index": index, "outcome": "died", "found": f"the process ended with {code}"}
    tally.outcomes["died"] += 1
    _save(form, seed, what, folder, tally)
    return index + 1


def _lines(child, first_s, seconds):
    """Yield lines; ends when none comes within the child's CPU time, or while it sleeps as long.

    A child that waits for a processor does not sleep: other work on the machine ends nothing.
    """
    rest, most, asleep_s = b"", first_s, 0.0
    began_s = last_s = _cpu_s(child.pid)[0]
    while True:
        if select.select([child.stdout], [], [], LOOK_S)[0]:
            piece = os.read(child.stdout.fileno(), 65_536)
            if not piece:
                return
            *lines, rest = (rest + piece).split(b"\n")
            yield from lines
            most, asleep_s, began_s = seconds, 0.0, _cpu_s(child.pid)[0]
            continue
        spent_s, sleeps = _cpu_s(child.pid)
        asleep_s = asleep_s + LOOK_S if sleeps and spent_s == last_s else 0.0
        last_s = spent_s
        if spent_s - began_s > most or asleep_s > most:
            return


def _cpu_s(number):
    """Return the CPU time of a process, and whether it sleeps."""
    fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK"), fields[0] in "SD"


def _save(form, seed, record, folder, tally):
    name = f"{form}-{seed}-{record['index']}"
    kept = folder / "findings" / name
    kept.mkdir(parents=True, exist_ok=True)
    for path in (folder / "current").glob("*.*"):
        shutil.copy(path, kept)
    (kept / "found.txt").write_text(f"{record['outcome']}: {record['found']}\n")
    tally.findings.append({**record, "saved": str(kept)})
