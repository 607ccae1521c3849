"""Kernels in Triton: the decode kernel, and small ones that make several passes one.

``decode``: one token of each request attends to the request's cache. One program serves a request
and a head of keys: the query heads that share it are the rows of its matrix products (16 at least,
as the hardware asks), so that each key is read once. Maximum and sum run along in float32.

``turn`` takes the projections of a layer to where attention needs them: queries and keys normed (if
the model does that) and turned by their positions' angles, queries side by side, keys and values in
the caches. ``gate`` is the activation of a gated feed forward part.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def decode(
    query,  # [rows, heads, SIZE], any strides but the last
    keys,  # [rows of the caches, heads of keys, SIZE]
    values,
    found,  # [rows, heads, SIZE], contiguous
    begins,  # [rows] first row of the caches of each request
    used,  # [rows] keys of each request
    scale,
    window,  # keys that a token sees; 0: all
    query_row,  # strides of the query
    query_head,
    GROUP: tl.constexpr,  # query heads that share a head of keys
    PADDED: tl.constexpr,  # the same, at least 16
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,  # keys at a time
    PRECISION: tl.constexpr,
    WIDE: tl.constexpr,  # multiply in float32: Triton's interpreter knows no bfloat16 products
):
    """Attend for one request and one head of keys."""
    row, head, heads = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    within, element, place = tl.arange(0, PADDED), tl.arange(0, SIZE), tl.arange(0, BLOCK)
    member = head * GROUP + within
    real = (within < GROUP)[:, None]
    first_row = tl.load(begins + row)
    count = tl.load(used + row)
    begin = query + row * query_row
    q = tl.load(begin + member[:, None] * query_head + element[None, :], mask=real, other=0.0)
    most = tl.full([PADDED], float("-inf"), tl.float32)
    total = tl.zeros([PADDED], tl.float32)
    sums = tl.zeros([PADDED, SIZE], tl.float32)
    seen = tl.where(window > 0, tl.maximum(count - window, 0), 0)
    for start in range(seen // BLOCK * BLOCK, count, BLOCK):
        at = start + place
        there = at < count
        offset = ((first_row + at) * heads + head) * SIZE
        k = tl.load(keys + offset[:, None] + element[None, :], mask=there[:, None], other=0.0)
        scores = _product(q, tl.trans(k), PRECISION, WIDE) * scale
        scores = tl.where((there & (at >= seen))[None, :], scores, float("-inf"))
        larger = tl.maximum(most, tl.max(scores, 1))
        weights = tl.exp(scores - larger[:, None])
        shrink = tl.exp(most - larger)
        v = tl.load(values + offset[:, None] + element[None, :], mask=there[:, None], other=0.0)
        sums = sums * shrink[:, None]
        sums += _product(weights.to(v.dtype), v, PRECISION, WIDE)
        total = total * shrink + tl.sum(weights, 1)
        most = larger
    answer = (sums / total[:, None]).to(found.dtype.element_ty)
    target = found + (row * heads * GROUP + member)[:, None] * SIZE + element[None, :]
    tl.store(target, answer, mask=real)


@triton.jit
def _product(a, b, PRECISION: tl.constexpr, WIDE: tl.constexpr):
    if WIDE:
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, input_precision=PRECISION)


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
