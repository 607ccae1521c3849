"""Expansion of packed plain states: written so that numba can compile it as it stands. The same
search as ``states.BestFirst``, with the bounds of ``packed_bounds``. Functions take ``Case``,
``Store``, ``Bins`` and the array of counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.models.best_first.packed_bounds import (
    BEST,
    BOUND,
    EXPANDED,
    FOUND,
    LEFT_OUT,
    NODES,
    OPEN,
    blocks_of,
    equal_at_most,
    jointly,
    least_rounds,
    packs,
    to_end,
    totals,
)  # fmt: skip

if TYPE_CHECKING:
    from typing import Any

    from orsched.models.best_first.packed_bounds import Bins, Case, Store

GO_ON, FINISHED, FULL, IMPROVED = 0, 1, 2, 3
_PRIME, _OTHER = 2147483647, 2147483629


def advance(case: Case, store: Store, at: Any, most: int, room: int, space: Any, bins: Bins) -> int:
    """Expand up to ``most`` states; return why it ended. Stops with ``FULL`` where fewer nodes than
    ``room``, the most that one state has after it, are free, and with ``IMPROVED`` after a better
    bound or incumbent. ``space``: nine rows for what is worked out in between; to allocate nothing
    here is what makes the compiled search fast."""
    cnt, suffix, chosen, to_go = space[0], space[1], space[2], space[3]
    left, after, scratch = space[4], space[5], space[6:]
    kinds = len(case.rounds)
    free_bit = 1 << (case.clients * case.bits)
    number = 1
    for count in case.counts:
        number += count
    scratch[0, kinds] = number
    for _ in range(most):
        if at[OPEN] == 0:
            return FINISHED
        if at[NODES] + room >= len(store.waiting):
            return FULL
        least = store.keys[0] // number
        if least >= at[BEST]:
            return FINISHED
        better = least > at[BOUND]
        if better:
            at[BOUND] = least
        node = pop(store, at)
        store.closed[node] = 1
        waiting, active = store.waiting[node], store.active[node]
        if store.known[find(store, waiting, active, store.blocks[node])] != node:
            at[LEFT_OUT] += 1
        else:
            waited = active >= free_bit
            unpack(case, waiting, active, cnt, left)
            if store.rounds[node] <= 0 and is_dominated(case, store, node, left, waited):
                at[LEFT_OUT] += 1
            elif not is_later(case, store, at, node, least, cnt, left, scratch, bins):
                at[EXPANDED] += 1
                found = at[FOUND]
                expand(
                    case, store, at, node, least, cnt, left, suffix, chosen, to_go, after, scratch
                )
                better = better or at[FOUND] != found
        if better:
            return IMPROVED
    return GO_ON


def is_later(
    case: Case,
    store: Store,
    at: Any,
    node: int,
    least: int,
    cnt: Any,
    left: Any,
    scratch: Any,
    bins: Bins,
) -> bool:
    """Return whether a state takes longer than its bound said: then it has been put back. As many
    rounds are too few as what waits does not fit into (``packs``). That is looked at only here, of
    the states whose turn it is, since it takes longer than the other bounds."""
    work, number = totals(case, cnt, left)
    spent = store.spent[node]
    limit = at[BEST] - spent
    most = (limit - 1 - -(-number // case.clients) * case.stage) // case.round
    rounds = max(abs(store.rounds[node]), least_rounds(case, cnt, left, work, most))
    equal = equal_at_most(case, blocks_of(case, cnt, left, spent))
    while rounds <= most:
        bound = jointly(case, cnt, left, rounds, most, work, number, limit, equal, scratch)
        if bound >= limit:
            break
        store.rounds[node] = rounds
        if spent + bound > least:
            store.closed[node] = 0
            push(store, at, (spent + bound) * scratch[0, len(case.rounds)] + number, node)
            return True
        if packs(case, cnt, left, rounds, bins):
            return False
        rounds += 1
    return True


def unpack(case: Case, waiting: int, active: int, cnt: Any, left: Any) -> None:
    """Write the numbers that wait and the clients' remaining rounds into arrays."""
    for i in range(len(case.rounds)):
        cnt[i] = (waiting >> case.shifts[i]) & ((1 << (case.shifts[i + 1] - case.shifts[i])) - 1)
    mask = (1 << case.bits) - 1
    for j in range(case.clients):
        left[j] = (active >> (j * case.bits)) & mask


