"""The decode kernel in Triton: one token of each request attends to the request's cache.

One program serves a request and a head of keys: the query heads that share it are the rows of its
matrix products (16 at least, as the hardware asks), so that each key is read once. Maximum and sum
run along in float32.
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
