"""Small kernels of a layer as one, where Triton compiles them and they agree with the plain."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple
from warnings import warn

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from orsched.runner.worker.slots import Slots

HEADS = 8
"""Heads of a program that turns."""

BLOCK = 1024
"""Columns of a program that gates."""

TOLERANCE = 0.07
"""Of numbers below 8 in bfloat16 that are rounded once here and some times in the plain version."""


class Norms(NamedTuple):
    """Weights, [head size] each, of the norms of queries and of keys."""

    query: Tensor
    key: Tensor
    eps: float


class Turned(NamedTuple):
    """What a layer's projections become, and where from.

    Attributes:
        projected: [tokens, heads, head size], queries, then keys, then values.
        positions: [tokens].
        places: [tokens] rows of the caches.
        keys, values: the caches of the layer.
        norms: of queries and keys, if the model has them.
    """

    projected: Tensor
    positions: Tensor
    places: Tensor
    keys: Tensor
    values: Tensor
    norms: Norms | None


class Angles(NamedTuple):
    """[positions, 1, head size] cosines, and sines with the signs of the halves' turn."""

    cos: Tensor
    sin: Tensor

    def of(self, positions: Tensor) -> Angles:
        """Return those of some tokens."""
        return Angles(self.cos[positions], self.sin[positions])


def turn(what: Turned, angles: Angles) -> Tensor:
    """Norm, turn, and write keys and values to the caches; return [tokens, heads, head size].

    The plain version: some ten kernels. It takes the angles of the tokens, not of all positions.
    """
    import torch

    kv = what.keys.shape[1]
    first, value = what.projected[:, :-kv], what.projected[:, -kv:]
    query, key = first[:, :-kv], first[:, -kv:]
    if what.norms is not None:
        query = normed(query, what.norms.query, what.norms.eps)
        key = normed(key, what.norms.key, what.norms.eps)
        first = torch.cat([query, key], 1)
    cos, sin = angles
    first = torch.addcmul(first * cos, first.roll(cos.shape[-1] // 2, -1), sin)
    what.keys.index_copy_(0, what.places, first[:, -kv:])
    what.values.index_copy_(0, what.places, value)
    return first[:, :-kv]


def normed(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Return the root mean square norm over the last dimension, computed in float32."""
    from torch import float32
    from torch.nn.functional import rms_norm

    size = weight.shape
    if x.dtype == float32 or x.is_cuda:  # one kernel, whose sums are in float32
        return rms_norm(x, size, weight, eps)
    return rms_norm(x.float(), size, None, eps).to(x.dtype) * weight


def fused_turn(what: Turned, angles: Angles) -> Tensor:
    """Do what ``turn`` does in one kernel, which finds the angles in those of all positions."""
    import torch

    from orsched.runner.worker.triton_fused import turn as kernel

    tokens, heads, size = what.projected.shape
    kv = what.keys.shape[1]
    query = torch.empty(
        (tokens, heads - 2 * kv, size), dtype=what.projected.dtype, device=what.projected.device
    )
    weights = what.norms or Norms(angles.cos, angles.cos, 0.0)  # not looked at without norms
    kernel[(tokens, -(-heads // HEADS))](
        what.projected,
        angles.cos,
        angles.sin,
        what.positions,
        what.places,
        query,
        what.keys,
        what.values,
        weights.query,
        weights.key,
        weights.eps,
        QUERIES=heads - 2 * kv,
        KEYS=kv,
        HALF=size // 2,
        HEADS=HEADS,
        NORMED=what.norms is not None,
        num_warps=2,
    )
    return query


def gate(both: Tensor) -> Tensor:
    """Return the SiLU of the first half of the columns times the second."""
    from torch.nn.functional import silu

    first, second = both.chunk(2, -1)
    return silu(first).mul_(second)


def fused_gate(both: Tensor) -> Tensor:
    """Do what ``gate`` does in one kernel."""
    from orsched.runner.worker.triton_fused import gate as kernel

    tokens, size = both.shape[0], both.shape[1] // 2
    found = both.new_empty((tokens, size))
    kernel[(tokens, -(-size // BLOCK))](both, found, size, BLOCK=BLOCK, num_warps=4)
    return found


class Fused(NamedTuple):
    """The kernels that a model's layers use.

    Attributes:
        turn, gate: the kernels.
        by_position: whether ``turn`` takes the angles of all positions.
    """

    turn: Callable[[Turned, Angles], Tensor] = turn
    gate: Callable[[Tensor], Tensor] = gate
    by_position: bool = False


def fused() -> Fused:
    """Return the fused kernels."""
    return Fused(fused_turn, fused_gate, True)


def serves(slots: Slots) -> bool:
    """Return whether the kernels can be compiled for the caches' device, type and head size."""
    import torch

    cache = slots.keys[0]
    size = cache.shape[-1]
    return (
        cache.is_cuda
        and find_spec("triton") is not None
        and cache.dtype in (torch.bfloat16, torch.float16)
        and size >= 16
        and size & (size - 1) == 0
    )


def fused_for(slots: Slots, queries: int) -> Fused:
    """Return the fused kernels where they are there and agree with the plain ones.

    Args:
        slots: whose caches are written.
        queries: heads of queries.
    """
    if not serves(slots):
        return Fused()
    try:
        if agrees(fused(), slots, queries):
            return fused()
        reason = "they compute otherwise on this device"
    except Exception as error:  # a compiler's own
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
    warn(f"steps are slower without fused kernels: {reason}", RuntimeWarning, stacklevel=2)
    return Fused()


def agrees(kernels: Fused, slots: Slots, queries: int) -> bool:
    """Return whether kernels compute what the plain ones do, on random numbers."""
    import torch

    cache = slots.keys[0]
    kv, size, tokens = cache.shape[2], cache.shape[3], 5
    numbers = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=numbers).to(cache)

    angle = random(7, 1, size // 2)
    angles = Angles(torch.cat([angle.cos()] * 2, -1), torch.cat([-angle.sin(), angle.sin()], -1))
    at = torch.tensor([3, 0, 6, 1, 3], device=cache.device)
    rows = torch.tensor([4, 9, 0, 2, 11], device=cache.device)
    projected = random(tokens, queries + 2 * kv, size)
    for norms in (None, Norms(random(size), random(size), 1e-6)):
        found = []
        for each in (kernels, Fused()):
            keys, values = cache.new_zeros((2, 12, kv, size))
            what = Turned(projected, at, rows, keys, values, norms)
            query = each.turn(what, angles if each.by_position else angles.of(at))
            found.append(torch.cat([query.flatten(), keys.flatten(), values.flatten()]).float())
        if not float((found[0] - found[1]).abs().max()) <= TOLERANCE:
            return False
    both = random(tokens, 2 * 1500)
    worst = (kernels.gate(both).float() - gate(both).float()).abs().max()
    return bool(worst <= TOLERANCE)
