"""Our kernels in Triton's interpreter (``TRITON_INTERPRET=1``, before the import); JSON lines."""

import json
import sys
from itertools import product

import torch

from orsched.runner.worker import attention, decoder, triton_kernels
from orsched.runner.worker.kernels import DecodeRounds, DenseRounds
from orsched.runner.worker.language_model import Shape
from orsched.runner.worker.layout import Chunk, Heads, Slots, lay_out
from tests.runner.torch_workers import torch_worker

LIMITS = {"float32": 2e-6, "bfloat16": 0.02}
"""Differences of means of standard normal values, as measured on a GPU for bfloat16."""

LENGTHS = [1, 64, 65, 0, 130, 17]
"""Around the kernel's blocks of 64 keys; the slot of length 0 does not take part."""


FEW = sys.argv[1:] == ["few"]
"""Whether few of the cases are wanted: one of each kind."""


def main():
    for result in (*decoding(), *mutated(), *fusing(), *trust(), worker()):
        print(json.dumps(result))


def decoding():
    """The decode kernel: ragged lengths, an inactive row, windows."""
    few = product(LIMITS, (4,), (64,), (None, 5))
    for case in few if FEW else product(LIMITS, (1, 4, 8), (64, 128), (None, 1, 5, 70)):
        yield {"case": f"decode-{case}", "right": compared(*case)}


def compared(dtype, group, size, window):
    """Whether the requests' rows are those of the dense kernel, and no two of them alike."""
    numbers = torch.Generator().manual_seed(group * size)
    slots = Slots(Shape(1, 2, size, 0, 0), 6, 140, torch.zeros((), dtype=getattr(torch, dtype)))
    for each in slots.rows[0]:
        each.copy_(torch.randn(each.shape, generator=numbers))
    slots.lengths[:6] = torch.tensor(LENGTHS)
    slots.order.copy_(torch.tensor([4, 0, 5, 2, 1, slots.unused]))
    layout = lay_out(slots, 6, 140)
    wide = torch.randn((6, 2 * group + 4, size), generator=numbers).to(slots.keys[0])
    query = wide[:, : 2 * group]  # as the worker's: not side by side
    found = []
    for kernel in (DecodeRounds(slots), DenseRounds(slots)):
        kernel.begin(layout)
        found.append(kernel(Heads(0, query, size**-0.5, window))[:5].double())
    worst = float((found[0] - found[1]).abs().max())
    return worst <= LIMITS[dtype] and float(found[0].std()) > 0.05


def mutated():
    plain = DecodeRounds.begin

    def shifted(self, layout):
        plain(self, layout)
        self.begins = self.begins + 1

    def short(self, layout):
        plain(self, layout)
        self.used = (self.used - 1).clamp(min=1)

    for name, begin in (("none", plain), ("begins", shifted), ("a key too few", short)):
        DecodeRounds.begin = begin
        slots = Slots(Shape(1, 2, 64, 0, 0), 4, 96, torch.zeros(()))
        agree = attention.agrees(DecodeRounds(slots), DenseRounds(slots), slots)
        yield {"case": f"fault-{name}", "right": agree == (name == "none")}
    DecodeRounds.begin = plain


def fusing():
    few = product(LIMITS, (3,), (4,), (64,))
    every = product(LIMITS, (1, 3), (1, 4, 8), (16, 64, 128))
    for dtype, kv, group, size in few if FEW else every:
        like = torch.zeros((), dtype=getattr(torch, dtype))
        slots = Slots(Shape(1, kv, size, 0, 0), 1, 1, like)
        agree = decoder.agrees(decoder.fused(), slots, kv * group)
        yield {"case": f"fused-{dtype}-{kv}-{group}-{size}", "right": agree}


def trust():
    slots = Slots(Shape(1, 2, 64, 0, 0), 1, 1, torch.zeros(()))

    def swapped(what, angles):
        return decoder.fused_turn(what._replace(keys=what.values, values=what.keys), angles)

    def ungated(both):
        return decoder.fused_gate(both.flip(-1)).flip(-1)

    kinds = {
        "none": decoder.fused(),
        "caches swapped": decoder.Fused(swapped, decoder.fused_gate, True),
        "halves swapped": decoder.Fused(decoder.fused_turn, ungated, True),
    }
    for name, kind in kinds.items():
        right = decoder.agrees(kind, slots, 8) == (name == "none")
        yield {"case": f"trust-{name}", "right": right}


def worker():
    """A whole worker on our kernels yields the tokens of one on the plain ones."""
    found = []
    for ours in (False, True):
        each = torch_worker("tiny-qwen3", slots=5, length=90, seed=3)
        if ours:
            each.attention.rounds = DecodeRounds(each.slots)
            each.forward.fused = decoder.fused()
        each.prefill([Chunk(3, 0, [5, 6, 7], True), Chunk(1, 0, [9] * 61, True)])
        each.decode([1, 3], rounds=4)
        each.step([Chunk(4, 0, [2] * 5, True)], [1])
        each.decode([4, 1], rounds=2)
        found.append([each.take(slot, size).tolist() for slot, size in ((3, 3), (1, 61), (4, 5))])
    return {"case": "worker", "tokens": found}


if __name__ == "__main__":
    assert triton_kernels.decode is not None
    main()
