"""The policy contract: what decides, and what it may see."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orsched.step import Step
    from orsched.workers import Worker


class Information(StrEnum):
    """What a policy may know of output lengths."""

    NONE = "none"
    PREDICTED = "predicted"
    CLAIRVOYANT = "clairvoyant"


class WorkerState:
    """Live state of a worker as far as any policy may see it: it holds no true output length.

    Only the executor (the simulator, or a real worker) writes to it; policies read it through
    a ``View``. Nothing in it is copied or sorted anew for a decision.
    """

    __slots__ = (
        "blocks_used", "client_request", "first_token", "free_clients", "now_ns",
        "output_limit_tokens", "rounds", "running", "start_round", "worker",
    )  # fmt: skip

    def __init__(self, worker: Worker, first_token: str, output_limit_tokens: int) -> None:
        self.worker = worker
        self.first_token = first_token
        self.output_limit_tokens = output_limit_tokens
        self.now_ns = 0
        self.rounds = 0
        self.running: dict[int, int] = {}
        self.start_round: dict[int, int] = {}
        self.client_request: list[int] = [-1] * worker.clients
        self.free_clients = worker.clients
        self.blocks_used = 0


class View:
    """What a policy without information on lengths sees; read-only, live, incremental.

    Attributes:
        prompt_tokens: N^p by request row; 0 for requests that have not arrived.
        arrival_ns: arrival time by request row; meaningful for arrived requests only.
        running: request -> client of the requests on clients, oldest first.
        worker: clients, caps, cost and memory model.
        first_token: the first-token rule of the instance.
        output_limit_tokens: no request yields more tokens than this.
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
        self.worker = state.worker
        self.first_token = state.first_token
        self.output_limit_tokens = state.output_limit_tokens

    @property
    def now_ns(self) -> int:
        """The current time."""
        return self._state.now_ns

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

    def generated(self, request: int) -> int:
        """Return the tokens that a running request has yielded."""
        state = self._state
        return state.rounds - state.start_round[request] + (self.first_token == "prefill")

    def blocks_of(self, request: int) -> int:
        """Return the memory blocks to set aside for a request, 0 without a memory model.

        Counted with the true output length for clairvoyant policies, else with the limit.
        """
        return 0 if self._blocks is None else int(self._blocks[request])

    @property
    def blocks_free(self) -> int | None:
        """Memory blocks that are not set aside, or None without a memory model."""
        memory = self.worker.memory
        return None if memory is None else memory.blocks - self._state.blocks_used


class PredictedView(View):
    """A view that also holds the predicted output lengths by request row."""

    information = Information.PREDICTED

    def __init__(self, *columns: Any, predicted_tokens: memoryview) -> None:
        super().__init__(*columns)
        self.predicted_tokens = predicted_tokens


class ClairvoyantView(View):
    """A view that also holds the true output lengths, and all requests from the start."""

    information = Information.CLAIRVOYANT

    def __init__(self, *columns: Any, output_tokens: memoryview) -> None:
        super().__init__(*columns)
        self.output_tokens = output_tokens


class Policy(ABC):
    """What decides. One policy object serves one run; it drives simulator and real worker alike.

    The executor calls ``start`` once, then the event hooks, and ``decide`` whenever the worker is
    free. Events become known at step borders: after a step come its first tokens, its finishes
    (round by round, each before the next run of rounds), then the arrivals up to now in the order
    of time and row. Hooks that a class does not override cost nothing.

    Attributes:
        name: the policy's name.
        information: what it must be shown; the executor builds the view for it.
    """

    name: str = "policy"
    information: Information = Information.NONE

    def start(self, view: View) -> None:  # noqa: B027  (an optional hook)
        """See the view for the first time; no request has arrived yet."""

    def on_arrival(self, view: View, request: int) -> None:  # noqa: B027
        """Take note of a request that has arrived."""

    def on_first_token(self, view: View, request: int) -> None:  # noqa: B027
        """Take note of a request's first token."""

    def on_finish(self, view: View, request: int, client: int) -> None:  # noqa: B027
        """Take note of a request's last token; its client is free."""

    def on_preempt(self, view: View, request: int) -> None:  # noqa: B027
        """Take note of a request that was evicted."""

    @abstractmethod
    def decide(self, view: View) -> Step | None:
        """Return the next step, or None to wait for the next arrival."""
