"""``orsched bound --objective``."""

from __future__ import annotations

import json
import math

import pytest

import orsched
from orsched.cli.commands import run
from orsched.common.errors import InputError


@pytest.mark.parametrize("objective", ["makespan", "mean_jct", "mean_ttft"])
def test_bound_takes_an_objective(capsys, objective):
    code = run(["bound", "two-by-two", "--objective", objective, "--format", "json"])
    facts = json.loads(capsys.readouterr().out)
    found = orsched.bound(orsched.load("two-by-two"), objective)
    assert code == 0
    assert facts["bound_ns"] == found.value_ns
    assert facts["bound"] == found.name
    assert facts["certificate"] == "verified"


def test_bound_takes_a_time_limit(capsys):
    """Two small requests are bounded within any limit."""
    command = ["bound", "two-by-two", "--format", "json", "--time-limit"]
    assert run([*command, "5"]) == 0
    assert json.loads(capsys.readouterr().out)["bound_ns"] > 0
    assert run([*command, "-1"]) != 0
    assert "--time-limit" in capsys.readouterr().err


@pytest.mark.parametrize("objective", ["makespan", "mean_jct", "mean_ttft"])
def test_an_infinite_time_limit_is_none(capsys, objective):
    """As ``solve`` has it."""
    instance = orsched.load("gate")
    found = orsched.bound(instance, objective)
    assert orsched.bound(instance, objective, time_limit=math.inf) == found
    command = ["bound", "gate", "--objective", objective, "--format", "json", "--time-limit", "inf"]
    assert run(command) == 0
    assert json.loads(capsys.readouterr().out)["bound_ns"] == found.value_ns
    for wrong in (math.nan, -math.inf, 0):
        with pytest.raises(InputError) as caught:
            orsched.bound(instance, objective, time_limit=wrong)
        assert caught.value.field == "time_limit"


def test_bound_takes_what_schedules_may_do(capsys):
    """A larger class of schedules has no larger bound; what is no allowance is named."""
    instance = orsched.load("pang-100x20")
    command = ["bound", "pang-100x20", "--objective", "jct_mean", "--format", "json"]
    values = []
    for allows in ("", "mixed", "chunks, mixed"):
        assert run([*command, "--allows", allows]) == 0
        values.append(json.loads(capsys.readouterr().out)["bound_ns"])
    assert values == sorted(values, reverse=True)
    assert values[0] > values[1]
    assert values[2] == orsched.bound(instance, "mean_jct", allows=("chunks", "mixed")).value_ns
    assert run([*command, "--allows", "chunk"]) == 2
    assert "chunks, mixed, restarts" in capsys.readouterr().err
    assert run(["bound", "pang-100x20", "--objective", "bulk", "--allows", "mixed"]) == 2
    assert "--allows" in capsys.readouterr().err
