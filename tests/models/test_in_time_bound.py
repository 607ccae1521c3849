"""Bounds on percentiles and on missed limits: no schedule has more requests in time than prices
say, whatever the prices are; and what the search finds is proven, and near what is possible."""

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import orsched
from orsched import SLO, InputError, Instance, Requests, Worker
from orsched.certificates.context import Context
from orsched.certificates.in_time import least_late, most_in_time, needs_of
from orsched.certificates.one_machine import Workers
from orsched.checker.certificates import bound_violations
from orsched.checker.due_bounds import IN_TIME, Due, judged, rank_of, within
from orsched.common.units import NEVER
from orsched.costs import AffineCost
from orsched.data.schedule_classes import allowances_of
from orsched.metrics.class_metrics import limited_by
from orsched.metrics.token_times import request_times
from orsched.models.bounds.due_date_bounds import start_prices
from orsched.models.bounds.makespan_certificates import balanced_weights, best_shares
from orsched.solving.objectives import PERCENTILES
from tests.brute_force import most_attained
from tests.checker.any_mode import random_schedule
from tests.decoding import decoding
from tests.in_order import in_order
from tests.models.cases import proven, small
from tests.models.divisions import divisible, least_over_divisions
from tests.models.full_mip.test_due_dates import due, optimum

SOME = settings.default.max_examples // 2
SLOW = in_order(AffineCost, 5, 1, 10, 1)


def needs(instance, allows=()):
    """The needs of an instance's requests; None where nothing is known of them."""
    context = Context.allowing(instance, allows)
    if not context.has_floors or instance.link is not None:
        return None
    shares = best_shares(context)
    return needs_of(context, shares, balanced_weights(Workers.of(context, shares), None))


