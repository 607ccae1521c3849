"""Checks of what goes over links, of roles, and of workers that share a device."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.checker.violations import ViolationKind as Kind
from orsched.data.schedule import PREFILL

if TYPE_CHECKING:
    from collections.abc import Callable

    from orsched.checker.violations import Findings
    from orsched.common.columns import IntColumn
    from orsched.data.transfers import Transfers
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
        about(np.ones(len(sent), bool), "is there, but the instance has no link")
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
