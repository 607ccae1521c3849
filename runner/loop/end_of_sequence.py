"""Real ends of sequences: a request is done when it yields a certain token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.simulator.policy import Information

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from orsched.data.instance import Instance
    from orsched.runner.loop.live_worker import LiveWorker
    from orsched.simulator.policy import Policy
    from orsched.simulator.run_state import RunState


class EndOfSequence:
    """Which tokens end a request, and how long the requests have turned out.

    Args:
        tokens: a token, or several.
        instance: the problem.
        policy: what decides.
        devices: where it runs.
        most: tokens of each request if it yields none of them; None: the output limit.

    Attributes:
        outputs: tokens of each request: the most, until it is known.

    Raises:
        InputError: the policy is clairvoyant, or a device yields no tokens.
    """

    def __init__(
        self,
        tokens: int | Collection[int],
        instance: Instance,
        policy: Policy,
        devices: Sequence[Any],
        most: Sequence[int] | None = None,
    ) -> None:
        listed = [tokens] if isinstance(tokens, int) else list(tokens)
        self.tokens = frozenset(whole_number(token, "end_of_sequence") for token in listed)
        if policy.information == Information.CLAIRVOYANT:
            raise InputError(
                "lengths that only turn out in the run cannot be known before",
                field="end_of_sequence",
                remedy="take a policy with information none or predicted",
            )
        if not all(hasattr(device, "yielded") or hasattr(device, "worker") for device in devices):
            raise InputError(
                "a device that yields no tokens",
                field="end_of_sequence",
                remedy="leave end_of_sequence out, or take a device that yields tokens",
            )
        self.outputs = np.full(len(instance), instance.output_limit_tokens, np.int64)
        if most is not None:
            self.outputs[:] = most

    def open(self, instance: Instance) -> Instance:
        """Return the instance with lengths that say nothing."""
        return instance.replace(requests=instance.requests.replace(output_tokens=self.outputs))

    def watch(self, run_state: RunState) -> None:
        """Note that lengths change during the run."""
        run_state.outputs = memoryview(self.outputs)  # type: ignore[arg-type]

    def find(self, worker: LiveWorker) -> None:
        """Look at the last tokens of a step that is over, before its effects are told."""
        counts = _counts(worker)
        running, outputs = worker.state.running, self.outputs
        slots = [running[request] for request in counts]
        for (request, count), token in zip(
            counts.items(), _last_tokens(worker.device, slots), strict=True
        ):
            if token in self.tokens and count < outputs[request]:
                outputs[request] = count
                if request in worker.state.origin:
                    worker.running_set.end_early(request, count)


def _counts(worker: LiveWorker) -> dict[int, int]:
    """Return request -> tokens after the step, of those that yield in it."""
    state, run_state = worker.state, worker.run_state
    after = state.rounds + worker.count
    counts = {request: after - origin for request, origin in state.origin.items()}
    if worker.completed is None:
        return counts
    counts = counts if worker.count else {}
    if worker.first_from_prefill:
        counts |= {request: run_state.yielded.get(request, 0) + 1 for request in worker.completed}
    return counts


def _last_tokens(device: Any, slots: list[int]) -> list[int]:
    """Return the token that each slot yielded last."""
    if hasattr(device, "yielded"):
        return [device.yielded(slot)[-1] for slot in slots]
    tokens: list[int] = device.worker.slots.tokens.tolist()
    return [tokens[slot] for slot in slots]
