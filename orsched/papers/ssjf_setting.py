"""The setting of SSJF's published simulator, with its schedulers, and one run in it.

Every rule is of the authors' code (github.com/James-QiuHaoran/LLM-serving-with-proxy-models, folder
``model-serving``, Apache-2.0); ``ssjf.toml`` has the constants with the names of its files. Batches
are formed when the last one is through: dynamic ones when their longest request is done, continuous
ones when their shortest is. The others go back to the queue, at no cost, and may be left out of the
next batch. First come, first served waits for a batch to fill; shortest first never does.
"""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.checker import check
from orsched.common.registry import resolve
from orsched.costs import AffineCost
from orsched.data.instance import Instance
from orsched.data.requests import Requests
from orsched.data.step import FINISH, FOREVER, Step, Wait, batch_rounds, prefill_stage
from orsched.data.workers import Worker
from orsched.instances import predict
from orsched.instances.predictions import load_confusion
from orsched.instances.streams import stream
from orsched.papers.reruns import setting
from orsched.simulator import simulate_policy
from orsched.simulator.policy import ClairvoyantView, Information, Policy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from orsched.simulator.policy import View

    Ints = NDArray[np.int64]

SETTING = setting("ssjf")
JOBS = SETTING["jobs"]
TOKEN_NS = SETTING["token_ns"]
OFFSET_TOKENS = SETTING["offset_tokens"]
VALUES = {"rates": SETTING["rates"], "burstiness": SETTING["cvs"]}
FCFS, ORACLE = "fcfs", "oracle"


class Batches(Policy):
    """Batch after batch from a queue; ``_form`` sorts the queue for the next, or says how long to
    wait for more; ``_put_back`` returns those of a batch that are not done to the queue."""

    def __init__(self, size: int, continuous: bool) -> None:
        self.size = size
        self.continuous = continuous
        self.queue: list[int] = []
        self.batch: list[int] = []
        self.serving = self.entering = False

    def on_arrival(self, view: View, request: int) -> None:
        """Queue the request."""
        self.queue.append(request)

    def on_finish(self, view: View, request: int, client: int) -> None:
        """Forget the request."""
        self.batch.remove(request)

    def decide(self, view: View) -> Step | Wait | None:
        """Return the start of a batch, or its rounds; each step ends with its batch."""
        if self.entering:
            self.entering = False
            return self._rounds()
        if self.serving:
            self.serving = False
            self._put_back(view)
        if not self.queue:
            return None
        wait = self._form(view)
        if wait is not None:
            return wait
        self.batch, self.queue = self.queue[: self.size], self.queue[self.size :]
        self.serving = True
        new = [request for request in self.batch if request not in view.running]
        if not new:
            return self._rounds()
        self.entering = True
        return prefill_stage(new)

    def _form(self, view: View) -> Wait | None:
        raise NotImplementedError

    def _put_back(self, view: View) -> None:
        raise NotImplementedError

    def _rounds(self) -> Step:
        if self.continuous:
            return Step(decode=list(self.batch), rounds=FOREVER, until=FINISH)
        return batch_rounds()


class AuthorsFcfs(Batches):
    """First come, first served: a batch that is not full starts ``wait_ns`` after it could."""

    name = "authors_fcfs"
    information = Information.NONE

    def __init__(self, size: int, continuous: bool, wait_ns: int) -> None:
        super().__init__(size, continuous)
        self.wait_ns = wait_ns
        self.due_ns: int | None = None

    def _form(self, view: View) -> Wait | None:
        if self.due_ns is None:
            self.due_ns = view.now_ns + self.wait_ns
        if len(self.queue) < self.size and view.now_ns < self.due_ns:
            return Wait(self.due_ns)
        self.due_ns = None
        return None

    def _put_back(self, view: View) -> None:
        self.queue = self.batch[::-1] + self.queue
        self.batch = []


