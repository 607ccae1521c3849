"""Checks of where and in which steps requests are served, without regard to durations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.checker.violations import ViolationKind as Kind
from orsched.data.schedule import DECODE, INVALID, MIXED, PREFILL
from orsched.metrics.timeline_rows import ROUNDS_CEILING

if TYPE_CHECKING:
    from orsched.checker.violations import Findings
    from orsched.common.columns import IntColumn
    from orsched.metrics.timeline import Timeline
    from orsched.metrics.timeline_rows import Mask

_NAMES = ("prefill", "decode", "invalid")


def check_structure(line: Timeline, findings: Findings, stopped: bool) -> None:
    """Steps and rows in themselves, stays, completeness and clients."""
    check_steps(line, findings)
    check_served(line, findings)
    check_rows(line, findings)
    check_order(line, findings)
    check_stays(line, findings)
    check_completeness(line, findings, stopped)
    check_clients(line, findings)


def check_steps(line: Timeline, findings: Findings) -> None:
    """Workers exist, steps are in order and apart, only decode steps have several rounds."""
    steps = line.steps
    many = len(line.instance.workers)
    findings.add_rows(
        Kind.WORKER_RANGE,
        steps.worker >= many,
        _step(line, f"is on a worker outside 0..{many - 1}", steps.worker),
    )
    findings.add_rows(
        Kind.STAGE_EXCLUSIVITY, steps.end_ns < steps.start_ns, _step(line, "ends before it starts")
    )
    overlap = np.zeros(len(steps), bool)
    together = (line.worker[1:] == line.worker[:-1]) & (line.start_ns[1:] < line.end_ns[:-1])
    overlap[line.order[1:]] = together
    findings.add_rows(
        Kind.STAGE_EXCLUSIVITY,
        overlap,
        _step(line, "starts before its worker's last step has ended"),
    )
    findings.add_rows(
        Kind.STAGE_EXCLUSIVITY,
        _not_ascending(steps.start_ns, steps.worker, strictly=False),
        _step(line, "is out of the order of start and worker"),
    )
    findings.add_rows(
        Kind.PHASE,
        (steps.phase != DECODE) & (steps.rounds != 1),
        _step(line, "prefills in more than one round", steps.rounds),
    )
    findings.add_rows(
        Kind.COMPLETENESS,
        steps.rounds > ROUNDS_CEILING,
        _step(line, "has more rounds than any request needs", steps.rounds),
    )


def check_served(line: Timeline, findings: Findings) -> None:
    """Each step serves a request as its phase says: prefill, a token in each round, or both."""
    prefills = np.zeros(len(line.worker), bool)
    prefills[line.batches.place] = True
    decodes = line.caches.decoding > 0
    idle = ~decodes & ~prefills
    idle |= (line.phase == DECODE) & ~decodes
    findings.add_rows(Kind.EMPTY_STAGE, _by_row(line, idle), _step(line, "serves no request"))
    half = (line.phase == MIXED) & ~idle & ~(prefills & decodes)
    findings.add_rows(
        Kind.PHASE,
        _by_row(line, half),
        _step(line, "is mixed, but does not both prefill and decode"),
    )


def _by_row(line: Timeline, at_place: Mask) -> Mask:
    """Rows of steps for which a statement by place is true."""
    result = np.zeros(len(at_place), bool)
    result[line.order] = at_place
    return result


def _step(line: Timeline, message: str, found: IntColumn | None = None) -> Any:
    return lambda row: {
        "message": f"step {row} {message}",
        "worker": int(line.steps.worker[row]),
        "step": row,
        "found": None if found is None else int(found[row]),
    }


def check_rows(line: Timeline, findings: Findings) -> None:
    """Each row names a request and a client, and steps of its phase on one worker."""
    work = line.work
    if len(work) == 0:
        return
    first, last = line.ends_of_rows
    phase, worker = work.phase, line.worker[first]

    def at(message: str) -> Any:
        return lambda row: {
            "message": f"work row {row} {message}",
            "request": int(work.request[row]),
            "client": int(work.client[row]),
            "step": int(work.first_step[row]),
            "worker": int(worker[row]),
        }

    findings.add_rows(
        Kind.COMPLETENESS, work.request >= len(line.instance), at("serves an unknown request")
    )
    findings.add_rows(
        Kind.PHASE,
        line.misplaced,
        lambda row: at(f"is {_NAMES[phase[row]]}, but a step at its ends is not")(row),
    )
    findings.add_rows(
        Kind.PHASE, (phase == PREFILL) & (first != last), at("prefills in more than one step")
    )
    findings.add_rows(
        Kind.CONTIGUITY, work.first_step > work.last_step, at("ends before it starts")
    )
    findings.add_rows(
        Kind.CONTIGUITY, worker != line.worker[last], at("starts and ends on different workers")
    )
    clients = np.array([w.clients for w in line.instance.workers], np.int64)
    known = np.minimum(worker, len(clients) - 1)
    findings.add_rows(
        Kind.CLIENT_RANGE,
        (worker < len(clients)) & (work.client >= clients[known]),
        at("is on a client that its worker does not have"),
    )
    findings.add_rows(
        Kind.COMPLETENESS,
        (phase != PREFILL) & (work.tokens != 1),
        at("does not yield one token a round"),
    )


def check_order(line: Timeline, findings: Findings) -> None:
    """Rows of work are in order of request, stay, step; steps may take no time, so stays matter."""
    work = line.work
    findings.add_rows(
        Kind.ORDER,
        _not_ascending(work.request, work.stay, work.first_step, strictly=True),
        lambda row: {
            "message": f"work row {row} is out of the order of request, stay and step",
            "request": int(work.request[row]),
            "step": int(work.first_step[row]),
        },
    )


def _not_ascending(*columns: IntColumn, strictly: bool) -> Mask:
    """Rows that do not follow the row before them in the order of the columns."""
    wrong = np.zeros(len(columns[0]), bool)
    behind = wrong[1:]
    behind[:] = strictly
    for column in reversed(columns):
        behind &= column[1:] == column[:-1]
        behind |= column[1:] < column[:-1]
    return wrong


def check_stays(line: Timeline, findings: Findings) -> None:
    """A stay is on one client, one row after the other: prefill, then decode, then invalid.

    Stays of a request are numbered from 0, and each ends before the next one starts.
    """
    within = ~line.opens
    earlier = np.arange(len(line.row)) - 1
    about = _row(line)

    def report(wrong: Mask, message: str) -> None:
        findings.add_rows(Kind.CONTIGUITY, wrong, about(message))

    report(line.moves, "changes its client or worker within a stay")
    same = within & ~line.moves
    report(same & (line.first <= line.last[earlier]), "is served by rows that overlap")
    bare = line.opens & (line.row_phase != PREFILL)
    if line.schedule.transfers is not None:
        bare[line.stay_row[line.handovers.comes]] = False
    report(bare, "starts a stay without a prefill")
    report(
        within & (line.row_phase < line.row_phase[earlier]),
        "prefills, decodes and idles out of order",
    )
    wrong = np.zeros(len(line.row), bool)
    wrong[line.stay_row] = line.stay[line.stay_row] != line.ordinal
    report(wrong, "has stays that are not numbered 0, 1, ...")
    wrong = np.zeros(len(line.row), bool)
    later = line.stay_row[line.ordinal > 0]
    before = later - 1
    wrong[later] = line.start_ns[line.first[later]] < line.end_ns[line.last[before]]
    wrong[later] |= (line.row_worker[later] == line.row_worker[before]) & (
        line.first[later] <= line.last[before]
    )
    report(wrong, "starts a stay before its last one has ended")


def _row(line: Timeline) -> Any:
    """Describe a sound row, as numbered in the stays."""
    return lambda message: (
        lambda i: {
            "message": f"request {line.request[i]} {message}",
            "request": int(line.request[i]),
            "client": int(line.client[i]),
            "worker": int(line.row_worker[i]),
            "step": int(line.order[line.first[i]]),
        }
    )


def check_completeness(line: Timeline, findings: Findings, stopped: bool) -> None:
    """Every stay prefills what is due, and every request yields its tokens, or fewer if stopped."""
    work = line.work
    known = work.request[work.request < len(line.instance)]
    served = np.bincount(known, minlength=len(line.instance)) > 0
    findings.add_rows(
        Kind.COMPLETENESS,
        ~served if not stopped else np.zeros(len(line.instance), bool),
        lambda request: {"message": f"request {request} is never served", "request": request},
    )
    # Rows that are wrong in themselves have been reported; without them tokens are missing.
    sound = served.copy()
    sound[work.request[~line.sound & (work.request < len(line.instance))]] = False
    every = np.flatnonzero(sound)
    outputs = line.instance.requests.output_tokens
    expected = np.minimum(outputs, line.yielded) if stopped else outputs
    _amounts(findings, "output tokens", every, expected[every], line.yielded[every])
    due = line.due - line.stay_found if line.finds else line.due
    if line.schedule.transfers is not None:
        due = np.where(line.handovers.comes, 0, due)
    wrong = (line.prefilled > due) | (line.complete & (line.prefilled != due))
    stays = np.flatnonzero(wrong & sound[line.stay_request])
    _amounts(
        findings,
        "tokens prefilled in a stay",
        line.stay_request[stays],
        due[stays],
        line.prefilled[stays],
    )
    later = np.zeros(len(line.row), bool)
    later[line.stay_row] = (line.ordinal > 0) & (line.yielded_before >= outputs[line.stay_request])
    findings.add_rows(Kind.COMPLETENESS, later, _row(line)("is served after its last token"))
    _check_invalid(line, findings)


def _amounts(
    findings: Findings, what: str, request: IntColumn, expected: IntColumn, found: IntColumn
) -> None:
    findings.add_rows(
        Kind.COMPLETENESS,
        expected != found,
        lambda i: {
            "message": f"request {request[i]} has {found[i]} {what} where {expected[i]} are due",
            "request": int(request[i]),
            "expected": int(expected[i]),
            "found": int(found[i]),
        },
    )


def _check_invalid(line: Timeline, findings: Findings) -> None:
    """Invalid tokens come after the last one, in the stay that yields it."""
    if not len(line.invalids):
        return
    outputs = line.instance.requests.output_tokens
    short = line.yielded_then < outputs[line.stay_request]
    early = np.repeat(short, line.stay_end - line.stay_row + 1) & (line.row_phase == INVALID)
    findings.add_rows(
        Kind.COMPLETENESS, early, _row(line)("yields invalid tokens before its last token")
    )


def check_clients(line: Timeline, findings: Findings) -> None:
    """A client serves one request at a time, from the start of a stay to its end."""
    begin, end = line.visits
    first, last = line.held_first[begin], line.held_last[end]
    client, worker = line.client[begin], line.row_worker[begin]
    same = (client[1:] == client[:-1]) & (worker[1:] == worker[:-1])
    # Running maxima of the ends would find more; neighbours find every client that is wrong.
    clash = np.zeros(len(begin), bool)
    clash[1:] = same & (first[1:] <= last[:-1])
    findings.add_rows(
        Kind.CLIENT_OVERLAP,
        clash,
        lambda i: {
            "message": f"request {line.request[begin[i]]} starts on client {client[i]} of "
            f"worker {worker[i]} before request {line.request[begin[i - 1]]} has left it",
            "request": int(line.request[begin[i]]),
            "client": int(client[i]),
            "worker": int(worker[i]),
            "step": int(line.order[first[i]]),
        },
    )
