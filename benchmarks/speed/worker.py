"""The torch worker's steps beside the forward pass of transformers with a static cache.

python -m benchmarks.speed.worker [--repeats N] [--tiny]
"""

from __future__ import annotations

import argparse
import random
import sys
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import process_time_ns
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.speed.section import Options, Section, Target
from orsched.runner.worker.layout import Chunk

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NAME = "worker"
ROUNDS = 8
DTYPES = ("float32", "bfloat16")


class Shape(NamedTuple):
    """What is measured.

    Attributes:
        model: a preset.
        requests: on the worker, all of them active.
        tokens: in each cache before the rounds, and in each prompt.
    """

    model: str
    requests: int
    tokens: int


SHAPES = (
    Shape("tiny", 1, 64),
    Shape("tiny", 16, 256),
    Shape("small", 1, 64),
    Shape("small", 8, 128),
)


class Ours:
    """The worker."""

    def __init__(self, shape: Shape, dtype: str) -> None:
        from orsched.runner.devices.settings import WorkerSettings
        from orsched.runner.worker.torch_worker import TorchWorker

        self.worker = TorchWorker(
            WorkerSettings(shape.model, shape.requests, shape.tokens + ROUNDS, dtype=dtype)
        )
        self.requests, self.tokens = shape.requests, shape.tokens

    def prefill(self, prompts: Sequence[Sequence[int]]) -> None:
        """Process prompts in one stage."""
        self.worker.prefill([Chunk(slot, 0, each, True) for slot, each in enumerate(prompts)])

    def before_rounds(self) -> None:
        """Let the caches hold what rounds begin with."""
        self.worker.pretend([self.tokens] * self.requests)

    def rounds(self) -> None:
        """Let each request yield a token some times."""
        self.worker.decode(range(self.requests), ROUNDS)


