"""Checks of who is served where and in which steps, without regard to durations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.checker.reading import DECODE, MIXED, PREFILL, ROUNDS_CEILING
from orsched.checker.stays import INVALID
from orsched.checker.violations import ViolationKind as Kind

if TYPE_CHECKING:
    from orsched.checker.intervals import Bools, Ints
    from orsched.checker.reading import Reading
    from orsched.checker.violations import Findings

_NAMES = ("prefill", "decode", "invalid")


def check_structure(reading: Reading, findings: Findings) -> None:
    """Steps and rows in themselves, stays, completeness and clients."""
    check_steps(reading, findings)
    check_served(reading, findings)
    check_rows(reading, findings)
    check_order(reading, findings)
    check_stays(reading, findings)
    check_completeness(reading, findings)
    check_clients(reading, findings)


def check_steps(reading: Reading, findings: Findings) -> None:
    """Workers exist, steps are in order and apart, only decode steps have several rounds."""
    r, steps = reading, reading.schedule.steps
    many = len(r.instance.workers)
    findings.add_rows(
        Kind.WORKER_RANGE,
        steps.worker >= many,
        _step(r, f"is on a worker outside 0..{many - 1}", steps.worker),
    )
    findings.add_rows(
        Kind.STAGE_EXCLUSIVITY, steps.end_ns < steps.start_ns, _step(r, "ends before it starts")
    )
    overlap = np.zeros(len(steps), bool)
    together = (r.worker[1:] == r.worker[:-1]) & (r.start[1:] < r.end[:-1])
    overlap[r.order[1:]] = together
    findings.add_rows(
        Kind.STAGE_EXCLUSIVITY, overlap, _step(r, "starts before its worker's last step has ended")
    )
    findings.add_rows(
        Kind.STAGE_EXCLUSIVITY,
        _not_ascending(steps.start_ns, steps.worker, strictly=False),
        _step(r, "is out of the order of start and worker"),
    )
    findings.add_rows(
        Kind.PHASE,
        (steps.phase != DECODE) & (steps.rounds != 1),
        _step(r, "prefills in more than one round", steps.rounds),
    )
    findings.add_rows(
        Kind.COMPLETENESS,
        steps.rounds > ROUNDS_CEILING,
        _step(r, "has more rounds than any request needs", steps.rounds),
    )


def check_served(reading: Reading, findings: Findings) -> None:
    """Each step does for somebody what its phase says: prefill, a token in each round, or both."""
    r = reading
    prefills = np.zeros(len(r.worker), bool)
    prefills[r.loads.position] = True
    decodes = r.caches.decoding > 0
    idle = ~decodes & ~prefills
    idle |= (r.phase == DECODE) & ~decodes
    findings.add_rows(Kind.EMPTY_STAGE, _by_row(r, idle), _step(r, "serves nobody"))
    half = (r.phase == MIXED) & ~idle & ~(prefills & decodes)
    findings.add_rows(
        Kind.PHASE, _by_row(r, half), _step(r, "is mixed, but does not both prefill and decode")
    )


def _by_row(r: Reading, at_position: Bools) -> Bools:
    """Rows of steps for which a statement by position is true."""
    result = np.zeros(len(at_position), bool)
    result[r.order] = at_position
    return result


def _step(r: Reading, message: str, found: Ints | None = None) -> Any:
    """Describe a step."""
    return lambda row: {
        "message": f"step {row} {message}",
        "worker": int(r.schedule.steps.worker[row]),
        "step": row,
        "found": None if found is None else int(found[row]),
    }


def check_rows(reading: Reading, findings: Findings) -> None:
    """Each row names a request and a client, and steps of its phase on one worker."""
    r, work = reading, reading.schedule.work
    if len(work) == 0:
        return

    def at(message: str) -> Any:
        return lambda row: {
            "message": f"work row {row} {message}",
            "request": int(work.request[row]),
            "client": int(work.client[row]),
            "step": int(work.first_step[row]),
            "worker": int(r.worker[r.first[row]]),
        }

    phase, worker = work.phase, r.worker[r.first]
    findings.add_rows(Kind.COMPLETENESS, work.request >= r.n, at("serves an unknown request"))
    findings.add_rows(
        Kind.PHASE,
        r.misplaced,
        lambda row: at(f"is {_NAMES[phase[row]]}, but a step at its ends is not")(row),
    )
    findings.add_rows(
        Kind.PHASE, (phase == PREFILL) & (r.first != r.last), at("prefills in more than one step")
    )
    findings.add_rows(
        Kind.CONTIGUITY, work.first_step > work.last_step, at("ends before it starts")
    )
    findings.add_rows(
        Kind.CONTIGUITY, worker != r.worker[r.last], at("starts and ends on different workers")
    )
    clients = np.array([w.clients for w in r.instance.workers], np.int64)
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


def check_order(reading: Reading, findings: Findings) -> None:
    """Rows of work are in order of request, then stay, then step.

    Stays follow one another in time, so that this is also the order of request and step, unless
    steps take no time.
    """
    work = reading.schedule.work
    findings.add_rows(
        Kind.ORDER,
        _not_ascending(work.request, work.stay, work.first_step, strictly=True),
        lambda row: {
            "message": f"work row {row} is out of the order of request, stay and step",
            "request": int(work.request[row]),
            "step": int(work.first_step[row]),
        },
    )


def _not_ascending(*columns: Ints, strictly: bool) -> Bools:
    """Rows that do not follow the row before them in the order of the columns."""
    wrong = np.zeros(len(columns[0]), bool)
    behind = wrong[1:]
    behind[:] = strictly
    for column in reversed(columns):
        behind &= column[1:] == column[:-1]
        behind |= column[1:] < column[:-1]
    return wrong


def check_stays(reading: Reading, findings: Findings) -> None:
    """A stay is on one client, one row after the other: prefill, then decode, then invalid.

    Stays of a request are numbered from 0, and each ends before the next one starts.
    """
    r, s = reading, reading.stays
    within = ~s.opens
    earlier = np.arange(len(s.row)) - 1
    about = _row(r)

    def report(wrong: Bools, message: str) -> None:
        findings.add_rows(Kind.CONTIGUITY, wrong, about(message))

    report(s.moves, "changes its client or worker within a stay")
    same = within & ~s.moves
    report(same & (s.first <= s.last[earlier]), "is served by rows that overlap")
    report(s.opens & (s.phase != PREFILL), "starts a stay without a prefill")
    report(within & (s.phase < s.phase[earlier]), "prefills, decodes and idles out of order")
    wrong = np.zeros(len(s.row), bool)
    wrong[s.begin] = s.number[s.begin] != s.ordinal
    report(wrong, "has stays that are not numbered 0, 1, ...")
    wrong = np.zeros(len(s.row), bool)
    later = s.begin[s.ordinal > 0]
    before = later - 1
    wrong[later] = r.start[s.first[later]] < r.end[s.last[before]]
    wrong[later] |= (s.worker[later] == s.worker[before]) & (s.first[later] <= s.last[before])
    report(wrong, "starts a stay before its last one has ended")


def _row(r: Reading) -> Any:
    """Describe a sound row, as numbered in the stays."""
    s = r.stays
    return lambda message: (
        lambda i: {
            "message": f"request {s.request[i]} {message}",
            "request": int(s.request[i]),
            "client": int(s.client[i]),
            "worker": int(s.worker[i]),
            "step": int(r.order[s.first[i]]),
        }
    )


def check_completeness(reading: Reading, findings: Findings) -> None:
    """Every stay prefills what is due, and every request yields exactly its tokens.

    If the run was stopped, requests may have yielded fewer.
    """
    r, s, work = reading, reading.stays, reading.schedule.work
    known = work.request[work.request < r.n]
    served = np.bincount(known, minlength=r.n) > 0
    findings.add_rows(
        Kind.COMPLETENESS,
        ~served if not r.stopped else np.zeros(r.n, bool),
        lambda request: {"message": f"request {request} is never served", "request": request},
    )
    # Rows that are wrong in themselves have been reported; without them tokens are missing.
    sound = served.copy()
    sound[work.request[~r.row_ok & (work.request < r.n)]] = False
    every = np.flatnonzero(sound)
    outputs = r.instance.requests.output_tokens
    expected = np.minimum(outputs, s.yielded) if r.stopped else outputs
    _amounts(findings, "output tokens", every, expected[every], s.yielded[every])
    wrong = (s.prefilled > s.due) | (s.complete & (s.prefilled != s.due))
    stays = np.flatnonzero(wrong & sound[s.of])
    _amounts(findings, "tokens prefilled in a stay", s.of[stays], s.due[stays], s.prefilled[stays])
    later = np.zeros(len(s.row), bool)
    later[s.begin] = (s.ordinal > 0) & (s.yielded_before >= outputs[s.of])
    findings.add_rows(Kind.COMPLETENESS, later, _row(r)("is served after its last token"))
    _check_invalid(reading, findings)


def _amounts(findings: Findings, what: str, request: Ints, expected: Ints, found: Ints) -> None:
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


def _check_invalid(reading: Reading, findings: Findings) -> None:
    """Invalid tokens come after the last one, in the stay that yields it."""
    r, s = reading, reading.stays
    if not len(s.invalids):
        return
    outputs = r.instance.requests.output_tokens
    with_it = s.yielded_before + s.decode_rounds + (s.complete & r.first_by_prefill)
    early = np.repeat(with_it < outputs[s.of], s.end - s.begin + 1) & (s.phase == INVALID)
    findings.add_rows(
        Kind.COMPLETENESS, early, _row(r)("yields invalid tokens before its last token")
    )


def check_clients(reading: Reading, findings: Findings) -> None:
    """A client serves one request at a time, from the start of a stay to its end."""
    r, s = reading, reading.stays
    begin, end = s.places
    first, last = s.first[begin], s.last[end]
    client, worker = s.client[begin], s.worker[begin]
    same = (client[1:] == client[:-1]) & (worker[1:] == worker[:-1])
    # Running maxima of the ends would find more; neighbours find every client that is wrong.
    clash = np.zeros(len(begin), bool)
    clash[1:] = same & (first[1:] <= last[:-1])
    findings.add_rows(
        Kind.CLIENT_OVERLAP,
        clash,
        lambda i: {
            "message": f"request {s.request[begin[i]]} starts on client {client[i]} of "
            f"worker {worker[i]} before request {s.request[begin[i - 1]]} has left it",
            "request": int(s.request[begin[i]]),
            "client": int(client[i]),
            "worker": int(worker[i]),
            "step": int(r.order[first[i]]),
        },
    )
