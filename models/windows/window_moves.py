"""Moves of the search: each tries one change and keeps it if V grows by at most a threshold. One
source for two executions: plain Python on lists, and compiled on arrays, equal move by move. So
only whole numbers, indices and loops here, and draws that come in from outside. Every move keeps
the number of windows and the paths, and returns the change of V."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence


END = -1  # no window: a path's end, or what is before its first window

Ints: TypeAlias = list[int]  # whole numbers in a list; in compiled moves an array


class Tables(NamedTuple):
    """Stage times, linked windows, and the surplus of windows over requests. ``following``,
    ``previous``: the next and the last window of the same client, or END."""

    width: int  # places a stage in ``at``
    times: Ints  # rounds done before each stage; the last entry is the end R
    start: Ints  # stage in which each window begins
    following: Ints
    previous: Ints
    at: Ints  # the windows that begin in each stage, in no order: ``width`` places a stage
    counts: Ints  # how many begin in each stage
    place: Ints  # the place of each window in its stage
    last: Ints  # the windows that end at the end, in no order
    last_place: Ints  # the place of such a window in ``last``
    mark: Ints  # which stages a move shifts together
    price: Ints  # what so many starts in one stage cost (``Prices.by_starts``)
    late_price: Ints  # the same in stages after which no longest request fits
    spent: Ints  # one entry, the prices of all stages together
    surplus: Ints  # G[L] for L = 0 .. longest request


NEAR = 3
LONG_SHIFT = 5
SHORT_SHIFTS = 0.8  # share of the shifts of a stage that are by one round
DRAWS = 5
"""Uniform draws a move: its kind, three choices, and the threshold's (drawn by the caller)."""
index = int
"""Makes an index; the compiled moves put an unsigned type here, which loops over in vectors."""

MANY_WINDOWS = (0.60, 0.85, 0.92, 0.985)
FEW_WINDOWS = (0.50, 0.70, 0.80, 0.92)
"""Cumulative shares of the moves: exchange, start, relocation, stage; the rest are chains.

With few windows a stage the times of stages matter more, and to move them costs less.
"""
FEW = 10


def shares_of(tables: Tables) -> tuple[float, float, float, float]:
    """Return the shares of the moves, by the number of windows a stage."""
    few = len(tables.start) < FEW * len(tables.counts)
    return FEW_WINDOWS if few else MANY_WINDOWS


def run_moves(
    tables: Tables, missing: int, draws: Sequence[float], thresholds: Sequence[int], budget: int
) -> tuple[int, int]:
    """Make a move for each threshold, until V = 0 in the budget; return the moves made and V."""
    made, stages, spent = 0, len(tables.counts), tables.spent
    exchange, start, relocation, stage = shares_of(tables)
    while made < len(thresholds) and (missing > 0 or spent[0] > budget):
        at = made * DRAWS
        kind, threshold = draws[at], thresholds[made]
        one, two, three = draws[at + 1], draws[at + 2], draws[at + 3]
        made += 1
        if kind < exchange:
            missing += exchange_tails(tables, one, two, three, threshold)
        elif kind < start:
            missing += shift_start(tables, one, two, threshold, budget)
        elif kind < relocation:
            missing += relocate(tables, one, two, three, threshold, budget)
        elif stages > 1 and kind < stage:
            missing += shift_stage(tables, one, two, three, threshold, budget)
        elif stages > 1:
            missing += shift_chain(tables, one, two, three, threshold, budget)
    return made, missing


def resize(surplus: Ints, old: int, new: int) -> int:
    """Let one window's length change; update the surplus and return the change of V."""
    longest = len(surplus) - 1
    old = 0 if old < 0 else longest if old > longest else old  # faster than min and max
    new = 0 if new < 0 else longest if new > longest else new
    change = 0
    if new > old:
        for length in range(index(old) + index(1), index(new) + index(1)):
            if surplus[length] < 0:
                change -= 1
            surplus[length] += 1
    else:
        for length in range(index(new) + index(1), index(old) + index(1)):
            if surplus[length] <= 0:
                change += 1
            surplus[length] -= 1
    return change


def end_stage(tables: Tables, window: int) -> int:
    """Return the stage at which a window ends; the number of stages stands for the end."""
    after = tables.following[window]
    return len(tables.counts) if after == END else tables.start[after]


def exchange_tails(tables: Tables, one_: float, near: float, two_: float, threshold: int) -> int:
    """Let two clients swap what they do after two windows that end at about the same time."""
    start, times, surplus = tables.start, tables.times, tables.surplus
    one = int(one_ * len(start))
    after_one, end_one = tables.following[one], end_stage(tables, one)
    end_two = end_one + int(near * (2 * NEAR + 1)) - NEAR
    if end_two == end_one or not 0 < end_two <= len(tables.counts):
        return 0
    two = _ending(tables, end_two, two_)
    if two == END or end_two <= start[one] or end_one <= start[two]:
        return 0
    after_two = tables.following[two]
    from_one, from_two = times[start[one]], times[start[two]]
    to_one, to_two = times[end_one], times[end_two]
    change = resize(surplus, to_one - from_one, to_two - from_one)
    change += resize(surplus, to_two - from_two, to_one - from_two)
    if change > threshold:
        resize(surplus, to_one - from_two, to_two - from_two)
        resize(surplus, to_two - from_one, to_one - from_one)
        return 0
    _link(tables, one, after_two)
    _link(tables, two, after_one)
    if after_one == END:
        _set_last(tables, one, two)
    elif after_two == END:
        _set_last(tables, two, one)
    return change


