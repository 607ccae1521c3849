"""What ``check`` says of plans and of runs: no more than was checked."""

import json

import numpy as np
import pytest

import orsched
from orsched.files import save_schedule
from tests.views.samples import begun, timed

MEASURED = {"device": "d", "clock": "c"}


@pytest.fixture
def call(call):
    """Run ``check two-by-two``; return exit code, output, and stderr."""

    def invoke(schedule, options=""):
        save_schedule(schedule, "s.json")
        return call(f"check two-by-two s.json {options}")

    return invoke


@pytest.fixture(scope="module")
def plan():
    return orsched.solve(orsched.load("two-by-two"), "fcfs").schedule


def without_times(plan):
    none = np.zeros(len(plan.steps), np.int64)
    return timed(plan, none, none)


def test_a_plan_has_no_measured_times(call, refused, plan):
    for schedule in (plan, without_times(plan), begun(plan, 0, {})):
        err = refused("s.json", schedule, "--times measured")
        assert "this schedule was planned" in err
        assert "leave --times out" in err
        assert "valid" not in err
    assert call(plan)[0] == call(plan, "--times model")[0] == 0


def test_a_run_needs_a_word_on_its_times(call, plan):
    trace = without_times(plan).replace(run=MEASURED, bound=None)
    code, out, err = call(trace)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "--times measured" in err
    code, out, err = call(trace, "--times model")
    assert code == 1
    assert "takes 0 ns instead of" in out


def test_the_verdict_on_a_run_says_what_was_not_checked(call, plan):
    trace = without_times(plan).replace(run=MEASURED)
    code, out, err = call(trace, "--times measured")
    assert (code, out) == (0, "")
    assert err == "orsched: s.json breaks no rule as a run of two-by-two: times not checked\n"
    code, out, err = call(begun(plan, 0, MEASURED), "--times measured")
    assert (code, out) == (0, "")
    assert err.endswith(": times not checked, partial (0 of 4 requests finished)\n")
    assert "valid" not in err


def test_the_verdict_in_json_holds_the_same(call, plan):
    code, out, _ = call(begun(plan, 0, MEASURED), "--times measured --format json")
    assert code == 0
    assert json.loads(out) == {
        "valid": True, "times": "not checked", "partial": True, "finished": 0, "requests": 4,
        "violations": [],
    }  # fmt: skip
    wrong = plan.replace(run=MEASURED, results={**plan.results, "makespan_ns": 1})
    code, out, err = call(wrong, "--times measured --format json")
    found = json.loads(out)
    assert code == 1
    assert (found["valid"], found["partial"], found["finished"]) == (False, False, None)
    assert {violation["kind"] for violation in found["violations"]} == {"result"}
    assert err == "orsched: s.json: times not checked\n"
    assert json.loads(call(plan, "--format json")[1]) == []


def test_finished_requests_are_counted(call, plan):
    """All but the last step were done: the requests that end with it are not."""
    last = len(plan.steps) - 1
    ended = set(plan.work.request[plan.work.last_step == last].tolist())
    _, out, _ = call(begun(plan, last, MEASURED), "--times measured --format json")
    assert json.loads(out)["violations"] == []
    assert json.loads(out)["finished"] == 4 - len(ended) < 4
