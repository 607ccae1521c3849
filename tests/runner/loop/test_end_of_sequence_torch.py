"""Real ends of sequences on the torch worker, and on one in a process of its own."""

from __future__ import annotations

import random

import numpy as np
import pytest

from orsched import Instance, Requests, Worker, check
from orsched.costs import AffineCost
from tests.in_order import in_order
from tests.runner.loop.spec import build

torch = pytest.importorskip("torch", reason="the extra 'runner' is not installed")
pytest.importorskip("transformers", reason="the extra 'runner' is not installed")

from benchmarks.reproductions.tokens import generated  # noqa: E402
from orsched.runner.devices.device import TorchDevice  # noqa: E402
from orsched.runner.devices.processes import ProcessDevice  # noqa: E402
from orsched.runner.devices.settings import WorkerSettings  # noqa: E402
from orsched.runner.loop.live import execute_policy  # noqa: E402
from orsched.runner.worker.language_model import load_model  # noqa: E402
from tests.runner.torch_workers import torch_worker  # noqa: E402

VOCABULARY, LIMIT, SEED = 512, 24, 7


def instance(rule):
    rng = random.Random(rule)
    prompts = [rng.randint(1, 30) for _ in range(8)]
    return Instance(
        Requests(prompts, [1] * 8),
        Worker(3, in_order(AffineCost, 25_000_000, 130_000, 29_000_000, 210_000)),
        first_token=rule,
        output_limit_tokens=LIMIT,
    )


def expected(problem):
    """Return what transformers yields for each request, and a token that ends most of them."""
    plain = load_model("tiny", "cpu", "float64", 2)
    found = []
    for request, size in enumerate(problem.requests.prompt_tokens.tolist()):
        prompt = np.random.default_rng([SEED, request]).integers(VOCABULARY, size=size).tolist()
        found.append(generated(plain, prompt, LIMIT)[0])
    ends = {tokens[3 + 2 * request] for request, tokens in enumerate(found[:6])}
    cut = [
        tokens[: 1 + next((i for i, token in enumerate(tokens) if token in ends), LIMIT)]
        for tokens in found
    ]
    return cut, ends


def torch_device():
    return TorchDevice(torch_worker("tiny", slots=3, length=64, dtype="float64", seed=2))


@pytest.mark.parametrize("rule", ["decode", "prefill"])
@pytest.mark.parametrize("spec", ["fcfs", "vllm@none+max_num_batched_tokens=10", "static@none"])
def test_requests_end_where_generate_would(rule, spec):
    problem = instance(rule)
    tokens, ends = expected(problem)
    done = execute_policy(
        problem,
        build(problem, spec, 0),
        torch_device(),
        seed=SEED,
        vocabulary=VOCABULARY,
        end_of_sequence=ends,
    )
    assert done.tokens == tokens
    assert len({len(each) for each in tokens}) > 3
    assert done.instance.requests.output_tokens.tolist() == list(map(len, tokens))
    assert check(done.instance, done.schedule, times="measured") == []


def test_requests_end_in_another_process():
    problem = instance("decode")
    tokens, ends = expected(problem)
    settings = WorkerSettings("tiny", slots=3, length=64, dtype="float64", seed=2, threads=1)
    device = ProcessDevice(settings, faults={9: "kill"})
    try:
        done = execute_policy(
            problem,
            build(problem, "fcfs", 0),
            device,
            seed=SEED,
            vocabulary=VOCABULARY,
            end_of_sequence=ends,
        )
    finally:
        device.close()
    assert done.tokens == tokens
    assert [event["what"] for event in done.events] == ["lost", "restarted"]
    assert check(done.instance, done.schedule, times="measured") == []
