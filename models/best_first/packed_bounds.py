"""Packed plain states and bounds on what is left of them; numba compiles this source as it is. The
bounds are those of ``states`` and three more: a set of weights for the requests, whatever they are,
proves that R more rounds are too few if all that wait weigh more than the clients can hold in what
R leaves them; so does trying to fill the clients (``packs``); and schedules begin with their full
blocks (``blocks_of``). Times are whole numbers."""

from __future__ import annotations

from typing import Any, NamedTuple

NODES, OPEN, BEST, FOUND, BOUND, EXPANDED, LEFT_OUT, COUNTS = range(8)
"""Places in the array of counts: nodes, heap entries, best time, its node, bound, ..., length."""


class Case(NamedTuple):
    """What does not change during a search; arrays of int64. ``clients``, ``round``, ``stage``: J,
    the times of a round and of a stage; ``rounds``, ``counts``, ``shifts``: of each kind, the
    longest first: its rounds, how many there are, and where its number begins in ``waiting``."""

    clients: int
    round: int
    stage: int
    bits: int  # of the remaining rounds of one client; the clients ascend from the lowest bits
    rounds: Any
    counts: Any
    shifts: Any
    weights: Any  # one row a set of weights, one column a kind
    holds: Any  # of each set, the greatest weight of requests that fit into 0, 1, 2, ... rounds


class Store(NamedTuple):
    """The nodes, the heap of those that are open, and two hash tables; arrays. ``waiting``,
    ``active``: the state; ``active`` has one more bit, whether clients were left free; ``spent``,
    ``since``: the time until here, and until the last state before which no client waited;
    ``keys``, ``open``: the heap: bounds and requests that wait, and nodes."""

    waiting: Any
    active: Any
    spent: Any
    since: Any
    before: Any  # the node before, -1 at the start
    below: Any  # the node that stands next among those that leave out others, -1 after the last
    rounds: Any  # a lower bound on the rounds to the end; 0 or below before it was looked at
    blocks: Any  # how many full blocks it begins with (``expansion.blocks_of``)
    closed: Any  # whether it has been taken from the heap
    keys: Any
    open: Any
    known: Any  # hash table of states: a node, or -1
    fronts: Any  # hash table of waiting requests: the first node that leaves out others, or -1


class Bins(NamedTuple):
    """Clients that are filled, one after the other; arrays of int64. ``rests``, ``slacks``: of each
    client, the rounds that are empty, and how many may be: by it and all after it."""

    stock: Any  # how many of each kind remain
    taken: Any  # one row a client, one column a kind: how many it has
    sums: Any  # of what remained at a client's turn: as bits, the sums that kinds from each on have
    rests: Any
    slacks: Any


_FREE = 2**60


def blocks_of(case: Case, cnt: Any, left: Any, spent: int) -> int:
    """Return how many full blocks have been if nothing else has been, else -1. A full block is a
    stage that begins equal requests on all clients, and their rounds. Nothing else is active in it,
    so it can be moved to the start: there the search has all of them, the longest first, and no
    more of them later. Take the most full blocks that an optimal schedule has: behind these, no
    optimal one has another. That a state with as many or more of them, and none with fewer, leaves
    out others keeps this so."""
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


