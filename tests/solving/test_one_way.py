"""One way from what is named to what runs: however it is named, simulated or real."""

from __future__ import annotations

import json
import sys

import pytest

import orsched
from orsched.cli.commands import run as command
from orsched.common import registry
from orsched.common.errors import InputError
from orsched.common.registry import resolve
from orsched.files import load_schedule, save_instance
from orsched.heuristics.pang import FirstComeFirstServed
from orsched.instances.catalog import generate
from orsched.planning.study import run as run_study
from orsched.runner import RunSettings
from orsched.runner import run as run_live
from orsched.solving.method_choice import choose, method_names
from orsched.solving.scenario import with_workers

MINE = """
from orsched.heuristics.pang import FirstComeFirstServed
class Mine(FirstComeFirstServed):
    name = "mine"
    def __init__(self, most=3):
        super().__init__()
        self.most = most
    def counted(self):
        return {"most": self.most}
"""
VIRTUAL = RunSettings("virtual")


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A folder with a policy, and its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "my_one_policy.py").write_text(MINE)
    yield "my_one_policy:Mine"
    sys.modules.pop("my_one_policy", None)


@pytest.fixture(params=[1, 2])
def problem(request):
    instance = generate("uniform", requests=30, clients=4, seed=1)
    return with_workers(instance, request.param)


def bare(schedule):
    return schedule.replace(run={})


def steps(schedule):
    return schedule.steps, schedule.work


def test_every_way_of_naming_a_class_gives_one_schedule(mine, problem, tmp_path, capsys):
    given = {"most": 2, "dispatch": "least_work"}
    name = f"{mine}+most=2+dispatch=least_work"
    first = orsched.simulate(problem, mine, parameters=given)
    assert first.schedule.parameters == given
    assert first.schedule.run["counted"] == {"most": 2 * len(problem.workers)}
    for other in (
        orsched.simulate(problem, name),
        orsched.solve(problem, mine, parameters=given),
        orsched.solve(problem, choose(mine).method, parameters=given),
        orsched.compare(problem, [name])[0],
    ):
        assert bare(other.schedule) == bare(first.schedule)
    save_instance(problem, tmp_path / "p.json")
    for arguments in (
        ["simulate", "p.json", "--policy", mine, "--param", "most=2", "--param",
         "dispatch=least_work", "-o", "s.json"],
        ["solve", "p.json", "--method", name, "-o", "s.json"],
    ):  # fmt: skip
        assert command(arguments) == 0
        assert bare(load_schedule("s.json")) == bare(first.schedule)
    assert command(["compare", "p.json", "--methods", f"{name},fcfs", "--format", "json"]) == 0
    capsys.readouterr()
    rows = run_study({"instances": [problem], "policies": [name, {"name": mine, "parameters":
                      given}]}, "out", jobs=1).rows  # fmt: skip
    assert [row["makespan_ns"] for row in rows] == [first.schedule.makespan_ns]
    live = run_live(problem, name, VIRTUAL)
    assert live.violations == []
    assert live.trace.makespan_ns == live.plan.makespan_ns == first.schedule.makespan_ns
    assert live.plan.parameters == live.trace.parameters == given


@pytest.mark.parametrize("name", ["fcfs", "online", "vllm+max_num_batched_tokens=64", "hybrid"])
def test_simulate_takes_what_solve_takes(name):
    instance = generate("uniform", requests=30, clients=4, seed=1)
    simulated = orsched.simulate(instance, name, seed=3)
    solved = orsched.solve(instance, name, seed=3, iterations=1)
    assert bare(simulated.schedule) == bare(solved.schedule)
    assert simulated.label == solved.label


def test_a_policy_object_runs_once_simulated_and_real():
    instance = generate("uniform", requests=30, clients=4, seed=1)
    named = orsched.solve(instance, "fcfs").schedule
    for result in (
        orsched.simulate(instance, FirstComeFirstServed()),
        orsched.solve(instance, FirstComeFirstServed()),
        orsched.solve(instance, FirstComeFirstServed),
    ):
        assert bare(result.schedule) == bare(named)
    live = run_live(instance, FirstComeFirstServed(), VIRTUAL)
    assert live.violations == []
    assert steps(live.plan) == steps(named)
    assert live.trace.makespan_ns == named.makespan_ns


@pytest.mark.parametrize("name", ["online", "offline", "online@predicted+assignment=packing"])
def test_a_live_gate_knows_what_the_simulated_one_knows(name):
    """Service classes did not reach it: priority=service_class did nothing live."""
    instance = generate("uniform", requests=40, clients=3, seed=2)
    classes = [row % 2 for row in range(40)]
    requests = instance.requests.replace(
        service_class=classes, predicted_tokens=instance.requests.output_tokens
    )
    instance = instance.replace(requests=requests)
    name = f"{name}+priority=service_class"
    live = run_live(instance, name, VIRTUAL)
    assert live.plan.makespan_ns == live.trace.makespan_ns
    first, second = (bare(s).work for s in (live.plan, live.trace))
    assert first.request.tolist() == second.request.tolist()


def test_methods_that_plan_are_followed_and_not_observed():
    instance = generate("uniform", requests=20, clients=3, seed=2)
    assert not resolve("methods", "hybrid").live
    live = run_live(instance, "hybrid", VIRTUAL)
    assert live.trace.run["plan"]["followed"]
    with pytest.raises(InputError, match="plans beforehand"):
        orsched.simulate(instance, "hybrid", observer=lambda view, step: None)
    seen = []
    orsched.simulate(instance, "online", observer=lambda view, step: seen.append(step))
    assert seen


@pytest.mark.parametrize(
    ("source", "field", "problem"),
    [
        ("fcsf", "method", "unknown method"),
        ("os:getcwd", "method", "is not a subclass of Policy"),
        ("orsched.heuristics.pang:FirstComeFirstServed@none", "information", "class itself"),
        ("fcfs@clairvoyant", "information", "does not run"),
        (3, "method", "is not a method"),
        (dict, "method", "is not a method"),
    ],
)
def test_what_is_none_is_refused_in_the_same_words(source, field, problem):
    instance = orsched.load("two-by-two")
    for use in (orsched.solve, orsched.simulate, lambda i, s: run_live(i, s, VIRTUAL)):
        with pytest.raises(InputError, match=problem) as caught:
            use(instance, source)
        called = "policy" if use is orsched.simulate else "method"  # the argument of each
        assert caught.value.field == (called if field == "method" else field)


def test_a_package_registers_a_policy_class(mine, monkeypatch, capsys):
    known = {"policies": {"own-fcfs": mine, "no-policy": "os:getcwd", "fcfs": "os:getcwd"}}
    monkeypatch.setattr(registry, "_entry_points", lambda kind: known.get(kind, {}))
    instance = orsched.load("two-by-two")
    assert "own-fcfs" in method_names()
    named = orsched.solve(instance, "own-fcfs+most=2")
    assert named.schedule.parameters == {"most": 2}
    assert named.label == "own-fcfs+most=2"
    assert orsched.solve(instance, "fcfs").schedule.method == "fcfs"  # the library's own counts
    with pytest.raises(InputError, match="'no-policy' is not a subclass of Policy"):
        orsched.solve(instance, "no-policy")
    arguments = ["simulate", "two-by-two", "--policy", "own-fcfs", "--format", "json"]
    assert command([*arguments, "--param", "most=2"]) == 0
    assert json.loads(capsys.readouterr().out)["makespan_s"] == named.makespan
    del known["policies"]["no-policy"]
    assert command(["info"]) == 0
    assert "own-fcfs" in capsys.readouterr().out
