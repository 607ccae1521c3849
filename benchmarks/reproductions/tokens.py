"""Tokens of the torch worker against ``generate`` of transformers, for each family and type.

python -m benchmarks.reproductions.tokens [--families ...] [--dtypes ...] [--seeds N]

Requests are inserted, processed in chunks, paused and released in an order drawn at random; each
sequence is then generated alone. In float64 the tokens must be equal. In a type of fewer digits two
orders of the same sums may differ where the two largest logits nearly tie: every sequence that
differs is listed with the first token that does and the margin there, the difference of the two
largest logits of the reference over the largest logit, which must be below the type's tolerance.
"""

from __future__ import annotations

import argparse
import random
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.arguments import count
from benchmarks.speed.section import table
from orsched.runner.worker.language_model import PRESETS
from orsched.runner.worker.layout import Chunk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.runner.worker.torch_worker import TorchWorker

FAMILIES = tuple(name for name in PRESETS if name.startswith("tiny"))
TOLERANCES = {"float64": 0.0, "float32": 2.0**-19, "bfloat16": 2.0**-5}
"""A first token may differ below this margin: 16 units in float32's last place, 4 in bfloat16's."""
LENGTH, VOCABULARY, SLOTS = 160, 512, 4


class Case:
    """Random requests, and a random order of insertions, chunks, pauses and releases."""

    def __init__(self, seed: int, requests: int = 8, longest: int = 60) -> None:
        self.rng = random.Random(seed)
        self.prompts = [
            [self.rng.randrange(VOCABULARY) for _ in range(self.rng.randint(1, longest))]
            for _ in range(requests)
        ]
        self.outputs = [self.rng.randint(1, longest) for _ in range(requests)]

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


class Difference(NamedTuple):
    """Where a sequence first differs from the reference.

    Attributes:
        request: of the case.
        token: position in the output.
        margin: difference of the reference's two largest logits there, over the largest size.
    """

    request: int
    token: int
    margin: float


def generated(model: Any, prompt: Sequence[int], count: int) -> tuple[list[int], list[float]]:
    """Return what transformers generates, and the margin of each token."""
    import torch

    ids = torch.tensor([list(prompt)], device=model.device)
    found = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=count,
        min_new_tokens=count,
        do_sample=False,
        pad_token_id=0,
        eos_token_id=None,
        output_logits=True,
        return_dict_in_generate=True,
    )
    logits = torch.stack(found.logits)[:, 0].double()
    best = logits.topk(2).values
    margins = (best[:, 0] - best[:, 1]) / logits.abs().amax(1)
    return found.sequences[0, len(prompt) :].tolist(), margins.tolist()


def differences(
    family: str, dtype: str, seed: int, device: str = "cpu", graphs: Any = None
) -> tuple[Case, list[Difference]]:
    """Serve a case, generate each of its sequences alone, and return where they first differ.

    ``device`` and ``graphs`` are those of the worker.
    """
    from orsched.runner.devices.settings import WorkerSettings
    from orsched.runner.worker.language_model import load_model
    from orsched.runner.worker.torch_worker import TorchWorker

    case = Case(seed)
    own = WorkerSettings(family, SLOTS, LENGTH, device, dtype, seed)
    worker = TorchWorker(own, graphs)
    worker.prepare()
    found = case.serve(worker)
    assert len({token for tokens in found for token in tokens}) > 20  # weights that tell
    plain = load_model(family, device, dtype, seed)
    differing = []
    for request, tokens in enumerate(found):
        expected, margins = generated(plain, case.prompts[request], case.outputs[request])
        assert len(tokens) == len(expected)
        first = next((i for i, token in enumerate(expected) if tokens[i] != token), None)
        if first is not None:
            differing.append(Difference(request, first, margins[first]))
    return case, differing


def measure(
    families: Sequence[str], dtypes: Sequence[str], seeds: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return a row for each family and type, and one for each sequence that differs."""
    rows, where = [], []
    for family in families:
        for dtype in dtypes:
            sequences = tokens = 0
            margins = []
            for seed in range(seeds):
                case, differing = differences(family, dtype, seed)
                sequences += len(case.outputs)
                tokens += sum(case.outputs)
                for each in differing:
                    margins.append(each.margin)
                    where.append({"family": family, "dtype": dtype, "seed": seed} | each._asdict())
            rows.append(
                {
                    "family": family,
                    "dtype": dtype,
                    "sequences": sequences,
                    "tokens": tokens,
                    "differ": len(margins),
                    "largest_margin": max(margins, default=None),
                    "tolerance": TOLERANCES[dtype],
                    "within": all(margin < TOLERANCES[dtype] for margin in margins),
                }
            )
    return rows, where


def main(arguments: Sequence[str] | None = None) -> int:
    """Print both tables; 1 if a sequence differs where it must not."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=FAMILIES)
    parser.add_argument("--dtypes", nargs="+", choices=list(TOLERANCES), default=list(TOLERANCES))
    parser.add_argument("--seeds", type=count, default=5)
    given = parser.parse_args(arguments)
    import torch

    torch.set_num_threads(1)
    rows, where = measure(given.families, given.dtypes, given.seeds)
    print("\n".join(table(rows)))
    if where:
        print("\nSequences that differ, and the first token that does")
        print("\n".join(table(where)))
    return 0 if all(row["within"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
