"""The methods ``exact`` and ``auto``."""

from __future__ import annotations

import pytest

import orsched
from orsched import AffineCost, BilinearCost, InputError, Instance, Requests, Worker
from orsched.data.memory import BlockMemory, PrefixCache
from orsched.instances.catalog import KNOWN_OPTIMA
from orsched.models.bounds.bounds import Bound
from orsched.models.exact import choose
from tests.brute_force import optimum_ns
from tests.in_order import in_order

SMALL = Instance(Requests([3, 2, 4], [4, 3, 2]), Worker(2), first_token="decode")


@pytest.mark.parametrize("backend", ["cpsat", "scip"])
def test_exact_proves_a_small_optimum_on_both_back_ends(backend):
    result = orsched.solve(SMALL, "exact", parameters={"backend": backend}, time_limit=600)
    assert result.makespan_ns == optimum_ns(SMALL)
    assert result.status == "optimal"
    assert result.checked
    assert result.gap == 0
    assert result.certified
    assert not any("without a certificate" in note for note in result.notes)


@pytest.mark.parametrize("backend", ["cpsat", "scip"])
def test_a_proof_beyond_the_certified_bound_is_said_to_have_no_certificate(backend, monkeypatch):
    weak = Bound(
        "last_arrival",
        value_ns=0,
        certificate={"bound": "last_arrival", "value_ns": 0},
        reference={},
    )
    for module in ("models.bounds.bounds", "models.exact_search.starts", "solving.checked_run"):
        monkeypatch.setattr(f"orsched.{module}.bound", lambda *_, **__: weak)
    result = orsched.solve(SMALL, "exact", parameters={"backend": backend}, time_limit=600)
    assert (result.status, result.termination) == ("optimal", "finished")
    assert (result.bound_ns, result.certified) == (0, False)
    (note,) = [note for note in result.notes if "without a certificate" in note]
    assert f"{backend} proved that {result.best_of} take at least {result.makespan:.6f} s" in note


def test_exact_searches_best_first_where_nothing_arrives_late_and_says_what_it_proved():
    instance = orsched.load("gate")
    result = orsched.solve(instance, "exact", time_limit=600)
    assert (result.status, result.schedule.method) == ("optimal", "exact")
    assert result.checked
    assert not any(note.startswith("K =") for note in result.notes)
    (note,) = [note for note in result.notes if "without a certificate" in note]
    assert note.startswith("the best-first search proved")
    assert not result.certified
    by_mip = orsched.solve(instance, "exact", parameters={"search": "mip"}, time_limit=600)
    assert by_mip.makespan_ns == result.makespan_ns
    assert any(note.startswith("K =") for note in by_mip.notes)


def test_exact_takes_the_mip_where_requests_arrive_over_time():
    late = orsched.load("with-arrivals")
    result = orsched.solve(late, "exact", time_limit=600)
    assert any(note.startswith("K =") for note in result.notes)
    with pytest.raises(InputError, match="arrive over time") as caught:
        orsched.solve(late, "exact", parameters={"search": "best_first"})
    assert caught.value.field == "search"


@pytest.mark.parametrize("parameters", [{"search": "best_first", "stages": 3}, {"search": "depth"}])
def test_searches_that_make_no_sense_are_refused(parameters):
    with pytest.raises(InputError):
        orsched.solve(SMALL, "exact", parameters=parameters)


def test_a_callback_and_a_target_gap_reach_the_best_first_search():
    seen = []
    instance = orsched.load("gate")
    result = orsched.solve(instance, "exact", callback=seen.append, stop=orsched.TargetGap(0.9))
    assert result.termination == "target_gap"
    assert seen


@pytest.mark.parametrize("name", ["two-by-two", "packing"])
def test_exact_meets_known_optima(name):
    result = orsched.solve(orsched.load(name), "exact", time_limit=600)
    assert result.makespan_ns == KNOWN_OPTIMA[name].makespan_ns


def test_a_hopeless_size_is_answered_by_heuristic_and_bound():
    result = orsched.solve(orsched.load("gsm8k-llama65b"), "exact", time_limit=600)
    assert result.schedule.method == "exact"
    assert result.gap < 0.02
    assert result.status == "feasible"
    assert any("nonzeros, more than the 2,000,000 that are built" in note for note in result.notes)


def test_auto_says_what_it_picked():
    assert choose(SMALL)[0] == "exact"
    assert choose(orsched.load("pang-100x20"))[0] == "windows"
    late = Instance(
        Requests([1] * 20, [2] * 20, arrival_ns=range(20)), Worker(2), first_token="decode"
    )
    assert choose(late)[0] == "hybrid"
    bilinear = Worker(2, in_order(BilinearCost, 1, 1, 1, 1, 1, 1, 1, 1))
    assert choose(SMALL.replace(workers=(bilinear,)))[0] == "hybrid"
    result = orsched.solve(SMALL, "auto", time_limit=600)
    assert result.makespan_ns == optimum_ns(SMALL)
    assert any("auto picked exact" in note for note in result.notes)


@pytest.mark.parametrize(("method", "parameters"), [("exact", {"x": 1}), ("auto", {"x": 1})])
def test_unknown_parameters_are_refused(method, parameters):
    with pytest.raises(InputError) as caught:
        orsched.solve(SMALL, method, parameters=parameters)
    assert caught.value.field == "parameters"


def test_unknown_back_ends_are_refused():
    with pytest.raises(InputError, match="gurobi"):
        orsched.solve(SMALL, "exact", parameters={"backend": "gurobi"})


@pytest.mark.parametrize(
    ("memory", "says"),
    [
        (BlockMemory(6, 4, "paged"), None),
        (BlockMemory(5, 4, "paged"), "--allocation whole"),
        (BlockMemory(6, 4, "paged", PrefixCache()), "--allocation whole"),
    ],
)
def test_paged_memory_that_never_limits_is_none(memory, says):
    """Two clients, and the largest two of three requests hold 3 blocks of 4 tokens each."""
    requests, cost = Requests([4, 5, 2], [5, 6, 3]), in_order(AffineCost, 5, 0, 3, 0)
    instance = Instance(requests, (Worker(2, cost, memory=memory),), first_token="decode")
    if says is not None:
        with pytest.raises(InputError, match=says):
            orsched.solve(instance, "exact")
        assert "paged memory" in choose(instance)[1]
        return
    free = instance.replace(workers=(Worker(2, cost),))
    found, known = orsched.solve(instance, "exact"), orsched.solve(free, "exact")
    assert (found.makespan, found.status) == (known.makespan, known.status)