def any_prices(dice, own, horizon):
    """Prices drawn by dice, of moments drawn by dice."""
    moments = sorted({0, *(dice.randint(1, max(1, horizon)) for _ in range(dice.randint(0, 4)))})
    one, count = 10**6, len(moments)
    held = [0, *(dice.choice((0, one // 3, one)) for _ in moments[1:])]
    time = [*(dice.choice((0, one // 50, one // 9)) for _ in moments[1:]), 0]
    held = held if own.clients is not None else [0] * count
    return {"moments": moments, "held": held, "time": time, "one": one}


def most_of(instance, first_limit, end_limit):
    """The most requests in time of any plain schedule, over all divisions among workers."""

    def least(part):
        arrivals = part.requests.arrival_ns.tolist()
        return -most_attained(
            part,
            lambda i, first, end: (
                first - arrivals[i] <= first_limit and end - arrivals[i] <= end_limit
            ),
            True,
        )

    found = least_over_divisions(instance, least, sum)
    assume(found is not None)
    return -found


@settings(max_examples=SOME)
@given(divisible(most=3), st.integers(0, 999))
def test_no_plain_schedule_has_more_in_time(instance, seed):
    """INV-10: whatever moments and prices a certificate chooses, on unequal workers as well."""
    dice = random.Random(seed)
    first, end = dice.choice((20, 60, 150, NEVER // 4)), dice.choice((60, 200, NEVER // 4))
    most, own = most_of(instance, first, end), needs(instance)
    assume(own is not None)
    limits = {"first_due": own.arrivals + first, "due": own.arrivals + end}
    limited = replace(own, **{name: np.minimum(NEVER, each) for name, each in limits.items()})
    for _ in range(8):
        assert most_in_time(limited, any_prices(dice, own, 400)) >= most


@pytest.mark.parametrize("seed", range(60))
def test_no_schedule_of_any_mode_has_more_in_time(seed):
    """INV-10: with chunks, mixed steps, evictions, caches and several workers."""
    instance, schedule = random_schedule(seed)
    dice, allows = random.Random(seed), allowances_of(instance, schedule)
    for objective in IN_TIME[:-1]:
        if instance.arrivals_follow or instance.link is not None or not len(instance):
            return
        bound = orsched.bound(instance, objective, allows=allows)
        reached = schedule.results if schedule.results else orsched.summarise(instance, schedule)
        name, _, figure = objective.partition("_")
        assert proven(instance, bound, objective).value_ns <= reached[f"{name}_ns"][figure]
    times, own = request_times(instance, schedule), needs(instance, allows)
    if own is None or instance.workers[0].memory is not None:  # caches cut prompts
        return
    late = [times[name] - own.arrivals for name in ("first_token_ns", "finish_ns")]
    limits = [int(dice.choice(each.tolist())) for each in late]
    count = int(np.logical_and.reduce([a <= b for a, b in zip(late, limits, strict=True)]).sum())
    limited = replace(own, first_due=own.arrivals + limits[0], due=own.arrivals + limits[1])
    for _ in range(20):
        prices = any_prices(dice, own, int(times["finish_ns"].max()))
        assert most_in_time(limited, prices) >= count


@settings(max_examples=SOME // 3)
@given(small(most=3, late=(0, 40, 100)))
def test_bounds_are_at_most_what_is_possible(instance):
    """INV-10: each percentile, and the attainment; each bound proven by its certificate."""
    for objective, limit in ((name, 0) for name in PERCENTILES):
        bound = proven(instance, orsched.bound(instance, objective), objective)
        limit = bound.value_ns - 1
        limits = (limit, NEVER) if objective.startswith("ttft") else (NEVER, limit)
        assert most_of(instance, *limits) < rank_of(objective, len(instance))
    limited = limited_by(instance, SLO(ttft_ns=60))
    bound = proven(limited, orsched.bound(limited, "slo_attainment"), "slo_attainment")
    missed = bound.certificate.get("missed", 0)
    assert missed <= len(instance) - most_of(instance, 60, NEVER)


def test_first_tokens_wait_for_clients():
    """Three equal requests on one client: 17 ns to a first token, 561 in all; the third starts
    when two have ended."""
    instance = decoding([1] * 3, [50] * 3, Worker(1, SLOW))
    bound = proven(instance, orsched.bound(instance, "ttft_p99"), "ttft_p99")
    least = 2 * (6 + 50 * 11) + 17
    assert 0.99 * least < bound.value_ns <= least
    assert proven(instance, orsched.bound(instance, "ttft_p50"), "ttft_p50").value_ns <= 556 + 17
    assert orsched.bound(instance, "ttft_p99", allows=["restarts"]).value_ns < 100
    limited = limited_by(instance, SLO(ttft_ns=560))
    bound = proven(limited, orsched.bound(limited, "slo_attainment"), "slo_attainment")
    assert (bound.certificate["missed"], bound.certificate["requests"]) == (2, 3)


def test_a_request_holds_its_client_from_its_first_token_on():
    """Three that arrive one after the other: each has to start while the one before is there."""
    requests = Requests([1] * 3, [50] * 3, arrival_ns=[0, 100, 200])
    instance = Instance(requests, Worker(1, SLOW), first_token="decode")
    limited = limited_by(instance, SLO(ttft_ns=300))
    bound = proven(limited, orsched.bound(limited, "slo_attainment"), "slo_attainment")
    assert bound.certificate["missed"] == 2
    own = judged(limited, needs(limited))
    assert own.first_due.tolist() == [300, 400, 500]
    assert within(needs(limited), "jct_p99", 7).due.tolist() == [7, 107, 207]


def test_a_changed_certificate_does_not_prove_the_value():
    instance = decoding([1] * 6, [50] * 6, Worker(2, SLOW))
    good = orsched.bound(instance, "ttft_p99").to_dict()
    claim = good["certificate"]
    assert bound_violations(instance, good, "ttft_p99") == []
    count = len(claim["moments"])
    changes = (
        {"value_ns": 2 * claim["value_ns"]}, {"held": [0] * count}, {"time": [0] * count},
        {"held": [1] * count}, {"moments": claim["moments"][1:]}, {"one": 1}, {"held": [0]},
        {"one": 0}, {"time": [0.5] * count}, {"moments": claim["moments"][::-1]},
        {"time": [2**61] * (count - 1) + [0]}, {"allows": ["restarts"]}, {"extra": 1},
    )  # fmt: skip
    for change in changes:
        changed = {**claim, **change}
        document = {**good, "value_ns": changed["value_ns"], "certificate": changed}
        assert bound_violations(instance, document, "ttft_p99"), change
    assert bound_violations(instance, good, "jct_p50")
    assert bound_violations(instance, good, "mean_ttft")


def test_rows_have_the_bound_of_their_objective():
    """What a policy reaches is judged by the limits that it was given, and by percentiles."""
    instance = orsched.load("pang-100x20")
    slo = SLO(ttft_s=10)
    found = orsched.compare(instance, ["fcfs", "hybrid"], objective="slo_attainment", slo=slo)
    for result in found.results:
        assert result.objective_value <= result.objective_bound < 0.6
    late = orsched.compare(instance, ["fcfs", "hybrid"], objective="ttft_p99")
    for result in late.results:
        row = result.to_row()
        assert 0.7 * row["ttft_p99_s"] < row["objective_bound"] <= row["ttft_p99_s"]
    with pytest.raises(InputError, match="no request has a limit"):
        orsched.bound(instance, "slo_attainment")


@pytest.mark.parametrize("seed", range(40))
def test_no_prices_of_starts_prove_more_than_the_least_tardiness(seed):
    """INV-10: whatever windows and prices a certificate chooses, and those of the search."""
    instance, dice = due(seed, 3), random.Random(seed)
    least, context = optimum(instance, "weighted_tardiness_mean"), Context(instance)
    jobs = Due(context).jobs()
    for _ in range(20):
        moments = sorted({0, *(dice.randint(1, 400) for _ in range(dice.randint(0, 4)))})
        held = [*(dice.choice((0, 7, 60, 400)) for _ in moments[1:]), 0]
        claim = {"moments": moments, "held": held, "one": dice.choice((1, 20, 90))}
        assert least_late(jobs, claim) <= least
    assert least_late(jobs, start_prices(jobs, lambda: False)) <= least


def test_late_ends_are_priced_by_the_clients_that_they_hold():
    """Four equal requests on one client, due when the first can end: 1, 2 and 3 times 556 ns late,
    whole numbers larger than 64 bits in between."""
    requests = Requests([1] * 4, [50] * 4, deadline_s=[556e-9] * 4, weights=[10**6] * 4)
    instance = Instance(requests, Worker(1, SLOW), first_token="decode")
    bound = orsched.bound(instance, "weighted_tardiness_mean")
    least = 6 * 556 * 10**6
    assert bound.name in ("starts", "tardy")
    assert 0.95 * least < proven(instance, bound, "weighted_tardiness_mean").certificate["sum_ns"]
    jobs = Due(Context(instance)).jobs()
    claim = start_prices(jobs, lambda: False)
    assert 0.95 * least < least_late(jobs, claim) <= least
    large = {**claim, "held": [each << 40 for each in claim["held"]], "one": claim["one"] << 40}
    assert least_late(jobs, large) == least_late(jobs, claim)
    with pytest.raises(ValueError, match="leave its client"):
        Due(Context.allowing(instance, ["restarts"])).jobs()
    document = bound.to_dict()
    assert bound_violations(instance, document, "lateness_max")
