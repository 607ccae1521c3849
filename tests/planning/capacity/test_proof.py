"""The search for the fewest workers; proven bounds beside it, with certificates."""

import copy
import json
import random
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

import orsched
from orsched import InfeasibleError, Instance, MaxIterations, Requests, TimeLimitError, Worker
from orsched.costs import AffineCost, BilinearCost, CostModel
from orsched.planning.capacity.proof import Proof, proof_violations
from orsched.planning.capacity.question import Given, price_of, read_question
from orsched.planning.capacity.search import cheapest_fleet, fewest_workers
from orsched.planning.capacity.simulation import figures
from orsched.solving.method_choice import choose
from orsched.solving.methods import Run
from tests.decoding import decoding
from tests.in_order import in_order
from tests.planning.capacity.test_capacity import heavy

COSTS = (
    in_order(AffineCost, 5, 3, 40, 2),
    in_order(AffineCost, 0, 10, 10, 10),
    in_order(BilinearCost, *(10**6 * k for k in (0, 3, 1, 5, 1, 2, 0, 40))),
)


def asked(instance, policy="vllm", **changes):
    return read_question(Given(instance, policy, **changes))


def proof_of(question):
    proof = Proof(question)
    proof.run(lambda: False, lambda _: None)
    return proof


def small_instance(rng, most=25):
    n = rng.randint(5, most)
    prompts = [rng.randint(1, 20) for _ in range(n)]
    outputs = [rng.randint(1, 12) for _ in range(n)]
    arrivals = sorted(rng.randint(0, 60 * n) for _ in range(n))
    worker = Worker(rng.choice((1, 2, 4, 16)), rng.choice(COSTS))
    rule = rng.choice(("prefill", "decode"))
    return Instance(Requests(prompts, outputs, arrival_ns=arrivals), worker, first_token=rule)


def attainment(instance, question, workers, policy):
    fleet = instance.replace(workers=instance.workers[:1] * workers)
    chosen = choose(policy)
    stop = MaxIterations(1)
    stop.start()
    outcome = chosen.method(fleet, Run(chosen.information, stop, 0, chosen.parameters))
    found = figures(fleet, outcome.schedule, question.slo)
    return found["attained"] / found["requests"]


def sweep(seeds):
    """Hold proven bounds against policies with a worker less; return how many say something."""
    said = 0
    for seed in seeds:
        rng = random.Random(seed)
        instance = small_instance(rng)
        ttft, tpot = rng.choice((150, 300, 900)) * 1e-9, rng.choice((60, 90, 200)) * 1e-9
        share = rng.choice((0.5, 0.8, 0.9, 1.0))
        question = asked(instance, slo_ttft=ttft, slo_tpot=tpot, attainment=share)
        try:
            proof = proof_of(question)
        except InfeasibleError:
            for policy in ("vllm", "fcfs"):
                assert attainment(instance, question, len(instance), policy) < share
            continue
        again = json.loads(json.dumps(proof.certificate))
        assert proof_violations(instance, again) == []
        fewer = proof.lower_workers - 1
        if fewer:
            said += 1
            for policy in ("vllm", "fcfs", "static", "gittins"):
                assert attainment(instance, question, fewer, policy) < share, (seed, policy)
    return said


def test_no_policy_keeps_the_attainment_with_fewer_workers_than_proven():
    assert sweep(range(25)) >= 5


def test_no_policy_keeps_a_limit_on_a_figure_with_fewer_workers_than_it_forces():
    said = 0
    for seed in range(30):
        rng = random.Random(seed)
        instance = small_instance(rng)
        ttft, gap = rng.choice((150, 300)), rng.choice((60, 90))
        question = asked(instance, slo=f"ttft_p80<={ttft}e-9,stall_p60<={gap}e-9,itl_mean<=1")
        assert len(question.goals) == 2  # a mean of gaps forces nothing
        for name, goal in question.goals.items():
            try:
                fewer = proof_of(goal).lower_workers - 1
            except InfeasibleError:
                fewer = len(instance)
            said += fewer > 0
            for policy in ("vllm", "fcfs", "gittins") if fewer else ():
                fleet = instance.replace(workers=instance.workers[:1] * fewer)
                row = orsched.solve(fleet, policy, slo=question.slo).to_row()
                assert not row["slo_limits"][name.partition("<")[0]]["kept"], (seed, name)
    assert said >= 10


@pytest.mark.full
def test_no_policy_keeps_it_on_many_instances():
    assert sweep(range(1000, 1400)) >= 100


@pytest.fixture(scope="module")
def proven():
    instance = heavy()
    return instance, proof_of(asked(instance, slo_ttft=0.5, slo_tpot=0.05))


