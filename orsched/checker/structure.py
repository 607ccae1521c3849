"""Checks of who is served where and in which steps, without regard to durations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.checker.reading import DECODE, PREFILL, ROUNDS_CEILING
from orsched.checker.violations import ViolationKind as Kind

if TYPE_CHECKING:
    from orsched.checker.reading import Bools, Ints, Reading
    from orsched.checker.violations import Findings

_NAMES = ("prefill", "decode", "invalid")


def check_structure(reading: Reading, findings: Findings) -> None:
    """Steps and rows in themselves, completeness, contiguity and clients."""
    check_steps(reading, findings)
    check_rows(reading, findings)
    check_order(reading, findings)
    check_completeness(reading, findings)
    check_contiguity(reading, findings)
    check_clients(reading, findings)


def check_steps(reading: Reading, findings: Findings) -> None:
    """Workers exist, steps are in order and apart, prefill takes one round, none is empty."""
    r, steps = reading, reading.schedule.steps

    def at(message: str, **more: Any) -> Any:
        return lambda row: {
            "message": f"step {row} {message}",
            "worker": int(steps.worker[row]),
            "step": row,
            **{name: column(row) for name, column in more.items()},
        }

    many = len(r.instance.workers)
    findings.add_rows(
        Kind.WORKER_RANGE,
        steps.worker >= many,
        at(f"is on a worker outside 0..{many - 1}", found=lambda row: int(steps.worker[row])),
    )
    findings.add_rows(
        Kind.STAGE_EXCLUSIVITY, steps.end_ns < steps.start_ns, at("ends before it starts")
    )
    overlap = np.zeros(len(steps), bool)
    together = (r.worker[1:] == r.worker[:-1]) & (r.start[1:] < r.end[:-1])
    overlap[r.order[1:]] = together
    findings.add_rows(
        Kind.STAGE_EXCLUSIVITY, overlap, at("starts before its worker's last step has ended")
    )
    findings.add_rows(
        Kind.STAGE_EXCLUSIVITY,
        _not_ascending(steps.start_ns, steps.worker, strictly=False),
        at("is out of the order of start and worker"),
    )
    findings.add_rows(
        Kind.PHASE,
        (steps.phase == PREFILL) & (steps.rounds != 1),
        at("is a prefill stage of more than one round", found=lambda row: int(steps.rounds[row])),
    )
    findings.add_rows(
        Kind.PHASE,
        steps.phase > DECODE,
        at("is mixed", found=lambda row: int(steps.phase[row])),
    )
    findings.add_rows(
        Kind.COMPLETENESS,
        steps.rounds > ROUNDS_CEILING,
        at("has more rounds than any request needs", found=lambda row: int(steps.rounds[row])),
    )
    empty = np.zeros(len(steps), bool)
    empty[r.order] = r.active == 0
    findings.add_rows(Kind.EMPTY_STAGE, empty, at("serves nobody"))


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
    findings.add_rows(Kind.PHASE, phase > DECODE, at("is invalid"))
    findings.add_rows(Kind.CONTIGUITY, work.stay > 0, at("is of a later stay"))
    findings.add_rows(Kind.COMPLETENESS, work.request >= r.n, at("serves an unknown request"))
    wrong = (r.phase[r.first] != phase) | (r.phase[r.last] != phase)
    findings.add_rows(
        Kind.PHASE,
        wrong,
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


def check_order(reading: Reading, findings: Findings) -> None:
    """Rows of work are in order of request, then step."""
    work = reading.schedule.work
    findings.add_rows(
        Kind.ORDER,
        _not_ascending(work.request, work.first_step, strictly=True),
        lambda row: {
            "message": f"work row {row} is out of the order of request and step",
            "request": int(work.request[row]),
            "step": int(work.first_step[row]),
        },
    )


def _not_ascending(major: Ints, minor: Ints, strictly: bool) -> Bools:
    """Rows that do not follow the row before them in the order of (major, minor)."""
    wrong = np.zeros(len(major), bool)
    behind = minor[1:] <= minor[:-1] if strictly else minor[1:] < minor[:-1]
    wrong[1:] = (major[1:] < major[:-1]) | ((major[1:] == major[:-1]) & behind)
    return wrong


def check_completeness(reading: Reading, findings: Findings) -> None:
    """Every request is prefilled once with its prompt and yields exactly its output."""
    r, work = reading, reading.schedule.work
    served: dict[int, Ints] = {}
    known = work.request < r.n
    for phase in (PREFILL, DECODE):
        rows = known & (work.phase == phase)
        served[phase] = np.bincount(work.request[rows], minlength=r.n)

    def about(message: str) -> Any:
        return lambda request: {"message": f"request {request} {message}", "request": request}

    missing = (served[PREFILL] == 0) | ((served[DECODE] == 0) & (r.needed > 0))
    findings.add_rows(
        Kind.COMPLETENESS,
        missing,
        lambda request: about(
            "is never prefilled" if served[PREFILL][request] == 0 else "is never decoded"
        )(request),
    )
    for phase in (PREFILL, DECODE):
        findings.add_rows(
            Kind.COMPLETENESS, served[phase] > 1, about(f"has several {_NAMES[phase]} rows")
        )
    _check_tokens(reading, findings)


def _check_tokens(reading: Reading, findings: Findings) -> None:
    """Rows process the prompt, and as many rounds of one token as the request needs."""
    r, work = reading, reading.schedule.work
    rows = r.prefill_rows
    request = work.request[rows]
    _amounts(findings, "prompt tokens", request, r.instance.requests.prompt_tokens[request],
             work.tokens[rows])  # fmt: skip
    rows = r.decode_rows
    request = work.request[rows]
    _amounts(findings, "tokens a round", request, np.ones(len(rows), np.int64), work.tokens[rows])
    rounds = r.rounds_before[r.last[rows] + 1] - r.rounds_before[r.first[rows]]
    _amounts(findings, "decode rounds", request, r.needed[request], rounds)


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


def check_contiguity(reading: Reading, findings: Findings) -> None:
    """Decoding starts with the first decode step after the prefill, on its worker and client."""
    r, work = reading, reading.schedule.work
    request = np.flatnonzero((r.prefill_of >= 0) & (r.decode_of >= 0))
    pre, dec = r.prefill_of[request], r.decode_of[request]

    def about(message: str) -> Any:
        return lambda i: {
            "message": f"request {request[i]} {message}",
            "request": int(request[i]),
            "client": int(work.client[dec[i]]),
            "worker": int(r.worker[r.first[dec[i]]]),
            "step": int(work.first_step[dec[i]]),
        }

    moved = r.worker[r.first[pre]] != r.worker[r.first[dec]]
    findings.add_rows(Kind.CONTIGUITY, moved, about("decodes on another worker than it prefills"))
    findings.add_rows(
        Kind.CONTIGUITY,
        ~moved & (work.client[pre] != work.client[dec]),
        about("decodes on another client than it prefills"),
    )
    due = r.decodes_before[r.first[pre] + 1]
    given = r.decodes_before[r.first[dec]]
    findings.add_rows(
        Kind.CONTIGUITY,
        ~moved & (r.first[dec] < r.first[pre]),
        about("decodes before it is prefilled"),
    )
    findings.add_rows(
        Kind.CONTIGUITY,
        ~moved & (given > due),
        about("leaves out decode steps after its prefill"),
    )


def check_clients(reading: Reading, findings: Findings) -> None:
    """A client serves one request at a time, from its prefill to its last token."""
    r = reading
    request, client, first, last = r.spans
    order = np.lexsort((first, client, r.worker[first]))
    request, client, first, last = request[order], client[order], first[order], last[order]
    same = (client[1:] == client[:-1]) & (r.worker[first[1:]] == r.worker[first[:-1]])
    # Running maxima of the ends would find more; neighbours find every client that is wrong.
    clash = np.zeros(len(order), bool)
    clash[1:] = same & (first[1:] <= last[:-1])
    findings.add_rows(
        Kind.CLIENT_OVERLAP,
        clash,
        lambda i: {
            "message": f"request {request[i]} starts on client {client[i]} of worker "
            f"{r.worker[first[i]]} before request {request[i - 1]} has left it",
            "request": int(request[i]),
            "client": int(client[i]),
            "worker": int(r.worker[first[i]]),
            "step": int(r.order[first[i]]),
        },
    )
