"""Expansion of packed plain states: written so that numba can compile it as it stands.

The same search as ``search``, with the bounds of ``states`` and three more: a set of weights for
the requests, whatever they are, proves that R more rounds are too few if all that wait weigh more
than the clients can hold in what R leaves them; so does trying to fill the clients (``filling``);
and schedules begin with their full blocks (``blocks_of``). Functions take ``Case``, ``Store``,
``Bins`` and the array of counts; times are whole numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.models.best_first.arrays import (
    BEST,
    BOUND,
    EXPANDED,
    FOUND,
    LEFT_OUT,
    NODES,
    OPEN,
)
from orsched.models.best_first.filling import packs

if TYPE_CHECKING:
    from typing import Any

    from orsched.models.best_first.arrays import Bins, Case, Store

GO_ON, FINISHED, FULL, IMPROVED = 0, 1, 2, 3
_PRIME, _OTHER = 2147483647, 2147483629
_FREE = 2**60


def advance(case: Case, store: Store, at: Any, most: int, room: int, space: Any, bins: Bins) -> int:
    """Expand up to ``most`` states; return why it ended.

    Stops with ``FULL`` where fewer nodes than ``room``, the most that one state has after it, are
    free, and with ``IMPROVED`` after a better bound or incumbent. ``space``: nine rows for what is
    worked out in between; to allocate nothing here is what makes the compiled search fast.
    """
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
            if store.rounds[node] == 0 and is_dominated(case, store, node, left, waited):
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
    """Return whether a state takes longer than its bound said: then it has been put back.

    As many rounds are too few as what waits does not fit into (``packs``). That is looked at only
    here, of the states whose turn it is, since it takes longer than the other bounds.
    """
    work, number = totals(case, cnt, left)
    spent = store.spent[node]
    limit = at[BEST] - spent
    most = (limit - 1 - -(-number // case.clients) * case.stage) // case.round
    rounds = max(store.rounds[node], least_rounds(case, cnt, left, work, most))
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
    bound = to_end(case, cnt, left, limit, equal_at_most(case, blocks), scratch)
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
    store.blocks[new] = blocks
    store.known[slot] = new
    push(store, at, key, new)


def blocks_of(case: Case, cnt: Any, left: Any, spent: int) -> int:
    """Return how many full blocks have been if nothing else has been, else -1.

    A full block is a stage that begins equal requests on all clients, and their rounds. Nothing
    else is active in it, so it can be moved to the start: there the search has all of them, the
    longest first, and no more of them later. Take the most full blocks that an optimal schedule
    has: behind these, no optimal one has another. That a state with as many or more of them, and
    none with fewer, leaves out others keeps this so.
    """
    if case.clients == 1 or left[case.clients - 1] > 0:
        return -1
    cost, blocks = 0, 0
    for i in range(len(case.rounds)):
        gone = case.counts[i] - cnt[i]
        if gone % case.clients:
            return -1
        blocks += gone // case.clients
        cost += gone // case.clients * (case.stage + case.rounds[i] * case.round)
    return blocks if cost == spent else -1


def equal_at_most(case: Case, blocks: int) -> int:
    """Return how many equal requests one stage may begin: no full block but at the start."""
    return case.clients if blocks >= 0 or case.clients == 1 else case.clients - 1


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


def to_end(case: Case, cnt: Any, left: Any, limit: int, equal: int, scratch: Any) -> int:
    """Return a lower bound on the time to the end, or the limit where that is no less."""
    work, number = totals(case, cnt, left)
    most = (limit - 1 - -(-number // case.clients) * case.stage) // case.round
    rounds = least_rounds(case, cnt, left, work, most)
    if rounds > most:
        return limit
    return jointly(case, cnt, left, rounds, most, work, number, limit, equal, scratch)


def totals(case: Case, cnt: Any, left: Any) -> tuple[int, int]:
    """Return the rounds of all that waits and is active, and how many requests wait."""
    work, number = 0, 0
    for i in range(len(case.rounds)):
        number += cnt[i]
        work += cnt[i] * case.rounds[i]
    for j in range(case.clients):
        work += left[j]
    return work, number


def least_rounds(case: Case, cnt: Any, left: Any, work: int, most: int) -> int:
    """Return a lower bound on the rounds to the end, one more than ``most`` where it is above.

    R rounds are too few for what waits if the clients, busy for l rounds yet, cannot hold it: of
    the m longest requests, the least of which has r rounds, one holds (R - l) // r; of any
    weights, at most what any of the instance's requests that fit into R - l weigh (``holds``).
    """
    clients, kinds = case.clients, len(case.rounds)
    rounds: int = max(left[clients - 1], -(-work // clients))
    above = 0
    for i in range(kinds):
        if cnt[i] and above <= 2 * clients:
            above += cnt[i]
            while rounds <= most:
                fit = 0
                for j in range(clients):
                    fit += (rounds - left[j]) // case.rounds[i]
                if fit >= above:
                    break
                rounds += 1
    for q in range(len(case.weights)):
        weight = 0
        for i in range(kinds):
            weight += cnt[i] * case.weights[q, i]
        while rounds <= most:
            fit = 0
            for j in range(clients):
                fit += case.holds[q, rounds - left[j]]
            if fit >= weight:
                break
            rounds += 1
    return min(rounds, most + 1)


def starts(case: Case, left: Any, most: int, count: int, length: int, equal: int) -> int:
    """Return how many stages the equal requests of one kind begin at, at least.

    Up to ``equal`` of them begin at one. Cut what ``most`` rounds leave before each's end into
    spans of its length, from the end: the starts on a client are as far apart, so a span has one
    of each client that is free in it, and no stage is in two.
    """
    own = -(-count // equal)
    if count <= equal:
        return own
    found, more, able = 0, 0, case.clients
    latest = most
    while count > 0:
        latest -= length
        while able > 0 and left[able - 1] > latest:
            able -= 1
        if able == 0:
            break
        count -= min(able, equal)
        found += 1
        if able > equal:
            more += 1
    if count > 0:
        if count > more:
            return _FREE
        found += count
    return max(own, found)


def jointly(
    case: Case,
    cnt: Any,
    left: Any,
    rounds: int,
    most: int,
    work: int,
    number: int,
    limit: int,
    equal: int,
    scratch: Any,
) -> int:
    """Return the least time over the numbers of stages to come (``States._jointly``)."""
    clients = case.clients
    distances, times = scratch[0], scratch[1]
    entries, zeros, longer = 0, 0, _FREE * 2
    for i in range(len(case.rounds)):
        if not cnt[i]:
            continue
        own = min(cnt[i], starts(case, left, most, cnt[i], case.rounds[i], equal))
        zeros += cnt[i] - own
        distance = min(_FREE, longer - case.rounds[i])
        longer = case.rounds[i]
        place = entries
        while place > 0 and distances[place - 1] > distance:
            distances[place], times[place] = distances[place - 1], times[place - 1]
            place -= 1
        distances[place], times[place] = distance, own
        entries += 1
    best = limit
    for stages in range(-(-number // clients), number + 1):
        if stages * case.stage + rounds * case.round >= best:
            break
        single = 2 * number + clients - clients * stages
        lost, first_lost = _FREE, 0
        for first in range(1, clients + 1):
            if first > 1:
                first_lost += (first - 1) * (left[first - 1] - left[first - 2])
            others = single - first
            if others > number:
                continue
            joined = max(0, others - stages) - zeros
            total, entry = first_lost, 0
            while joined > 0 and entry < entries:
                if distances[entry] == _FREE:
                    total = _FREE
                    break
                total += min(joined, times[entry]) * distances[entry]
                joined -= times[entry]
                entry += 1
                if total >= lost:
                    break
            lost = min(lost, total)
            if others <= stages:
                break
        if lost < _FREE:
            needed = max(rounds, -(-(work + lost) // clients))
            best = min(best, stages * case.stage + needed * case.round)
        if lost == 0:
            break
    return best


def is_dominated(case: Case, store: Store, node: int, left: Any, waited: bool) -> bool:
    """Return whether a state can be left out; one that cannot stands against those to come.

    A state B is left out for an expanded A with the same requests waiting, before which no client
    waited, if A can do as B does and end no later (``BestFirst``). Here B may have waited, if A
    came later than the last state O before B that did not (``since``; of equal states with equal
    times it is the latest). No state can then be left out for itself: follow a best way on. At
    each step (to what follows, to a cheaper equal state, to an A) the end gets no later and no
    request more waits; to come back to a state all ends must be equal, and no stage lies between.
    So the way consists of waiting, equal states of equal times, and steps to an A. Each A is
    later than the one before, which is O or came before it: there is no way back.
    """
    waiting, spent, since = store.waiting[node], store.spent[node], store.since[node]
    mask = (1 << case.bits) - 1
    slot = front(store, waiting)
    before = store.fronts[slot]
    while before >= 0:
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
    """Fill the hash tables of a store that has grown.

    Of equal states the last is the cheapest.

    Args:
        nodes: how many there are.
        fronts: the hash table of before.
    """
    for node in range(nodes):
        slot = find(store, store.waiting[node], store.active[node], store.blocks[node])
        store.known[slot] = node
    for first in fronts:
        if first >= 0:
            store.fronts[front(store, store.waiting[first])] = first
