"""The models themselves: optima of each objective, sizes known before, files that read back."""

import random
import signal
from array import array
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import orsched
from orsched import SLO, InputError, Instance, LevelsCost, Requests, Termination, Worker, solve
from orsched.data.schedule_classes import allowances_of
from orsched.instances.catalog import load_named
from orsched.metrics.objective_values import objective_value
from orsched.models.exact_search.aims import MissesAim, TimesAim
from orsched.models.exact_search.stage_plan import plan_of, read_problem, schedule_of
from orsched.models.exact_search.starts import served_alone
from orsched.models.full_mip import solve_full_mip
from orsched.models.full_mip.formulation import FullMip, WindowsMip
from orsched.models.full_mip.latency_mip import LatencyMip, bins_that_suffice
from orsched.models.full_mip.linear_solvers import BACKENDS as SOLVERS
from orsched.models.full_mip.linear_solvers import INTEGER, LinearModel
from orsched.models.full_mip.programs import Size, full_mip_size, read_program, windows_mip_size
from orsched.models.full_mip.solve import least_makespan_ns, stages_that_suffice
from orsched.models.mip import file_lines, write_model
from orsched.solving.methods import Outcome
from orsched.solving.objectives import objective_named
from tests.brute_force import least_total, most_attained, optimum_ns
from tests.decoding import decoding
from tests.in_order import in_order
from tests.models.full_mip.small import TIMES, instances, optimum, random_instance, weighted

QUICK = [0, 1, 2, 3, 5, 8, 11, 12, 15, 17, 20, 22, 25, 28, 31]


def solved(instance, model, solver):
    """The optimum of a model, read back through the checker, with its bound and hint tested."""
    solutions, bounds = [], []

    def found(values, objective):
        solutions.append((objective, model.plan_of(values)))

    result = SOLVERS[solver].solve(model.model, None, None, 0, found, bounds.append)
    assert result["status"] == "optimal"
    objective, plan = solutions[-1]
    schedule = schedule_of(instance, plan)
    assert schedule.makespan_ns == model.problem.to_ns(objective)
    assert bounds == sorted(bounds)
    assert bounds[-1] == objective
    values = model.values_of(plan_of(instance, schedule))
    assert model.model.violation(values) is None
    assert model.model.value(values) == objective
    return schedule.makespan_ns


def models(problem, stages):
    return {
        "compact": FullMip(problem, stages),
        "compact, no symmetry": FullMip(problem, stages, symmetry_breaking=False),
        "printed": FullMip(problem, stages, "printed"),
        "as Pang": FullMip(problem, stages, "printed", symmetry_breaking=False),
        "windows": WindowsMip(problem, stages),
        "windows, no symmetry": WindowsMip(problem, stages, symmetry_breaking=False),
    }


@pytest.mark.parametrize("solver", SOLVERS)
def test_back_ends_leave_ctrl_c_to_python(solver):
    """INV: Python's own handler acts after a solve in the same process."""
    instance = load_named("gate")
    solved(instance, FullMip(read_problem(instance), 3), solver)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)  # to this thread: there may be others


@pytest.mark.parametrize("seed", QUICK)
def test_full_mip_window_mip_and_exhaustive_search_agree(seed):
    """INV: one optimum, in both back ends and with the K that is proven to suffice."""
    agree(random_instance(seed, most=4), ["compact", "windows"], ["as Pang"])


@pytest.mark.full
@pytest.mark.parametrize("seed", range(1000, 1240))
def test_all_models_agree_on_240_instances(seed):
    agree(random_instance(seed), ["compact"], ["compact, no symmetry", "printed", "windows"])
    agree(random_instance(seed, most=4), ["as Pang", "windows"], ["windows, no symmetry"])


def agree(instance, in_both, in_cpsat):
    problem = read_problem(instance)
    least = optimum_ns(instance)
    built = models(problem, len(instance))
    for name in in_both:
        for solver in SOLVERS:
            assert solved(instance, built[name], solver) == least, (name, solver)
    for name in in_cpsat:
        assert solved(instance, built[name], "cpsat") == least, name
    enough, _ = stages_that_suffice(problem, orsched.solve(instance, "fcfs").makespan_ns)
    assert solved(instance, FullMip(problem, enough), "cpsat") == least


