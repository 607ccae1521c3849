"""The programs of the pages on fidelity and predicted lengths: other families, real text."""

import json
import os

import numpy as np
import pytest

import orsched
from benchmarks import predict_lengths
from benchmarks.reproductions import fidelity, fidelity_setting
from benchmarks.reproductions.fidelity_families import Affine, Knots
from benchmarks.text_sources import functions, standard_library
from orsched.calibration import MeasuredRun, Server, Times, fit_run
from orsched.calibration.recipe import spans, step_works
from orsched.data.requests import Requests
from orsched.instances.datasets import VARIABLE
from orsched.prediction import distribution, make_corpus, train
from orsched.prediction.evaluation import evaluate
from tests.refusals import refused

SERVER = Server(8, 200, token_budget=2048)
TRUE = {"knots": (7e6, 6e7, 90.0), "affine": (7e6, 3e4, 2e5)}
FAMILIES = {"knots": Knots(8, 1, 512), "affine": Affine()}


def simulated(name):
    """Return a run that took a family's times: chunks, mixed steps, preemptions."""
    rng, arrivals = np.random.default_rng(5), np.arange(60) * 40_000_000
    columns = rng.integers(20, 700, 60), rng.integers(5, 120, 60)
    requests = Requests(*columns, arrival_ns=arrivals)
    blank = Times(*[requests.arrival_ns] * 3, requests.output_tokens)
    run = MeasuredRun("small", requests, blank, 0)
    _, schedule, times = run.simulate(FAMILIES[name].cost(TRUE[name]), SERVER)
    assert (schedule.work.stay > 0).any()
    assert {1, 2} <= set(schedule.steps.phase.tolist())
    return MeasuredRun("small", requests, times, 0)


@pytest.mark.parametrize("name", FAMILIES)
def test_constants_times_what_they_count_for_are_the_durations_and_a_fit_finds_them(name):
    run = simulated(name)
    instance, schedule, _ = run.simulate(FAMILIES[name].cost(TRUE[name]), SERVER)
    rows = np.array([FAMILIES[name].row(work) for work in step_works(instance, schedule)])
    lengths = schedule.steps.end_ns - schedule.steps.start_ns
    # A table's corner and each round are rounded to a nanosecond.
    assert np.abs(rows @ np.array(TRUE[name]) - lengths).max() < 200
    found = fit_run(run, SERVER, FAMILIES[name])
    assert len(found.constants) == 3
    errors = found.errors()
    assert all(abs(errors[figure]) < 0.02 for figure in ("makespan", "mean TPOT", "mean TTFT"))


def test_spans_and_figures_by_hand():
    times = Times(np.zeros(3), np.array([5, 7, 9]), np.array([50, 70, 90]), np.array([2, 2, 2]))
    assert spans(times, 2).tolist() == [[5, 50], [7, 70], [0, 5], [0, 7]]  # decodes, then waits
    second = 10**9
    moments = (np.array(column) * second for column in ([0, 1, 2], [1, 4, 4], [3, 6, 9]))
    times = Times(*moments, np.array([3, 2, 6]))
    assert times.figures() == {
        "makespan": 9, "mean TPOT": pytest.approx((1 + 2 + 1) / 3), "mean TTFT": 2,
        "mean JCT": pytest.approx((3 + 5 + 7) / 3), "TTFT p50": 2, "TTFT p90": 3, "TTFT p99": 3,
    }  # fmt: skip
    assert times.figures(slice(2, None))["mean TTFT"] == 2


def test_microseconds_are_read_exactly():
    found = fidelity_setting.picoseconds(["9.31067", " 126.766", "3"])
    assert found.tolist() == [9_310_670, 126_766_000, 3_000_000]


def test_without_the_data_the_variable_is_named(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    refused(VARIABLE, fidelity_setting.RTX_4090.read)


needs_data = pytest.mark.skipif(not os.environ.get(VARIABLE), reason=f"needs {VARIABLE}")


@needs_data
@pytest.mark.parametrize("recorded", fidelity_setting.RECORDED)
def test_nobody_is_queued_before_it_arrives(recorded):
    run = recorded.read()
    times = run.times
    assert 0 < run.offset_ns < 2_000_000
    assert (times.arrival < times.first).all()
    assert (times.first < times.last).all()


@needs_data
def test_the_kernels_of_a_step():
    cost = fidelity_setting.kernel_profile()
    # embedding, final norm, and 32 layers with two norms each, at one token
    layer = 2 * 1.85083 + 54.898 + 2.17567 + 38.1313 + 247.292 + 2.592 + 126.766
    assert cost.dense.at(1) == pytest.approx((2.837 + 1.94167 + 32 * layer) * 1e3, abs=1)
    assert cost.prefill.at(16, 0) == pytest.approx(32 * 9546, abs=1)
    assert cost.decode.at(0, 1, 16) == pytest.approx(32 * 9310.67, abs=1)


@pytest.mark.full
@needs_data
@pytest.mark.parametrize("recorded", fidelity_setting.RECORDED)
def test_the_recipe_meets_the_goals(recorded):
    found = fidelity.fitted(recorded, recorded.shape)
    instance, schedule, _ = recorded.read().simulate(found.cost, recorded.server)
    assert orsched.check(instance, schedule) == []
    for rest in (False, True):
        errors = found.errors(rest=rest)
        for name, goal in fidelity.GOALS.items():
            assert abs(100 * errors[name]) < goal
    assert all(constant.determined for constant in found.constants)


SOURCE = '''
def add(a, b):
    """Return the sum."""
    total = a + b
    return total


def bare(a):
    return a


def only():
    """Says something."""
'''


def test_functions_are_split_into_head_docstring_and_body(tmp_path):
    (tmp_path / "m.py").write_text(SOURCE)
    (found,) = functions(tmp_path / "m.py")
    assert found == ("def add(a, b):", "Return the sum.", "    total = a + b\n    return total")
    (tmp_path / "broken.py").write_text("def (")
    assert list(functions(tmp_path / "broken.py")) == []


def test_the_program_prints_its_tables_and_writes_them(tmp_path, monkeypatch, capsys):
    small = {"text": make_corpus("math", 400, 9)}
    monkeypatch.setattr(predict_lengths, "standard_library", lambda: small)
    monkeypatch.setattr(predict_lengths, "DOMAINS", {"chat": ()})
    monkeypatch.setattr(distribution, "LEAST_ROWS", 0)
    path = tmp_path / "f.json"
    predict_lengths.main(["--rows", "400", "--out", str(path)])
    shown = capsys.readouterr().out
    found = json.loads(path.read_text())
    names = ["within", "across", "online", "tails"]
    assert [line[3:] for line in shown.splitlines() if line.startswith("## ")] == names
    assert (list(found), len(found["within"])) == (names, 2 * 3)
    assert {row["source"] for row in found["within"]} == {"chat", "text"}


@pytest.mark.full
def test_the_default_orders_real_text_better_than_its_length_does():
    sources = standard_library()
    assert min(map(len, sources.values())) > 3000
    for name, data in sources.items():
        gains = []
        for seed in range(3):
            test = data.part("test", seed)
            long, lexical = (
                evaluate(train(data, kind, seed=seed), test, latency=False)["tau"]
                for kind in ("prompt_length", "lexical")
            )
            gains.append(lexical - long)
        assert sum(gains) / 3 > 0.01, name
