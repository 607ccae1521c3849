"""Pang's main case: the figures of the page *Reproducing Pang*, as properties of the code.

The short test takes two generator seeds, the full one all ten that the page reports.
"""

from __future__ import annotations

import pytest

import orsched
from orsched.instances.gsm8k import gsm8k, pang_case

METHODS = ("fcfs", "offline", "online", "hybrid", "hybrid@predicted")


def _means(seeds, methods=METHODS, **arguments):
    """Return method -> (mean makespan s, mean utilization, mean gap), each schedule checked."""
    rows = {}
    for seed in seeds:
        for result in orsched.compare(gsm8k(seed, **arguments), methods):
            assert result.checked
            assert orsched.check(gsm8k(seed, **arguments), result.schedule) == []
            key = (result.schedule.method, result.information)
            rows.setdefault(key, []).append(result.to_row())
    return {
        key: tuple(
            sum(row[name] for row in some) / len(some)
            for name in ("makespan_s", "slot_utilization", "gap")
        )
        for key, some in rows.items()
    }


def _order_of_the_paper(means):
    """Baseline above offline and online, both above hybrid: the order of Pang's makespans."""
    hybrid = means["hybrid", "clairvoyant"][0]
    assert means["fcfs", "none"][0] > means["online", "none"][0] > hybrid
    assert means["fcfs", "none"][0] > means["offline", "clairvoyant"][0] > hybrid
    assert means["online", "none"][0] > means["hybrid", "predicted"][0] > hybrid


def test_two_seeds_show_the_order_of_the_paper():
    means = _means((0, 7))
    _order_of_the_paper(means)
    assert all(gap > 0 for _, _, gap in means.values())


@pytest.mark.full
def test_ten_seeds_meet_the_figures_of_the_paper():
    means = _means(range(10))
    _order_of_the_paper(means)
    makespan, utilization, _ = means["fcfs", "none"]
    assert abs(makespan / 201.0 - 1) < 0.02
    assert abs(utilization - 0.802) < 0.015
    makespan, utilization, gap = means["hybrid", "clairvoyant"]
    assert makespan < 190.58
    assert utilization > 0.8906
    assert gap <= 0.015


@pytest.mark.full
def test_ten_seeds_under_one_reading_come_within_two_percent_of_all_four_makespans():
    methods = (
        "fcfs",
        "offline@predicted",
        "online",
        "hybrid@predicted+gate=waited_time+assignment=packing+order=arrival",
    )
    means = _means(range(10), methods, prediction_sigma=0.1)
    printed = {
        ("fcfs", "none"): 201.00,
        ("offline", "predicted"): 197.08,
        ("online", "none"): 193.33,
        ("hybrid", "predicted"): 190.58,
    }
    for key, seconds in printed.items():
        assert abs(means[key][0] / seconds - 1) < 0.02, key


@pytest.mark.full
def test_hybrid_is_better_in_every_one_of_a_hundred_cases():
    for case in range(100):
        fcfs, hybrid = orsched.compare(pang_case(case), ("fcfs", "hybrid"))
        assert hybrid.makespan_ns < fcfs.makespan_ns
        gain = (
            hybrid.schedule.results["slot_utilization"] - fcfs.schedule.results["slot_utilization"]
        )
        assert gain > 0.08
