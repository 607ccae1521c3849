"""The policy contract: what decides, and what it may see."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from orsched.data.service_classes import DEFAULT_CLASSES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from orsched.data.memory import Eviction
    from orsched.data.service_classes import ServiceClass
    from orsched.data.step import Step, Wait
    from orsched.data.workers import Worker
    from orsched.simulator.paging import PaddedPages, Pages, PrefixView


class Information(StrEnum):
    """What a policy may know of output lengths."""

    NONE = "none"
    PREDICTED = "predicted"
    CLAIRVOYANT = "clairvoyant"


class Clock(Protocol):
    """What tells the time to a worker that waits to be asked: the run."""

    now_ns: int


class WorkerState:
    """Live state of a worker as far as any policy may see it: it holds no true output length. Only
    the executor (the simulator, or a real worker) writes to it; policies read it through a
    ``View``. Nothing in it is copied or sorted again for a decision. ``yielded``: request -> tokens
    of those that have yielded some and do not decode now; shared by all workers. ``pages`` counts
    the blocks that caches fill (``used``) under paged memory."""

    __slots__ = (
        "available", "blocks_set_aside", "client_request", "clock", "draining", "first_token",
        "free_clients", "held", "index", "now_ns", "origin", "output_limit_tokens", "pages",
        "partial", "paused", "prefixes", "receiving", "rounds", "running", "sending", "worker",
        "yielded",
    )  # fmt: skip

    def __init__(
        self,
        worker: Worker,
        first_token: str,
        output_limit_tokens: int,
        index: int = 0,
        yielded: dict[int, int] | None = None,
    ) -> None:
        self.worker = worker.as_seen
        self.index = index
        self.available = True  # False before its start, and from a failure until its repair
        self.draining = False  # whether it gets no more requests, and is off when it has none left
        self.first_token = first_token
        self.output_limit_tokens = output_limit_tokens
        self.now_ns = 0
        self.rounds = 0
        self.running: dict[int, int] = {}  # request -> client of all on clients, oldest first
        self.origin: dict[int, int] = {}  # request -> round its tokens count from, if it decodes
        self.yielded: dict[int, int] = {} if yielded is None else yielded
        self.partial: dict[int, int] = {}  # request -> tokens prefilled, where not complete
        self.held: dict[int, int] = {}  # request -> origin: done, held in a static batch
        self.paused: dict[int, None] = {}  # could decode, and are left out of the rounds
        self.sending: dict[int, int] = {}  # request -> client; handed over, cache not there yet
        self.receiving: dict[int, int] = {}  # request -> client; its cache is on its way here
        self.client_request: list[int] = [-1] * worker.clients
        self.free_clients = worker.clients
        self.blocks_set_aside = 0  # at admission
        self.pages: Pages | PaddedPages | None = None
        self.prefixes: PrefixView | None = None  # what the view shows of the prefix cache
        self.clock: Clock | None = None  # while the worker waits to be asked: the run


class View:
    """What a policy without information on lengths sees; read-only, live, incremental.

    Another worker may be in the middle of a step. Its requests, prefilled tokens and filled blocks
    then include the step's prefill chunks. Its rounds, and the tokens that they yield, are those
    before the step, or before the current one of the runs into which finishes divide it.

    Attributes:
        index: index of the worker.
        workers: the views of all workers, this one among them.
        prompt_tokens: N^p by request row; 0 for requests that have not arrived.
        arrival_ns: arrival time by request row; meaningful for arrived requests only.
        running: request -> client of the requests on clients, oldest first.
        prefilling: request -> tokens prefilled, of those whose prefill has begun and is not
            complete, oldest first.
        sending: request -> client of those handed to another worker, whose caches are here still.
        receiving: request -> client of those whose caches are on their way to this worker.
        worker: clients, caps, cost and memory model.
        first_token: the first-token rule of the instance.
        output_limit_tokens: no request yields more tokens than this.
        classes: the service classes with their limits; ``service_class`` counts them.
        service_class: class by request row; meaningful for arrived requests only, as what follows.
        tenant, group: number of the tenant or group by request row, or None without them.
        deadline_ns: the requests' own limits from arrival to finish, 0 for that of the class; None
            where no request has one.
        weights: how much each request counts in the weighted mean JCT, or None where all count
            the same.
    """

    information: ClassVar[Information] = Information.NONE

    def __init__(
        self,
        state: WorkerState,
        prompt_tokens: memoryview,
        arrival_ns: memoryview,
        blocks: memoryview | None,
    ) -> None:
        self._state = state
        self._blocks = blocks
        self.prompt_tokens = prompt_tokens
        self.arrival_ns = arrival_ns
        self.running: Mapping[int, int] = MappingProxyType(state.running)
        self.prefilling: Mapping[int, int] = MappingProxyType(state.partial)
        self.sending: Mapping[int, int] = MappingProxyType(state.sending)
        self.receiving: Mapping[int, int] = MappingProxyType(state.receiving)
        self.worker = state.worker
        self.index = state.index
        self.workers: Sequence[View] = (self,)
        self.classes: Sequence[ServiceClass] = DEFAULT_CLASSES
        self.service_class: memoryview | None = None
        self.tenant: memoryview | None = None
        self.group: memoryview | None = None
        self.deadline_ns: memoryview | None = None
        self.weights: memoryview | None = None
        self.first_token = state.first_token
        self.output_limit_tokens = state.output_limit_tokens
        if blocks is not None:  # the same as the method, without a call of a Python function
            self.blocks_of = blocks.__getitem__  # type: ignore[method-assign,assignment]

    @property
    def now_ns(self) -> int:
        """The current time."""
        state = self._state
        return state.now_ns if state.clock is None else state.clock.now_ns

    @property
    def available(self) -> bool:
        """Whether the worker is available: False before its start, and from a failure to repair; no
        policy knows how long that takes."""
        return self._state.available

    @property
    def draining(self) -> bool:
        """Whether the worker gets no new requests, for it is off once it has served its own."""
        return self._state.draining

    @property
    def rounds(self) -> int:
        """Decode rounds that the worker has done so far."""
        return self._state.rounds

    @property
    def free_clients(self) -> int:
        """How many clients are free."""
        return self._state.free_clients

    def request_on(self, client: int) -> int:
        """Return the request on a client, or -1."""
        return self._state.client_request[client]

    def decodes(self, request: int) -> bool:
        """Whether a request takes part in the worker's rounds."""
        return request in self._state.origin

    def generated(self, request: int) -> int:
        """Return the tokens that an unfinished request has yielded, wherever it is."""
        state = self._state
        origin = state.origin.get(request)
        return state.yielded.get(request, 0) if origin is None else state.rounds - origin

    def to_prefill(self, request: int) -> int:
        """Return the tokens to prefill before a request can decode: 0 once it does; without a
        client its prompt and the tokens that it has yielded."""
        state = self._state
        done = state.partial.get(request)
        if done is None:
            if request in state.running:
                return 0
            done = 0
        return self.prompt_tokens[request] + state.yielded.get(request, 0) - done

    def cached(self, request: int) -> int:
        """Return the tokens in the cache of a request on this worker, 0 for others."""
        state = self._state
        if request not in state.running:
            return 0
        if request in state.partial:
            return state.partial[request]
        origin = state.held.get(request, state.origin.get(request))
        if origin is not None:
            tokens = state.rounds - origin
        elif request in state.yielded:
            tokens = state.yielded[request]
        else:  # its prefill is being completed
            return self.prompt_tokens[request]
        return self.prompt_tokens[request] + tokens - (self.first_token == "prefill")

    def blocks_of(self, request: int) -> int:
        """Return the memory blocks to set aside for a request, 0 without a memory model: those of
        the true output length for clairvoyant policies, else of the limit. Where no worker has as
        many blocks, it is all blocks of the largest worker that takes the prompt."""
        return 0 if self._blocks is None else int(self._blocks[request])

    @property
    def blocks_free(self) -> int | None:
        """Memory blocks that are not set aside, or None without a memory model."""
        memory = self.worker.memory
        return None if memory is None else memory.blocks - self._state.blocks_set_aside

    @property
    def blocks_unused(self) -> int | None:
        """Memory blocks that no cache fills now, or None without a memory model; with ``whole``
        allocation ``blocks_free``. During a step (of another worker) its prefill chunks are
        counted, the tokens of its rounds are not yet."""
        memory = self.worker.memory
        if memory is None:
            return None
        state = self._state
        used = state.blocks_set_aside if state.pages is None else state.pages.used
        return memory.blocks - used

    @property
    def prefixes(self) -> PrefixView | None:
        """The worker's prefix cache, or None without one. ``hit_tokens(request)`` are the tokens
        that a waiting request would find in it, which it does not prefill: ``to_prefill`` of a
        request that waits counts them all the same. ``trial()`` tries a step on it."""
        return self._state.prefixes

    def blocks_left(self, rounds: int) -> int | None:
        """Return the memory blocks that no cache fills after a number of further rounds, in which
        all that can decode take part. Negative where memory does not suffice; None without a memory
        model. With ``whole`` allocation the same as ``blocks_free``."""
        memory, state = self.worker.memory, self._state
        if memory is None:
            return None
        pages = state.pages
        if pages is None:
            return memory.blocks - state.blocks_set_aside
        paused = [self.cached(request) for request in state.paused] if state.paused else ()
        return memory.blocks - pages.used - pages.needed(rounds, paused)

    def needing_blocks(self) -> Collection[int]:
        """Return the requests that can decode whose next token takes a new block of paged memory,
        in any order. None on a padding worker, where a cache counts as the longest."""
        state, memory = self._state, self.worker.memory
        if memory is None or state.pages is None or self.worker.padding:
            return ()
        due = state.pages.due()
        if state.paused:
            size = memory.block_tokens
            due = [*due, *(each for each in state.paused if self.cached(each) % size == 0)]
        return due


