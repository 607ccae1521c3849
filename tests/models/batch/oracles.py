"""Oracles of the DP batcher, by the paper's formulas and exhaustive search, and random inputs."""

from functools import cache

import numpy as np
from hypothesis import strategies as st

from orsched import BilinearCost, InputError
from orsched.models.batch import DEEPSPEED, PaddedMemory, TableMemory
from tests.in_order import in_order


def serving_fs(cost, size, longest, slice_tokens):
    """SCLS eq. (1)-(4) as printed, a term a round."""
    stage = cost.p1_fs * size * longest + cost.p2_fs * size + cost.p3_fs * longest + cost.p4_fs
    return stage + sum(
        cost.d1_fs * size * (longest + l) + cost.d2_fs * size + cost.d3_fs * (longest + l)
        + cost.d4_fs
        for l in range(1, slice_tokens + 1)  # noqa: E741
    )  # fmt: skip


def fits(memory, max_batch, size, longest, slice_tokens):
    """Whether a batch may be, by the rules as printed."""
    if max_batch is not None and size > max_batch:
        return False
    padded = longest + slice_tokens
    if isinstance(memory, PaddedMemory):
        available = memory.capacity_bytes - memory.model_bytes - memory.engine_bytes
        return padded * size * memory.token_bytes * 10**6 <= memory.zeta_ppm * available
    if memory is DEEPSPEED:
        return not (size > 12 if padded > 1024 else size > 22 if padded > 512 else size > 28)
    if isinstance(memory, TableMemory):
        return size <= next((m for t, m in memory.limits if padded <= t), memory.beyond)
    return True


def least_over_all(lengths, cost, slice_tokens, memory, max_batch):
    """Least total over every partition into admissible batches, by subsets."""
    n = len(lengths)

    def price(mask):
        members = [lengths[i] for i in range(n) if mask >> i & 1]
        size, longest = len(members), max(members)
        if not fits(memory, max_batch, size, longest, slice_tokens):
            return None
        return serving_fs(cost, size, longest, slice_tokens)

    prices = [None, *map(price, range(1, 1 << n))]

    @cache
    def least(mask):
        if not mask:
            return 0
        low = mask & -mask
        rest = sub = mask ^ low
        found = []
        while True:
            if prices[sub | low] is not None:
                found.append(prices[sub | low] + least(rest ^ sub))
            if not sub:
                return min(found)
            sub = (sub - 1) & rest

    return least((1 << n) - 1)


def least_contiguous(lengths, cost, slice_tokens, memory, max_batch):
    """Least total over every way to cut the sorted requests, one by one."""
    ordered = sorted(lengths)
    n = len(ordered)
    best = None
    for cuts in range(1 << max(0, n - 1)):
        total, size = 0, 0
        for i in range(n):
            size += 1
            if i == n - 1 or cuts >> i & 1:
                if not fits(memory, max_batch, size, ordered[i], slice_tokens):
                    break
                total += serving_fs(cost, size, ordered[i], slice_tokens)
                size = 0
        else:
            best = total if best is None else min(best, total)
    return best


def any_order(draw, top):
    """A memory table whose N_max may grow and fall with the length."""
    steps = sorted(draw(st.sets(st.integers(1, top + 3), min_size=1, max_size=6)))
    return TableMemory(tuple((t, draw(st.integers(1, 9))) for t in steps), draw(st.integers(1, 9)))


@st.composite
def cases(draw, most=9, negative=False):
    """(lengths, cost, slice, memory, max_batch) with many ties."""
    top = draw(st.sampled_from([1, 3, 8, 30]))
    lengths = draw(st.lists(st.integers(1, top), max_size=most))
    size = draw(st.sampled_from([2, 6, 40, 10**6]))
    low = -size if negative else 0
    values = [draw(st.integers(low, size)) for _ in range(8)]
    if negative:  # so that most batches take a positive time
        values[3] += draw(st.sampled_from([0, size, size * top]))
        values[7] += draw(st.sampled_from([0, size, size * top]))
        values[1] += draw(st.sampled_from([0, size * top]))
        values[5] += draw(st.sampled_from([0, size * top]))
    if draw(st.integers(0, 3)) == 0:  # nothing depends on the length: ties everywhere
        values[0] = values[2] = values[4] = values[6] = 0
    kind = draw(st.sampled_from(["none", "padded", "table"]))
    memory = None
    if kind == "padded":
        memory = PaddedMemory(draw(st.integers(40, 200)), 1, zeta_ppm=900_000)
    elif kind == "table":
        memory = any_order(draw, top)
    max_batch = draw(st.sampled_from([None, None, 1, 2, 3, 5]))
    return lengths, in_order(BilinearCost, *values), draw(st.integers(1, 3)), memory, max_batch


def random_case(rng, most):
    """As ``cases``, from numpy's generator, or None where the input is refused."""
    top = int(rng.choice([1, 2, 5, 30, 200]))
    lengths = rng.integers(1, top + 1, int(rng.integers(1, most + 1))).tolist()
    size = int(rng.choice([2, 6, 40, 10**12]))
    kind = int(rng.integers(0, 3))
    values = rng.integers(-size if kind else 0, size + 1, 8)
    if kind:  # a positive fixed part, and in one kind A that falls with the length
        values[[1, 3, 5, 7]] += size * rng.integers(0, 3 * top, 4)
    if kind == 2:
        values[[0, 4]] = -np.abs(values[[0, 4]])
    if rng.random() < 0.2:  # nothing depends on the length: ties everywhere
        values[[0, 2, 4, 6]] = 0
    steps = np.unique(rng.integers(1, top + 4, int(rng.integers(1, 8)))).tolist()
    memory = [
        None,
        PaddedMemory(int(rng.integers(2 * top + 10, 40 * top + 11)), 1),
        TableMemory(tuple((t, int(rng.integers(1, 20))) for t in steps), int(rng.integers(1, 9))),
    ][int(rng.integers(0, 3))]
    max_batch = None if rng.random() < 0.6 else int(rng.integers(1, 40))
    return (
        lengths, in_order(BilinearCost, *values.tolist()), int(rng.integers(1, 4)), memory,
        max_batch,
    )  # fmt: skip


def accepted(call):
    """Return the answer, or None where the input is refused for its negative times."""
    try:
        return call()
    except InputError as error:
        if "negative time" in str(error) or "does not fit" in str(error):
            return None
        raise