def to_end(
    case: Case, cnt: Any, left: Any, limit: int, equal: int, known: int, scratch: Any
) -> int:
    """Return a lower bound on the time to the end, or the limit where that is no less. ``known``:
    a bound on the rounds."""
    work, number = totals(case, cnt, left)
    most = (limit - 1 - -(-number // case.clients) * case.stage) // case.round
    rounds = max(known, least_rounds(case, cnt, left, work, most))
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
    """Return a lower bound on the rounds to the end, one more than ``most`` where it is above. R
    rounds are too few for what waits if the clients, busy for l rounds yet, cannot hold it: of the
    m longest requests, the least of which has r rounds, one holds (R - l) // r; of any weights, at
    most what any of the instance's requests that fit into R - l weigh (``holds``)."""
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
    """Return how many stages the equal requests of one kind begin at, at least. Up to ``equal`` of
    them begin at one. Cut what ``most`` rounds leave before each's end into spans of its length,
    from the end: the starts on a client are as far apart, so a span has one of each client that is
    free in it, and no stage is in two."""
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


MOST_TRIED = 2_000  # steps after which what has not been refuted counts as fitting

WORD = 62  # bits of a word that says which sums can be reached


def packs(case: Case, cnt: Any, left: Any, rounds: int, bins: Bins) -> bool:
    """Return whether what waits may fit into so many rounds of clients busy for ``left`` of them.
    It knows nothing of stages: who waits may start on any client as soon as that is free. The
    client of the least room is filled first, so that nothing that remains fits in, too: what fits
    could come from another client. All together can leave no more empty than they have too much
    (``slacks``). What remains for the last client then fits."""
    clients, kinds = case.clients, len(case.rounds)
    slack, client, kind = 0, 0, 0
    for i in range(kinds):
        bins.stock[i] = cnt[i]
        slack -= cnt[i] * case.rounds[i]
    for j in range(clients):
        slack += rounds - left[j]
    if slack < 0 or rounds < left[clients - 1]:
        return False
    if clients == 1:
        return True
    row = begin_client(case, left, rounds, bins, 0, slack)
    for _ in range(MOST_TRIED):
        if client == clients - 2:
            if can_fill(bins, client, row):
                return True
            kind = 0
        else:
            rest = bins.rests[client]
            while kind < kinds and (bins.stock[kind] == 0 or case.rounds[kind] > rest):
                bins.taken[client, kind] = 0
                kind += 1
            if kind < kinds and can_fill(bins, client, kind):
                some = min(bins.stock[kind], rest // case.rounds[kind])
                bins.taken[client, kind] = 0
                take(case, bins, client, kind, some)
                kind += 1
                continue
            if kind == kinds and is_full(case, bins, client):
                client, kind, slack = client + 1, 0, bins.slacks[client] - rest
                row = begin_client(case, left, rounds, bins, client, slack)
                continue
        kind = last_taken(bins, client, kind)
        while kind < 0 and client > 0:
            client -= 1
            kind = last_taken(bins, client, kinds)
        if kind < 0:
            return False
        take(case, bins, client, kind, -1)
        kind += 1
    return True


def begin_client(case: Case, left: Any, rounds: int, bins: Bins, client: int, slack: int) -> int:
    """Write what the next client may hold and leave empty, and which sums the requests that remain
    have, from each kind on: for the last client but one only all together. Return their row."""
    bins.slacks[client] = slack
    rest = rounds - left[case.clients - 1 - client]
    bins.rests[client] = rest
    behind, words = len(case.rounds), rest // WORD + 1
    last = client == case.clients - 2
    for word in range(words):
        bins.sums[client, behind, word] = 0
    bins.sums[client, behind, 0] = 1
    for i in range(behind - 1, -1, -1):
        size = case.rounds[i]
        if bins.stock[i] == 0 or size > rest:
            continue
        row = 0 if last else i
        far, bits = size // WORD, size % WORD
        low = (1 << (WORD - bits)) - 1
        for times in range(min(bins.stock[i], rest // size)):
            since = row if times else behind
            for word in range(words - 1, far - 1, -1):
                found = (bins.sums[client, since, word - far] & low) << bits
                if word > far:
                    found |= bins.sums[client, since, word - far - 1] >> (WORD - bits)
                bins.sums[client, row, word] = bins.sums[client, since, word] | found
            if since != row:
                for word in range(far):
                    bins.sums[client, row, word] = bins.sums[client, since, word]
        behind = row
    return behind


def can_fill(bins: Bins, client: int, kind: int) -> bool:
    """Return whether requests from a kind on leave no more of a client empty than may be."""
    high, low = bins.rests[client], max(0, bins.rests[client] - bins.slacks[client])
    for word in range(low // WORD, high // WORD + 1):
        found = bins.sums[client, kind, word]
        if word == low // WORD:
            found = found >> (low % WORD) << (low % WORD)
        if word == high // WORD:
            found = found & ((1 << (high % WORD + 1)) - 1)
        if found != 0:
            return True
    return False


def take(case: Case, bins: Bins, client: int, kind: int, some: int) -> None:
    """Give a client so many more of a kind."""
    bins.taken[client, kind] += some
    bins.stock[kind] -= some
    bins.rests[client] -= some * case.rounds[kind]


def is_full(case: Case, bins: Bins, client: int) -> bool:
    """Return whether a client has little enough room left, and none for what remains."""
    if bins.rests[client] > bins.slacks[client]:
        return False
    for i in range(len(case.rounds) - 1, -1, -1):
        if bins.stock[i] > 0:
            return bool(case.rounds[i] > bins.rests[client])
    return True


def last_taken(bins: Bins, client: int, before: int) -> int:
    """Return the last kind before one of which a client has some, or -1."""
    kind = before - 1
    while kind >= 0 and bins.taken[client, kind] == 0:
        kind -= 1
    return kind
