"""Failures that are drawn: their law, their seeds, and where they can be asked for."""

import json
from itertools import pairwise

import numpy as np
import pytest

import orsched
from orsched.cli.commands import run as command
from orsched.instances.failures import read_failures, with_failures
from orsched.planning.study import run as run_study
from orsched.solving.scenario import scenario, with_workers
from tests.refusals import refusal

SPEC = "mtbf=20,mttr=5"
GIVEN = {"workers": 4, "arrivals": "poisson:rate=2", "seed": 3}
ARGUMENTS = ["simulate", "pang-100x20", "--policy", "vllm"]
ARGUMENTS += [each for name, value in GIVEN.items() for each in (f"--{name}", str(value))]
STUDY = {"instances": ["pang-100x20"], "policies": ["vllm"], "bounds": []}
STUDY |= {"workers": [4], "seeds": [3], "arrivals": ["poisson:rate=2"]}


def fleet(workers=4, seed=0):
    return scenario(orsched.load("pang-100x20"), workers, "poisson:rate=2", seed=seed)


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


def test_each_worker_has_a_stream_of_its_own_and_none_stays_away():
    """More workers change nothing for the others, another seed all; arrivals stay as they are."""
    few, many = (with_failures(fleet(n), SPEC, 3) for n in (2, 4))
    times = [worker.available_ns for worker in many.workers]
    assert [worker.available_ns for worker in few.workers] == times[:2]
    assert len(set(times)) == 4
    assert with_failures(fleet(4), SPEC, 4).workers != many.workers
    assert many.requests == fleet(4).requests
    for worker in with_failures(fleet(), "exponential:mtbf=5,mttr=5,horizon=100").workers:
        assert worker.available_ns[-1][1] is None
        assert worker.available_ns[-1][0] > 0


@pytest.mark.parametrize(("spec", "problem"), [
    ("mtbf=0,mttr=1", "mtbf"), ("mtbf=1", "mttr"), ("weibull:mtbf=1,mttr=1", "unknown law of"),
    ("mtbf=1,mttr=1,often=2", "often"), ("mtbf=1e-6,mttr=1e-6", "too many"),
    (7, "not a specification"),
    ({"law": 3, "mtbf": 7, "mttr": 2}, "unknown law of failures 3"),
])  # fmt: skip
def test_what_is_no_law_is_refused(spec, problem):
    assert problem in str(refusal(with_failures, fleet(), spec))


def test_a_mapping_needs_no_law_either():
    """As the text: there is one law."""
    assert read_failures({"mtbf": 7, "mttr": 2}) == read_failures("mtbf=7,mttr=2")


def test_autoscaling_and_times_that_are_given_are_named_beside_failures():
    """And not times of workers that nobody gave."""
    workers = scenario(fleet(), autoscale="startup=1")
    assert "not simulated together" in str(refusal(with_failures, workers, SPEC))
    assert "times already" in str(refusal(with_failures, with_failures(fleet(), SPEC), SPEC))


RULE = "min=1,target=0.5,startup=2,interval=1,cooldown=5"


@pytest.mark.parametrize(("option", "spec", "law", "figure", "column"), [
    ("failures", SPEC, "law='exponential',", "lost_steps", "failures_law"),
    ("autoscale", RULE, "", "starts", "autoscale_least"),
])  # fmt: skip
def test_api_command_and_study_make_the_same_problem(tmp_path, option, spec, law, figure, column):
    result = orsched.simulate(orsched.load("pang-100x20"), "vllm", **GIVEN, **{option: spec})
    assert result.schedule.results["fleet"][figure] > 0
    if option == "failures":
        assert orsched.check(with_failures(fleet(seed=3), SPEC, 3), result.schedule) == []
    out, problem, config = (tmp_path / name for name in ("s.json", "i.json", "c.toml"))
    written = ["-o", str(out), "--instance-output", str(problem)]
    config.write_text(f"[{option}]\n" + (law + spec).replace(",", "\n"))
    for said in ([f"--{option}", spec], ["--config", str(config)]):
        assert command([*ARGUMENTS, *said, *written]) == 0
        assert orsched.load_schedule(out).replace(run={}) == result.schedule.replace(run={})
        assert command(["check", str(problem), str(out)]) == 0
    rows = run_study({**STUDY, option: ["as_given", spec]}, tmp_path / "study", jobs=1).rows
    plain, changed = sorted(rows, key=lambda row: row[column] is not None)
    assert (plain[column], changed[column]) == (None, {"failures": "exponential"}.get(option, 1))
    assert changed["makespan_ns"] == result.schedule.makespan_ns
    assert changed[f"fleet_{figure}"] == result.schedule.results["fleet"][figure]
    assert option != "failures" or plain["makespan_ns"] != changed["makespan_ns"]


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