def test_a_certificate_is_verified_from_the_instance_alone(proven):
    instance, proof = proven
    assert proof.lower_workers >= 3
    assert proof.certificate["speed"] == proof.lower_workers - 1
    assert proof_violations(instance, json.loads(json.dumps(proof.certificate))) == []
    later = instance.requests.replace(arrival_ns=instance.requests.arrival_ns * 3)
    assert proof_violations(instance.replace(requests=later), proof.certificate)


INNER = ("traces", 0, "certificate")


@pytest.mark.parametrize(("path", "value"), [
    ((*INNER, "speed"), 9), ((*INNER, "attained"), 3), ((*INNER, "one"), 0),
    ((*INNER, "windows", 0, "weight"), 1), ((*INNER, "windows", 0, "end_ns"), 0),
    (("traces", 0, "sha256"), "0" * 64), (("traces",), []), (("speed",), 9),
    (("attainment",), "1/10"), (("attainment",), 0.9), (("ttft_ns",), 10**12),
    (("arrivals",), "poisson:rate=1"), (("sample",), 3), (("weights",), [2]), (("bound",), "other"),
    (("more",), 1),
])  # fmt: skip
def test_a_forged_certificate_is_noticed(proven, path, value):
    instance, proof = proven
    forged = copy.deepcopy(proof.certificate)
    place = forged
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    assert proof_violations(instance, forged)


def test_a_budget_and_a_deadline_are_no_faults_of_a_certificate(proven, monkeypatch):
    instance, proof = proven
    (reason,) = proof_violations(instance, proof.certificate, budget=1)
    assert "malformed" not in reason
    assert "budget of 1 cells" in reason

    def ring(*_):
        raise TimeLimitError("now")

    instance, proof = proven
    monkeypatch.setattr("orsched.planning.capacity.proof._violations", ring)
    with pytest.raises(TimeLimitError):
        proof_violations(instance, proof.certificate)


def test_random_traces_each_have_a_certificate():
    options = {"slo_ttft": 0.5, "slo_tpot": 0.05, "replications": 3}
    question = asked(heavy(30), arrivals="poisson:rate=20", **options)
    proof = proof_of(question)
    assert proof.lower_workers >= 2
    assert [trace["seed"] for trace in proof.certificate["traces"]] == [0, 1, 2]
    assert proof_violations(question.instance, proof.certificate) == []
    twice = copy.deepcopy(proof.certificate)
    twice["traces"] = [twice["traces"][0]] * 3
    assert proof_violations(question.instance, twice)


def test_limits_that_none_can_keep_are_said_with_the_first_request():
    instance = decoding([100] * 4 + [1000] * 6, [20] * 10, Worker(4, AffineCost()))
    with pytest.raises(InfeasibleError, match=r"60.00% of the requests.*first is request 4 .*1000"):
        proof_of(asked(instance, slo_ttft=0.1, slo_tpot=0.05, attainment=0.5))
    proof_of(asked(instance, slo_ttft=0.1, slo_tpot=0.05, attainment=0.4))
    with pytest.raises(InfeasibleError, match=r"a token alone takes 0.02921 s"):
        proof_of(asked(instance, slo_tpot=0.029))


def test_a_mix_is_bounded_by_its_price():
    instance = heavy()
    slow = Worker(4, AffineCost().scaled(2))
    machines = {"fast": (instance.worker, 3.0), "slow": (slow, 1.0)}
    proof = proof_of(asked(instance, slo_ttft=0.5, slo_tpot=0.07, machines=machines))
    assert proof.lower_workers >= 1
    assert all(proof.is_too_small(fleet) for fleet in ((1, 0), (0, 1)))
    assert 0 < proof.lower_price() <= 9
    workers = [worker for worker, _ in machines.values()]
    assert proof_violations(instance, proof.certificate, workers) == []
    assert proof_violations(instance, proof.certificate, workers[::-1])


def test_without_a_floor_nothing_is_proven():
    class Own(AffineCost):
        def round_ns(self, active, context_sum=0, context_max=0):
            return 1

    assert isinstance(Own(), CostModel)
    instance = heavy().replace(workers=(Worker(4, Own()),))
    proof = proof_of(asked(instance, slo_ttft=0.5))
    assert (proof.lower_workers, proof.certificate) == (1, None)
    assert "floor" in proof.unproven


def test_limits_come_from_the_classes_where_none_are_given():
    req = heavy(10).requests.replace(service_class=np.array([0] * 6 + [1] * 4))
    instance = heavy(10).replace(requests=req).with_classes("interactive:ttft=2,tpot=0.1")
    limits = asked(instance).limits(instance)
    assert limits.rows.tolist() == list(range(6))
    assert set(limits.ttft_ns) == {2 * 10**9}
    assert set(asked(instance, slo_ttft=1.0).limits(instance).ttft_ns) == {10**9}


