"""Arrival laws: their rates and burstiness, their seeds, and what they leave alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import orsched
from orsched import Worker
from orsched.instances import read_arrivals, sampled, with_arrivals
from orsched.instances.arrivals import LAWS
from orsched.instances.catalog import generate
from tests.decoding import decoding
from tests.refusals import refusal

SPECS = [
    "poisson:rate=10", "gamma:rate=10,cv=2", "gamma:rate=10,cv=0", "replay:scale=1.5",
    "replay:rate=3", "replay", "onoff:rate=20,on_s=2,off_s=6",
    "onoff:rate=20,on_s=2,off_s=6,off_rate=1", "bursts:rate=10,size=20", "at_once",
]  # fmt: skip


def of(count, **columns):
    return decoding([1] * count, [1] * count, Worker(1), **columns)


def gaps_s(instance):
    return np.diff(np.sort(instance.requests.arrival_ns)) / 1e9


@pytest.mark.parametrize("spec", SPECS)
def test_a_law_and_its_specification_say_the_same(spec):
    law = read_arrivals(spec)
    assert read_arrivals(law.spec()) == law
    assert read_arrivals(law) is law
    given = with_arrivals(generate("uniform", requests=50, clients=2, rate=1.0), spec, 3)
    again = with_arrivals(generate("uniform", requests=50, clients=2, rate=1.0), law, 3)
    assert given == again
    assert given.requests.arrival_ns.min() >= 0


def test_every_law_is_covered_and_may_have_nothing_to_arrive():
    assert {spec.partition(":")[0] for spec in SPECS} == set(LAWS)
    for spec in SPECS:
        if spec != "replay:rate=3":
            assert len(with_arrivals(of(0), spec)) == 0


@pytest.mark.parametrize(("spec", "rate", "cv"), [
    ("poisson:rate=10", 10, 1), ("gamma:rate=10,cv=2", 10, 2), ("gamma:rate=10,cv=0.5", 10, 0.5),
    ("gamma:rate=10,cv=0", 10, 0), ("onoff:rate=20,on_s=0.2,off_s=0.6", 5, None),
    ("onoff:rate=20,on_s=0.2,off_s=0.6,off_rate=4", 8, None),
    ("bursts:rate=10,size=5", 10, 3),
])  # fmt: skip
def test_rates_and_variations_are_those_asked_for(spec, rate, cv):
    """Within four standard errors of the law; bursts of size m have gaps of CV^2 2m - 1."""
    gaps = gaps_s(with_arrivals(of(40_000), spec, 1))
    assert abs(1 / gaps.mean() - rate) < 0.08 * rate
    if cv is not None:
        assert abs(gaps.std() / gaps.mean() - cv) < 0.06 * max(cv, 0.1)


def test_phases_have_the_lengths_asked_for():
    gaps = gaps_s(with_arrivals(of(40_000), "onoff:rate=100,on_s=1,off_s=9", 2))
    silences = gaps[gaps > 0.5]
    # An exponential silence of 9 s given that it exceeds 0.5 s; two short gaps end it.
    assert abs(silences.mean() - 9.5) < 1.5
    assert abs(len(silences) - 400 * np.exp(-0.5 / 9)) < 80


@pytest.mark.parametrize("spec", [s for s in SPECS if not s.startswith(("replay", "at_once"))])
def test_the_seed_decides_and_further_requests_change_nothing(spec):
    def times(count, seed):
        return with_arrivals(of(count), spec, seed).requests.arrival_ns.tolist()

    assert times(100, 1) == times(100, 1)
    assert times(200, 1)[:100] == times(100, 1)
    if "cv=0" not in spec:
        assert times(100, 1) != times(100, 2)


@given(
    st.lists(st.integers(0, 10**12), min_size=1, max_size=20),
    st.fractions(min_value="1/100", max_value=100),
)
def test_replays_scale_every_gap_by_the_same_factor(times, scale):
    law = {"law": "replay", "scale": float(scale)}
    found = with_arrivals(of(len(times), arrival_ns=times), law).requests.arrival_ns
    expected = (np.array(times) - min(times)) / float(scale)
    assert np.abs(found - expected).max() <= 0.5 + 1e-6 * expected.max()
    assert found.min() == 0


def test_replays_take_the_trace_as_it_is_or_to_a_rate():
    times = [5, 5, 10, 25]
    plain = with_arrivals(of(4, arrival_ns=times), "replay")
    assert plain.requests.arrival_ns.tolist() == [0, 0, 5, 20]
    to_rate = with_arrivals(of(4, arrival_ns=times), "replay:rate=0.5")
    assert to_rate.requests.arrival_ns.tolist() == [0, 0, 1_500_000_000, 6_000_000_000]


@pytest.mark.parametrize("spec", SPECS)
def test_requests_keep_their_rows_and_the_order_in_which_they_came(spec):
    times = [7, 3, 3, 9, 0]
    before = of(5, arrival_ns=times, ids=list("abcde"), service_class=[0, 1, 0, 1, 1])
    after = with_arrivals(before, spec, 1)
    moved = after.requests.arrival_ns
    order = [4, 1, 2, 0, 3]
    assert spec == "at_once" or (np.diff(moved[order]) >= 0).all()
    assert after.requests.replace(arrival_ns=times) == before.requests
    assert after.workers == before.workers


def test_classes_follow_the_arrivals_only_where_they_came_from_them():
    offline = of(3)
    online = with_arrivals(offline, "poisson:rate=1")
    assert offline.requests.service_class.tolist() == [1, 1, 1]
    assert online.requests.service_class.tolist() == [0, 0, 0]
    assert with_arrivals(online, "at_once").requests == offline.requests
    chosen = of(3, service_class=[0, 1, 1])
    assert with_arrivals(chosen, "poisson:rate=1").requests.service_class.tolist() == [0, 1, 1]


REFUSED = [
    ("nothing", "arrivals", "unknown law 'nothing'"), ("", "arrivals", "unknown law ''"),
    (3, "arrivals", "not a specification"), ({"rate": 3}, "arrivals", "unknown law"),
    ("poisson", "arrivals", "lacks rate"), ("gamma:rate=3", "arrivals", "lacks cv"),
    ("poisson:rate=3,rate=4", "arrivals", "given twice"), ("poisson:3", "arrivals", "NAME=VALUE"),
    ("poisson:rate=3,cv=2", "arrivals", "no parameter 'cv'"),
    ("at_once:rate=3", "arrivals", "it has none"), ("poisson:rate=0", "arrivals.rate", "above 0"),
    ("poisson:rate=-3", "arrivals.rate", "above 0"),
    ("poisson:rate=NaN", "arrivals.rate", "above 0"),
    ("poisson:rate=Infinity", "arrivals.rate", "above 0"),
    ("poisson:rate=fast", "arrivals.rate", "'fast'"),
    ("poisson:rate=true", "arrivals.rate", "True"), ("poisson:rate=[3]", "arrivals.rate", "[3]"),
    ("gamma:rate=3,cv=-1", "arrivals.cv", "from 0"),
    ("gamma:rate=3,cv=1e9", "arrivals.cv", "to 100"),
    ("replay:scale=0", "arrivals.scale", "above 0"),
    ("replay:scale=1,rate=2", "arrivals.rate", "say the same"),
    ("replay:rate=3", "arrivals.rate", "no rate to scale"),
    ("onoff:rate=3,on_s=0,off_s=1", "arrivals.on_s", "give seconds"),
    ("onoff:rate=3,on_s=1,off_s=1,off_rate=4", "arrivals.off_rate", "at most rate"),
    ("bursts:rate=3,size=0.5", "arrivals.size", "from 1"),
    ("poisson:rate=1e-10", "arrivals", "2**61"),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "field", "problem"), REFUSED)
def test_what_is_wrong_is_named(spec, field, problem):
    error = refusal(with_arrivals, of(20), spec)
    assert error.field == field
    assert problem in str(error)


def test_wrong_seeds_are_named():
    for seed in (-1, 1.5, "1", None):
        assert "seed" in str(refusal(with_arrivals, of(3), "at_once", seed))


def test_samples_are_rows_of_the_instance():
    whole = generate("peers", requests=50, clients=4)
    part = sampled(whole, 200, seed=3)
    pairs = set(zip(whole.requests.prompt_tokens, whole.requests.output_tokens, strict=True))
    drawn = list(zip(part.requests.prompt_tokens, part.requests.output_tokens, strict=True))
    assert len(drawn) == 200
    assert set(drawn) <= pairs
    assert len(set(drawn)) > 40
    assert not part.requests.arrival_ns.any()
    assert sampled(whole, 200, seed=3) == part
    assert sampled(whole, 200, seed=4).requests != part.requests
    assert len(sampled(whole, 0)) == 0
    assert "no requests to draw from" in str(refusal(sampled, of(0), 3))


def test_what_arrives_can_be_scheduled_and_checked():
    instance = with_arrivals(generate("uniform", requests=40, clients=4), "bursts:rate=2,size=5", 1)
    result = orsched.solve(instance, "fcfs")
    assert result.checked
    assert result.bound_ns >= int(instance.requests.arrival_ns.max())
