"""Every proposal is proven, under every allowance, and each way is taken."""

import json
import logging
import random
from dataclasses import replace

import pytest

import orsched
from orsched import Instance, OrschedError, Requests, Worker, check
from orsched.certificates.context import Context
from orsched.checker.certificates import bound_violations
from orsched.cli.commands import run
from orsched.common.units import MAX_TOKENS
from orsched.costs import AffineCost, LevelsCost, RooflineCost
from orsched.data.schedule_classes import ALLOWANCES
from orsched.files import load_schedule, save_instance, save_schedule
from orsched.models.bounds import stages_rounds_bound
from orsched.models.bounds.bounds import bound, improving_bounds, makespan_bound
from orsched.models.bounds.latency_bounds import BOUNDED, candidates
from orsched.models.bounds.makespan_certificates import Limits, makespan_certificates
from tests.certificates.kinds import NO_PACKING, finding, kinds
from tests.decoding import decoding
from tests.in_order import in_order

MOST_WEIGHT, MOST_CLIENTS = 1_000_000, 1_000_000
LONGEST = (MAX_TOKENS, MAX_TOKENS)


def pair(times, outputs=(2, 2), arrivals=(0, 0), clients=1, prompts=(1, 2)):
    worker, weights = Worker(clients, in_order(AffineCost, *times)), [MOST_WEIGHT, 1]
    return decoding(prompts, outputs, worker, arrival_ns=arrivals, weights=weights)


EXTREME = {
    "a level above 2**40": pair((2**50, 2**50, 1, 1)),
    "the longest answers, which share rounds": pair((1,) * 4, LONGEST, (0, 5), MOST_CLIENTS),
    "windows beyond 2**63": pair((2**57, 0, 2**57, 2**49), (2, 2), (0, 2**57), 2),
    "the longest prompts": pair((9, 2**28, 9, 9), prompts=LONGEST),
    "the last arrival that there may be": pair((9, 1, 9, 9), arrivals=(0, 2**61 - 1000)),
}


def proposals(instance, objective, allows):
    """All certificates that are tried for a bound on an objective."""
    context = Context.allowing(instance, allows)
    if objective != "makespan":
        return candidates(context, objective, lambda: False)
    return makespan_certificates(context, Limits(lambda: False, lambda: 5.0, True))


def verify(instance, allows):
    """Verify all proposals; return how many there were. Sums below 0 are never the best."""
    count = 0
    for objective in ("makespan", *BOUNDED):
        for found in proposals(instance, objective, allows):
            if found.get("sum_ns", 0) < 0:
                continue
            document = {"name": found["bound"], "value_ns": found["value_ns"], "certificate": found}
            assert bound_violations(instance, document, objective) == [], objective
            count += 1
    return count


@pytest.mark.parametrize("allows", [(), ALLOWANCES])
@pytest.mark.parametrize("name", EXTREME)
def test_what_is_proposed_for_an_extreme_instance_is_verified(name, allows, caplog):
    instance = EXTREME[name]
    assert verify(instance, allows) > 8
    for objective in ("makespan", *BOUNDED):
        bound(instance, objective, allows=allows)
    assert caplog.text == ""


def extreme(seed):
    """A random instance in which anything may be as large as it can be, or None."""
    rng = random.Random(seed)
    tokens, times = rng.choice([9, 2**20, MAX_TOKENS]), rng.choice([10**3, 2**40, 2**58])

    def draw(top):
        return rng.choice((1, top, rng.randint(1, top), 1 << rng.randrange(top.bit_length())))

    n = rng.choice((1, 2, 5))
    columns = [[min(draw(tokens), MAX_TOKENS) for _ in range(n)] for _ in range(2)]
    arrivals = [rng.choice((0, draw(rng.choice((100, 2**40, 2**60))))) for _ in range(n)]
    weights = [rng.choice((1, MOST_WEIGHT)) for _ in range(n)]
    affine = in_order(AffineCost, *(draw(times) for _ in range(4)))
    levels = in_order(LevelsCost, ((3, draw(9)), (MAX_TOKENS, 9 + draw(times))), draw(times))
    costs = (affine, levels, in_order(RooflineCost, *(draw(times) for _ in range(5))))
    worker = Worker(rng.choice((1, 3, MOST_CLIENTS)), rng.choice(costs))
    workers = [replace(worker, name=str(k)) for k in range(rng.choice((1, 1, 2)))]
    rule = rng.choice(("decode", "prefill"))
    try:
        requests = Requests(*columns, arrival_ns=arrivals, weights=weights)
        return Instance(requests, workers, first_token=rule)
    except OrschedError:  # its times do not fit
        return None