class Evaluation:
    """Says which fleets suffice by a rule, and counts what it is asked."""

    def __init__(self, rule, prices=(1,), at_once=1):
        machines = [SimpleNamespace(name=str(k), price=Fraction(p)) for k, p in enumerate(prices)]
        self.question = SimpleNamespace(machines=machines)
        self.rule, self.at_once, self.known = rule, at_once, {}

    def estimate(self, fleet):
        return self.estimates([fleet])[0]

    def estimates(self, fleets):
        fleets = list(fleets)
        for fleet in fleets:
            assert sum(fleet) >= 1
            found = {"fleet": fleet, "suffices": self.rule(fleet), "workers": sum(fleet)}
            self.known.setdefault(fleet, SimpleNamespace(**found))
        return [self.known[fleet] for fleet in fleets]


@pytest.mark.parametrize("at_once", [1, 2, 5])
@pytest.mark.parametrize("exhaustive", [False, True])
def test_the_fewest_workers_are_found_and_those_below_do_not_suffice(at_once, exhaustive):
    for enough in range(1, 60):
        for lower in {1, enough // 2 + 1, enough}:
            evaluation = Evaluation(lambda fleet, n=enough: fleet[0] >= n, at_once=at_once)
            found = fewest_workers(evaluation, lower, 100, exhaustive)
            assert found.workers == enough
            assert min(evaluation.known)[0] >= lower  # what is proven is not simulated
            assert enough == lower or (enough - 1,) in evaluation.known


def test_bisection_takes_few_fleets_an_exhaustive_search_all_and_none_may_suffice():
    for exhaustive, most in ((False, 14), (True, 50)):
        evaluation = Evaluation(lambda fleet: fleet[0] >= 50)
        fewest_workers(evaluation, 1, 1000, exhaustive)
        assert len(evaluation.known) <= most
    assert len(evaluation.known) == 50
    for most in (1, 2, 7):
        evaluation = Evaluation(lambda fleet: False)
        assert fewest_workers(evaluation, 1, most, False) is None
        assert max(evaluation.known) == (most,)


def test_attainment_that_is_not_monotone_is_noticed_near_the_answer():
    evaluation = Evaluation(lambda fleet: fleet[0] in (2, 5) or fleet[0] >= 7)
    assert fewest_workers(evaluation, 1, 100, True).workers == 2
    # Upwards 1, 3, 7; between 5 and 4 (then 2 is the only number left, and is tried).
    assert fewest_workers(Evaluation(evaluation.rule), 1, 100, False).workers == 2


def random_rule(rng, kinds):
    """Fleets that suffice by speed, unless they have too few of some machine beside others."""
    speeds = [rng.randint(1, 9) for _ in range(kinds)]
    need = rng.randint(1, 40)
    least = [rng.choice((0, 0, 0, 1, 2)) for _ in range(kinds)]

    def rule(fleet):
        work = sum(a * b for a, b in zip(speeds, fleet, strict=True))
        enough = all(a >= b for a, b in zip(fleet, least, strict=True))
        return work >= need and (enough or work >= 2 * need)

    return rule


@pytest.mark.parametrize("kinds", [2, 3])
def test_the_cheapest_mix_costs_what_an_exhaustive_search_says(kinds):
    for seed in range(60):
        rng = random.Random(seed)
        prices = [rng.randint(1, 12) for _ in range(kinds)]
        rule, most = random_rule(rng, kinds), 12 if kinds == 2 else 7
        quick, slow = Evaluation(rule, prices), Evaluation(rule, prices)
        found = cheapest_fleet(quick, lambda fleet: False, most, False)
        wanted = cheapest_fleet(slow, lambda fleet: False, most, True)
        alone = [rule(tuple(most * (k == n) for k in range(kinds))) for n in range(kinds)]
        if found is None:  # mixes are looked for below the price of one machine alone
            assert wanted is None or not any(alone)
            continue
        machines = quick.question.machines
        assert price_of(machines, found.fleet) == price_of(machines, wanted.fleet), seed
        assert len(quick.known) <= 60


def test_what_is_proven_too_small_is_not_simulated():
    rule = random_rule(random.Random(3), 2)
    evaluation = Evaluation(lambda fleet: rule(fleet) and sum(fleet) > 3, (2, 3))
    cheapest_fleet(evaluation, lambda fleet: sum(fleet) <= 3, 40, False)
    assert all(sum(fleet) > 3 for fleet in evaluation.known)
