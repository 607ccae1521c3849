"""The torch worker yields the tokens of transformers' ``generate``, whatever else it serves."""

from __future__ import annotations

import random

import numpy as np
import pytest

from orsched import Instance, Requests, Worker, check
from orsched.costs import AffineCost
from orsched.errors import InputError
from orsched.memory import BlockMemory
from orsched.registry import resolve

torch = pytest.importorskip("torch", reason="the extra 'runner' is not installed")
pytest.importorskip("transformers", reason="the extra 'runner' is not installed")

from orsched.runner.chunk import Chunk  # noqa: E402
from orsched.runner.device import TorchDevice  # noqa: E402
from orsched.runner.language_model import load_model  # noqa: E402
from orsched.runner.live import execute_policy  # noqa: E402
from orsched.runner.presets import PRESETS  # noqa: E402
from orsched.runner.torch_worker import TorchWorker  # noqa: E402


@pytest.fixture(autouse=True)
def one_thread():
    """More threads only wait for one another at this size."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


FAMILIES = [name for name in PRESETS if name.startswith("tiny")]
LENGTH, VOCABULARY = 160, 512


def generated(model, prompt: list[int], count: int) -> list[int]:
    ids = torch.tensor([prompt])
    found = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=count,
        min_new_tokens=count,
        do_sample=False,
        pad_token_id=0,
        eos_token_id=None,
    )
    return found[0, len(prompt) :].tolist()


class Case:
    """Random requests, and a random order of insertions, chunks, pauses and releases."""

    def __init__(self, seed: int, requests: int = 8) -> None:
        self.rng = random.Random(seed)
        self.prompts = [
            [self.rng.randrange(VOCABULARY) for _ in range(self.rng.randint(1, 60))]
            for _ in range(requests)
        ]
        self.outputs = [self.rng.randint(1, 60) for _ in range(requests)]

    def serve(self, worker: TorchWorker) -> list[list[int]]:
        """Return what each request yields; every step is drawn at random."""
        rng, free = self.rng, list(range(worker.slots.count))
        waiting, done = list(range(len(self.prompts))), {}
        at: dict[int, int] = {}  # slot of each request on the worker
        cached: dict[int, int] = {}  # prompt tokens processed
        left = dict(enumerate(self.outputs))
        while len(done) < len(self.prompts):
            while waiting and free and rng.random() < 0.5:
                request = waiting.pop(0)
                at[request], cached[request] = free.pop(rng.randrange(len(free))), 0
            chunks = []
            for request, slot in at.items():
                rest = self.prompts[request][cached[request] :]
                if rest and rng.random() < 0.6:
                    size = rng.choice((len(rest), rng.randint(1, len(rest))))
                    chunks.append(Chunk(slot, cached[request], rest[:size], size == len(rest)))
                    cached[request] += size
                    left[request] -= size == len(rest)
            fresh = {chunk.slot for chunk in chunks}
            active = [
                slot
                for request, slot in at.items()
                if slot not in fresh
                and cached[request] == len(self.prompts[request])
                and rng.random() < 0.8
            ]
            if chunks or active:
                worker.step(chunks, active)
            for request, slot in list(at.items()):
                left[request] -= slot in active
                if not left[request]:
                    done[request] = worker.take(slot, len(self.prompts[request])).tolist()
                    worker.release(slot)
                    free.append(at.pop(request))
        return [done[request] for request in sorted(done)]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(3))
def test_tokens_are_those_of_generate_in_double_precision(family: str, seed: int) -> None:
    case = Case(seed)
    worker = TorchWorker(family, slots=4, length=LENGTH, dtype="float64", seed=seed)
    plain = load_model(family, "cpu", "float64", seed)
    found = case.serve(worker)
    expected = [
        generated(plain, prompt, count)
        for prompt, count in zip(case.prompts, case.outputs, strict=True)
    ]
    assert found == expected
    assert len({token for tokens in found for token in tokens}) > 20  # weights that tell


def test_one_forward_pass_a_step_however_many_requests_are_in_it() -> None:
    worker = TorchWorker("tiny", slots=6, length=64)
    worker.prefill([Chunk(slot, 0, [1 + slot] * (3 + slot), True) for slot in range(5)])
    assert worker.forward_passes == 1
    worker.decode(range(5), rounds=10)
    assert worker.forward_passes == 11
    worker.step([Chunk(5, 0, [7, 8], True)], range(5))
    assert worker.forward_passes == 12
    assert [len(worker.take(slot, 3 + slot)) for slot in range(5)] == [12] * 5
    assert len(worker.take(5, 2)) == 1


def test_forward_passes_see_no_padding() -> None:
    worker, seen = TorchWorker("tiny", slots=4, length=64), []
    forward = worker._forward
    worker._forward = lambda tokens, positions: (
        seen.append(len(tokens)) or forward(tokens, positions)
    )
    worker.prefill([Chunk(0, 0, [1] * 40, True), Chunk(1, 0, [2] * 3, True)])
    worker.decode([0, 1])
    assert seen == [43, 2]


def test_what_other_slots_do_changes_no_token() -> None:
    prompt = [5, 6, 7]
    alone = TorchWorker("tiny", slots=1, length=64, dtype="float64")
    alone.prefill([Chunk(0, 0, prompt, True)])
    alone.decode([0], rounds=20)
    crowd = TorchWorker("tiny", slots=4, length=64, dtype="float64")
    crowd.prefill([Chunk(3, 0, [1] * 30, True)])
    crowd.decode([3], rounds=5)
    crowd.prefill([Chunk(1, 0, prompt, True), Chunk(0, 0, [9] * 8, True)])
    for round_ in range(20):
        crowd.decode([1, 3] if round_ % 2 else [0, 1])
    assert crowd.take(1, 3).tolist() == alone.take(0, 3).tolist()
    assert len(alone.take(0, 3)) == 21


def test_wrong_arguments_say_what_there_is() -> None:
    with pytest.raises(InputError, match="unknown model"):
        TorchWorker("huge")
    with pytest.raises(InputError, match="positions"):
        TorchWorker("tiny-gpt2", length=5000)
    with pytest.raises(InputError, match="slots"):
        TorchWorker("tiny", slots=0)
    with pytest.raises(InputError, match="unknown type"):
        TorchWorker("tiny", dtype="int8")


@pytest.mark.parametrize("rule", ["decode", "prefill"])
def test_a_policy_with_evictions_and_chunks_yields_the_tokens_of_generate(rule: str) -> None:
    rng = random.Random(5)
    outputs = [rng.randint(1, 20) for _ in range(8)]
    instance = Instance(
        Requests([rng.choice((1, rng.randint(2, 30))) for _ in outputs], outputs),
        Worker(
            4,
            AffineCost(25_000_000, 130_000, 29_000_000, 210_000),
            None,
            BlockMemory(14, 4, "paged"),
        ),
        first_token=rule,
    )
    method, evictions = resolve("methods", "vllm"), []
    policy = method.build(
        instance, method.information[0], {"max_num_batched_tokens": 10, "watermark_blocks": 0}, 0
    )[0]
    device = TorchDevice(TorchWorker("tiny", slots=4, length=64, dtype="float64", seed=2))
    done = execute_policy(
        instance,
        policy,
        device,
        seed=7,
        vocabulary=VOCABULARY,
        observer=lambda view, step: evictions.extend(step.preempt),
    )
    plain = load_model("tiny", "cpu", "float64", 2)
    prompts = [
        np.random.default_rng([7, request]).integers(VOCABULARY, size=size).tolist()
        for request, size in enumerate(instance.requests.prompt_tokens)
    ]
    expected = [
        generated(plain, prompt, count) for prompt, count in zip(prompts, outputs, strict=True)
    ]
    assert done.tokens == expected
    assert evictions
    assert check(instance, done.schedule, times="measured") == []
