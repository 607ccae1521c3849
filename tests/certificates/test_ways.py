"""Each kind of certificate on each way through the library: made, solved with, written, checked."""

from __future__ import annotations

import json
import logging
import random

import pytest

import orsched
from orsched.checker import check
from orsched.checker.certificates import bound_violations
from orsched.cli.commands import run
from orsched.files import load_schedule, save_instance, save_schedule
from orsched.models.bounds import stages_rounds_bound
from orsched.models.bounds.bounds import improving_bounds, makespan_bound
from tests.certificates.kinds import NO_PACKING, finding, kinds

NAMES = [
    "empty", "last_arrival", "longest_request", "joint", "long", "ends", "charged",
    "charged levels", "pooling", "shared", "volume", "longest", "lifted", "dual", "cover", "tree",
    "rounds by memory", "large requests", "clients", "cap", "large prompts", "stages by memory",
    "chunks", "chunked prompt", "restarts", "arrivals", "alone", "ranked", "mean_busy", "queue",
    "queue_busy", "pools", "ranks", "queue_ranks",
    "weighted_ranks", "weighted_busy", "shared_rounds",
]  # fmt: skip


def test_the_list_of_kinds_is_complete():
    assert sorted(NAMES) == sorted(kinds())


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


@pytest.mark.parametrize(
    ("proof", "value", "changes"),
    [
        ("dual", 10, {}),
        ("dual", 10**8, {}),
        ("cover", 9, {"duals": [[7, 2**62]]}),
        ("tree", 9, {"tree": []}),
        ("tree", 9, {"tree": [[[0] * 5, None]]}),
    ],
)
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
    instance = orsched.Instance(
        orsched.Requests([10] * 75, rounds), orsched.Worker(25), first_token="decode"
    )
    result = orsched.solve(instance, "fcfs")
    assert check(instance, result.schedule) == []
