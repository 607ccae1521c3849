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
        "The worker reads the prompts of one or more requests at once; no request decodes then.",
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
        "its worker is at work. <em>Paused for others</em>: its request waits during the prefill "
        "of others, or during rounds without it. <em>No request</em>: the worker has nothing to "
        "do. <em>Tail</em>: the client is done before the makespan. <em>Invalid tokens</em>: its "
        "request is done, but its batch is not.",
    ),
    (
        "Mixed step",
        "A step that prefills some requests, or parts of their prompts, beside a round.",
    ),
    (
        "Restart",
        "A request was evicted and starts again: its prompt and what it has yielded are read anew.",
    ),
    (
        "Invalid tokens, pad tokens",
        "What a request yields after its last token, while its batch continues; the tokens that "
        "lengthen shorter prompts to the longest of their stage.",
    ),
    (
        "KV blocks",
        "The memory for the caches of the requests on a worker; the mean is taken over the "
        "makespan.",
    ),
    (
        "Lower bound",
        "A proven limit by the times of the cost model: no schedule of this instance is shorter, "
        "unless it has a feature that this one lacks. Features are chunked prefills, mixed steps "
        "and evictions. A run on a worker that is faster than its model can end before it.",
    ),
    (
        "Gap",
        "(makespan − lower bound) / lower bound: the most that a better schedule could gain. It is "
        "0 where the method's search proved that no schedule is shorter; the gap to the certified "
        "bound stands below.",
    ),
    (
        "Status",
        "<em>optimal</em>: no schedule is better. The bound's certificate proves it, or the "
        "method's search did, of which no certificate exists. <em>feasible</em>: a better schedule "
        "may exist.",
    ),
    (
        "Information",
        "What the method may know of output lengths: <em>none</em>, <em>predicted</em> or "
        "<em>clairvoyant</em> (the true lengths).",
    ),
    (
        "TTFT, TPOT, JCT",
        "Time to first token; time per further token; time from arrival to the last token. "
        "<em>Largest gap</em>: the longest time between two successive tokens of a request. "
        "<em>≥</em> below a mean: no schedule without further features has less.",
    ),
    (
        "SLO attainment, goodput",
        "The share of requests within the limits on TTFT and TPOT, and how many such requests are "
        "done a second. The curve shows the attainment if all limits were so many times as long.",
    ),
    (
        "Best",
        "A dot marks the best figure of a column, a badge the best schedule, each among the "
        "methods that know as much of output lengths: the shortest where "
        "all requests are there at the start, the one with the best attainment where limits are "
        "given, else the one with the least mean JCT.",
    ),
    (
        "Decision p99",
        "99 of 100 decisions of the method took at most this long on the machine where it ran.",
    ),
    (
        "Checked",
        "An independent checker recomputed all times and limits and found nothing wrong. The times "
        "of a run were measured: the checker takes them as they are.",
    ),
)
"""Word and meaning; the meanings are HTML."""