@pytest.mark.parametrize("seeds", [range(12), pytest.param(range(12, 400), marks=pytest.mark.full)])
def test_what_is_proposed_for_random_extremes_is_verified(seeds):
    count = 0
    for seed in seeds:
        instance = extreme(seed)
        if instance is not None:
            allows = [each for each in ALLOWANCES if seed >> ALLOWANCES.index(each) & 1]
            count += verify(instance, allows)
    assert count > 10 * len(seeds)


NAMES = sorted(kinds())


@pytest.mark.parametrize("name", NAMES)
def test_each_kind_on_each_way(name, tmp_path, monkeypatch, capsys):
    kind = kinds()[name]
    bound = kind.bound(monkeypatch)
    value = bound.certificate
    for field in kind.path:
        value = value[field]
    assert str(value) == kind.value
    document = json.loads(json.dumps(bound.to_dict()))
    assert bound_violations(kind.instance, document, kind.objective) == []
    if kind.objective != "makespan" or kind.allows not in ((), ("chunks",)):
        return
    save_instance(kind.instance, tmp_path / "instance.json")
    path = tmp_path / "schedule.json"
    for result in made(kind.instance):
        assert result.checked
        assert result.certificate == bound.certificate
        save_schedule(result.schedule, path)
        read = load_schedule(path)
        assert read.bound == document
        assert check(kind.instance, read) == []
    assert run(["check", str(tmp_path / "instance.json"), str(path)]) == 0
    assert capsys.readouterr().out == ""


def made(instance):
    """Schedules by solve and simulate, the latter where the policy takes the instance."""
    if instance.needs_chunks:
        return [orsched.solve(instance, "vllm")]
    if instance.link is not None:
        return [orsched.solve(instance, "disaggregated")]
    solved = orsched.solve(instance, "fcfs")
    if len(instance.workers) > 1:
        return [solved]
    policy = "orsched.heuristics.pang:FirstComeFirstServed"
    return [solved, orsched.simulate(instance, policy)]


@pytest.mark.parametrize(("proof", "value", "changes"), [
    ("dual", 10, {}), ("dual", 10**8, {}), ("cover", 9, {"duals": [[7, 2**62]]}),
    ("tree", 9, {"tree": []}), ("tree", 9, {"tree": [[[0] * 5, None]]}),
])  # fmt: skip
def test_a_proof_that_cannot_be_verified_is_left_out_and_logged(
    proof, value, changes, monkeypatch, caplog
):
    """Whatever a search returns: the best bound that is proven stands, and no schedule fails."""
    instance = kinds()["dual"].instance
    assert (instance.rounds_needed.tolist(), instance.worker.clients) == NO_PACKING
    without = makespan_bound(instance)
    monkeypatch.setattr(stages_rounds_bound, "pack", finding(proof, value, **changes))
    with caplog.at_level(logging.WARNING, "orsched"):
        assert orsched.bound(instance) == without
    assert "is left out, for it is not proven" in caplog.text
    assert orsched.solve(instance, "fcfs").certificate == without.certificate
    assert list(improving_bounds(instance, lambda: False))[-1] == without


@pytest.mark.full
def test_an_instance_whose_search_ends_with_a_tree():
    """By the clock: on a slow machine it may prove less. Every method failed here."""
    rng = random.Random(1000020)
    rounds = [rng.randint(1, 10**4) for _ in range(75)]
    instance = decoding([10] * 75, rounds, Worker(25))
    result = orsched.solve(instance, "fcfs")
    assert check(instance, result.schedule) == []
