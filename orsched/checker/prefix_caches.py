"""Checks of prefix caches: what stays say they found, their order, and when they were freed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.checker.violations import STRUCTURE
from orsched.checker.violations import ViolationKind as Kind
from orsched.metrics.timeline_rows import changes

if TYPE_CHECKING:
    from orsched.checker.violations import Findings
    from orsched.common.columns import IntColumn
    from orsched.metrics.timeline import Timeline
    from orsched.metrics.timeline_rows import Mask


_COLUMNS = ("hit", "turn", "rested", "exit")


def check_prefix_caches(line: Timeline, findings: Findings) -> None:
    """Hits are those that the caches, replayed, give; nothing is said where there is no cache.

    What caches do is not defined for a schedule that is wrong in its structure.
    """
    check_columns(line, findings)
    if line.schedule.eviction is not None and not line.instance.caches_prefixes:
        findings.add(
            Kind.PREFIX_CACHE,
            "an eviction rule is stated, but no worker has a prefix cache",
            field="eviction",
        )
    if not line.instance.caches_prefixes or findings.any_of(*STRUCTURE):
        return
    check_turns(line, findings)
    check_rested(line, findings)
    check_exits(line, findings)
    if not findings.any_of(Kind.PREFIX_CACHE):
        check_hits(line, findings)


def check_columns(line: Timeline, findings: Findings) -> None:
    """``hit`` and ``turn`` open a stay, ``rested`` and ``exit`` end one, where there is a cache."""
    if not any(getattr(line.work, name).any() for name in _COLUMNS):
        return
    cached = np.array([worker.caches_prefixes for worker in line.instance.workers], bool)
    here = cached[line.row_worker]
    ends = np.zeros(len(line.row), bool)
    ends[line.stay_end[~line.stay_finishes]] = True
    places = {
        "hit": here & line.opens,
        "turn": here & line.opens,
        "rested": here & ends,
        "exit": here & ends,
    }
    for name, allowed in places.items():
        column = getattr(line.work, name)
        if column.any():
            found = column[line.row]
            wrong = (found != 0) & ~allowed
            findings.add_rows(
                Kind.PREFIX_CACHE, wrong, _row(line, name, found, "has no place in this row")
            )


def _row(line: Timeline, name: str, found: IntColumn, message: str) -> Any:
    return lambda i: {
        "message": f"request {line.request[i]}: {name} {found[i]} {message}",
        "request": int(line.request[i]),
        "worker": int(line.row_worker[i]),
        "step": int(line.order[line.last[i] if name in ("rested", "exit") else line.first[i]]),
        "field": f"work.{name}",
        "found": int(found[i]),
    }


def _stays_on_caches(line: Timeline) -> Mask:
    cached = np.array([worker.caches_prefixes for worker in line.instance.workers], bool)
    return cached[line.stay_worker]


def check_turns(line: Timeline, findings: Findings) -> None:
    """The stays that begin in a step take turns 0, 1, ..."""
    stays = np.flatnonzero(_stays_on_caches(line))
    place, turn = line.stay_first[stays], line.stay_turn[stays]
    order = np.lexsort((turn, place))
    ordered = place[order]
    rank = np.arange(len(stays)) - np.searchsorted(ordered, ordered)
    wrong = np.zeros(len(line.row), bool)
    wrong[line.stay_row[stays[order]]] = turn[order] != rank
    message = "is not 0, 1, ... among the stays that begin in its step"
    findings.add_rows(
        Kind.PREFIX_CACHE, wrong, _row(line, "turn", line.work.turn[line.row], message)
    )


def check_exits(line: Timeline, findings: Findings) -> None:
    """The stays that are evicted before a step go in turns 0, 1, ..., or all have 0."""
    if not line.work.exit.any():
        return
    stays = np.flatnonzero(_stays_on_caches(line) & ~line.stay_finishes)
    worker, place, turn = line.stay_worker[stays], line.stay_freed[stays], line.stay_exit[stays]
    order = np.lexsort((turn, place, worker))
    group = np.cumsum(changes(place[order]) | changes(worker[order])) - 1
    rank = np.arange(len(stays)) - np.searchsorted(group, group)
    said = np.bincount(group, turn[order]) > 0
    rows = np.zeros(len(line.row), bool)
    rows[line.stay_end[stays[order]]] = said[group] & (turn[order] != rank)
    message = "is not 0, 1, ... among the stays that are evicted before one step"
    findings.add_rows(
        Kind.PREFIX_CACHE, rows, _row(line, "exit", line.work.exit[line.row], message)
    )


def check_rested(line: Timeline, findings: Findings) -> None:
    """An evicted stay is freed while its worker goes on, before its request and client do."""
    if not line.work.rested.any():
        return
    freed, last = line.stay_freed, line.stay_last
    late = freed > last + 1
    wrong = freed > line.heads()[line.stay_worker + 1]
    sound = late & ~wrong
    # Until the step before, which has begun, it was still there.
    until = np.where(sound, freed - 1, 0)
    again = np.flatnonzero(sound[:-1] & (line.ordinal[1:] > 0))
    elsewhere = line.stay_worker[again] != line.stay_worker[again + 1]
    starts = line.start_ns[line.stay_first[again + 1]]
    wrong[again] |= elsewhere & (starts < line.end_ns[until[again]])
    wrong[again] |= ~elsewhere & (line.stay_first[again + 1] < freed[again])
    wrong |= sound & _client_taken(line, freed)
    rows = np.zeros(len(line.row), bool)
    rows[line.stay_end] = wrong
    message = "steps are more than it can have had its blocks"
    findings.add_rows(
        Kind.PREFIX_CACHE, rows, _row(line, "rested", line.work.rested[line.row], message)
    )


def _client_taken(line: Timeline, freed: IntColumn) -> Mask:
    """Stays whose client serves another request before they are freed."""
    client = line.client[line.stay_row]
    order = np.lexsort((line.stay_first, client, line.stay_worker))
    here, following = order[:-1], order[1:]
    same = (client[here] == client[following]) & (
        line.stay_worker[here] == line.stay_worker[following]
    )
    taken = np.zeros(len(freed), bool)
    taken[here] = same & (line.stay_first[following] < freed[here])
    return taken


def check_hits(line: Timeline, findings: Findings) -> None:
    """Each stay found what its worker's cache had for it, no token more or fewer."""
    found = line.prefix_replay.found
    rows = np.zeros(len(line.row), bool)
    rows[line.stay_row] = found != line.stay_hit
    expected = np.zeros(len(line.row), np.int64)
    expected[line.stay_row] = found
    said = line.work.hit[line.row]
    findings.add_rows(
        Kind.PREFIX_CACHE,
        rows,
        lambda i: {
            **_row(line, "hit", said, f"instead of {expected[i]} tokens in the prefix cache")(i),
            "expected": int(expected[i]),
        },
    )
