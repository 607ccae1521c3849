"""What ``check`` says of plans and of runs: no more than was checked."""

from __future__ import annotations

import json

import numpy as np
import pytest

import orsched
from orsched.cli.commands import run
from orsched.data.schedule import Steps, Work
from orsched.files import save_schedule
from tests.in_order import in_order

MEASURED = {"device": "d", "clock": "c"}
STOPPED = {**MEASURED, "complete": False}


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    """Run ``check two-by-two``; return exit code, output, and stderr."""
    monkeypatch.chdir(tmp_path)

    def invoke(schedule, *arguments):
        save_schedule(schedule, tmp_path / "s.json")
        code = run(["check", "two-by-two", "s.json", *arguments])
        return code, *capsys.readouterr()

    return invoke


@pytest.fixture(scope="module")
def plan():
    return orsched.solve(orsched.load("two-by-two"), "fcfs").schedule


def empty(plan, run):
    steps, work = (np.zeros((width, 0), np.int64) for width in (5, 6))
    return plan.replace(
        steps=in_order(Steps, *steps), work=Work(*work), results={}, bound=None, run=run
    )


def without_times(plan):
    none = np.zeros(len(plan.steps), np.int64)
    steps = in_order(Steps, plan.steps.worker, plan.steps.phase, none, none, plan.steps.rounds)
    return plan.replace(steps=steps, results={})


def test_a_plan_has_no_measured_times(call, refused, plan):
    for schedule in (plan, without_times(plan), empty(plan, {"complete": False})):
        err = refused("s.json", schedule, "--times", "measured")
        assert "this schedule was planned" in err
        assert "leave --times out" in err
        assert "valid" not in err
    assert call(plan)[0] == call(plan, "--times", "model")[0] == 0


def test_a_run_needs_a_word_on_its_times(call, plan):
    trace = without_times(plan).replace(run=MEASURED, bound=None)
    code, out, err = call(trace)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "--times measured" in err
    code, out, err = call(trace, "--times", "model")
    assert code == 1
    assert "takes 0 ns instead of" in out


def test_the_verdict_on_a_run_says_what_was_not_checked(call, plan):
    trace = without_times(plan).replace(run=MEASURED)
    code, out, err = call(trace, "--times", "measured")
    assert (code, out) == (0, "")
    assert err == "orsched: s.json breaks no rule as a run of two-by-two: times not checked\n"
    code, out, err = call(empty(plan, STOPPED), "--times", "measured")
    assert (code, out) == (0, "")
    assert err.endswith(": times not checked, partial (0 of 4 requests finished)\n")
    assert "valid" not in err


def test_the_verdict_in_json_holds_the_same(call, plan):
    code, out, _ = call(empty(plan, STOPPED), "--times", "measured", "--format", "json")
    assert code == 0
    assert json.loads(out) == {
        "valid": True,
        "times": "not checked",
        "partial": True,
        "finished": 0,
        "requests": 4,
        "violations": [],
    }
    wrong = plan.replace(run=MEASURED, results={**plan.results, "makespan_ns": 1})
    code, out, err = call(wrong, "--times", "measured", "--format", "json")
    found = json.loads(out)
    assert code == 1
    assert (found["valid"], found["partial"], found["finished"]) == (False, False, None)
    assert {violation["kind"] for violation in found["violations"]} == {"result"}
    assert err == "orsched: s.json: times not checked\n"
    assert json.loads(call(plan, "--format", "json")[1]) == []


def test_finished_requests_are_counted(call, plan):
    """All but the last step were done: the requests that end with it are not."""
    steps, work = plan.steps, plan.work
    last = len(steps) - 1
    kept = work.last_step < last
    cut = in_order(Steps, *(getattr(steps, name)[:last] for name in vars(steps)))
    rows = Work(**{name: column[kept] for name, column in vars(work).items()})
    ended = set(work.request[~kept].tolist())
    trace = plan.replace(steps=cut, work=rows, results={}, bound=None, run=STOPPED)
    _, out, _ = call(trace, "--times", "measured", "--format", "json")
    assert json.loads(out)["violations"] == []
    assert json.loads(out)["finished"] == 4 - len(ended) < 4
