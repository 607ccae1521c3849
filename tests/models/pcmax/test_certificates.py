"""What pack says is optimal is proven: the checker accepts it, and no tampering."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.speed.packing_families import FAMILIES, lawrinenko, planted, triplets
from orsched.checker.certificates import packing_violations
from orsched.common.errors import InputError
from orsched.common.stop import Clock
from orsched.instances.synthetic import output_tokens
from orsched.models import packing as packing_module
from orsched.models.packing import pack, packing_bound
from orsched.models.pcmax.assignment import solve_assignment


def brute_force(jobs, clients):
    """The optimum by all assignments, the first job on client 0."""
    best = sum(jobs)
    for others in product(range(clients), repeat=max(0, len(jobs) - 1)):
        loads = [0] * clients
        for job, client in zip(jobs, (0, *others), strict=bool(jobs)):
            loads[client] += job
        best = min(best, max(loads))
    return best


@settings(max_examples=60)
@given(st.lists(st.integers(0, 40), max_size=8), st.integers(1, 4))
def test_brute_force_optimum_is_found_and_certified(jobs, clients):
    result = pack(jobs, clients)
    assert packing_violations(jobs, clients, result) == []
    optimum = brute_force(jobs, clients)
    assert result.makespan == optimum
    assert result.bound <= optimum


@pytest.mark.parametrize("seed", range(4))
def test_twelve_jobs_equal_brute_force(seed):
    jobs = FAMILIES["E2"](seed + 40).jobs[:11]
    result = pack(jobs, 3)
    assert result.makespan == brute_force(jobs, 3)
    assert packing_violations(jobs, 3, result) == []


@pytest.mark.parametrize("solver", ["cp-sat", "scip"])
@pytest.mark.parametrize("seed", [1, 3])
def test_small_cases_equal_the_assignment_model(solver, seed):
    packing = FAMILIES["E4"](seed)
    reference = solve_assignment(packing.jobs, packing.clients, solver, time_limit=600)
    result = pack(packing.jobs, packing.clients)
    assert reference.optimal
    assert result.makespan == reference.makespan == reference.bound
    assert result.bound <= reference.makespan


def dual_result():
    """A result that only the duals prove: the formulas are too weak."""
    packing = lawrinenko(1, 0)
    result = pack(packing.jobs, packing.clients)
    assert result.optimal
    assert result.certificate["bound"] == "dual"
    return packing, result


def test_duals_prove_what_no_formula_does():
    packing, result = dual_result()
    assert packing_violations(packing.jobs, packing.clients, result) == []


@pytest.mark.parametrize(
    "change",
    [
        {"value": 10**6},
        {"duals": []},
        {"duals": [[10**9, 1]]},
        {"duals": "none"},
        {"bound": "faith"},
        {"bound": "lifted", "k": 10**9, "l": 1},
    ],
)
def test_changed_certificates_are_rejected(change):
    packing, result = dual_result()
    forged = replace(result, certificate={**result.certificate, **change})
    if "value" in change:
        forged = replace(forged, bound=change["value"], makespan=change["value"])
    assert packing_violations(packing.jobs, packing.clients, forged) != []


def cover_result():
    """A result whose bound no duals prove: the linear program packs into less."""
    pytest.importorskip("numba")  # guided attempts find the proof
    packing = lawrinenko(5, 1000)
    result = pack(packing.jobs, packing.clients)
    assert result.certificate["bound"] == "cover"
    return packing, result


def test_exhaustive_search_proves_what_no_duals_do():
    packing, result = cover_result()
    assert result.optimal
    assert packing_violations(packing.jobs, packing.clients, result) == []
    duals_alone = replace(result, certificate={**result.certificate, "bound": "dual"})
    assert packing_violations(packing.jobs, packing.clients, duals_alone) != []


@settings(max_examples=40)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=7), st.integers(1, 3))
def test_the_checkers_search_agrees_with_brute_force(jobs, clients):
    """With the lengths as duals and no other help, the search alone decides."""
    optimum = brute_force(jobs, clients)
    result = pack(jobs, clients)
    for value, right in ((optimum, True), (optimum + 1, False)):
        duals = [[job, job] for job in sorted(set(jobs))]
        certificate = {"bound": "cover", "value": value, "duals": duals}
        claimed = replace(result, bound=value, optimal=right, certificate=certificate)
        assert (packing_violations(jobs, clients, claimed) == []) == right


def test_negative_duals_and_a_bound_beyond_the_certificate_are_rejected():
    packing, result = dual_result()
    pairs = [[size, -value] for size, value in result.certificate["duals"]]
    negative = replace(result, certificate={**result.certificate, "duals": pairs})
    assert "cannot be read" in packing_violations(packing.jobs, packing.clients, negative)[0]
    higher = replace(result, bound=result.bound + 1, optimal=False)
    assert "proves" in packing_violations(packing.jobs, packing.clients, higher)[0]


def test_changed_packings_are_rejected():
    packing, result = dual_result()
    moved = [*result.assignment]
    moved[0] = (moved[0] + 1) % packing.clients
    jobs, clients = packing.jobs, packing.clients
    assert packing_violations(jobs, clients, replace(result, assignment=moved[:-1]))
    assert packing_violations(jobs, clients, replace(result, assignment=[-1, *moved[1:]]))
    assert packing_violations(jobs, clients, replace(result, makespan=result.makespan + 1))
    assert packing_violations(jobs, clients, replace(result, optimal=False))
    heavy = replace(result, assignment=[0] * len(jobs))
    assert "largest load" in packing_violations(jobs, clients, heavy)[0]


@pytest.mark.parametrize(("rule", "seed"), [(planted, 0), (planted, 1), (triplets, 0)])
def test_planted_optima_are_found(rule, seed):
    packing = rule(seed)
    result = pack(packing.jobs, packing.clients)
    assert result.makespan == packing.optimum
    assert result.optimal
    assert packing_violations(packing.jobs, packing.clients, result) == []


@pytest.mark.parametrize("family", ["L5", "L6", "E3", "BIG", "U3", "NU2"])
def test_hard_families_are_proven_and_reproducible(family):
    packing = FAMILIES[family](1)
    result = pack(packing.jobs, packing.clients, seed=5)
    assert result.optimal
    assert packing_violations(packing.jobs, packing.clients, result) == []
    assert pack(packing.jobs, packing.clients, seed=5) == result


def test_a_time_limit_still_gives_a_packing_and_a_bound():
    packing = FAMILIES["H"](4)
    result = pack(packing.jobs, packing.clients, time_limit=0.05)
    assert packing_violations(packing.jobs, packing.clients, result) == []
    assert 0 < result.bound <= result.makespan


@pytest.mark.parametrize("after", [1, 40, 400, 1500])
@pytest.mark.parametrize("family", ["H", "L6", "G"])
def test_ctrl_c_gives_the_best_packing_so_far_with_its_bound(family, after, monkeypatch):
    """The clock is looked at everywhere; there the interrupt comes, on the n-th look."""
    packing = FAMILIES[family](5)
    looks = iter(range(1, 10**9))
    out = Clock.out

    def interrupted(clock):
        if next(looks) == after:
            raise KeyboardInterrupt
        return out(clock)

    monkeypatch.setattr(Clock, "out", interrupted)
    result = pack(packing.jobs, packing.clients)
    assert packing_violations(packing.jobs, packing.clients, result) == []
    assert result.interrupted == (next(looks) > after)
    if result.interrupted:
        with pytest.raises(KeyboardInterrupt):
            result.uninterrupted()
    else:
        assert result.uninterrupted() is result


def test_an_interrupt_amid_a_change_loses_no_job(monkeypatch):
    """A split that took jobs from one client and has not given them to the other yet."""

    def half_done(groups, *_):
        groups[0] = groups[0] + groups[1]
        raise KeyboardInterrupt

    monkeypatch.setattr(packing_module, "repartition", half_done)
    jobs = FAMILIES["L1"](3).jobs
    result = pack(jobs, 7)
    assert result.interrupted
    assert packing_violations(jobs, 7, result) == []


@pytest.mark.parametrize("limit", [0, -1, float("nan"), float("-inf"), "1", True])
def test_wrong_time_limits_are_refused(limit):
    with pytest.raises(InputError) as caught:
        pack([1, 2], 2, time_limit=limit)
    assert caught.value.field == "time_limit"


def test_numbers_at_the_edges():
    assert pack([3, 2], 10**6).makespan == 3
    assert pack([3, 2], 10**6).optimal
    many = pack([2**50] * 7, 3)
    assert (many.makespan, many.optimal) == (3 * 2**50, True)
    odd = pack([2**50 + k for k in (0, 5, 9, 14, 20)], 2)
    assert packing_violations([2**50 + k for k in (0, 5, 9, 14, 20)], 2, odd) == []
    with pytest.raises(InputError, match="sum"):
        pack([2**53] * 600, 3)


def test_unknown_solver_is_refused():
    with pytest.raises(InputError):
        solve_assignment([1], 1, "abacus")
    assert solve_assignment([], 2).makespan == 0


@pytest.mark.full
@pytest.mark.parametrize("family", [f for f in FAMILIES if f not in ("H", "X", "G", "W")])
def test_sweep_of_the_families(family):
    """Every answer is certified; all but the hardest are proven."""
    proven = 0
    for seed in range(100, 105):
        packing = FAMILIES[family](seed)
        result = pack(packing.jobs, packing.clients, time_limit=600)
        assert packing_violations(packing.jobs, packing.clients, result) == []
        if packing.optimum is not None:
            assert result.bound <= packing.optimum <= result.makespan
        proven += result.optimal
    assert proven >= (4 if family in ("L6", "L7") else 5)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(30))
def test_thirty_jobs_equal_cp_sat(seed):
    packing = FAMILIES[("E1", "E3", "E4")[seed % 3]](200 + seed)
    if len(packing.jobs) > 30:
        return
    reference = solve_assignment(packing.jobs, packing.clients, "cp-sat", time_limit=600)
    result = pack(packing.jobs, packing.clients)
    assert reference.bound <= result.makespan
    if reference.optimal:
        assert result.makespan == reference.makespan


@pytest.mark.full
def test_all_hundred_main_instances_are_proven():
    for seed in range(100):
        packing = FAMILIES["G"](seed)
        result = pack(packing.jobs, packing.clients)
        assert result.optimal
        assert packing_violations(packing.jobs, packing.clients, result) == []


def _brute_force(jobs, clients):
    best = sum(jobs)
    for assignment in product(range(clients), repeat=len(jobs)):
        loads = [0] * clients
        for job, client in zip(jobs, assignment, strict=True):
            loads[client] += job
        best = min(best, max(loads))
    return best


@given(st.lists(st.integers(0, 30), max_size=6), st.integers(1, 3))
def test_bound_optimum_packing(jobs, clients):
    result = pack(jobs, clients)
    loads = [0] * clients
    for job, client in zip(jobs, result.assignment, strict=True):
        loads[client] += job
    assert result.makespan == max(loads)
    optimum = _brute_force(jobs, clients)
    assert result.bound <= optimum <= result.makespan
    assert result.optimal == (result.bound == result.makespan)
    assert result.bound >= packing_bound(jobs, clients)["value"]


def test_main_instances_are_packed_to_the_bound():
    """1,319 lengths on 200 clients: proven optimal, as PCMAX.md section 5 expects."""
    for seed in range(5):
        result = pack(output_tokens(1319, seed), 200)
        assert result.optimal
        assert result.makespan == -(-sum(output_tokens(1319, seed).tolist()) // 200)


def test_same_seed_same_packing_and_other_seeds_are_valid():
    jobs = output_tokens(300, 1).tolist()
    assert pack(jobs, 40, seed=3).assignment == pack(jobs, 40, seed=3).assignment
    assert pack(jobs, 40, seed=4).makespan >= packing_bound(jobs, 40)["value"]


def test_a_gap_ends_the_packing_sooner():
    jobs = [68, 66, 61, 57, 52, 49, 43, 38, 31, 30, 22, 17] * 3
    results = {gap: pack(jobs, 7, gap=gap) for gap in (0.0, 0.01, 0.5)}
    assert results[0.0] == pack(jobs, 7)
    for gap, result in results.items():
        assert (result.makespan - result.bound) <= gap * result.bound or not gap
        assert packing_violations(jobs, 7, result) == []
    assert results[0.5].makespan > results[0.0].makespan
    with pytest.raises(InputError, match="is not a gap"):
        pack(jobs, 7, gap=5)


def test_trivial_packings():
    assert pack([], 3).makespan == 0
    assert pack([7], 3).makespan == 7
    assert pack([5, 5, 5], 3).optimal
    assert pack([0, 0], 1).makespan == 0
    assert pack([2**52, 2**52], 1).makespan == 2**53


def test_more_clients_than_requests_and_empty_requests():
    for jobs, clients in (([3, 2], 10**6), ([0, 0, 7], 2**40), ([0] * 5, 3), ([], 1), ([0], 9)):
        result = pack(jobs, clients)
        assert (result.makespan, result.optimal) == (max(jobs, default=0), True)
        assert packing_violations(jobs, clients, result) == []
    assert len(set(pack([3, 2, 1], 5).assignment)) == 3


@pytest.mark.parametrize("limit", [None, 1.0, float("inf")])
def test_sums_near_the_edge_of_the_numbers(limit):
    for jobs, clients in (([2**53] * 512, 7), ([2**53 - k * k for k in range(9)], 4)):
        result = pack(jobs, clients, time_limit=limit)
        assert result.makespan >= result.bound >= -(-sum(jobs) // clients)
        assert packing_violations(jobs, clients, result) == []


@pytest.mark.parametrize(
    ("jobs", "clients", "field"),
    [
        ([-1], 2, "processing_times"),
        ([1.5], 2, "processing_times"),
        ([float("nan")], 2, "processing_times"),
        ([1], 0, "clients"),
        ([1], -3, "clients"),
        (["a"], 2, "processing_times"),
        ([1, None], 2, "processing_times"),
        ([float("inf")], 2, "processing_times"),
        ([True], 2, "processing_times"),
        ([2**53 + 1], 2, "processing_times"),
        ([2**70], 2, "processing_times"),
        ([2**53] * 513, 2, "processing_times"),
        ([[1, 2], [3, 4]], 2, "processing_times"),
        (7, 2, "processing_times"),
        ("12", 2, "processing_times"),
        ([1], True, "clients"),
        ([1], None, "clients"),
        ([1], 1.5, "clients"),
        ([1], float("nan"), "clients"),
        ([1], 2**70, "clients"),
    ],
)
def test_bad_packing_input_is_refused(jobs, clients, field):
    with pytest.raises(InputError) as caught:
        pack(jobs, clients)
    assert caught.value.field == field


@pytest.mark.parametrize("name", ["seed", "moves"])
@pytest.mark.parametrize("value", [-1, True, float("nan"), "0", 1.5, None])
def test_what_is_no_seed_and_no_number_of_moves_is_refused(name, value):
    with pytest.raises(InputError, match=name):
        pack([3, 2, 1], 2, **{name: value})
