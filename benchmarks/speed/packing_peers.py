"""What packing is measured beside: the model (26)-(30) in two solvers, prtpy and PyJobShop.

Each runs in a process of its own with the same time limit. prtpy and PyJobShop live in an
environment of their own (`make bench-peers`).
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.speed import peers

if TYPE_CHECKING:
    from benchmarks.speed.packing_families import Packing

GRACE_S = 60
"""What a program may take longer than its limit, to build its model, before it is ended."""

MODEL = """
import json, sys, time
from benchmarks.speed.assignment_model import solve_assignment
case = json.load(sys.stdin)
begin = time.perf_counter()
found = solve_assignment(case["jobs"], case["clients"], case["way"], case["limit"])
print(json.dumps({"value": found.makespan, "bound": found.bound, "proven": found.optimal,
                  "wall_s": time.perf_counter() - begin}))
"""

PRTPY = """
import json, sys, time, prtpy
case = json.load(sys.stdin)
algorithm = getattr(prtpy.partitioning, case["way"])
options = {"time_limit": case["limit"]} if case["way"] == "complete_greedy" else {}
begin = time.perf_counter()
sums = prtpy.partition(algorithm=algorithm, numbins=case["clients"], items=case["jobs"],
                       outputtype=prtpy.out.Sums, **options)
print(json.dumps({"value": int(max(sums)), "bound": None, "proven": False,
                  "wall_s": time.perf_counter() - begin}))
"""

PYJOBSHOP = """
import json, sys, time, pyjobshop
case = json.load(sys.stdin)
begin = time.perf_counter()
model = pyjobshop.Model()
machines = [model.add_machine() for _ in range(case["clients"])]
for duration in case["jobs"]:
    task = model.add_task(job=model.add_job())
    for machine in machines:
        model.add_mode(task, machine, duration)
left = max(1.0, case["limit"] - (time.perf_counter() - begin))
result = model.solve(solver="ortools", time_limit=left, display=False, num_workers=1)
found = result.objective < float("inf")
print(json.dumps({"value": int(result.objective) if found else None,
                  "bound": int(result.lower_bound), "proven": result.status.name == "OPTIMAL",
                  "wall_s": time.perf_counter() - begin}))
"""


class Peer(NamedTuple):
    """A program: its name, what to run, the solver or algorithm, and whether it is a peer's."""

    name: str
    script: str
    way: str
    foreign: bool


PROGRAMS = (
    Peer("cp-sat (26)-(30)", MODEL, "cp-sat", False),
    Peer("scip (26)-(30)", MODEL, "scip", False),
    Peer("pyjobshop 0.0.9", PYJOBSHOP, "", True),
    Peer("prtpy 0.8.3 complete_greedy", PRTPY, "complete_greedy", True),
    Peer("prtpy 0.8.3 multifit", PRTPY, "multifit", True),
    Peer("prtpy 0.8.3 greedy", PRTPY, "greedy", True),
)


def beside(name: str, case: Packing, limit_s: float, foreign: bool) -> list[dict[str, Any]]:
    """Return a row for each program on one instance; without peers if they are not wanted."""
    return [_row(name, case, p, limit_s) for p in PROGRAMS if foreign or not p.foreign]


def _row(name: str, case: Packing, peer: Peer, limit_s: float) -> dict[str, Any]:
    """Run a program; say why where there is no figure."""
    row: dict[str, Any] = {"case": name, "program": peer.name, "proven": 0}
    python = str(peers.ENVIRONMENT / "bin" / "python") if peer.foreign else sys.executable
    given = {"jobs": case.jobs, "clients": case.clients, "way": peer.way, "limit": limit_s}
    try:
        done = subprocess.run(
            [python, "-c", peer.script],
            input=json.dumps(given),
            capture_output=True,
            text=True,
            timeout=limit_s + GRACE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return row | {"remark": f"no answer {GRACE_S} s after its limit of {limit_s} s"}
    except OSError:
        return row | {"remark": peers.MISSING}
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        missing = "No module named" in last and peer.foreign
        return row | {"remark": peers.MISSING if missing else f"failed: {last[:80]}"}
    answer = json.loads(done.stdout.strip().splitlines()[-1])
    return row | {
        "proven": int(answer["proven"]),
        "max_s": answer["wall_s"],
        "value": answer["value"],
        "lower_bound": answer["bound"],
    }
