"""Failures that are drawn: their law, their seeds, and where they can be asked for."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest

import orsched
from orsched.cli.commands import run as command
from orsched.common.errors import InputError
from orsched.instances.failures import read_failures, with_failures
from orsched.planning.study import run as run_study
from orsched.solving.scenario import scenario, with_workers

SPEC = "mtbf=20,mttr=5"


def fleet(workers=4):
    return scenario(orsched.load("pang-100x20"), workers, "poisson:rate=2")


def test_times_to_failure_and_repair_have_their_means():
    law = read_failures("exponential:mtbf=100,mttr=10")
    up, down = [], []
    for worker in range(200):
        times = law.intervals(1, worker, 10**13)
        up += [end - start for start, end in times if end is not None]
        down += [after[0] - before[1] for before, after in pairwise(times)]
    assert len(up) > 10_000
    assert np.mean(up) / 1e9 == pytest.approx(100, rel=0.05)
    assert np.mean(down) / 1e9 == pytest.approx(10, rel=0.05)
    assert np.std(up) / 1e9 == pytest.approx(100, rel=0.05)


def test_each_worker_has_a_stream_of_its_own():
    """More workers change nothing for the others, another seed all; arrivals stay as they are."""
    few, many = (with_failures(fleet(n), SPEC, 3) for n in (2, 4))
    times = [worker.available_ns for worker in many.workers]
    assert [worker.available_ns for worker in few.workers] == times[:2]
    assert len(set(times)) == 4
    assert with_failures(fleet(4), SPEC, 4).workers != many.workers
    assert many.requests == fleet(4).requests


def test_no_worker_stays_away():
    for worker in with_failures(fleet(), "exponential:mtbf=5,mttr=5,horizon=100").workers:
        assert worker.available_ns[-1][1] is None
        assert worker.available_ns[-1][0] > 0


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("mtbf=0,mttr=1", "mtbf"),
        ("mtbf=1", "mttr"),
        ("weibull:mtbf=1,mttr=1", "no law of failures"),
        ("mtbf=1,mttr=1,often=2", "often"),
        ("mtbf=1e-6,mttr=1e-6", "too many"),
        (7, "not a specification"),
    ],
)
def test_what_is_no_law_is_refused(spec, problem):
    with pytest.raises(InputError, match=problem):
        with_failures(fleet(), spec)


def test_a_mapping_needs_no_law_either():
    """As the text: there is one law."""
    assert read_failures({"mtbf": 7, "mttr": 2}) == read_failures("mtbf=7,mttr=2")
    with pytest.raises(InputError, match="no law of failures 3"):
        read_failures({"law": 3, "mtbf": 7, "mttr": 2})


def test_autoscaling_is_named_beside_failures():
    """And not times of workers that nobody gave."""
    workers = scenario(fleet(), autoscale="startup=1")
    with pytest.raises(InputError, match="not simulated together"):
        with_failures(workers, SPEC)


def test_times_are_not_given_twice():
    with pytest.raises(InputError, match="times already"):
        with_failures(with_failures(fleet(), SPEC), SPEC)


def test_api_command_and_study_make_the_same_problem(tmp_path):
    result = orsched.simulate(
        orsched.load("pang-100x20"), "vllm", workers=4, arrivals="poisson:rate=2", seed=3,
        failures=SPEC,
    )  # fmt: skip
    assert result.schedule.results["fleet"]["lost_steps"] > 0
    assert orsched.check(with_failures(fleet_of(3), SPEC, 3), result.schedule) == []
    out, problem = tmp_path / "s.json", tmp_path / "i.json"
    arguments = ["simulate", "pang-100x20", "--policy", "vllm", "--workers", "4", "--seed", "3"]
    arguments += ["--arrivals", "poisson:rate=2", "--failures", SPEC]
    assert command([*arguments, "-o", str(out), "--instance-output", str(problem)]) == 0
    assert orsched.load_schedule(out).replace(run={}) == result.schedule.replace(run={})
    assert command(["check", str(problem), str(out)]) == 0
    config = tmp_path / "c.toml"
    config.write_text("[failures]\nlaw = 'exponential'\nmtbf = 20\nmttr = 5\n")
    again = ["--config", str(config), "-o", str(tmp_path / "t.json")]
    assert command([*arguments[:-2], *again]) == 0
    assert orsched.load_schedule(tmp_path / "t.json").makespan_ns == result.schedule.makespan_ns
    study = {
        "instances": ["pang-100x20"], "policies": ["vllm"], "workers": [4], "seeds": [3],
        "arrivals": ["poisson:rate=2"], "failures": ["as_given", SPEC], "bounds": [],
    }  # fmt: skip
    table = run_study(study, tmp_path / "study", jobs=1).rows
    rows = {row.get("failures_law"): row for row in table}
    assert rows["exponential"]["makespan_ns"] == result.schedule.makespan_ns
    assert rows["exponential"]["fleet_lost_steps"] > 0
    assert rows[None]["makespan_ns"] != result.schedule.makespan_ns


def test_autoscaling_of_api_command_and_study_is_the_same(tmp_path):
    rule = "min=1,target=0.5,startup=2,interval=1,cooldown=5"
    given = {"workers": 4, "arrivals": "poisson:rate=2", "seed": 3, "autoscale": rule}
    result = orsched.simulate(orsched.load("pang-100x20"), "vllm", **given)
    assert result.schedule.results["fleet"]["starts"] > 0
    out, problem, config = (tmp_path / name for name in ("s.json", "i.json", "c.toml"))
    arguments = ["simulate", "pang-100x20", "--policy", "vllm", "--workers", "4", "--seed", "3"]
    arguments += ["--arrivals", "poisson:rate=2"]
    written = ["-o", str(out), "--instance-output", str(problem)]
    config.write_text("[autoscale]\n" + rule.replace(",", "\n"))
    for said in (["--autoscale", rule], ["--config", str(config)]):
        assert command([*arguments, *said, *written]) == 0
        assert orsched.load_schedule(out).replace(run={}) == result.schedule.replace(run={})
        assert command(["check", str(problem), str(out)]) == 0
    study = {
        "instances": ["pang-100x20"], "policies": ["vllm"], "workers": [4], "seeds": [3],
        "arrivals": ["poisson:rate=2"], "autoscale": ["as_given", rule], "bounds": [],
    }  # fmt: skip
    rows = run_study(study, tmp_path / "study", jobs=1).rows
    assert [row["makespan_ns"] for row in rows][1] == result.schedule.makespan_ns
    assert [row["autoscale_least"] for row in rows] == [None, 1]


def fleet_of(seed):
    return scenario(orsched.load("pang-100x20"), 4, "poisson:rate=2", seed=seed)


def test_workers_of_a_file_may_have_times(tmp_path):
    worker = with_workers(orsched.load("two-by-two"), 1).workers[0].to_dict()
    worker["available_ns"] = [[0, 10**7], [10**9, None]]
    (tmp_path / "w.json").write_text(json.dumps(worker))
    workers = ["--workers", str(tmp_path / "w.json")]
    assert command(["simulate", "two-by-two", *workers, "--policy", "fcfs"]) == 0


def test_so_many_failures_that_it_takes_long_are_announced(caplog):
    with_failures(fleet(), "mtbf=5,mttr=5")
    assert caplog.text == ""
    few = with_failures(fleet(2), "mtbf=0.01,mttr=0.01,horizon=1")
    assert caplog.text == ""
    assert len(few.workers[0].available_ns) > 100
    with_failures(fleet(2), "mtbf=0.05,mttr=0.01")
    assert "about 122," in caplog.text
    assert "give a horizon" in caplog.text
