"""The words of the report, explained for readers who meet them for the first time."""

from __future__ import annotations

WORDS = (
    ("Request", "One job: a prompt that is read and an answer that is produced token by token."),
    (
        "Client",
        "One slot of a worker. It serves one request at a time, from its prefill to its last "
        "token.",
    ),
    (
        "Prefill stage",
        "The worker reads the prompts of one or more requests at once; meanwhile nobody decodes.",
    ),
    ("Round", "One decode iteration: each active client yields one token."),
    ("Makespan", "The end of the last stage: when everything is done."),
    (
        "Slot utilization",
        "Client-time in which a client's own request is in prefill or decode, divided by clients "
        "× makespan.",
    ),
    (
        "Bubble",
        "Client-time that is not busy. <em>Waiting for prefill</em>: the client is free while "
        "its worker is at work. <em>Prefill of others</em>: its request pauses during another "
        "prefill stage. <em>No request</em>: the worker has nothing to do. <em>Tail</em>: the "
        "client is done before the makespan.",
    ),
    ("Lower bound", "A proven limit: no schedule of this instance is shorter."),
    ("Gap", "(makespan − lower bound) / lower bound: the most that a better schedule could gain."),
    (
        "Information",
        "What the method may know of output lengths: <em>none</em>, <em>predicted</em> or "
        "<em>clairvoyant</em> (the true lengths).",
    ),
    (
        "TTFT, TPOT, JCT",
        "Time to first token; time per further token; time from arrival to the last token.",
    ),
    (
        "Decision p99",
        "99 of 100 decisions of the method took at most this long on the machine where it ran.",
    ),
    (
        "Checked",
        "An independent checker recomputed all times and limits and found nothing wrong.",
    ),
)
"""Word and meaning; the meanings are HTML."""
