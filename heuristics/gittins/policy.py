"""The Gittins index policy: one queue, routed by what a request costs the others on a worker."""

from __future__ import annotations

from heapq import heappop
from typing import TYPE_CHECKING

from orsched.common.errors import InputError, PolicyError
from orsched.common.units import NS_PER_S
from orsched.data.step import ARRIVAL, FINISH, Step, decode_rounds, evict
from orsched.heuristics.gittins.lengths import Calibrations, LengthModel, OwnLengths
from orsched.heuristics.gittins.routing import MANY, Rivals, RoutingDecision
from orsched.heuristics.gittins.worker_model import (
    UNLIMITED,
    GittinsBatch,
    GittinsParams,
    WaitingRequests,
    WorkerModel,
)
from orsched.heuristics.policy_method import ANY, PolicyMethod
from orsched.simulator.policy import ClairvoyantView, Information, Policy, PredictedView, View

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.data.instance import Instance
    from orsched.heuristics.gittins.lengths import Lengths


_UNTIL_FINISH = decode_rounds(until=FINISH)
_LOOK_AGAIN = 4  # rounds until one looks again that left requests to others, or behind its gate
_SOON = decode_rounds(_LOOK_AGAIN)
_UNTIL_ARRIVAL = decode_rounds(until=ARRIVAL)

_LONGEST_GROWTH = 512  # tokens up to which the growth of a running cache is reserved for