def _ending(tables: Tables, stage: int, draw: float) -> int:
    """Return a random window that ends at a stage, or END where the one drawn is a first one."""
    if stage == len(tables.counts):
        return tables.last[int(draw * len(tables.last))]
    count = tables.counts[stage]
    if count == 0:
        return END
    return tables.previous[tables.at[stage * tables.width + int(draw * count)]]


def _link(tables: Tables, window: int, after: int) -> None:
    """Let one window follow another."""
    tables.following[window] = after
    if after != END:
        tables.previous[after] = window


def _set_last(tables: Tables, old: int, new: int) -> None:
    """Note that another window of the same client ends at the end."""
    place = tables.last_place[old]
    tables.last[place] = new
    tables.last_place[new] = place


def move_start(tables: Tables, window: int, stage: int) -> None:
    """Note that a window begins in another stage."""
    at, place, counts, here = tables.at, tables.place, tables.counts, tables.start[window]
    counts[here] -= 1
    top = at[here * tables.width + counts[here]]
    at[here * tables.width + place[window]] = top
    place[top] = place[window]
    place[window] = counts[stage]
    at[stage * tables.width + counts[stage]] = window
    counts[stage] += 1
    tables.start[window] = stage


def price_of(tables: Tables, stage: int, count: int) -> int:
    """Return what so many starts cost in a stage; late ones have no longest request after them."""
    return _price_at(tables, tables.times[stage], count)


def _price_at(tables: Tables, time: int, count: int) -> int:
    """Return what so many starts cost after so many rounds."""
    late = time + len(tables.surplus) - 1 > tables.times[len(tables.counts)]
    return tables.late_price[count] if late else tables.price[count]


def above_budget(spent: int, cost: int, budget: int) -> int:
    """Return by how much more would be spent above the budget; what is within it is free."""
    return max(0, spent + cost - budget) - max(0, spent - budget)


def _price_of_moving(tables: Tables, here: int, there: int) -> int:
    """Return the change of the prices when a window begins in another stage."""
    if here == there:
        return 0
    few, many = tables.counts[here], tables.counts[there]
    change = price_of(tables, here, few - 1) - price_of(tables, here, few)
    return change + price_of(tables, there, many + 1) - price_of(tables, there, many)


def shift_start(
    tables: Tables, window_: float, near: float, threshold: int, budget: int = 0
) -> int:
    """Start a request a few stages earlier or later."""
    start, times, surplus = tables.start, tables.times, tables.surplus
    window = int(window_ * len(start))
    before = tables.previous[window]
    first = -1 if before == END else start[before]
    stage, last = start[window], end_stage(tables, window)
    target = stage + int(near * (2 * NEAR + 1)) - NEAR
    if target == stage or not first < target < last:
        return 0
    old, new, end = times[stage], times[target], times[last]
    change = resize(surplus, end - old, end - new)
    if before != END:
        change += resize(surplus, old - times[first], new - times[first])
    cost = _price_of_moving(tables, stage, target)
    if change + above_budget(tables.spent[0], cost, budget) > threshold:
        if before != END:
            resize(surplus, new - times[first], old - times[first])
        resize(surplus, end - new, end - old)
        return 0
    move_start(tables, window, target)
    tables.spent[0] += cost
    return change


def relocate(
    tables: Tables, window_: float, host_: float, stage_: float, threshold: int, budget: int = 0
) -> int:
    """Join a window with the one before it, and split another client's window instead."""
    start, times, surplus = tables.start, tables.times, tables.surplus
    n = len(start)
    window, host = int(window_ * n), int(host_ * n)
    before = tables.previous[window]
    if before == END or host in (window, before):
        return 0
    begin, end = start[host], end_stage(tables, host)
    if end - begin < 2:
        return 0
    stage = begin + 1 + int(stage_ * (end - begin - 1))
    t_before, t_window = times[start[before]], times[start[window]]
    t_end = times[end_stage(tables, window)]
    t_begin, t_split, t_close = times[begin], times[stage], times[end]
    change = resize(surplus, t_window - t_before, t_end - t_before)
    change += resize(surplus, t_end - t_window, t_close - t_split)
    change += resize(surplus, t_close - t_begin, t_split - t_begin)
    cost = _price_of_moving(tables, start[window], stage)
    if change + above_budget(tables.spent[0], cost, budget) > threshold:
        resize(surplus, t_split - t_begin, t_close - t_begin)
        resize(surplus, t_close - t_split, t_end - t_window)
        resize(surplus, t_end - t_before, t_window - t_before)
        return 0
    _relink(tables, window, before, host)
    move_start(tables, window, stage)
    tables.spent[0] += cost
    return change


