"""What pack says is optimal is proven: the checker accepts it, and no tampering."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.speed.assignment_model import solve_assignment
from benchmarks.speed.packing_families import FAMILIES, lawrinenko, planted, triplets
from orsched.checker.certificates import packing_violations
from orsched.common.errors import InputError
from orsched.common.stop import Clock
from orsched.instances.synthetic import output_tokens
from orsched.models import packing as packing_module
from orsched.models.packing import pack, packing_bound


def brute_force(jobs, clients):
    """The optimum by all assignments, the first job on client 0."""
    best = sum(jobs)
    for others in product(range(clients), repeat=max(0, len(jobs) - 1)):
        loads = [0] * clients
        for job, client in zip(jobs, (0, *others), strict=bool(jobs)):
            loads[client] += job
        best = min(best, max(loads))
    return best


def packed(jobs, clients, **options):
    """The packing, which is what the checker takes it for."""
    result = pack(jobs, clients, **options)
    assert packing_violations(jobs, clients, result) == []
    return result


@settings(max_examples=60)
@given(st.lists(st.integers(0, 40), max_size=8), st.integers(1, 4))
def test_brute_force_optimum_is_found_and_certified(jobs, clients):
    result = packed(jobs, clients)
    assert result.makespan == brute_force(jobs, clients)
    assert packing_bound(jobs, clients)["value"] <= result.bound <= result.makespan
    assert result.optimal == (result.bound == result.makespan)


@pytest.mark.parametrize(
    ("family", "seed", "solver"),
    [
        *product(["E4"], (1, 3), ("cp-sat", "scip")),
        *(
            pytest.param(("E1", "E3", "E4")[k % 3], 200 + k, "cp-sat", marks=pytest.mark.full)
            for k in range(30)
        ),
    ],
)
def test_up_to_thirty_jobs_equal_the_assignment_model(family, seed, solver):
    packing = FAMILIES[family](seed)
    if seed >= 200 and len(packing.jobs) > 30:
        return
    reference = solve_assignment(packing.jobs, packing.clients, solver, time_limit=600)
    result = pack(packing.jobs, packing.clients)
    assert max(result.bound, reference.bound) <= min(result.makespan, reference.makespan)
    assert reference.optimal or seed >= 200
    assert result.makespan == reference.makespan or not reference.optimal


def dual_result():
    """A result that only the duals prove: the formulas are too weak."""
    packing = lawrinenko(1, 0)
    result = packed(packing.jobs, packing.clients)
    assert result.optimal
    assert result.certificate["bound"] == "dual"
    return packing, result


CHANGES = (
    {"value": 10**6}, {"duals": []}, {"duals": [[10**9, 1]]}, {"duals": "none"}, {"bound": "faith"},
    {"bound": "lifted", "k": 10**9, "l": 1},
)  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_changed_certificates_are_rejected(change):
    packing, result = dual_result()
    forged = replace(result, certificate={**result.certificate, **change})
    if "value" in change:
        forged = replace(forged, bound=change["value"], makespan=change["value"])
    assert packing_violations(packing.jobs, packing.clients, forged) != []


def test_changed_results_are_rejected():
    (jobs, clients, _), result = dual_result()
    pairs = [[size, -value] for size, value in result.certificate["duals"]]
    first, *moved = result.assignment
    first = (first + 1) % clients
    for change, said in (
        ({"certificate": {**result.certificate, "duals": pairs}}, "cannot be read"),
        ({"bound": result.bound + 1, "optimal": False}, "proves"),
        ({"assignment": [first, *moved[:-1]]}, ""),
        ({"assignment": [-1, *moved]}, ""),
        ({"makespan": result.makespan + 1}, ""),
        ({"optimal": False}, ""),
        ({"assignment": [0] * len(jobs)}, "largest load"),
    ):
        assert said in packing_violations(jobs, clients, replace(result, **change))[0]


def test_exhaustive_search_proves_what_no_duals_do():
    """The linear program packs into less; guided attempts or branching find the proof."""
    pytest.importorskip("numba")
    packing = lawrinenko(5, 1000)
    result = packed(packing.jobs, packing.clients)
    assert result.optimal
    assert result.certificate["bound"] in ("cover", "tree")
    proof = {name: field for name, field in result.certificate.items() if name != "tree"}
    duals_alone = replace(result, certificate={**proof, "bound": "dual"})
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


@pytest.mark.parametrize(("rule", "seed"), [(planted, 0), (planted, 1), (triplets, 0)])
def test_planted_optima_are_found(rule, seed):
    packing = rule(seed)
    result = packed(packing.jobs, packing.clients)
    assert (result.makespan, result.optimal) == (packing.optimum, True)


@pytest.mark.parametrize("family", ["L5", "L6", "E3", "BIG", "U3", "NU2"])
def test_hard_families_are_proven_and_reproducible(family):
    packing = FAMILIES[family](1)
    result = packed(packing.jobs, packing.clients, seed=5)
    assert result.optimal
    assert pack(packing.jobs, packing.clients, seed=5) == result


def test_a_time_limit_still_gives_a_packing_and_a_bound():
    packing = FAMILIES["H"](4)
    result = packed(packing.jobs, packing.clients, time_limit=0.05)
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
    result = packed(packing.jobs, packing.clients)
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
    assert packed(FAMILIES["L1"](3).jobs, 7).interrupted


@pytest.mark.full
@pytest.mark.parametrize("family", [f for f in FAMILIES if f not in ("H", "X", "G", "W")])
def test_sweep_of_the_families(family):
    """Every answer is certified; all but the hardest are proven."""
    proven = 0
    for seed in range(100, 105):
        packing = FAMILIES[family](seed)
        result = packed(packing.jobs, packing.clients, time_limit=600)
        if packing.optimum is not None:
            assert result.bound <= packing.optimum <= result.makespan
        proven += result.optimal
    assert proven >= (4 if family in ("L6", "L7") else 5)


@pytest.mark.full
def test_all_hundred_main_instances_are_proven():
    for seed in range(100):
        packing = FAMILIES["G"](seed)
        assert packed(packing.jobs, packing.clients).optimal


def test_main_instances_are_packed_to_the_bound():
    """1,319 lengths on 200 clients: proven optimal, as PCMAX.md section 5 expects."""
    for seed in range(5):
        result = pack(output_tokens(1319, seed), 200)
        assert result.optimal
        assert result.makespan == -(-sum(output_tokens(1319, seed).tolist()) // 200)


def test_a_gap_ends_the_packing_sooner():
    jobs = [68, 66, 61, 57, 52, 49, 43, 38, 31, 30, 22, 17] * 3
    results = {gap: packed(jobs, 7, gap=gap) for gap in (0.0, 0.01, 0.5)}
    assert results[0.0] == pack(jobs, 7)
    for gap, result in results.items():
        assert (result.makespan - result.bound) <= gap * result.bound or not gap
    assert results[0.5].makespan > results[0.0].makespan
    with pytest.raises(InputError, match="is not a gap"):
        pack(jobs, 7, gap=5)


@pytest.mark.parametrize("limit", [None, 1.0, float("inf")])
def test_sums_near_the_edge_of_the_numbers(limit):
    for jobs, clients in (([2**53] * 512, 7), ([2**53 - k * k for k in range(9)], 4)):
        result = packed(jobs, clients, time_limit=limit)
        assert result.makespan >= result.bound >= -(-sum(jobs) // clients)
    packed([2**50 + k for k in (0, 5, 9, 14, 20)], 2, time_limit=limit)
    assert len(set(pack([3, 2, 1], 5, time_limit=limit).assignment)) == 3


JOBS = (
    [-1], [1.5], [float("nan")], ["a"], [1, None], [float("inf")], [True], [2**53 + 1], [2**70],
    [2**53] * 513, [2**53] * 600, [[1, 2], [3, 4]], 7, "12",
)  # fmt: skip
NUMBERS = (-1, True, float("nan"), "0", 1.5, None)


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        *(("processing_times", {"processing_times": jobs}) for jobs in JOBS),
        *(("clients", {"clients": many}) for many in (0, -3, True, None, 1.5, float("nan"), 2**70)),
        *(
            ("time_limit", {"time_limit": limit})
            for limit in (0, -1, float("nan"), float("-inf"), "1", True)
        ),
        *((name, {name: value}) for name in ("seed", "moves") for value in NUMBERS),
    ],
)
def test_bad_packing_input_is_refused(field, arguments):
    with pytest.raises(InputError) as caught:
        pack(**{"processing_times": [3, 2, 1], "clients": 2, **arguments})
    assert caught.value.field == field
