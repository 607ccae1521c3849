"""Where no solver is installed: what needs none works, what needs one says what to install."""

from __future__ import annotations

import json

from tests.blocking import run_without

SOLVERS = ("pyscipopt", "ortools")

METHODS = ("fcfs", "offline", "online", "hybrid", "vllm", "gittins")

PROGRAM = f"""
import json

import orsched
from orsched.cli.commands import run
from orsched.models.pcmax.assignment import solve_assignment
from orsched.models.packing import pack
from orsched.runner.policy_source import policy_source

instance = orsched.load("pang-100x20")
found = {{}}
for method in {METHODS!r}:
    done = orsched.solve(instance, method, iterations=1)
    found[method] = [done.schedule.makespan_ns, done.schedule.bound["value_ns"], list(done.notes)]
found["bound"] = orsched.bound(instance).value_ns
found["policy_source"] = policy_source(instance, "hybrid", iterations=1).plan.makespan_ns
lengths = [17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67] * 3
packed = pack(lengths, 7, moves=1)
found["packed"] = [packed.makespan, packed.bound, sum(lengths), packed.assignment]
for solver in ("scip", "cp-sat"):
    try:
        solve_assignment(lengths, 7, solver)
    except orsched.common.errors.MissingDependencyError as error:
        found[solver] = str(error)
found["exit"] = [
    run(["solve", "two-by-two", "--method", "fcfs"]), run(["bound", "two-by-two"]),
]
print(json.dumps(found))
"""


def test_what_needs_no_solver_works_without(tmp_path):
    done = run_without(SOLVERS, PROGRAM, tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    for method in METHODS:
        makespan, bound, notes = found[method]
        assert 0 < bound <= makespan
        assert any("pip install pyscipopt" in note for note in notes)
    assert found["hybrid"][0] < found["fcfs"][0]
    assert found["policy_source"] == found["hybrid"][0]
    assert found["bound"] > 0
    makespan, bound, total, assignment = found["packed"]
    assert max(bound, -(-total // 7)) <= makespan
    assert set(assignment) == set(range(7))
    assert "pip install pyscipopt" in found["scip"]
    assert "pip install ortools" in found["cp-sat"]
    assert found["exit"] == [0, 0]