def expand(
    case: Case,
    store: Store,
    at: Any,
    node: int,
    least: int,
    cnt: Any,
    left: Any,
    suffix: Any,
    chosen: Any,
    to_go: Any,
    after: Any,
    scratch: Any,
) -> None:
    """Offer every full stage, and the rounds until the next finish."""
    clients, kinds = case.clients, len(case.rounds)
    free = 0
    while free < clients and left[free] == 0:
        free += 1
    suffix[kinds] = 0
    for i in range(kinds - 1, -1, -1):
        suffix[i] = suffix[i + 1] + cnt[i]
    spent, waiting = store.spent[node], store.waiting[node]
    if free < clients:
        gone = left[free]
        for j in range(clients):
            after[j] = max(0, left[j] - gone)
        offer(
            case,
            store,
            at,
            node,
            waiting,
            cnt,
            after,
            spent + gone * case.round,
            True,
            least,
            scratch,
        )
    size = min(free, suffix[0])
    if size == 0:
        return
    longest = longest_block(case, cnt, left, spent) if free == clients else 0
    ends = size == suffix[0]
    i = 0
    to_go[0] = size
    chosen[0] = min(cnt[0], size) + 1
    while i >= 0:
        chosen[i] -= 1
        if chosen[i] < max(0, to_go[i] - suffix[i + 1]):
            i -= 1
            continue
        rest = to_go[i] - chosen[i]
        if rest > 0:
            i += 1
            to_go[i] = rest
            chosen[i] = min(cnt[i], rest) + 1
            continue
        if chosen[i] == clients and i < longest:
            continue
        then = waiting - taken(case, chosen, i)
        put_stage(case, chosen, i, free, left, after)
        total = spent + case.stage
        if ends:
            total += after[clients - 1] * case.round
            if total < at[BEST]:
                at[BEST] = total
                at[FOUND] = add(store, at, node, then, pack(case, after), spent + case.stage, 0)
            continue
        gone = after[0]
        for j in range(clients):
            after[j] -= gone
        for k in range(i + 1):
            cnt[k] -= chosen[k]
        offer(
            case,
            store,
            at,
            node,
            then,
            cnt,
            after,
            total + gone * case.round,
            False,
            least,
            scratch,
        )
        for k in range(i + 1):
            cnt[k] += chosen[k]


def taken(case: Case, chosen: Any, last: int) -> int:
    """Return a stage, so many of each kind up to the last, packed like those that wait."""
    found = 0
    for k in range(last + 1):
        found += chosen[k] << case.shifts[k]
    return found


def put_stage(case: Case, chosen: Any, last: int, free: int, left: Any, after: Any) -> None:
    """Fill ``after`` with the rounds of each client once a stage has begun on those free."""
    filled = 0
    for k in range(last + 1):
        for _ in range(chosen[k]):
            after[filled] = case.rounds[k]
            filled += 1
    while filled < free:
        after[filled] = 0
        filled += 1
    for j in range(free, case.clients):
        after[j] = left[j]
    sort(after, case.clients)


def offer(
    case: Case,
    store: Store,
    at: Any,
    node: int,
    waiting: int,
    cnt: Any,
    left: Any,
    spent: int,
    waited: bool,
    least: int,
    scratch: Any,
) -> None:
    """Open a state, unless it is known or no better than the incumbent."""
    active = pack(case, left)
    if waited:
        active |= 1 << (case.clients * case.bits)
    limit = at[BEST] - spent
    blocks = blocks_of(case, cnt, left, spent)
    gone = (spent - store.spent[node] - (0 if waited else case.stage)) // case.round
    rounds = max(0, store.rounds[node] - gone)  # what fits behind this state fits behind its node
    bound = to_end(case, cnt, left, limit, equal_at_most(case, blocks), rounds, scratch)
    if bound >= limit:
        return
    if blocks < 0:
        blocks = store.blocks[node]
    slot = find(store, waiting, active, blocks)
    known = store.known[slot]
    if known >= 0 and store.spent[known] < spent:
        return
    number = 0
    for i in range(len(case.rounds)):
        number += cnt[i]
    key = max(least, spent + bound) * scratch[0, len(case.rounds)] + number
    since = store.since[node] if waited else spent
    if known >= 0 and store.spent[known] == spent:
        if waited and since > store.since[known]:
            store.since[known] = since
            if store.closed[known]:
                store.closed[known] = 0
                push(store, at, key, known)
        return
    new = add(store, at, node, waiting, active, spent, since)
    store.blocks[new], store.rounds[new] = blocks, -rounds
    store.known[slot] = new
    push(store, at, key, new)


def longest_block(case: Case, cnt: Any, left: Any, spent: int) -> int:
    """Return the kind of the longest full block that may follow where all clients are free."""
    if case.clients == 1:
        return 0
    if blocks_of(case, cnt, left, spent) < 0:
        return len(case.rounds)
    last = 0
    for i in range(len(case.rounds)):
        if case.counts[i] > cnt[i]:
            last = i
    return last


