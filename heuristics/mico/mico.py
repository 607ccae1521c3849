"""MICO: requests dealt to clouds by predicted length, inserted into running batches."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from orsched.common.errors import InputError
from orsched.heuristics.mico.distribution import (
    Distributor,
    Lengths,
    MicoParams,
    Weighted,
    powers,
    round_times_ns,
    whole_shares,
)
from orsched.heuristics.mico.worker_scheduler import WorkerScheduler
from orsched.heuristics.policy_method import PolicyMethod
from orsched.heuristics.scls.offloading import able
from orsched.simulator.policy import Information, Policy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orsched.data.step import Step
    from orsched.simulator.policy import View


class Mico(Policy):
    """Cong et al., sections 3.2 to 3.5, with the four variants of their ablation as parameters.

    Requests that arrive together are dealt together: in groups of predicted length, the longest
    first, so that the clouds' tokens are even (Q), or in turn. Each cloud serves its own at
    iteration level (I) or in static batches. A cloud that has nothing waiting takes the next
    request of the one with the most load, where places are taken.
    """

    many_workers = True
    waits_for_workers = True
    chunks = True

    def __init__(
        self,
        params: MicoParams | None = None,
        information: Information = Information.PREDICTED,
        name: str = "mico",
        seed: int = 0,
    ) -> None:
        self.params = MicoParams() if params is None else params
        self.information = Information(information)
        self.name = name
        self.seed = seed
        blind = self.information is Information.NONE
        self.by_length = (self.params.distribution or "workload") == "workload"
        if blind and self.params.distribution is None:
            self.by_length = False
        for field, asked in (
            ("distribution", self.by_length),
            ("trade_off", self.params.trade_off),
            ("order", self.params.order == "long_answer"),
        ):
            if blind and asked:
                raise InputError(
                    "lengths are not known without information",
                    field=field,
                    remedy="run with information predicted or clairvoyant, or without it",
                )

    def start(self, view: View) -> None:
        """Set up the clouds and their shares."""
        params, views = self.params, view.workers
        size = params.batch_size
        self.lengths = Lengths(view, params.buckets, params.longest_tokens)
        random = Random(self.seed)
        self.clouds = [WorkerScheduler(each, params, self.lengths, random) for each in views]
        equal = params.shares == "equal"
        shares = [1] * len(views) if equal else whole_shares(powers(views, size))
        self.distributor = Distributor(shares)
        self.round_ns = round_times_ns(views, size)
        self.alike = all(each.worker.memory == view.worker.memory for each in views)
        self.pool: list[int] = []
        self.weights: dict[int, int] = {}

    def on_arrival(self, view: View, request: int) -> None:
        """Keep the request until the next decision, which deals all that came."""
        self.pool.append(request)

    def on_finish(self, view: View, request: int, client: int) -> None:
        """Take the request off its cloud."""
        self.clouds[view.index].leaves(request)
        self.distributor.done(view.index, self.weights.pop(request))

    def on_preempt(self, view: View, request: int) -> None:
        """Queue the request at its cloud again."""
        self.clouds[view.index].put_back(view, request)

    def waiting(self) -> int:
        """Return how many requests wait."""
        return len(self.pool) + sum(len(cloud.queue) for cloud in self.clouds)

    def decide(self, view: View) -> Step | None:
        """Deal out what has arrived, then decide for the cloud."""
        if self.pool:
            self._distribute(view)
        cloud = self.clouds[view.index]
        if self.params.backoff and not cloud.queue:
            self._take_over(view)
        return cloud.decide(view)

    def _distribute(self, view: View) -> None:
        weights, dealt = self.weights, [list[int]() for _ in self.clouds]
        everywhere = self._deal_alone(view, dealt) if not self.alike else self.pool
        for cloud, (weight, request) in self._deal(view, everywhere):
            weights[request] = weight
            dealt[cloud].append(request)
        for cloud, requests in enumerate(dealt):
            if requests:
                self.clouds[cloud].put(view, requests)
        self.pool = []

    def _deal(self, view: View, requests: list[int]) -> Iterable[tuple[int, Weighted]]:
        """Return (cloud, request) for requests that every cloud can hold."""
        distributor, lengths, prompts = self.distributor, self.lengths, view.prompt_tokens
        if not self.by_length:
            every = distributor.clouds
            return ((distributor.in_turn(1, every), (1, request)) for request in requests)
        groups: list[list[Weighted]] = [[] for _ in range(lengths.count)]
        middles, bucket = lengths.middles, lengths.bucket
        for request in requests:
            label = bucket(request)
            groups[label].append((prompts[request] + middles[label], request))
        groups.reverse()
        return distributor.deal(groups)

    def _deal_alone(self, view: View, dealt: list[list[int]]) -> list[int]:
        """Deal the requests that not every cloud can hold; return the others."""
        everywhere, views, distributor = [], view.workers, self.distributor
        for request in self.pool:
            clouds = able(views, request)
            if len(clouds) == len(views):
                everywhere.append(request)
                continue
            if self.by_length:
                weight = view.prompt_tokens[request] + self.lengths.middle(request)
                chosen = distributor.least_loaded(weight, clouds)
            else:
                weight = 1
                chosen = distributor.in_turn(weight, clouds)
            self.weights[request] = weight
            dealt[chosen].append(request)
        return everywhere

    def _take_over(self, view: View) -> None:
        """Fill the places of a cloud without waiting requests with those of others."""
        cloud, target = self.clouds[view.index], view.index
        for _ in range(cloud.open_places(view)):
            source = self._busiest(view)
            if source < 0:
                return
            request = self.clouds[source].queue.pop()
            if request in self.clouds[source].batch.evicted:
                cloud.batch.evicted.add(request)
            cloud.put(view, [request])
            self.distributor.moved(source, target, self.weights[request])

    def _busiest(self, view: View) -> int:
        """Return the cloud with the most load of those that can give a request away, or -1."""
        found, most, target = -1, -1, view.index
        loads, factors = self.distributor.loads, self.distributor.factors
        for source, cloud in enumerate(self.clouds):
            if source == target or not cloud.queue or loads[source] * factors[source] <= most:
                continue
            if len(cloud.queue) > cloud.open_places(view.workers[source]) and self._gains(
                view, source, cloud.queue.first()
            ):
                found, most = source, loads[source] * factors[source]
        return found

    def _gains(self, view: View, source: int, request: int) -> bool:
        """Whether the cloud can hold a request, and be done with it before its own cloud would:
        when that has worked off its load, and then the request, at full places."""
        target = view.index
        if not self.alike and target not in able(view.workers, request):
            return False
        here, there = self.round_ns[target], self.round_ns[source]
        weight, load = self.weights[request], self.distributor.loads[source]
        return here <= there or weight * (here - there) * self.clouds[source].places <= load * there


MICO = PolicyMethod(
    "mico",
    (Information.PREDICTED, Information.NONE, Information.CLAIRVOYANT),
    "requests dealt to clouds by predicted length, inserted into running batches (MICO)",
    lambda instance, params, information, seed: Mico(params, information, seed=seed),
    MicoParams,
    many_workers=True,
)