def size_of(mip):
    return Size(len(mip.model.names), len(mip.model.rows), mip.model.nonzeros)


@given(instances(most=6))
def test_sizes_are_known_before_the_model_is_built(instance):
    problem = read_problem(instance)
    for stages, symmetry in product((1, len(instance)), (False, True)):
        for formulation in ("compact", "printed"):
            built = size_of(FullMip(problem, stages, formulation, symmetry))
            assert built == full_mip_size(problem, stages, formulation, symmetry)
        built = size_of(WindowsMip(problem, stages, symmetry))
        assert built == windows_mip_size(problem, stages, symmetry)


def test_the_size_of_pangs_main_case():
    """INV: 1,319 requests, 200 clients, 45 bins: twelve million p, 261 million rows of (10)."""
    size = full_mip_size(read_problem(load_named("gsm8k-llama65b")), 45, "printed", False)
    assert size.variables > 3 * 11_871_000
    assert size.rows > 2 * 1319 * 200 * 45 * 44 // 2 - 1319 * 200 * 45


@settings(max_examples=25)
@given(instances(most=6))
def test_plans_and_schedules_are_two_forms_of_one_thing(instance):
    """INV: a schedule's plan gives a schedule that is as short, and a solution of each model."""
    problem = read_problem(instance)
    for method in ("fcfs", "hybrid"):
        schedule = orsched.solve(instance, method, iterations=2).schedule
        plan = plan_of(instance, schedule)
        again = schedule_of(instance, plan)
        assert again.makespan_ns <= schedule.makespan_ns
        assert plan_of(instance, again) == plan
        stages = len(plan.rounds)
        assert least_makespan_ns(problem, stages) <= schedule.makespan_ns
        assert stages <= stages_that_suffice(problem, schedule.makespan_ns)[0] <= len(instance)
        for model in models(problem, stages).values():
            values = model.values_of(plan)
            assert model.model.violation(values) is None
            read = model.plan_of(values)
            assert schedule_of(instance, read).makespan_ns == again.makespan_ns
            assert problem.to_ns(model.model.value(values)) == again.makespan_ns


def test_fewer_bins_where_the_incumbent_proves_it():
    """A stage of 1,000 and rounds of 1 each: three stages take longer than two and all rounds."""
    cost = in_order(orsched.AffineCost, 1000, 0, 1, 0)
    instance = decoding([1] * 4, [2, 3, 4, 5], Worker(2, cost))
    problem = read_problem(instance)
    assert stages_that_suffice(problem, None)[0] == 4
    known = optimum_ns(instance)
    assert known == 2 * 1000 + 3 + 5
    enough, reason = stages_that_suffice(problem, known)
    assert enough == 2
    assert "3 stages with the least number of rounds take at least 3007 ns" in reason


def test_levels_bound_the_number_of_stages_together_with_the_tokens():
    cost = LevelsCost(levels=((4, 10), (8, 20), (12, 30)), round_fixed_ns=1)
    problem = read_problem(decoding([4, 4, 4], [1, 1, 1], Worker(3, cost)))
    assert least_makespan_ns(problem, 1) >= 10 + 1
    assert least_makespan_ns(problem, 3) == 3 * 10 + 1


@pytest.mark.parametrize("suffix", [".mps", ".lp", ".MPS"])
@pytest.mark.parametrize("name", ["gate", "with-arrivals"])
def test_an_exported_model_is_that_of_the_program(tmp_path, name, suffix):
    """Solvers read it with the same optimum (``tests/models/mip``)."""
    path, program = tmp_path / f"model{suffix}", read_program(load_named(name), stages=4)
    write_model(program, path)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    assert path.read_text() == "".join(file_lines(program, suffix[1:].lower()))


