"""Checks of prefix caches, of what goes over links, of roles, and of devices that workers share."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.checker.violations import STRUCTURE
from orsched.checker.violations import ViolationKind as Kind
from orsched.data.schedule import PREFILL
from orsched.metrics.timeline_rows import changes

if TYPE_CHECKING:
    from collections.abc import Callable

    from orsched.checker.violations import Findings
    from orsched.common.columns import IntColumn
    from orsched.data.links import Transfers
    from orsched.metrics.timeline import Timeline
    from orsched.metrics.timeline_rows import Mask


def check_transfers(line: Timeline, findings: Findings, measured: bool) -> None:
    """Caches and link time are conserved, workers do what they may, devices do one thing."""
    if line.instance.link is not None:
        _check_roles(line, findings)
        _check_devices(line, findings)
    sent = line.schedule.transfers
    if sent is None:
        return
    about = _Report(sent, findings)
    if line.instance.link is None:
        about(np.ones(len(sent), bool), "exists, but the instance has no link")
        return
    about(sent.request >= len(line.instance), "is of an unknown request")
    many = len(line.instance.workers)
    about(
        (sent.source >= many) | (sent.target >= many) | (sent.source == sent.target),
        "does not go from one worker to another",
    )
    _check_links(line, about, measured)
    _check_caches(line, about)


class _Report:
    """Records violations by row of the transfers."""

    def __init__(self, sent: Transfers, findings: Findings) -> None:
        self.sent, self.findings = sent, findings

    def __call__(
        self,
        wrong: Mask,
        message: str,
        expected: Callable[[int], int] | None = None,
        found: IntColumn | None = None,
    ) -> None:
        sent = self.sent

        def describe(row: int) -> dict[str, Any]:
            values: dict[str, Any] = {
                "message": f"transfer {row} of request {sent.request[row]} {message}",
                "request": int(sent.request[row]),
                "worker": int(sent.source[row]),
                "field": "transfers",
            }
            if expected is not None and found is not None:
                values |= {"expected": expected(row), "found": int(found[row])}
            return values

        self.findings.add_rows(Kind.TRANSFER, wrong, describe)


def _check_links(line: Timeline, about: _Report, measured: bool) -> None:
    """Each transfer takes the time of its tokens, and a worker sends one at a time."""
    sent, link = about.sent, line.instance.link
    assert link is not None
    columns = (sent.start_ns, sent.source, sent.request)
    keys = list(zip(*(column.tolist() for column in columns), strict=True))
    behind = np.array([False, *(a > b for a, b in pairwise(keys))], bool)[: len(keys)]
    about(behind, "is out of the order of start, source and request")
    took = sent.end_ns - sent.start_ns
    if measured:
        about(took < 0, "ends before it starts")
    else:
        due = [link.transfer_ns(tokens) for tokens in sent.tokens.tolist()]
        wrong = np.array([a != b for a, b in zip(took.tolist(), due, strict=True)], bool)
        about(wrong, "does not take the time of its tokens", due.__getitem__, took)
    clash, free = np.zeros(len(sent), bool), dict[int, int]()
    order = sorted(range(len(keys)), key=lambda row: (*keys[row], int(sent.end_ns[row])))
    for row in order:
        source = int(sent.source[row])
        clash[row] = int(sent.start_ns[row]) < free.get(source, 0)
        free[source] = max(free.get(source, 0), int(sent.end_ns[row]))
    about(clash, "starts while its link is busy")


def _check_caches(line: Timeline, about: _Report) -> None:
    """A cache leaves the stay that has prefilled it, and begins the next one, whole."""
    sent, hands = about.sent, line.handovers
    into = np.full(len(sent), -1, np.int64)
    stays = np.flatnonzero(hands.comes)
    into[hands.into[stays]] = stays
    nowhere = into < 0
    first = np.zeros(len(sent), bool)
    known = np.flatnonzero(~nowhere)
    stay = into[known]
    first[known] = line.ordinal[stay] == 0
    about(nowhere | first, "begins no stay, or one that another transfer begins")
    known = known[line.ordinal[stay] > 0]
    stay = into[known]
    before = stay - 1

    def report(wrong: Mask, message: str, *values: Any) -> None:
        rows = np.zeros(len(sent), bool)
        rows[known[wrong]] = True
        about(rows, message, *values)

    report(line.stay_worker[before] != sent.source[known], "is not from the worker before")
    report(line.stay_worker[stay] != sent.target[known], "is not to the worker that decodes")
    decoded = (line.prefill_rows[before] == 0) | (line.decode_rounds[before] > 0)
    report(decoded, "leaves a stay that does more than to prefill")
    report(line.prefill_rows[stay] > 0, "begins a stay that prefills")
    cached = line.cached_after[line.stay_end[before]]
    held = np.zeros(len(sent), np.int64)
    held[known] = cached
    report(
        cached != sent.tokens[known],
        "has other tokens than the cache that it takes away",
        lambda row: int(held[row]),
        sent.tokens,
    )
    due = line.due[stay] - (line.instance.first_token == "prefill")
    report(due != sent.tokens[known], "brings other tokens than the request has by then")
    ended = line.end_ns[line.stay_last[before]]
    report(sent.start_ns[known] < ended, "starts before the prefill has ended")
    begun = line.start_ns[line.stay_first[stay]]
    report(begun < sent.end_ns[known], "ends after the request goes on")


def _check_roles(line: Timeline, findings: Findings) -> None:
    """Prefill rows are on workers that prefill, others on workers that decode."""
    able = [(worker.prefills, worker.decodes) for worker in line.instance.workers]
    table = np.array(able, bool)
    worker = np.minimum(line.row_worker, len(able) - 1)
    kind = (line.row_phase != PREFILL).astype(np.int64)
    findings.add_rows(
        Kind.ROLE,
        ~table[worker, kind],
        lambda i: {
            "message": f"request {line.request[i]} is {'decoded' if kind[i] else 'prefilled'} on "
            f"worker {line.row_worker[i]}, whose role is {line.instance.workers[worker[i]].role}",
            "request": int(line.request[i]),
            "worker": int(line.row_worker[i]),
            "step": int(line.order[line.first[i]]),
        },
    )


def _check_devices(line: Timeline, findings: Findings) -> None:
    """Steps of workers that share a device do not overlap."""
    devices: dict[str, list[int]] = {}
    for index, each in enumerate(line.instance.workers):
        if each.device:
            devices.setdefault(each.device, []).append(index)
    wrong = np.zeros(len(line.steps), bool)
    for mates in devices.values():
        if len(mates) < 2:
            continue
        rows = np.flatnonzero(np.isin(line.steps.worker, mates))
        start, end = line.steps.start_ns[rows], line.steps.end_ns[rows]
        order = np.lexsort((end, start))
        latest = np.maximum.accumulate(end[order])
        late = np.zeros(len(rows), bool)
        late[order[1:]] = start[order[1:]] < latest[:-1]
        wrong[rows[late]] = True
    findings.add_rows(
        Kind.STAGE_EXCLUSIVITY,
        wrong,
        lambda row: {
            "message": f"step {row} starts while its device is at work for another worker",
            "worker": int(line.steps.worker[row]),
            "step": row,
        },
    )


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
    """``hit`` and ``turn`` open a stay, ``rested`` and ``exit`` end one, where there is a cache:
    one that is evicted, or that finishes where steps are planned ahead."""
    if not any(getattr(line.work, name).any() for name in _COLUMNS):
        return
    cached = np.array([worker.caches_prefixes for worker in line.instance.workers], bool)
    here = cached[line.row_worker]
    ends = np.zeros(len(line.row), bool)
    ends[line.stay_end[line.stay_evicted | _finish_ahead(line)]] = True
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


def _finish_ahead(line: Timeline) -> Mask:
    """Return which stays finish on a worker whose steps are planned ahead."""
    workers = line.instance.workers
    ahead = [each.caches_prefixes and line.rule_of(each).ahead for each in workers]
    found: Mask = line.stay_finishes & np.array(ahead, bool)[line.stay_worker]
    return found


def check_exits(line: Timeline, findings: Findings) -> None:
    """The stays that are evicted before a step go in turns 0, 1, ..., or all have 0; where some of
    them had finished, in turns 1, 2, ..."""
    if not line.work.exit.any():
        return
    found = line.work.exit[line.row]
    early = _finish_ahead(line) & (line.stay_exit > 0)
    stays = np.flatnonzero(_stays_on_caches(line) & (line.stay_evicted | early))
    worker, place, turn = line.stay_worker[stays], line.stay_freed[stays], line.stay_exit[stays]
    order = np.lexsort((turn, place, worker))
    group = np.cumsum(changes(place[order]) | changes(worker[order])) - 1
    rank = np.arange(len(stays)) - np.searchsorted(group, group)
    said = np.bincount(group, turn[order]) > 0
    rank += np.bincount(group, early[stays[order]])[group] > 0
    rows = np.zeros(len(line.row), bool)
    rows[line.stay_end[stays[order]]] = said[group] & (turn[order] != rank)
    message = "is not 0, 1, ... among the stays that are evicted before one step"
    findings.add_rows(Kind.PREFIX_CACHE, rows, _row(line, "exit", found, message))


def check_rested(line: Timeline, findings: Findings) -> None:
    """An evicted stay is freed while its worker goes on, before its request and client do; one that
    has finished with the step after its last one, if not before."""
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
    done = _finish_ahead(line)  # with the step after it, or evicted before
    wrong = np.where(done, (freed > last + 2) | wrong & ~sound | late & (line.stay_exit > 0), wrong)
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
