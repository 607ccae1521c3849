"""The search for schedules of unit rounds: feasible, never worse, and the optimum where known."""

from __future__ import annotations

import random

import pytest

from orsched.instances.catalog import generate
from orsched.instances.unit_rounds import unit_instance
from orsched.models import unit_rounds_search
from orsched.models.unit_rounds import hindsight_optimum
from orsched.models.unit_rounds_search import search
from tests.heuristics.lookahead.literal import held


def one_by_one(outputs, arrivals):
    """Starts, one request after the other."""
    starts, end = [], 0
    for output, arrival in zip(outputs, arrivals, strict=True):
        starts.append(max(end, arrival))
        end = starts[-1] + output
    return starts


def drawn(seed):
    draw = random.Random(seed)
    memory, n = draw.randint(6, 20), draw.randint(1, 9)
    prompts = [draw.randint(1, 5) for _ in range(n)]
    outputs = [draw.randint(1, memory - s) for s in prompts]
    return prompts, outputs, [draw.choice([0, 0, 5]) for _ in range(n)], memory


@pytest.mark.parametrize("seed", range(30))
def test_what_it_finds_is_feasible_and_no_worse(seed):
    prompts, outputs, arrivals, memory = drawn(seed)
    instance = unit_instance(prompts, outputs, arrivals, memory)
    known = one_by_one(outputs, arrivals)
    found = search(instance, known, 200, seed)
    assert sum(found) <= sum(known)
    assert all(start >= arrival for start, arrival in zip(found, arrivals, strict=True))
    starts = dict(enumerate(found))
    for start, output in zip(found, outputs, strict=True):
        assert held(prompts, outputs, starts, start + output) <= memory
    assert search(instance, known, 200, seed) == found
    assert search(instance, known, 0) == known


@pytest.mark.parametrize("seed", range(6))
def test_it_finds_the_optimum_of_small_draws(seed):
    """Or nearly: an order in which each starts early need not have the best schedule."""
    pytest.importorskip("ortools")
    instance = generate("unit-rounds", seed=seed, requests=6, memory_tokens=12)
    outputs, arrivals = instance.requests.output_tokens.tolist(), [0] * 6
    found = sum(search(instance, one_by_one(outputs, arrivals), 1000)) + sum(outputs)
    optimum = hindsight_optimum(instance)
    assert optimum.optimal
    assert optimum.total <= found <= 1.02 * optimum.total


def test_compiled_and_plain_find_the_same(monkeypatch):
    pytest.importorskip("numba")
    instance = generate("unit-rounds", seed=3, requests=10)
    known = one_by_one(instance.requests.output_tokens.tolist(), [0] * 10)
    plain = search(instance, known, 300)
    monkeypatch.setattr(unit_rounds_search, "_PLAIN", 0)
    assert search(instance, known, 300) == plain