def test_exports_are_refused_with_a_reason(tmp_path):
    program = read_program(load_named("packing"))
    for reason, file in (("not a suffix", "model.txt"), ("cannot write", "missing/model.mps")):
        with pytest.raises(InputError, match=reason):
            write_model(program, tmp_path / file)
    for reason, name, options in (
        ("nonzeros", "gsm8k-llama65b", {"stages": 45}),
        ("'windows' is unknown", "packing", {"formulation": "windows"}),
    ):
        with pytest.raises(InputError, match=reason):
            read_program(load_named(name), **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("solver", SOLVERS)
def test_an_objective_is_a_sum_of_several_variables(solver):
    """2 x + 3 y - z with x + y >= 4, x <= 3 and z <= 5: x = 3, y = 1, z = 5."""
    model = LinearModel()
    x, y, z = (model.add(name, INTEGER, most) for name, most in (("x", 3), ("y", 9), ("z", 5)))
    model.row("due", [(x, 1), (y, 1)], least=4)
    model.minimise([(x, 2), (y, 3), (z, -1)])
    assert model.objective_upper == 2 * 3 + 3 * 9
    found = []
    SOLVERS[solver].solve(model, None, None, 0, lambda *seen: found.append(seen), lambda _: None)
    values, objective = found[-1]
    assert [round(value) for value in values] == [3, 1, 5]
    assert objective == model.value([3, 1, 5]) == 4


def best_attainment(instance, slo, pauses=False):
    arrivals = instance.requests.arrival_ns.tolist()
    outputs = instance.requests.output_tokens.tolist()

    def met(i, first, finish):
        if slo.ttft_ns is not None and first - arrivals[i] > slo.ttft_ns:
            return False
        paced = slo.tpot_ns is None or outputs[i] < 2
        return paced or (finish - first) // (outputs[i] - 1) <= slo.tpot_ns

    return Fraction(most_attained(instance, met, pauses), len(instance))


def limits(seed, timed):
    """A limit on TTFT, one on TPOT or both; with arrivals none on TPOT, where a wait may help."""
    rng = random.Random(seed)
    ttft, tpot = rng.randint(5, 150), rng.randint(1, 80)
    if timed:
        return SLO(ttft_ns=ttft)
    return rng.choice([SLO(ttft_ns=ttft), SLO(ttft_ns=ttft, tpot_ns=tpot), SLO(tpot_ns=tpot)])


@settings(max_examples=40)
@given(st.integers(0, 2**32))
def test_the_oracle_of_the_makespan_is_that_of_sums(seed):
    instance = random_instance(seed, 4)
    n = len(instance)
    assert least_total(instance, 1, [0] * n, [0] * n) == optimum_ns(instance)


@settings(max_examples=30)
@given(st.integers(0, 2**32), st.sampled_from(TIMES))
def test_bounds_are_below_the_optimum_and_policies_above(seed, objective):
    instance = weighted(seed, 4)
    best = optimum(instance, objective)
    problem = read_problem(instance, exact=True)
    aim = TimesAim(instance, problem, objective_named(objective))
    assert aim.fraction(aim.lower(0, {}, served_alone(instance, problem))) <= best
    for method in ("fcfs", "offline", "gittins@clairvoyant", "mc_sf", "vllm"):
        result = solve(instance, method, objective=objective)
        value = objective_value(instance, result.schedule, objective)
        whole = not {"mixed", "chunks", "restarts"} & allowances_of(instance, result.schedule)
        assert not whole or value >= best
        if result.objective_bound is not None and whole:
            assert Fraction(result.objective_bound) <= best / 10**9 + Fraction(1, 10**12)


@settings(max_examples=30)
@given(st.integers(0, 2**32))
def test_no_more_attain_than_could_alone_and_no_policy_beats_the_best(seed):
    instance = random_instance(seed, 4)
    slo = limits(seed, bool(instance.requests.arrival_ns.any()))
    best = best_attainment(instance, slo)
    problem = read_problem(instance, exact=True)
    aim = MissesAim(instance, problem, slo)
    assert aim.fraction(aim.lower(served_alone(instance, problem))) >= best
    for method in ("fcfs", "offline"):
        result = solve(instance, method, objective="slo_attainment", slo=slo)
        assert result.slo_attainment <= best


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.sampled_from(TIMES), st.sampled_from(["fcfs", "hybrid"]))
def test_schedules_are_solutions_with_the_same_value(seed, objective, method):
    instance = weighted(seed, 6)
    problem = read_problem(instance, exact=True)
    aim = TimesAim(instance, problem, objective_named(objective))
    schedule = solve(instance, method, iterations=1).schedule
    in_round = instance.first_token != "prefill"
    mip = LatencyMip(problem, bins_that_suffice(problem), aim.terms, in_round)
    values = mip.values_of(plan_of(instance, schedule))
    assert mip.model.violation(values) is None
    assert aim.of_units(mip.model.value(values)) == aim.of(schedule)
    again = mip.plan_of([float(value) for value in values])
    assert mip.values_of(again) == values


