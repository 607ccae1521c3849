"""Limits on figures of a run, by hand and against sorted lists, and runs whose queue grows."""

import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import orsched
from orsched import SLO, InputError, check, summarise
from orsched.metrics.run_limits import overloaded
from orsched.planning.study.plan import slo_content
from tests.by_the_book import Book
from tests.in_order import in_order
from tests.metrics.any_schedule import any_schedule
from tests.metrics.book_of_classes import token_times

READ = [
    ("ttft_p99<=2", ["ttft_p99<=2"]),
    (" ttft_p99 <= 2 , e2e_max<=30", ["ttft_p99<=2", "jct_max<=30"]),
    ("chat:itl_p99.9<=0.0355,tpot_mean<=5e-2", ["chat:itl_p99.9<=0.0355", "tpot_mean<=0.05"]),
]
WRONG = [
    "", "x", "foo_p99<=1", "ttft_p100<=2", "itl<=3", "a:ttft<=3", "ttft_p99<=50ms", "ttft_p99<=nan",
    "ttft_p99<=-1", "itl_p95<=1,itl_p95<=2", "ttft_p99<=1,,", "ttft_p99<=1e99", "ttft_p99",
    "ttft_p99<=1_0",
]  # fmt: skip


@pytest.mark.parametrize(("text", "shown"), READ)
def test_limits_are_read_and_given_back(text, shown):
    slo = SLO(text)
    assert [str(each) for each in slo.figures] == shown
    assert SLO(**json.loads(json.dumps(slo_content(slo)))) == slo


@pytest.mark.parametrize("text", WRONG)
def test_wrong_limits_are_refused(text):
    with pytest.raises(InputError, match="is not a limit on a figure"):
        SLO(text)


def literal(instance, schedule, metric):
    """The values of a latency in nanoseconds, from a literal reading of the tokens."""
    times, arrival = token_times(Book(instance, schedule)), instance.requests.arrival_ns.tolist()
    found = []
    for r in range(len(instance)):
        gaps = [b - a for a, b in zip(times[r], times[r][1:], strict=False)]
        found += {
            "ttft": [times[r][0] - arrival[r]],
            "itl": gaps,
            "stall": [max(gaps)] if gaps else [],
        }[metric]
    return sorted(found)


@settings(max_examples=60)
@given(
    st.integers(0, 10**6).map(any_schedule),
    st.sampled_from(["ttft", "itl", "stall"]),
    st.sampled_from(["mean", "max", "p1", "p50", "p95", "p99.9"]),
    st.integers(0, 400),
)
def test_figures_are_those_of_every_value(case, metric, figure, limit):
    instance, schedule = case
    name = f"{metric}_{figure}"
    slo = SLO(f"{name}<={limit / 1e9:.9f}")
    results = summarise(instance, schedule, slo)
    found = results["slo"]["limits"][name]
    values = literal(instance, schedule, metric)
    assert found["limit_ns"] == limit
    if not values:
        assert (found["value_ns"], found["kept"]) == (None, True)
    elif figure == "mean":
        assert found["value_ns"] == sum(values) / len(values)
        assert found["kept"] == (sum(values) <= limit * len(values))
    else:
        share = Fraction(1 if figure == "max" else Fraction(figure[1:]) / 100)
        within = sum(value <= found["value_ns"] for value in values)
        assert found["value_ns"] in values
        assert within >= share * len(values)
        assert found["kept"] == (sum(v <= limit for v in values) >= share * len(values))
    assert results["slo"]["kept"] == found["kept"]
    assert results["slo"]["attained"] is None
    whole = schedule.replace(results=results)
    assert check(instance, whole) == []
    found["kept"] = not found["kept"]
    assert [each.kind.value for each in check(instance, whole)] == ["result"]


def test_limits_by_class_and_of_refused_requests():
    requests = orsched.Requests(
        [5, 5, 900], [4, 4, 4], service_class=[0, 1, 1], arrival_ns=[0, 0, 0]
    )
    memory = orsched.BlockMemory(16, 8)
    worker = orsched.Worker(2, in_order(orsched.AffineCost, 0, 1, 10, 0), memory=memory)
    instance = orsched.Instance(requests, worker).with_classes("interactive:ttft=9", "batch")
    slo = SLO("interactive:ttft_max<=9,batch:ttft_p50<=9,batch:ttft_max<=9,batch:e2e_mean<=9")
    found = orsched.solve(instance, "vllm", slo=slo).to_row()
    assert [each["kept"] for each in found["slo_limits"].values()] == [True, True, False, False]
    assert found["slo_kept"] is False
    with pytest.raises(InputError, match="unknown class 'chat'"):
        orsched.solve(instance, "vllm", slo=SLO("chat:ttft_max<=9"))


@pytest.mark.parametrize(("load", "over"), [(0.5, False), (0.9, False), (1.5, True), (3, True)])
def test_a_run_is_overloaded_if_its_queue_grows(load, over):
    """A queue of one server, a request a second; and the same requests all at once are no load."""
    rng = np.random.default_rng(0)
    arrival = np.cumsum(rng.exponential(1 / load, 400) * 10**9).astype(np.int64)
    begin, free = [], 0
    for each in arrival.tolist():
        begin.append(max(free, each))
        free = begin[-1] + 10**9
    assert overloaded(arrival, np.array(begin)) is over
    assert not overloaded(0 * arrival, np.array(begin))
    assert not overloaded(arrival[:39], np.array(begin[:39]))


@pytest.mark.parametrize("wrong", [5, None, [1], {"ttft": 2}])
def test_what_is_neither_text_nor_limits_is_refused(wrong):
    with pytest.raises(InputError, match="is not limits") as caught:
        SLO(wrong)
    assert caught.value.field == "slo"


@pytest.mark.parametrize("figure", ["p0", "p00", "p0.0"])
def test_a_percentile_is_above_0(figure):
    with pytest.raises(InputError, match="is not a limit on a figure"):
        SLO(f"ttft_{figure}<=2")
