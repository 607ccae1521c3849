"""Predictions in closed loop: by hand, and a few waves against all of them."""

from dataclasses import replace

import pytest

from orsched import BlockMemory
from orsched.calibration import GPUS, MODELS
from orsched.calibration.gpus import constants_of
from orsched.costs import RooflineCost
from orsched.planning.validation.errors import Machine, predicted
from orsched.planning.validation.served import Served

PLAIN = RooflineCost.from_s(fixed=0.01, weights=0, token=0, context=0, attended=0)
"""Every step takes 10 ms, whatever is in it."""

BUSY = RooflineCost.from_s(fixed=1e-3, weights=5e-3, token=2e-5, context=2e-9, attended=1e-10)


def on(cost, front_end_ms=0.0, front_client_ms=0.0, memory=None):
    """Return a machine with this cost, and these times before a first token."""
    fronts = {"front_end_ms": front_end_ms, "front_client_ms": front_client_ms}
    known = replace(constants_of(GPUS["h100"]), **fronts)
    return Machine(GPUS["h100"], MODELS["llama3-8b"], cost, memory, known)


def row(prompt, answer, clients, **more):
    return Served("a", "m", prompt_tokens=prompt, output_tokens=answer, concurrency=clients, **more)


def test_one_client_waits_for_each_of_its_steps():
    """The first token comes with the prefill, each other one 10 ms after the one before."""
    found = predicted(row(100, 20, 1, requests=10), on(PLAIN))
    assert found["ttft"] == pytest.approx(0.01)
    assert found["tpot"] == pytest.approx(0.01)
    tokens = found["makespan"] / 0.01  # each of them takes a step
    assert tokens == pytest.approx(round(tokens))
    assert tokens == pytest.approx(200, abs=3)  # lengths are spread around 20
    assert found["throughput"] == pytest.approx(100)


def test_a_prompt_above_the_token_budget_takes_several_steps():
    assert predicted(row(20_000, 20, 1), on(PLAIN))["ttft"] == pytest.approx(0.03)


def test_a_front_end_delays_first_tokens_and_the_next_request():
    """Ten requests of one client: 50 ms before each first token."""
    one = row(100, 20, 1, requests=10)
    bare, found = (predicted(one, each) for each in (on(PLAIN), on(PLAIN, 30, 20)))
    assert found["tpot"] == bare["tpot"]
    assert found["ttft"] == pytest.approx(0.06)
    assert found["makespan"] == pytest.approx(bare["makespan"] + 10 * 0.05, rel=0.02)


@pytest.mark.parametrize(("prompt", "answer", "clients", "tpot", "ttft"), [
    (1024, 1024, 8, 0.01, 0.05),
    (1024, 128, 64, 0.02, 0.1),
    (4096, 256, 16, 0.02, 0.1),
    (64, 8, 4, 0.02, 0.1),
])  # fmt: skip
def test_a_few_waves_are_enough(prompt, answer, clients, tpot, ttft):
    """Means of ten waves, from four that are simulated."""
    loop = row(prompt, answer, clients)
    few = predicted(loop, on(BUSY))
    every = predicted(replace(loop, requests=10 * clients), on(BUSY))
    assert few["tpot"] == pytest.approx(every["tpot"], rel=tpot)
    assert few["ttft"] == pytest.approx(every["ttft"], rel=ttft)


def test_memory_for_half_of_the_clients_makes_the_others_wait():
    """Ten waves of eight, of whom four fit: the first tokens wait for about one stay of four."""
    memory = BlockMemory(4 * 160 // 16, 16, "paged")
    free, tight = (predicted(row(100, 50, 8), on(BUSY, memory=m)) for m in (None, memory))
    assert tight["ttft"] > 10 * free["ttft"]
    assert tight["throughput"] < free["throughput"]


def test_the_median_is_of_requests_after_the_first_wave():
    mean, median = (
        predicted(row(1024, 128, 32, requests=320, statistic=each), on(BUSY))["ttft"]
        for each in ("mean", "median")
    )
    assert median < mean