def _relink(tables: Tables, window: int, before: int, host: int) -> None:
    """Take a window out of its path and put it behind another."""
    after, host_after = tables.following[window], tables.following[host]
    if after == END:
        _set_last(tables, window, before)
    if host_after == END:
        _set_last(tables, host, window)
    _link(tables, before, after)
    _link(tables, host, window)
    tables.previous[window] = host
    _link(tables, window, host_after)


def shift_stage(
    tables: Tables, stage_: float, step_: float, direction: float, threshold: int, budget: int = 0
) -> int:
    """Move a whole stage some rounds earlier or later."""
    times = tables.times
    stage = 1 + int(stage_ * (len(tables.counts) - 1))
    old = times[stage]
    new = old + _shift(step_, direction)
    if not times[stage - 1] <= new <= times[stage + 1]:
        return 0
    count = tables.counts[stage]
    cost = _price_at(tables, new, count) - _price_at(tables, old, count)
    change = _move_stage(tables, stage, old, new)
    if change + above_budget(tables.spent[0], cost, budget) > threshold:
        _move_stage(tables, stage, new, old)
        return 0
    times[stage] = new
    tables.spent[0] += cost
    return change


def _shift(step: float, direction: float) -> int:
    """Return a small number of rounds, not 0."""
    rounds = 1
    if step >= SHORT_SHIFTS:
        rounds = 2 + int((step - SHORT_SHIFTS) / (1 - SHORT_SHIFTS) * (LONG_SHIFT - 1))
    return rounds if direction < 0.5 else -rounds


def shift_chain(
    tables: Tables, stage_: float, step_: float, direction: float, threshold: int, budget: int = 0
) -> int:
    """Shift a stage and those that are whole longest requests away from it, all or later ones.
    Where many requests are of the longest length, stages one such length apart belong together."""
    times, mark, stages = tables.times, tables.mark, len(tables.counts)
    stage = 1 + int(stage_ * (stages - 1))
    shift = _shift(step_, direction)
    whole = direction < 0.25 or direction >= 0.75
    longest = len(tables.surplus) - 1
    before, cost = 0, 0
    for k in range(stages):
        among = k > 0 and (whole or k >= stage) and (times[k] - times[stage]) % longest == 0
        mark[k] = 1 if among else 0
        now = times[k] + shift * mark[k]
        if now < before or now > times[stages]:
            return 0
        before = now
        if among:
            count = tables.counts[k]
            cost += _price_at(tables, now, count) - _price_at(tables, times[k], count)
    change = _move_marked(tables, shift)
    if change + above_budget(tables.spent[0], cost, budget) > threshold:
        _move_marked(tables, -shift)
        return 0
    tables.spent[0] += cost
    return change


def _move_marked(tables: Tables, shift: int) -> int:
    """Shift all marked stages; return the change of V."""
    times, change = tables.times, 0
    for stage in range(len(tables.counts)):
        if tables.mark[stage]:
            change += _move_stage(tables, stage, times[stage], times[stage] + shift)
            times[stage] += shift
    return change


def _move_stage(tables: Tables, stage: int, old: int, new: int) -> int:
    """Resize every window that ends or begins in a stage; times[stage] itself stays."""
    start, times, surplus = tables.start, tables.times, tables.surplus
    change, first = 0, stage * tables.width
    for place in range(first, first + tables.counts[stage]):
        window = tables.at[place]
        before = tables.previous[window]
        if before != END:
            begin = times[start[before]]
            change += resize(surplus, old - begin, new - begin)
        end = times[end_stage(tables, window)]
        change += resize(surplus, end - old, end - new)
    return change


def swap_requests(
    request: Ints,
    load: Ints,
    spans: Ints,
    stage: Ints,
    lengths: Ints,
    prompts: Ints,
    worth: Ints,
    draws: Sequence[float],
    thresholds: Sequence[int],
) -> None:
    """Swap requests that hold in each other's windows, where a threshold allows it. A swap is kept
    when the worth of the two stages' tokens grows by at most its threshold."""
    n = len(request)
    for made in range(len(thresholds)):
        one, two = int(draws[2 * made] * n), int(draws[2 * made + 1] * n)
        here, there, mine, yours = stage[one], stage[two], request[one], request[two]
        moved = prompts[mine] - prompts[yours]
        if here == there or moved == 0:
            continue
        if lengths[mine] > spans[two] or lengths[yours] > spans[one]:
            continue
        less, more = load[here] - moved, load[there] + moved
        change = worth[less] + worth[more] - worth[load[here]] - worth[load[there]]
        if change > thresholds[made]:
            continue
        request[one], request[two] = yours, mine
        load[here], load[there] = less, more