class PredictedView(View):
    """A view that also holds the predicted output lengths by request row.

    Attributes:
        predicted_tokens: one length a request.
        quantile_levels: levels of the distributions that are predicted; () without any.
    """

    information = Information.PREDICTED
    quantile_levels: tuple[float, ...] = ()
    _quantiles: tuple[memoryview, ...] = ()

    def __init__(self, *columns: Any, predicted_tokens: memoryview) -> None:
        super().__init__(*columns)
        self.predicted_tokens = predicted_tokens

    def show_quantiles(self, levels: tuple[float, ...], columns: Sequence[memoryview]) -> None:
        """Take up predicted distributions, a column a level; the executor calls it once."""
        self.quantile_levels, self._quantiles = levels, tuple(columns)

    def predicted_quantiles(self, request: int) -> list[int]:
        """Return the quantiles of a request's predicted length, one a level; [] without any. 0 for
        requests that have not arrived."""
        return [column[request] for column in self._quantiles]


class ClairvoyantView(View):
    """A view that also holds the true output lengths, and all requests from the start."""

    information = Information.CLAIRVOYANT

    def __init__(self, *columns: Any, output_tokens: memoryview) -> None:
        super().__init__(*columns)
        self.output_tokens = output_tokens


class Policy(ABC):
    """Decides the steps of a worker. One object serves one run, simulated or on real workers.

    The executor calls ``start`` once, then the event hooks, and ``decide`` whenever the worker is
    free. Events are reported at step borders: after a step come its first tokens, its finishes
    (round by round, each before the next run of rounds), then the arrivals up to now in the order
    of time and row. Hooks that a class does not override cost nothing.

    With several workers ``decide`` is called for each worker when it is free. Arrivals are reported
    at the first step border of any worker, or at once if some worker waits. For a waiting worker
    ``decide`` is called again when requests arrive or are evicted on any worker, unless the policy
    says that it has nothing to do (``idle_may_act``). Below a dispatcher, where each worker has a
    policy of its own, that is when they are its own.

    For a policy that ``assigns``, each arrival is reported at once, and ``on_arrival`` returns the
    worker whose decisions it may change: on the other workers the arrival ends no rounds.

    Attributes:
        name: the policy's name.
        information: its information class; the executor builds the view accordingly.
        many_workers: whether it can run instances with several workers.
        assigns: whether arrivals to several workers end the rounds of a single one.
        chunks: whether it splits prompts that are longer than a worker's limit for a prefill step;
            read when the run begins. Instances with such prompts are refused otherwise.
        roles: whether it knows workers that prefill or decode alone.
        eviction: the rule by which prefix caches take free blocks, in place of each worker's own
            (``orsched.data.memory``); None for that. Read when the run begins.
        waits_for_workers: whether requests stay with a worker that fails until it is back. With a
            worker that stays away such a policy is refused.
        drains: whether it gives workers that drain nothing new, as autoscaling demands.
        aborts: whether waiting requests can be taken from it (``on_abort``), as over-sampling does.
    """

    name: str = "policy"
    information: Information = Information.NONE
    many_workers: ClassVar[bool] = False
    assigns: ClassVar[bool] = False
    chunks: bool = False
    roles: ClassVar[bool] = False
    eviction: Eviction | None = None
    waits_for_workers: ClassVar[bool] = False
    drains: ClassVar[bool] = False
    aborts: bool = False

    def start(self, view: View) -> None:  # noqa: B027  (an optional hook)
        """Prepare for a run; no request has arrived yet."""

    def on_arrival(self, view: View, request: int) -> int | None:  # noqa: B027
        """Handle the arrival of a request. A policy that ``assigns`` returns the index of the
        worker that it concerns, None for all."""

    def on_first_token(self, view: View, request: int) -> None:  # noqa: B027
        """Handle a request's first token."""

    def on_prefilled(self, view: View, request: int) -> int | None:  # noqa: B027
        """Say who decodes a request whose prefill is complete, in instances with a link. None: the
        worker itself. An index: that worker, whose steps then ``receive`` the request; it keeps
        client and blocks of the first until its transfer ends."""

    def on_finish(self, view: View, request: int, client: int) -> None:  # noqa: B027
        """Handle a request's last token; its client is free."""

    def on_preempt(self, view: View, request: int) -> None:  # noqa: B027
        """Handle an eviction: the request waits again and keeps its yielded tokens."""

    def on_abort(self, view: View, request: int) -> None:  # noqa: B027
        """Drop a request that waits: it is not served any more. One on a client has finished."""

    def on_unavailable(self, view: View) -> None:  # noqa: B027
        """Handle the loss of a worker: it is not asked until it is back. Each request that was on
        it has been reported as evicted before; what only waited for it has not. All others are
        asked after it."""

    def on_available(self, view: View) -> None:  # noqa: B027
        """Handle a worker's start or repair: it is available, with an empty memory."""

    def on_draining(self, view: View) -> None:  # noqa: B027
        """Handle that a worker is to get no new requests; ``on_available`` may take it back. It is
        off, which ``on_unavailable`` tells, once nothing runs on it and ``decide`` is None."""

    def workers_wanted(self, now_ns: int, open_requests: int, wanted: int) -> int:
        """Return how many workers are to be on, where the autoscaling has the rule ``policy``:
        ``open_requests`` have arrived and are not done; ``wanted`` is what the reactive rule would
        say."""
        return wanted

    def hears_of_evictions(self) -> bool:
        """Return whether the policy reschedules evicted requests; one that passes evictions on to
        other policies returns their answer."""
        return type(self).on_preempt is not Policy.on_preempt

    def survives_losses(self) -> bool:
        """Return whether the policy serves workers that come and go: if it reschedules evicted
        requests, as those that were on a lost worker are reported."""
        return self.hears_of_evictions()

    def take_over(self, view: View, away: Iterable[int]) -> bool:
        """Move requests that wait for lost workers, of the indices ``away``, to an idle worker,
        that of the view; return whether any were moved: ``decide`` is then called again. Policies
        that serve several workers themselves need not: they reschedule what was evicted."""
        return False

    def idle_may_act(self) -> bool:
        """Return whether a worker that waits may have something to do, were it asked now. Asked
        where an arrival or an eviction may have given it something. Where the policy is sure that
        there is nothing, those that wait are not asked, which costs nothing however many they are;
        but the ones that ``on_arrival`` named always are. Policies need not define it."""
        return True

    def counted(self) -> dict[str, int]:
        """Return the policy's own counters by name, for ``run.counted`` of its schedules."""
        return {}

    @abstractmethod
    def decide(self, view: View) -> Step | Wait | None:
        """Return the next step, None to wait for an arrival, or ``Wait`` to wait until a time."""


def overridden(policy: Policy) -> frozenset[str]:
    """Return the names of the hooks that a policy's class defines; the others are not called."""
    names = ("on_arrival", "on_first_token", "on_finish", "on_preempt", "on_prefilled")
    return frozenset(n for n in names if getattr(type(policy), n) is not getattr(Policy, n))
