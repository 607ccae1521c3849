"""The search over time: what is kept, what a file holds, what is drawn."""

import json
from functools import partial

import pytest

import orsched
from orsched.common.errors import InputError
from orsched.files import load_schedule, save_schedule
from orsched.instances.catalog import generate
from orsched.models.best_first import solve_best_first
from orsched.models.full_mip import solve_full_mip
from orsched.solving.run_block import HistoryPoint, HistoryRecorder, history_of
from orsched.views.search_charts import draw_history, history_chart


@pytest.fixture(scope="module")
def instance():
    return generate("gsm8k", seed=0, requests=30, clients=4)


@pytest.fixture(scope="module")
def result(instance):
    return orsched.solve(instance, "hybrid", iterations=6)


def test_only_what_is_better_is_kept():
    recorder = HistoryRecorder()
    for moment in ((0.1, None, 5), (0.2, 9, 5), (0.3, 10, 4), (0.4, 8, 4), (0.5, 8, 7)):
        recorder.add(*moment)
    assert recorder.points == [(0.1, None, 5), (0.2, 9, 5), (0.4, 8, 5), (0.5, 8, 7)]
    largest = HistoryRecorder(largest=True)
    for moment in ((0.1, 0.5, 1.0), (0.2, 0.4, 0.9), (0.3, 0.6, None)):
        largest.add(*moment)
    assert largest.points == [(0.1, 0.5, 1.0), (0.2, 0.5, 0.9), (0.3, 0.6, 0.9)]


@pytest.mark.parametrize("method", ["fcfs", "hybrid", "windows", "exact", "hybrid@predicted"])
def test_a_result_has_its_search(method, instance):
    """INV: values fall, bounds rise, they never cross, and the last are those of the result."""
    case = generate("gsm8k", seed=0, requests=8, clients=3) if method == "exact" else instance
    found = orsched.solve(case, method, iterations=2, time_limit=600)
    history = found.history
    values = [point.value for point in history if point.value is not None]
    bounds = [point.bound for point in history if point.bound is not None]
    assert values == sorted(values, reverse=True)
    assert bounds == sorted(bounds)
    assert bounds[-1] <= values[-1] == found.makespan_ns
    assert bounds[-1] >= found.bound_ns
    seconds = [point.seconds for point in history]
    assert seconds == sorted(seconds)
    assert seconds[-1] <= found.runtimes["total"] + 1e-6


def test_of_another_objective(instance):
    found = orsched.solve(instance, "fcfs", objective="jct_mean")
    assert found.history[-1].value == pytest.approx(found.objective_value * 1e9)


def test_a_file_keeps_it(instance, result, tmp_path):
    path = tmp_path / "schedule.json"
    save_schedule(result.schedule, path)
    assert json.loads(path.read_text())["run"]["history"]["columns"] == list(HistoryPoint._fields)
    assert history_of(load_schedule(path)) == result.history
    assert len(result.history) >= 2
    assert orsched.check(instance, load_schedule(path)) == []


@pytest.mark.parametrize(
    "block",
    [None, 3, [], {}, {"rows": 3}, {"rows": [3]}, {"rows": [[1, 2]]}, {"rows": [["a", 1, 2]]},
     {"rows": [[1.0, True, 2]]}, {"rows": [[1.0, float("nan"), 2]]}],
)  # fmt: skip
def test_a_run_block_is_free(result, block):
    run = {**result.schedule.run, "history": block}
    assert history_of(result.schedule.replace(run=run)) == ()


@pytest.mark.parametrize("search", [partial(solve_full_mip, backend="cpsat"), solve_best_first])
def test_the_exact_searches_have_it_too(search):
    found = search(generate("gsm8k", seed=0, requests=8, clients=3), time_limit=600)
    assert found.history[-1].makespan_ns == found.makespan_ns
    assert found.history[-1].bound_ns <= found.bound_ns


def test_the_chart(instance, result):
    ax = history_chart(instance, result.schedule)
    lines = {line.get_gid(): line for line in ax.get_lines() if line.get_gid()}
    assert set(lines) == {"value-0", "bound-0"}
    assert lines["value-0"].get_ydata()[-1] == pytest.approx(result.makespan)
    assert lines["bound-0"].get_ydata()[-1] == pytest.approx(result.bound)
    assert result.plot("history").axes
    other = orsched.solve(instance, "hybrid", iterations=2)
    both = history_chart(instance, [result.schedule, other.schedule])
    assert len([line for line in both.get_lines() if line.get_gid()]) == 4
    assert orsched.compare(instance, ["fcfs", "hybrid"]).plot("history").axes
    assert draw_history([[(0.0, None, None)]], ["nothing"]).get_lines() == []


def test_without_a_history(instance, result):
    bare = result.schedule.replace(run={})
    with pytest.raises(InputError, match="no schedule says how its search went"):
        history_chart(instance, bare)