class AuthorsShortestFirst(Batches):
    """Shortest first, by true remaining tokens or by predicted ones of the whole request.

    The queue is sorted again for each batch; equals stay as they were. If a request has waited too
    long (``rescue``) it is sorted by waiting times instead, by true lengths, as the authors' is.
    Waiting is counted at the end of a batch, for all in the queue then, from the end of the one
    before: also for a request that arrived since or was in the batch.
    """

    name = "authors_sjf"
    information = Information.CLAIRVOYANT

    def __init__(
        self,
        size: int,
        continuous: bool,
        predicted: Sequence[int] | None = None,
        rescue: bool = True,
    ) -> None:
        super().__init__(size, continuous)
        self.predicted = predicted
        self.rescue = rescue
        self.waited_for: dict[int, int] = {}
        self.last_end_ns = 0

    def _form(self, view: View) -> Wait | None:
        waited = self.waited_for
        by_wait = sorted(self.queue, key=lambda request: -waited.get(request, 0))
        if self.rescue and self._starves(view, by_wait[0]):
            self.queue = by_wait
        elif self.predicted is None:
            self.queue.sort(key=lambda request: _left(view, request))
        else:
            self.queue.sort(key=self.predicted.__getitem__)
        return None

    def _put_back(self, view: View) -> None:
        self.queue += self.batch
        self.batch = []
        spent = view.now_ns - self.last_end_ns
        self.last_end_ns = view.now_ns
        for request in self.queue:
            self.waited_for[request] = self.waited_for.get(request, 0) + spent

    def _starves(self, view: View, request: int) -> bool:
        limit_ns = SETTING["wait_in_lengths"] * _left(view, request) * TOKEN_NS
        return bool(self.waited_for.get(request, 0) > min(limit_ns, SETTING["longest_wait_ns"]))


def _left(view: View, request: int) -> int:
    """Return the tokens that a request has still to yield."""
    assert isinstance(view, ClairvoyantView)
    return view.output_tokens[request] - view.generated(request)


class Trained(NamedTuple):
    """Held-out rows of a source: turn of the conversation, tokens, and tokens as a head tells."""

    rounds: Ints
    truth: Ints
    told: dict[str, Ints]

    def of_round(self, number: int) -> NDArray[np.bool_]:
        """Return the rows of a round; 0: of all, 3: of the third and later ones."""
        rows: NDArray[np.bool_] = np.minimum(self.rounds, 3) == number
        return rows if number else np.ones(len(rows), bool)


@cache
def trained(source: str) -> Trained:
    """Return the rows of ``chat`` (our corpus) or ``bodies`` (Python's standard library)."""
    text = files("orsched.papers").joinpath("ssjf_heads.csv").read_text("utf-8")
    head, *lines = csv.reader(text.splitlines())
    rows = np.array([line[1:] for line in lines if line[0] == source], np.int64)
    told = {name: rows[:, place] for place, name in enumerate(head[3:], start=2)}
    return Trained(rows[:, 0], rows[:, 1], told)


def lengths(count: int, seed: int) -> Ints:
    """Return reply lengths by the shipped counts: a bin by its share, a length in it."""
    confusion = load_confusion(5)
    ends = np.cumsum(confusion.counts.sum(axis=1)) / confusion.counts.sum()
    starts = np.concatenate([[SETTING["shortest"]], confusion.up_to_tokens[:-1] + 1])
    pairs = stream("ssjf/lengths", seed).random((count, 2))
    bins = np.searchsorted(ends, pairs[:, 0], side="right")
    low, high = starts[bins], confusion.up_to_tokens[bins]
    found: Ints = low + (pairs[:, 1] * (high - low + 1)).astype(np.int64)
    return found


def workload(job: Mapping[str, Any], value: float) -> Instance:
    """Return the requests of a run at a rate or CV, with predicted lengths."""
    kind, source = job["kind"], job["source"]
    place = 100 * VALUES[kind].index(int(value)) + job["seed"] + 10_000 * (kind == "burstiness")
    predictor = ORACLE if job["scheduler"] == FCFS else job["scheduler"]
    if source == "published":
        outputs, told = lengths(JOBS, place), None
        arrivals = arrivals_s(job, value, stream("ssjf/authors", place))
    else:
        draws = stream("ssjf/authors/heads", place)
        outputs, told = _of_heads(source, job["round"], predictor, draws)
        arrivals = arrivals_s(job, value, draws)
    requests = Requests(np.ones(JOBS, np.int64), outputs, arrival_s=arrivals)
    cost = AffineCost(
        prefill_fixed_ns=0, prefill_token_ns=0, round_fixed_ns=TOKEN_NS, round_client_ns=0
    )
    limit = 512 + OFFSET_TOKENS
    instance = Instance(
        requests,
        (Worker(JOBS, cost),),
        output_limit_tokens=limit,
        name="ssjf",
        first_token="decode",
    )
    if told is None:
        told = predict(instance, predictor, place).requests.predicted_tokens
        assert told is not None
    return instance.replace(
        requests=requests.replace(
            output_tokens=outputs + OFFSET_TOKENS, predicted_tokens=told + OFFSET_TOKENS
        )
    )