class Scattered:
    """The worker with twice as many slots: the requests are in every other one, or packed."""

    def __init__(self, shape: Shape, dtype: str) -> None:
        from orsched.runner.devices.settings import WorkerSettings
        from orsched.runner.worker.torch_worker import TorchWorker

        slots = 2 * shape.requests
        self.worker = TorchWorker(
            WorkerSettings(shape.model, slots, shape.tokens + ROUNDS, dtype=dtype)
        )
        self.lengths = [shape.tokens] * slots

    def before_rounds(self) -> None:
        """Let the caches hold what rounds begin with."""
        self.worker.pretend(self.lengths)

    def packed(self) -> None:
        """Let the requests in the first slots yield a token some times."""
        self.worker.decode(range(len(self.lengths) // 2), ROUNDS)

    def scattered(self) -> None:
        """Let those in every other slot do so."""
        self.worker.decode(range(0, len(self.lengths), 2), ROUNDS)


class Transformers:
    """The same weights' own forward pass, all requests padded to one length."""

    def __init__(self, shape: Shape, dtype: str) -> None:
        import torch
        from transformers import StaticCache

        from orsched.runner.worker.language_model import load_model

        self.model = load_model(shape.model, "cpu", dtype)
        self.cache = StaticCache(self.model.config, max_cache_len=shape.tokens + ROUNDS)
        self.next = torch.zeros((shape.requests, 1), dtype=torch.int64)
        self.tokens = shape.tokens

    def _hold(self, tokens: int) -> None:
        for layer in self.cache.layers:
            layer.cumulative_length.fill_(tokens)

    def prefill(self, prompts: Sequence[Sequence[int]]) -> None:
        """Process prompts in one pass, padded on the left to the longest."""
        import torch

        longest = max(map(len, prompts))
        with torch.inference_mode():
            ids = torch.tensor([[0] * (longest - len(each)) + list(each) for each in prompts])
            sizes = torch.tensor([len(each) for each in prompts])[:, None]
            ragged = bool((sizes < longest).any())
            mask = torch.arange(longest) >= longest - sizes if ragged else None
            self._hold(0)
            self._forward(ids, mask)

    def before_rounds(self) -> None:
        """Let the caches hold what rounds begin with."""
        self._hold(self.tokens)

    def rounds(self) -> None:
        """Let each request yield a token some times."""
        import torch

        with torch.inference_mode():
            for _ in range(ROUNDS):
                self.next = self._forward(self.next, None)

    def _forward(self, ids: Any, mask: Any) -> Any:
        found = self.model(
            input_ids=ids,
            attention_mask=mask,
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return found.logits[:, -1:].argmax(-1)


def run(options: Options) -> Section:
    """Measure both sides by turns, in CPU time on one thread."""
    section = Section(NAME, "steps of the torch worker beside transformers' own forward pass")
    section.notes = [
        "CPU time in ms on one thread, median of runs that take turns; ratio: orsched over "
        "transformers. Random weights, greedy tokens; the caches of both have the same shape.",
        f"round: one of {ROUNDS}, all requests at the same length. equal: all prompts of the "
        "given length. ragged: from an eighth of it up, which transformers pads and orsched does "
        "not. scattered: a round of requests in every other slot; ratio: over one in the first.",
    ]
    if find_spec("torch") is None or find_spec("transformers") is None:
        section.notes.append("not measured: the extra orsched[runner] is not installed")
        return section
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for shape in SHAPES[:1] if options.tiny else SHAPES:
            for dtype in DTYPES:
                section.rows += _measure(shape, dtype, options.repeats)
    finally:
        torch.set_num_threads(before)
    # equal prompts are the same matrix products on both sides: the limit leaves room for noise
    for kind, limit in (("round", 1.0), ("equal", 1.05), ("ragged", 1.0), ("scattered", 1.05)):
        ratios = [row["ratio"] for row in section.rows if row["step"] == kind]
        other = "packed slots" if kind == "scattered" else "transformers' own forward pass"
        what = f"{kind}: largest ratio to {other}"
        if ratios:
            section.targets.append(Target(what, max(ratios), limit, "times"))
    return section


def _measure(shape: Shape, dtype: str, repeats: int) -> list[dict[str, Any]]:
    rng = random.Random(0)
    sides = (Ours(shape, dtype), Transformers(shape, dtype))
    equal = [[rng.randrange(512) for _ in range(shape.tokens)] for _ in range(shape.requests)]
    ragged = [each[: rng.randint(shape.tokens // 8, shape.tokens)] for each in equal]
    ragged[0] = equal[0]
    steps: list[tuple[str, list[Callable[[], None]], int]] = [
        ("round", [side.rounds for side in sides], ROUNDS),
        ("equal", [lambda side=side: side.prefill(equal) for side in sides], 1),
    ]
    if shape.requests > 1:
        steps.append(("ragged", [lambda side=side: side.prefill(ragged) for side in sides], 1))
    rows = []
    for step, calls, passes in steps:
        ours, theirs = _by_turns(calls, [side.before_rounds for side in sides], repeats)
        rows.append(
            {
                "model": shape.model,
                "dtype": dtype,
                "step": step,
                "requests": shape.requests,
                "tokens": shape.tokens,
                "orsched_ms": ours / passes / 1e6,
                "transformers_ms": theirs / passes / 1e6,
                "ratio": ours / theirs,
            }
        )
    return [*rows, _scattered(shape, dtype, repeats)] if shape.requests > 1 else rows


def _scattered(shape: Shape, dtype: str, repeats: int) -> dict[str, Any]:
    one = Scattered(shape, dtype)
    calls = [one.scattered, one.packed]
    scattered, packed = _by_turns(calls, [one.before_rounds] * 2, repeats)
    return {
        "model": shape.model,
        "dtype": dtype,
        "step": "scattered",
        "requests": shape.requests,
        "tokens": shape.tokens,
        "orsched_ms": scattered / ROUNDS / 1e6,
        "transformers_ms": None,
        "ratio": scattered / packed,
    }


def _by_turns(
    calls: Sequence[Callable[[], None]], before: Sequence[Callable[[], None]], repeats: int
) -> list[float]:
    """Return the median CPU time of each call in nanoseconds; two runs of each come first."""
    times: list[list[int]] = [[] for _ in calls]
    for repeat in range(repeats + 2):
        for call, prepare, found in zip(calls, before, times, strict=True):
            prepare()
            begin = process_time_ns()
            call()
            if repeat >= 2:
                found.append(process_time_ns() - begin)
    return [median(found) for found in times]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--tiny", action="store_true", help="the smallest shape alone")
    given = parser.parse_args(arguments)
    print(run(Options(Path(), repeats=given.repeats, tiny=given.tiny)).text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