@pytest.mark.parametrize(
    ("seed", "most", "backend"),
    [
        *((seed, 3, "cpsat") for seed in range(4)),
        *(
            pytest.param(seed, 4, backend, marks=pytest.mark.full)
            for seed in range(4, 12)
            for backend in ("cpsat", "scip")
        ),
    ],
)
def test_solvers_prove_what_exhaustive_search_finds(seed, most, backend):
    instance = weighted(seed, most)
    for objective in TIMES:
        found = solve_full_mip(instance, backend, objective=objective, alone=most > 3)
        assert found.value == optimum(instance, objective)
        assert objective_value(instance, found.schedule, objective) == found.value
        assert backend == "scip" or (found.status, found.value_bound) == ("optimal", found.value)
        assert backend == "scip" or found.gap in (0.0, None)


@pytest.mark.parametrize("seed", range(6))
def test_cpsat_proves_the_best_attainment(seed):
    instance = random_instance(seed, 3)
    slo = limits(seed, bool(instance.requests.arrival_ns.any()))
    found = solve_full_mip(instance, "cpsat", objective="slo_attainment", slo=slo)
    assert found.status == "optimal"
    assert found.value == found.value_bound == best_attainment(instance, slo)
    assert solve(instance, found_by(found), slo=slo).slo_attainment == float(found.value)


def found_by(found):
    """Return a method that answers with a schedule that is there already."""

    class Ready:
        name, information, summary = "ready", ("clairvoyant",), ""

        def __call__(self, instance, run):
            schedule = found.schedule.replace(method="ready", information="clairvoyant")
            return Outcome(schedule, Termination.FINISHED, array("q"), {})

    return Ready()


def test_a_wait_that_no_arrival_asks_for_can_keep_a_limit_between_tokens():
    # The second request comes in the middle of the first one's rounds, and its prefill takes long:
    # with a wait both tokens of the first come behind it.
    worker = Worker(2, in_order(orsched.AffineCost, 20, 0, 10, 0))
    requests = Requests([1, 1], [3, 1], arrival_ns=[0, 30])
    instance = Instance(requests, worker, first_token="prefill")
    slo = SLO(ttft_ns=45, tpot_ns=12)
    found = solve_full_mip(instance, "cpsat", objective="slo_attainment", slo=slo)
    assert found.status == "optimal"
    assert found.value >= best_attainment(instance, slo)


def test_too_few_bins_prove_nothing():
    instance = random_instance(5, 4)
    found = solve_full_mip(instance, "cpsat", stages=2, objective="jct_mean")
    assert found.value_bound is None
    assert found.status in ("optimal_for_K", "infeasible", "feasible", "unknown")


def test_the_method_exact_says_what_was_proven_and_by_whom():
    instance = weighted(3, 3)
    result = solve(instance, "exact", objective="jct_mean")
    assert objective_value(instance, result.schedule, "jct_mean") == optimum(instance, "jct_mean")
    assert result.status == "optimal"
    options = {"search": "best_first", "stages": 4}
    with pytest.raises(InputError, match="best first"):
        solve(instance, "exact", objective="jct_mean", parameters=options)
    empty = instance.replace(requests=Requests([], []))
    assert solve_full_mip(empty, objective="jct_mean").status == "optimal"
