"""Small kernels of a layer in Triton: several passes over the same numbers as one.

``turn`` takes the projections of a layer to where attention needs them: queries and keys normed (if
the model does that) and turned by their positions' angles, queries side by side, keys and values in
the caches. ``gate`` is the activation of a gated feed forward part.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def turn(
    projected,  # [tokens, QUERIES + 2 * KEYS, 2 * HALF], contiguous
    cosines,  # [positions, 2 * HALF]
    sines,  # the same, with the signs of the halves' turn
    positions,  # [tokens]
    places,  # [tokens] rows of the caches
    query,  # [tokens, QUERIES, 2 * HALF], contiguous
    keys,  # [rows of the caches, KEYS, 2 * HALF]
    values,
    query_weight,  # [2 * HALF] of norms
    key_weight,
    eps,
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
    HALF: tl.constexpr,
    HEADS: tl.constexpr,  # heads of a program
    NORMED: tl.constexpr,
):
    """Serve some heads of one token."""
    token = tl.program_id(0)
    head = (tl.program_id(1) * HEADS + tl.arange(0, HEADS))[:, None]
    low = tl.arange(0, HALF)[None, :]
    high = low + HALF
    size = 2 * HALF
    there = head < QUERIES + 2 * KEYS
    turned = head < QUERIES + KEYS
    begin = projected + (token * (QUERIES + 2 * KEYS) + head) * size
    x = tl.load(begin + low, mask=there, other=0.0).to(tl.float32)
    y = tl.load(begin + high, mask=there, other=0.0).to(tl.float32)
    if NORMED:
        mean = (tl.sum(x * x, 1) + tl.sum(y * y, 1)) / size
        root = tl.where(turned, tl.rsqrt(mean + eps)[:, None], 1.0)
        is_query = head < QUERIES
        x *= root * _weight(query_weight, key_weight, low, is_query, turned)
        y *= root * _weight(query_weight, key_weight, high, is_query, turned)
    angle = tl.load(positions + token) * size
    x_cos = tl.where(turned, tl.load(cosines + angle + low).to(tl.float32), 1.0)
    y_cos = tl.where(turned, tl.load(cosines + angle + high).to(tl.float32), 1.0)
    x_sin = tl.where(turned, tl.load(sines + angle + low).to(tl.float32), 0.0)
    y_sin = tl.where(turned, tl.load(sines + angle + high).to(tl.float32), 0.0)
    first, second = x * x_cos + y * x_sin, y * y_cos + x * y_sin
    place = tl.load(places + token)
    target = query + (token * QUERIES + head) * size
    _store(target, low, high, first, second, head < QUERIES)
    target = keys + (place * KEYS + head - QUERIES) * size
    _store(target, low, high, first, second, turned & (head >= QUERIES))
    target = values + (place * KEYS + head - QUERIES - KEYS) * size
    _store(target, low, high, first, second, there & (head >= QUERIES + KEYS))


@triton.jit
def _weight(query_weight, key_weight, at, is_query, turned):
    both = tl.where(is_query, tl.load(query_weight + at), tl.load(key_weight + at))
    return tl.where(turned, both.to(tl.float32), 1.0)


@triton.jit
def _store(target, low, high, first, second, mask):
    kind = target.dtype.element_ty
    tl.store(target + low, first.to(kind), mask=mask)
    tl.store(target + high, second.to(kind), mask=mask)


@triton.jit
def gate(
    both,  # [tokens, 2 * size], contiguous: gates, then what they let through
    found,  # [tokens, size]
    size,
    BLOCK: tl.constexpr,
):
    """Return the gates' SiLU times what they let through, for some columns of one token."""
    token = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = at < size
    x = tl.load(both + token * 2 * size + at, mask=there, other=0.0).to(tl.float32)
    y = tl.load(both + token * 2 * size + size + at, mask=there, other=0.0).to(tl.float32)
    # rounded where the plain version rounds
    silu = (x / (1.0 + tl.exp(-x))).to(found.dtype.element_ty).to(tl.float32)
    tl.store(found + token * size + at, (silu * y).to(found.dtype.element_ty), mask=there)
