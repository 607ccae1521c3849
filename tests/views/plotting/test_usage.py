"""Clients and memory over time: the areas of the curves are the reported numbers."""

from __future__ import annotations

import numpy as np
import pytest

from orsched.common.errors import InputError
from orsched.metrics.summary import summarise
from orsched.metrics.timeline import Timeline
from orsched.views import style, usage
from orsched.views.curves import (
    USES,
    Curve,
    block_curves,
    client_curves,
    curve_of,
    interval_curve,
    means,
    sum_of,
)
from orsched.views.usage import borders_of, named_blocks, save_usage
from tests.metrics.any_schedule import any_schedule
from tests.views.plotting.samples import by_hand, empty, every_kind, random_instance, served


def pairs(curve):
    return list(zip(curve.time_ns.tolist(), curve.value.tolist(), strict=True))


def area(curve, until):
    return int((np.diff(curve.time_ns, append=until) * curve.value).sum())


def test_curves_of_changes_and_intervals():
    assert pairs(curve_of(np.array([5, 2, 5, 2]), np.array([1, 3, -1, 0]))) == [(2, 3)]
    one = interval_curve(np.array([0, 4, 6]), np.array([6, 4, 9]), np.array([2, 7, 1]))
    assert pairs(one) == [(0, 2), (6, 1), (9, 0)]
    two = interval_curve(np.array([1]), np.array([6]))
    assert pairs(sum_of([one, two])) == [(0, 2), (1, 3), (6, 1), (9, 0)]
    assert pairs(sum_of([])) == []


def test_means_are_areas_by_width():
    curve = Curve(np.array([2, 6]), np.array([3, 0]))
    assert means(curve, np.array([0.0, 4.0, 5.0, 10.0])).tolist() == [1.5, 3.0, 0.6]
    assert means(Curve(np.array([], np.int64), np.array([], np.int64)), np.arange(3.0)).sum() == 0


def test_clients_by_hand():
    found = {name: pairs(curve) for name, curve in client_curves(Timeline(*every_kind())).items()}
    assert found == {
        "prefill": [(0, 3), (20, 1), (42, 0)],
        "decode": [(14, 1), (20, 3), (26, 2), (38, 1), (47, 2), (59, 0)],
        "invalid": [(26, 1), (38, 0)],
        "paused": [(42, 1), (47, 0)],
    }


@pytest.mark.parametrize("seed", range(30))
def test_areas_are_the_reported_client_times(seed):
    instance, schedule = any_schedule(seed)
    curves, results = client_curves(Timeline(instance, schedule)), summarise(instance, schedule)
    assert tuple(curves) == USES
    total = {name: area(curve, schedule.makespan_ns) for name, curve in curves.items()}
    assert total["prefill"] + total["decode"] == results["busy_client_ns"]
    assert total["invalid"] == results["bubble_ns"]["invalid"]
    assert total["paused"] >= results["bubble_ns"]["other_prefill"]  # or the worker has no step
    clients = sum(worker.clients for worker in instance.workers)
    assert (sum_of(list(curves.values())).value <= clients).all()
    assert all((curve.value >= 0).all() for curve in curves.values())


@pytest.mark.parametrize("seed", range(30))
def test_blocks_are_those_of_the_steps(seed):
    instance, schedule = any_schedule(seed)
    results = summarise(instance, schedule)["kv_blocks"]
    curves = [c for c in block_curves(instance, Timeline(instance, schedule)) if c is not None]
    if results is None:
        assert curves == []
        return
    # Between steps the blocks of requests that stay are held as well.
    areas = sum(area(curve, schedule.makespan_ns) for curve in curves)
    assert areas >= results["block_ns"]
    assert max((int(c.value.max(initial=0)) for c in curves), default=0) <= results["peak"]
    assert all(curve.value[-1:].sum() == 0 for curve in curves)


def test_uses_are_stacked_up_to_the_clients():
    axes = usage.usage(*every_kind())
    assert len(axes) == 2
    areas = {a.get_gid(): a.get_data() for a in axes[0].patches}
    assert set(areas) == set(style.USES)
    assert areas["decode"].baseline.tolist() == [0] * len(areas["decode"].values)
    assert areas["prefill"].baseline.tolist() == areas["decode"].values.tolist()
    assert areas["paused"].values.max() <= 4
    assert {a.get_gid() for a in axes[1].patches} == {"blocks-0", "blocks-1"}
    limits = [a for a in axes[1].lines if str(a.get_gid()).startswith("limit")]
    assert [a.get_ydata()[0] for a in limits] == [9, 9]


def test_without_memory_there_is_one_picture():
    assert len(usage.usage(*by_hand())) == 1
    assert len(usage.usage(*empty())) == 1


def test_many_changes_are_drawn_as_means(monkeypatch):
    monkeypatch.setattr(usage, "COLUMNS", 20)
    instance = random_instance(n=60)
    schedule = served(instance)
    area = next(a for a in usage.usage(instance, schedule)[0].patches if a.get_gid() == "decode")
    assert len(area.get_data().values) == 20
    curve = client_curves(Timeline(instance, schedule))["decode"]
    exact = borders_of([curve], schedule.makespan_ns, 10**6)
    assert len(exact) == len(np.unique([0, schedule.makespan_ns, *curve.time_ns]))
    now = np.searchsorted(curve.time_ns, exact[:-1], side="right") - 1
    expected = np.where(now >= 0, curve.value[np.maximum(now, 0)], 0)
    assert means(curve, exact) == pytest.approx(expected, abs=1e-3)


def test_the_blocks_of_many_workers_are_added_up(monkeypatch):
    instance, schedule = every_kind()
    line = Timeline(instance, schedule)
    single = named_blocks(instance, line)
    monkeypatch.setattr(usage, "MAX_WORKERS", 1)
    ((name, curve, limit),) = named_blocks(instance, line)
    assert (name, limit) == ("2 workers", 18)
    assert pairs(curve) == pairs(sum_of([c for _, c, _ in single]))


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_equal_bytes_come_twice(tmp_path, suffix):
    paths = [tmp_path / f"{name}{suffix}" for name in "ab"]
    for path in paths:
        save_usage(*every_kind(), path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    with pytest.raises(InputError, match="not a suffix"):
        save_usage(*every_kind(), tmp_path / "a.gif")