def _of_heads(source: str, number: int, head: str, draws: np.random.Generator) -> tuple[Ints, Ints]:
    """Return lengths of held-out rows of a source, and what a head told of them: published lengths
    of the same ranks, so that the order of lengths and predictions stays."""
    found = trained(source)
    chosen = np.flatnonzero(found.of_round(number))
    rows = chosen[draws.integers(0, len(chosen), JOBS)]
    known, drawn = np.sort(found.truth), np.sort(lengths(len(found.truth), 0))
    outputs = np.empty_like(drawn)
    outputs[np.argsort(found.truth, kind="stable")] = drawn
    told = found.truth if head == ORACLE else found.told[head]
    ranks = np.minimum(np.searchsorted(known, told[rows]), len(known) - 1)
    return outputs[rows], drawn[ranks]


def arrivals_s(
    job: Mapping[str, Any], value: float, draws: np.random.Generator
) -> NDArray[np.float64]:
    """Return arrival times: Poisson counts at whole seconds, or sums of Gamma gaps (job.py) of at
    least 1 ns, so that the first request is alone when it arrives, as with their floats."""
    if job["kind"] == "burstiness":
        gaps = np.maximum(draws.gamma(1 / value**2, value**2 / SETTING["gamma_rate"], JOBS), 1e-9)
        return np.cumsum(np.sort(gaps) if job["sorted_gaps"] else gaps)
    counts = draws.poisson(value, int(JOBS / value))
    while counts.sum() < JOBS:
        counts = np.append(counts, draws.poisson(value, int(JOBS / value)))
    return np.repeat(np.arange(len(counts), dtype=float), counts)[:JOBS]


def run(job: Mapping[str, Any]) -> dict[str, list[float]]:
    """Return figures at each rate or CV."""
    found = [_run_at(job, value) for value in VALUES[job["kind"]]]
    return {name: [each[name] for each in found] for name in found[0]}


def _run_at(job: Mapping[str, Any], value: float) -> dict[str, float]:
    """Return mean JCT, throughput of the first quarter and of all; the checker accepts the run."""
    instance = workload(job, value)
    schedule = simulate_policy(instance, policy_of(job, instance)).schedule
    wrong = check(instance, schedule, limit=1)
    if wrong:
        raise AssertionError(f"the checker rejects the schedule: {wrong[0]}")
    finish = schedule.request_times(instance)["finish_ns"] / 1e9
    forgets = job["scheduler"] != FCFS and not job["plain"]
    return figures(finish, instance.requests.arrival_ns / 1e9, forgets)


def figures(
    finish_s: NDArray[np.float64], arrival_s: NDArray[np.float64], forgets: bool
) -> dict[str, float]:
    """Return the figures of ``simulator.py``; in the authors' loop of shortest first (``forgets``)
    a last request that comes when all others are done is never served, and not counted."""
    whole = len(finish_s) / finish_s.max()
    if forgets and arrival_s[-1] > finish_s[:-1].max():
        finish_s, arrival_s = finish_s[:-1], arrival_s[:-1]
    ends = np.sort(finish_s)
    place = (len(ends) - 1) * SETTING["part"] // 100
    jct = float((finish_s - arrival_s).mean())
    return {
        "jct_s": jct, "throughput_per_s": float(place / ends[place]), "whole_per_s": float(whole),
    }  # fmt: skip


def policy_of(job: Mapping[str, Any], instance: Instance) -> Policy:
    """Return the authors' scheduler of a run, or with ``plain`` orsched's own."""
    size, continuous = 1 if job["mode"] == "none" else job["size"], job["mode"] == "continuous"
    scheduler, told = job["scheduler"], instance.requests.predicted_tokens
    if job["plain"]:
        own = {FCFS: ("fcfs_batched", "none"), ORACLE: ("sjf", "clairvoyant")}
        name, known = own.get(scheduler, ("ssjf", "predicted"))
        options = {"batching": job["mode"], "max_batch_size": job["size"],
                   "batch_wait_timeout_s": job["wait_s"]}  # fmt: skip
        policy: Policy = resolve("methods", name).build(instance, Information(known), options, 0)[0]
        return policy
    if scheduler == FCFS:
        return AuthorsFcfs(size, continuous, round(job["wait_s"] * 1e9))
    predicted = None if scheduler == ORACLE or told is None else told.tolist()
    return AuthorsShortestFirst(size, continuous, predicted, bool(job["rescue"]))
