"""vLLM's engine as a device: each round, or chunks beside one, is a pass of ``LLMEngine.step``."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.common.errors import InputError, MissingDependencyError
from orsched.runner.devices.device import EngineDevice, WorkerLostError
from orsched.runner.vllm_worker.engine import Engine
from orsched.runner.vllm_worker.scheduler import PassDiffersError
from orsched.runner.worker.layout import Chunk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from orsched.runner.devices.settings import WorkerSettings


MOST_DIFFERENCES = 3


class VllmDevice(EngineDevice):
    """vLLM's engine in this process.

    A request enters the engine with its first pass, and leaves it when its slot is released. A pass
    that would differ from what was asked is not executed: the worker is lost, and a restart takes
    all requests out of the engine.
    """

    def __init__(self, settings: WorkerSettings) -> None:
        super().__init__(settings)
        self.engine = Engine(settings)
        self.on_cpu = self.engine.platform == "cpu"
        self.vocabulary = self.engine.vocabulary
        self.name = f"vllm on {self.engine.platform}"
        self.facts = {"vllm": self.engine.version}
        self.waiting: dict[int, list[int]] = {}  # slot -> prompt of a request without a pass yet
        self.names: dict[int, str] = {}  # slot -> its request in the engine
        self.tokens: dict[int, list[int]] = {}  # slot -> what its request has yielded
        self.differences: list[str] = []  # what was said of passes that would have differed
        self._test_itself()

    @classmethod
    def require(cls) -> None:
        """Raise ``MissingDependencyError`` where vLLM is not installed."""
        if find_spec("vllm") is None:
            raise MissingDependencyError("a vLLM worker needs vllm: pip install vllm")

    def compute(self, chunks: Sequence[Chunk], active: Sequence[int], rounds: int) -> None:
        """Run the passes of a step; raises ``WorkerLostError`` where one would differ.

        After ``MOST_DIFFERENCES`` no step is taken any more, so that the run ends and says why:
        another try would end the same way.
        """
        if len(self.differences) >= MOST_DIFFERENCES:
            raise WorkerLostError("failed", self.differences[-1])
        for chunk in chunks:
            if chunk.whole:
                self.waiting[chunk.slot], self.tokens[chunk.slot] = list(chunk.whole), []
        wanted = {chunk.slot: len(chunk.tokens) for chunk in chunks if len(chunk.tokens)}
        for _ in range(rounds):
            self._pass(wanted | dict.fromkeys(active, 1))

    def _pass(self, wanted: dict[int, int]) -> None:
        if not wanted:
            return
        for slot in wanted:
            if slot in self.waiting:
                self.names[slot] = self.engine.add(self.waiting.pop(slot), slot)
        slots = {self.names[slot]: slot for slot in wanted}
        try:
            found = self.engine.step({name: wanted[slot] for name, slot in slots.items()})
        except PassDiffersError as error:
            self.differences.append(str(error))
            raise WorkerLostError("failed", str(error)) from None
        for name, tokens in found.items():
            self.tokens[slots[name]] += tokens

    def yielded(self, slots: Sequence[int], tokens: int = 1) -> NDArray[np.int64]:
        """Return the last tokens of requests."""
        return np.array([self.tokens[slot][-tokens:] for slot in slots], np.int64)

    def release(self, slot: int, prompt_tokens: int) -> Any:
        """Free a slot; its request leaves the engine."""
        self.waiting.pop(slot, None)
        if slot in self.names:
            self.engine.remove([self.names.pop(slot)])
        return np.array(self.tokens.pop(slot, []), np.int64)

    def restart(self) -> None:
        """Take all requests out of the engine; what they yielded stays until it is released."""
        self.engine.remove(list(self.names.values()))
        self.names.clear()
        self.waiting.clear()
        self.begun.clear()

    def close(self) -> None:
        """End the engine."""
        self.engine.close()

    def _test_itself(self) -> None:
        """Run six passes: a stage, parts of a prompt beside a round, rounds over a part."""
        size = min(4, self.length - 2)
        if size < 2:
            return
        first, other, half = [1] * size, [2] * size, size // 2
        beside = min(1, self.slots - 1)
        try:
            self.compute([Chunk(0, 0, first, True, whole=first)], [], 1)
            self.release(0, size)
            self.compute([Chunk(0, 0, first[:half], False, whole=first)], [], 1)
            self.compute([Chunk(0, half, first[half:], True)], [], 1)
            if beside:
                self.compute([Chunk(1, 0, other[:half], False, whole=other)], [0], 1)
                self.compute([Chunk(1, half, other[half:], True)], [], 1)
                self.compute([], [1], 1)
            counts = [len(self.tokens[slot]) for slot in range(1 + beside)]
        except WorkerLostError as lost:
            raise _not_driven(self.engine.version, lost.message) from None
        except RuntimeError as error:  # its kernels do not take the model, such as its head size
            raise _not_driven(self.engine.version, str(error)) from None
        for slot in range(1 + beside):
            self.release(slot, size)
        if counts != [1 + beside, 2][: 1 + beside]:
            raise _not_driven(self.engine.version, f"{counts} tokens were yielded")


def _not_driven(version: str, problem: str) -> InputError:
    return InputError(
        f"vLLM {version} fails the self-test at the start: {problem}",
        field="worker",
        remedy="use another version of vLLM, leave --engine-arg out, or use --worker torch",
    )