class Gittins(Policy):
    """Serve the request of the best index, where it costs least (*Methods and online policies*).

    Waiting requests are in one queue for all workers, by arrival and Gittins index. A worker that
    is free takes a request if no other worker would serve it at less cost to all, and if its
    prefill delays those that decode by less than it gains: else they go on decoding. Where memory
    runs out the request with most expected work to come is evicted.
    """

    name = "gittins"
    many_workers = True
    chunks = True
    drains = True

    def __init__(
        self, params: GittinsParams, information: Information, service_class: Sequence[int] = ()
    ) -> None:
        self.params = params
        self.information = information
        self.service_class = service_class
        self.patience_ns = params.patience_ns
        self.queue = WaitingRequests()
        self.groups: dict[int, tuple[int, int]] = {}  # of requests that are not done
        self.own: dict[int, OwnLengths] = {}  # of those with a predicted distribution
        self.keys: dict[int, int] = {}
        self.stamp = 0  # how many requests have come to wait
        self.tight: set[int] = set()  # those that some worker may be too small for
        self.barred: dict[int, set[int]] = {}  # workers that turned out too small for a request

    def start(self, view: View) -> None:
        """Know the workers; raises ``InputError`` for one that pads."""
        for each in view.workers:
            if each.worker.padding:
                raise InputError(
                    "gittins does not pad", field="padding", remedy="use static, scls or mico"
                )
        window_ns = self.params.window_s * NS_PER_S
        self.workers = [WorkerModel(each, window_ns) for each in view.workers]
        self.rivals = Rivals(self.workers) if len(self.workers) >= MANY else None
        for worker in self.workers:
            # In a large fleet the others are in columns, and here is only the one asked first.
            most = None if self.rivals is None else 2
            worker.others = [
                other
                for other in self.workers[:most]
                if other is not worker and other.view.available
            ]
        by_memory = {worker.view.worker.memory: worker for worker in self.workers}
        self.memories = [worker for memory, worker in by_memory.items() if memory is not None]
        self.model = LengthModel(view.output_limit_tokens)
        self._reserve()
        self.predicted = view.predicted_tokens if isinstance(view, PredictedView) else None
        levels = view.quantile_levels if isinstance(view, PredictedView) else ()
        self.calibrations = Calibrations(levels, view.output_limit_tokens) if levels else None
        self.outputs = view.output_tokens if isinstance(view, ClairvoyantView) else None
        self.alike = all(each.worker.cost == view.worker.cost for each in view.workers)

    # -- what is known of lengths ---------------------------------------------------------

    def _group(self, request: int) -> tuple[int, int]:
        kind = int(self.service_class[request]) if len(self.service_class) else 0
        predicted = self.predicted
        return self.model.group(kind, None if predicted is None else predicted[request])

    def _predict(self, view: View, request: int) -> None:
        """Take up the distribution that is predicted for a request; one length is none."""
        if self.calibrations is not None and isinstance(view, PredictedView):
            quantiles = view.predicted_quantiles(request)
            if quantiles[0] != quantiles[-1]:
                group, atoms = self.groups[request], self.calibrations.law.of(quantiles)
                beyond = self.model.lengths(group)
                self.own[request] = OwnLengths(atoms, self.calibrations.of(group), beyond)

    def _lengths(self, request: int) -> Lengths | OwnLengths:
        """Return the distribution of a request's length: its own, or that of its group."""
        if self.own and (own := self.own.get(request)) is not None:
            return own
        return self.model.lengths(self.groups[request])

    def _reserve(self) -> None:
        """Know how many tokens of growth an admission leaves room for, for each that runs."""
        self.growth = self.params.reserve * min(self.model.all.mean, _LONGEST_GROWTH)

    def _rank_ns(self, view: View, request: int, lengths: Lengths | OwnLengths) -> float:
        """Return the index of a new request as expected work, in nanoseconds."""
        prices = self.workers[view.index].prices
        if self.rivals is None:
            served = sum([len(worker.view.running) for worker in self.workers])
        else:
            served = self.rivals.running()
        token_ns = prices.round_ns / max(served / len(self.workers), 32.0) + prices.client_ns
        prefill_ns = prices.token_ns * view.prompt_tokens[request]
        if self.outputs is not None:
            return prefill_ns + token_ns * float(self.outputs[request])
        if self.params.index == "serpt":
            return prefill_ns + token_ns * lengths.mean
        return lengths.rank(prefill_ns, token_ns)

    # -- events ---------------------------------------------------------------------------

    def on_arrival(self, view: View, request: int) -> None:
        """Queue the request by arrival and index."""
        self.groups[request] = group = self._group(request)
        self._predict(view, request)
        lengths = self._lengths(request)
        weight = self.params.batch_weight if view.classes[group[0]].bulk else 1.0
        later = self.params.later_ns(self._rank_ns(view, request, lengths))
        later = later * weight if later < 0 else later / weight
        self.keys[request] = view.arrival_ns[request] + int(later)
        self._wait(view, request, view.prompt_tokens[request], lengths)

    def on_preempt(self, view: View, request: int) -> None:
        """Queue the request again, by the key that it has."""
        self._leave(view, request)
        self._wait(view, request, view.to_prefill(request), self._lengths(request))

    def on_unavailable(self, view: View) -> None:
        """Let no request wait for a lost worker: those that it had are in the queue."""
        lost = self.workers[view.index]
        lost.forget()
        self._leave_out(lost)

    def _leave_out(self, lost: WorkerModel) -> None:
        if self.rivals is not None:
            self.rivals.changed.add(lost.view.index)
        for worker in self.workers:
            if lost in worker.others:
                worker.others.remove(lost)

    def on_draining(self, view: View) -> None:
        """Let no more requests join those of a worker."""
        self._leave_out(self.workers[view.index])

    def on_available(self, view: View) -> None:
        """Let requests go to a worker that has started or is repaired."""
        back = self.workers[view.index]
        if self.rivals is not None:
            self.rivals.changed.add(view.index)
            return
        for worker in self.workers:
            if worker is not back and back not in worker.others:
                worker.others.append(back)

    def on_finish(self, view: View, request: int, client: int) -> None:
        """Learn from the request's length, and forget it."""
        tokens = self._leave(view, request)
        group = self.groups.pop(request)
        del self.keys[request]
        if request in self.tight:
            self.tight.remove(request)
            self.barred.pop(request, None)
        tokens = 1 if tokens is None else tokens
        own = self.own.pop(request, None)
        if own is not None and self.calibrations is not None:
            self.calibrations.finish(group, own.atoms, tokens)
        if self.model.finish(group, tokens):
            self._learn()

    def _learn(self) -> None:
        """Learn the distributions again from those that are done and those that run."""
        running = [
            (each, worker.view.rounds - origin)
            for worker in self.workers
            for each, origin in worker.origin.items()
        ]
        self.model.learn((self.groups[each], tokens) for each, tokens in running)
        if self.calibrations is not None:
            own = self.own
            self.calibrations.learn(
                (self.groups[each], own[each].atoms, tokens)
                for each, tokens in running
                if each in own
            )
        self._reserve()

    def _leave(self, view: View, request: int) -> int | None:
        """Let a request leave a worker; return the tokens that it has yielded if it decoded."""
        if self.rivals is not None:
            self.rivals.changed.add(view.index)
        return self.workers[view.index].leave(request)

    def idle_may_act(self) -> bool:
        """Return whether a request waits: workers without any have no other work."""
        return self.queue.count > 0

    def _wait(self, view: View, request: int, left: int, lengths: Lengths | OwnLengths) -> None:
        self.stamp = stamp = self.stamp + 1
        for worker in self.memories:
            if not worker.fits(request, left + 1):
                self.tight.add(request)
        prompt, key = view.prompt_tokens[request], self.keys[request]
        self.queue.put((key, request, prompt.bit_length(), left, stamp, left - prompt, lengths))

    # -- decisions ------------------------------------------------------------------------

    def decide(self, view: View) -> Step | None:
        """Return the next step with prompt tokens, rounds, an eviction, or None."""
        worker = self.workers[view.index]
        running, rounds, now = len(worker.view.running), view.rounds, view.now_ns
        worker.pace.update(now, rounds, running > 0)
        worker.until_ns, worker.slept, worker.seen = 0, -1, self.stamp
        if self.rivals is not None:
            self.rivals.changed.add(view.index)
        begun = len(view.prefilling)
        decoding, blocks = running - begun, UNLIMITED
        if worker.has_memory and (blocks := view.blocks_left(1) or 0) < 0:
            return self._evict(view, worker, -blocks)
        worker.spare, worker.prefills = blocks, False
        if begun or (
            self.queue.count
            and not view.draining
            and running < worker.clients
            and self._first_fits(worker, rounds, blocks)
        ):
            chunks = self._chunks(view, worker, decoding, blocks)
            if chunks:
                return self._prefill(view, worker, chunks, decoding)
        if decoding:
            if not self.queue.count:
                return _UNTIL_ARRIVAL
            if running == worker.clients:
                return _UNTIL_FINISH
            worker.until_ns = now + int(_LOOK_AGAIN * worker.pace.ns)
            return _SOON
        if begun:  # caches that are not complete fill the memory: one of them has to go
            return self._evict(view, worker, 1)
        worker.slept = self.stamp
        return None

    def _prefill(
        self, view: View, worker: WorkerModel, chunks: dict[int, int], decoding: int
    ) -> Step:
        """Return the step with these chunks, beside a round where that is no slower."""
        tokens = list(chunks.values())
        prices = worker.prices
        cached: tuple[int, ...] = ()
        if prices.tells_cached and view.prefilling:
            cached = tuple(view.cached(request) for request in chunks)
        beside, time_ns = prices.prefill(tokens, decoding, cached)
        worker.prefills = True
        worker.until_ns = worker.pace.now_ns + time_ns
        worker.prefill(chunks, worker.pace.rounds + beside)
        return Step(list(chunks), tokens, None, None if beside else ())

    def _first_fits(self, worker: WorkerModel, rounds: int, blocks: int) -> bool:
        """Whether a request may join where no prefill has begun: none overtakes the first.
        ``_chunks`` finds it as well, but takes longer; most decisions of a full worker are so."""
        if not worker.size or not worker.view.running:
            return True
        head = self.queue.heads[0]
        if self.tight and head[1] in self.tight:
            return True
        needed = -(-head[3] // worker.size)
        if needed > blocks or worker.evicted == rounds:
            return False
        return needed <= blocks - worker.growth(self.growth)

    def _chunks(
        self, view: View, worker: WorkerModel, decoding: int, blocks: int
    ) -> dict[int, int]:
        """Return request -> prompt tokens of the next step, in order of the keys."""
        batch = GittinsBatch(worker, self.params.prompt_tokens(decoding), blocks, self.growth)
        # An evicted request would otherwise take the blocks again before those that stay get on.
        again = worker.evicted == worker.pace.rounds and len(worker.view.running) > 0
        may_join = self.queue.count and batch.clients and not (again or view.draining)
        begun = []
        if view.prefilling:
            begun = sorted((self.keys[request], request) for request in view.prefilling)
        routing = RoutingDecision(self, view, worker, decoding) if may_join else None
        while batch.tokens > 0:
            if routing is not None and batch.clients:
                if not routing.join(begun[0] if begun else None, batch):
                    routing = None  # none overtakes one that finds no room
                elif not batch.tokens:
                    break
            if not begun:
                break
            batch.go_on(heappop(begun)[1])
        worker.spare = batch.blocks
        return batch.chunks

    # -- memory ---------------------------------------------------------------------------

    def able(self, worker: WorkerModel, request: int) -> bool:
        """Whether a worker's memory can hold a request at all."""
        if worker.room == UNLIMITED:
            return True
        if worker.view.index in self.barred.get(request, ()):
            return False
        if worker.holds(request):
            return True
        # No cache holds the last token: where no worker has room for one more, it may be the last.
        if any(each.room == UNLIMITED or each.holds(request) for each in self.workers):
            return False
        view = worker.view
        return worker.fits(request, view.prompt_tokens[request] + view.generated(request))

    def _evict(self, view: View, worker: WorkerModel, missing: int) -> Step:
        """Evict those with most expected work to come until enough blocks are free."""
        worker.evicted = view.rounds
        size = worker.size
        work = {request: self._work_ns(view, worker, request) for request in view.running}
        victims: list[int] = []
        while missing > 0:
            request = max(work, key=lambda each: (work[each], self.keys[each]))
            if len(work) == 1:
                self._bar(worker, request)
            del work[request]
            victims.append(request)
            cached = view.cached(request)
            missing -= -(-cached // size)
            if request in worker.origin and cached % size == 0:
                missing -= 1
            if not work:
                break
        return evict(victims)

    def _work_ns(self, view: View, worker: WorkerModel, request: int) -> float:
        """Return the expected work of a running request that is still to come."""
        left = view.to_prefill(request)
        if self.outputs is not None:
            tokens = float(self.outputs[request] - view.generated(request))
        else:
            tokens = self._lengths(request).left(view.generated(request))
        return worker.prices.token_ns * left + worker.pace.ns * tokens

    def _bar(self, worker: WorkerModel, request: int) -> None:
        """Keep a request off a worker whose memory it does not fit into, even alone."""
        barred = self.barred.setdefault(request, set())
        barred.add(worker.view.index)
        self.tight.add(request)
        if not any(self.able(each, request) for each in self.workers):
            raise PolicyError(
                f"request {request} does not fit into any worker's memory, even alone: give one "
                "more blocks"
            )


def _gittins(
    instance: Instance, params: GittinsParams, information: Information, seed: int
) -> Policy:
    return Gittins(params, information, memoryview(instance.requests.service_class))  # type: ignore[arg-type]


GITTINS = PolicyMethod(
    "gittins",
    ANY,
    "Gittins index on learned lengths; each request where it delays the others least",
    _gittins,
    GittinsParams,
    many_workers=True,
)
