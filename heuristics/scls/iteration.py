"""Iteration-level scheduling with a conservative limit: the continuous baseline of SCLS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orsched.common.errors import InputError
from orsched.common.scalars import set_whole
from orsched.data.step import FINISH, UNTIL_EVENT, Step, decode_rounds
from orsched.heuristics.batch_builder import BatchBuilder
from orsched.heuristics.fcfs import FirstComeFirstServed
from orsched.simulator.policy import Information

if TYPE_CHECKING:
    from orsched.simulator.policy import View


@dataclass(frozen=True)
class IterationParams:
    """Parameters of the iteration-level baseline.

    Attributes:
        parallel: most requests that a worker serves at once; None: its clients.
    """

    parallel: int | None = None

    def __post_init__(self) -> None:
        set_whole(self, "parallel", minimum=1, optional=True)


class IterationLevel(FirstComeFirstServed):
    """Requests join and leave between rounds, in order of arrival (SCLS's ILS: Orca, FastGen).

    What joins is prefilled beside a round of those that decode. Memory is set aside for the output
    limit of each request, under paged memory as well: no request is ever evicted.
    """

    name = "ils"
    information = Information.NONE

    def __init__(self, params: IterationParams | None = None) -> None:
        super().__init__()
        self.parallel = (IterationParams() if params is None else params).parallel

    def start(self, view: View) -> None:
        """Refuse a worker that pads."""
        require_no_padding(view)
        self.batch: BatchBuilder = BatchBuilder(view)

    def decide(self, view: View) -> Step | None:
        """Let requests join if there is room, else decode until there may be."""
        if view.prefilling:
            return self.batch.next_part(None)
        stage = self._joining(view) if self.queue else []
        if stage:
            return self.batch.prefill(stage, None if view.running else ())
        if view.running:
            return decode_rounds(until=FINISH if self.queue else UNTIL_EVENT)
        return None

    def _joining(self, view: View) -> list[int]:
        clients = view.free_clients
        if self.parallel is not None:
            clients = min(clients, self.parallel - len(view.running))
        stage = self.batch.take(self.queue, clients)
        if not stage and not view.running:
            stage = [self.queue.popleft()]  # alone, it may use all that there is
        return stage


def require_no_padding(view: View) -> None:
    """Raise ``InputError`` for a worker whose engine pads: it is one for static batches."""
    if view.worker.padding:
        raise InputError(
            f"{view.worker.name} pads its batches",
            field="padding",
            remedy="take static batches (sls, scls), or a worker with padding=False",
        )