def is_dominated(case: Case, store: Store, node: int, left: Any, waited: bool) -> bool:
    """Return whether a state can be left out; one that cannot stands against those to come.

    A state B is left out for an expanded A with the same requests waiting, before which no client
    waited, if A can do as B does and end no later (``BestFirst``). Here B may have waited, if A
    came later than the last state O before B that did not (``since``; of equal states with equal
    times it is the latest). No state can then be left out for itself: follow a best way on. At each
    step (to what follows, to a cheaper equal state, to an A) the end gets no later and no request
    more waits; to come back to a state all ends must be equal, and no stage lies between. So the
    way consists of waiting, equal states of equal times, and steps to an A. Each A is later than
    the one before, which is O or came before it: there is no way back.

    The others also bound the rounds: if each client of B is busy for d rounds more than its
    counterpart in A, at least, what fits into R rounds behind B fits into R - d behind A."""
    waiting, spent, since = store.waiting[node], store.spent[node], store.since[node]
    mask = (1 << case.bits) - 1
    slot = front(store, waiting)
    before = store.fronts[slot]
    while before >= 0:
        active, later = store.active[before], left[0] - (store.active[before] & mask)
        for j in range(1, case.clients):
            later = min(later, left[j] - ((active >> (j * case.bits)) & mask))
        store.rounds[node] = min(store.rounds[node], -abs(store.rounds[before]) - later)
        passed = spent - store.spent[before]
        more = store.blocks[before] >= store.blocks[node]
        if more and passed >= 0 and (not waited or store.spent[before] > since):
            slack, active, within = passed // case.round, store.active[before], True
            for j in range(case.clients):
                if ((active >> (j * case.bits)) & mask) - slack > left[j]:
                    within = False
                    break
            if within:
                return True
        before = store.below[before]
    if not waited:
        store.below[node] = store.fronts[slot]
        store.fronts[slot] = node
    return False


def pack(case: Case, left: Any) -> int:
    """Return the clients' remaining rounds in one number."""
    active = 0
    for j in range(case.clients):
        active |= left[j] << (j * case.bits)
    return active


def sort(values: Any, size: int) -> None:
    """Sort the first few values in place."""
    for i in range(1, size):
        value, j = values[i], i
        while j > 0 and values[j - 1] > value:
            values[j] = values[j - 1]
            j -= 1
        values[j] = value


def add(
    store: Store, at: Any, before: int, waiting: int, active: int, spent: int, since: int
) -> int:
    """Return a new node."""
    new: int = at[NODES]
    store.waiting[new], store.active[new] = waiting, active
    store.spent[new], store.since[new], store.before[new] = spent, since, before
    store.below[new], store.closed[new], store.rounds[new], store.blocks[new] = -1, 0, 0, 0
    at[NODES] = new + 1
    return new


def find(store: Store, waiting: int, active: int, blocks: int) -> int:
    """Return where in ``known`` a state stands, or would."""
    last = len(store.known) - 1
    mixed = (waiting % _PRIME) * 48271 + (active % _OTHER) * 69621 + blocks
    slot = (mixed ^ (mixed >> 19) ^ (mixed >> 37)) & last
    while True:
        known = store.known[slot]
        if known < 0 or (
            store.active[known] == active
            and store.waiting[known] == waiting
            and store.blocks[known] == blocks
        ):
            return slot
        slot = (slot + 1) & last


def front(store: Store, waiting: int) -> int:
    """Return where in ``fronts`` the requests that wait stand, or would."""
    last = len(store.fronts) - 1
    mixed = (waiting % _PRIME) * 48271
    slot = (mixed ^ (mixed >> 19) ^ (mixed >> 37)) & last
    while True:
        first = store.fronts[slot]
        if first < 0 or store.waiting[first] == waiting:
            return slot
        slot = (slot + 1) & last


def push(store: Store, at: Any, key: int, node: int) -> None:
    """Put a node into the heap."""
    place = at[OPEN]
    at[OPEN] = place + 1
    while place > 0:
        above = (place - 1) >> 1
        if store.keys[above] <= key:
            break
        store.keys[place], store.open[place] = store.keys[above], store.open[above]
        place = above
    store.keys[place], store.open[place] = key, node


def pop(store: Store, at: Any) -> int:
    """Take the node of the least key out of the heap."""
    least: int = store.open[0]
    size = at[OPEN] - 1
    at[OPEN] = size
    key, node, place = store.keys[size], store.open[size], 0
    while 2 * place + 1 < size:
        below = 2 * place + 1
        if below + 1 < size and store.keys[below + 1] < store.keys[below]:
            below += 1
        if store.keys[below] >= key:
            break
        store.keys[place], store.open[place] = store.keys[below], store.open[below]
        place = below
    store.keys[place], store.open[place] = key, node
    return least


def rehash(store: Store, nodes: int, fronts: Any) -> None:
    """Fill the hash tables of a store that has grown. Of equal states the last is the cheapest.
    ``nodes``: how many there are; ``fronts``: the hash table of before."""
    for node in range(nodes):
        slot = find(store, store.waiting[node], store.active[node], store.blocks[node])
        store.known[slot] = node
    for first in fronts:
        if first >= 0:
            store.fronts[front(store, store.waiting[first])] = first
