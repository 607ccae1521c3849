"""Gaps of mean latencies: rows between bound and schedules, and what is said of all of them."""

from __future__ import annotations

import pytest

import orsched
from benchmarks import latency_gaps
from orsched.common.errors import InputError
from orsched.costs import AffineCost
from orsched.data.instance import Instance
from orsched.data.requests import Requests
from orsched.data.workers import Worker
from orsched.instances.datasets import VARIABLE
from tests.in_order import in_order


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def percent(cell):
    return float(cell.removesuffix(" %"))


@pytest.fixture
def small(monkeypatch):
    """Sizes at which every method takes an instant."""
    monkeypatch.setattr(latency_gaps, "SIZES", {"100x20": (6, 2), "1319x200": (8, 3)})


@pytest.mark.usefixtures("small")
def test_every_value_is_above_its_bound(capsys):
    latency_gaps.main(["--seconds", "0.3", "--seeds", "2", "--sizes", "100x20"])
    head, line, *rest = capsys.readouterr().out.splitlines()
    names, rows = cells(head), [dict(zip(cells(head), cells(x), strict=True)) for x in rest[:4]]
    assert len(cells(line)) == len(names)
    assert [(row["mean"], row["seed"]) for row in rows] == [
        ("JCT", "0"),
        ("JCT", "1"),
        ("TTFT", "0"),
        ("TTFT", "1"),
    ]
    for row in rows:
        bound = float(row["bound s"].split()[0])
        values = [float(row[name]) for name in names if name.endswith(" s") and name != "bound s"]
        assert len(values) == 4
        assert 0 < bound <= min(values)
        assert 0 <= percent(row["gap of the search"]) <= percent(row["gap of gittins"])
    assert len([text for text in rest if "seeds, at most" in text]) == 4


def test_the_summary_has_means_and_most():
    rows = [
        {"size": "6 x 2", "mean": "JCT", "gap of gittins": f"{a} %", "gap of the search": f"{b} %"}
        for a, b in ((1.0, 0.5), (3.0, 1.5))
    ]
    assert list(latency_gaps.summary(rows)) == [
        "6 x 2, mean JCT, gittins: gap 2.00 % in the mean of 2 seeds, at most 3.00 %",
        "6 x 2, mean JCT, the search: gap 1.00 % in the mean of 2 seeds, at most 1.50 %",
    ]


@pytest.mark.full
def test_workloads_are_held_against_both_bounds(monkeypatch, capsys):
    cost = in_order(AffineCost, 1_000_000, 10_000, 1_000_000, 100_000)
    requests = Requests(
        [90, 9, 30, 9, 60], [9, 4, 20, 3, 8], arrival_ns=[0, 10**6, 2 * 10**6, 10**7, 10**7]
    )
    instance = Instance(requests, (Worker(3, cost), Worker(3, cost)), "prefill")
    monkeypatch.setattr(latency_gaps.setting, "workload", lambda *_: instance)
    command = ["--only", "workloads", "--iterations", "2", "--loads", "0.5", "--names", "ShareGPT"]
    latency_gaps.main(command)
    head, _, row = capsys.readouterr().out.splitlines()
    found = dict(zip(cells(head), cells(row), strict=True))
    assert (found["workload"], found["load"]) == ("ShareGPT", "0.5")
    bound = float(found["bound s"].split()[0])
    assert float(found["before s"]) <= bound
    assert float(found["latency_search / bound"]) >= 1
    latency_gaps.main(command)
    assert capsys.readouterr().out.splitlines()[2] == row  # iterations, no clock
    assert orsched.bound(instance, "mean_jct", allows=("chunks", "mixed")).value_s <= float(
        found["latency_search s"]
    )


def test_workloads_need_their_data(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    latency_gaps.setting.requests_of.cache_clear()
    with pytest.raises(InputError) as caught:
        latency_gaps.main(["--only", "workloads", "--loads", "0.5"])
    assert caught.value.field == VARIABLE
