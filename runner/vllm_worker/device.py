"""vLLM's engine as a device: each round, or chunks beside one, is a pass of ``LLMEngine.step``."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.common.errors import InputError, MissingDependencyError
from orsched.runner.devices.device import EngineDevice, Times, WorkerLostError
from orsched.runner.vllm_worker.engine import Engine, PassDiffersError
from orsched.runner.worker.layout import Chunk

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from orsched.runner.devices.settings import WorkerSettings

_UNKNOWN = -1  # a token of a pass that is not over


class Tokens(list[int]):
    """What a request has yielded; of a pass that is not over, the token is unknown."""

    wait: Callable[[], None]  # until all are known

    def tolist(self) -> list[int]:
        """Return the tokens once all are known."""
        if _UNKNOWN in self[-1:]:
            self.wait()
        return list(self)


@dataclass(slots=True)
class _Step:
    """A step that was begun: when, when its last pass was over, and passes that are not."""

    start_ns: int
    end_ns: int
    passes: int = 0


class VllmDevice(EngineDevice):
    """vLLM's engine in this process.

    A request enters the engine with its first pass, and leaves it when its slot is released. A pass
    that would differ from what was asked is not executed: the worker is lost, and a restart takes
    all requests out of the engine. Where vLLM schedules asynchronously, the last pass of a step is
    under way while the next step is decided on.
    """

    reuses_prefixes = True

    def __init__(self, settings: WorkerSettings) -> None:
        super().__init__(settings)
        self.engine = Engine(settings)
        self.on_cpu = self.engine.platform == "cpu"
        self.looks_ahead = self.engine.is_async
        self.vocabulary = self.engine.vocabulary
        self.name = f"vllm on {self.engine.platform}"
        self.facts = {"vllm": self.engine.version, "async_scheduling": self.looks_ahead}
        self.waiting: dict[int, tuple[list[int], int]] = {}  # slot -> prompt, hit: no pass yet
        self.names: dict[int, str] = {}  # slot -> its request in the engine
        self.tokens: dict[int, Tokens] = {}  # slot -> what its request has yielded
        self.steps: deque[_Step] = deque()  # without an ``end`` yet
        self.passes: deque[tuple[_Step, dict[str, tuple[Tokens, int]]]] = deque()  # not over
        self._test_itself()

    @classmethod
    def require(cls) -> None:
        """Raise ``MissingDependencyError`` where vLLM is not installed."""
        if find_spec("vllm") is None:
            raise MissingDependencyError("a vLLM worker needs vllm: pip install vllm")

    def start(self, zero_ns: int | None = None) -> None:
        """Let time begin."""
        super().start(zero_ns)
        self.last_ns = 0  # the end of the last step

    def begin(
        self, chunks: Sequence[Chunk], active: Sequence[int], rounds: int, planned_ns: int
    ) -> None:
        """Begin the passes of a step; ``WorkerLostError``: one would differ, and none happened."""
        now, before = self.now_ns(), [(tokens, len(tokens)) for tokens in self.tokens.values()]
        self.steps.append(_Step(now, now))
        try:
            self.compute(chunks, active, rounds)
        except WorkerLostError:
            self._wait()
            self.steps.pop()
            for tokens, count in before:
                del tokens[count:]
            raise

    def aside(self, chunks: list[Chunk], active: list[int], rounds: int) -> int:
        """Execute a step that is not part of the run; return its time, which does not count."""
        self._wait()
        before = self.now_ns()
        self.begin(chunks, active, rounds, 0)
        self._wait()
        step = self.steps.pop()
        self.zero_ns += self.now_ns() - before
        return step.end_ns - step.start_ns

    def compute(self, chunks: Sequence[Chunk], active: Sequence[int], rounds: int) -> None:
        """Begin the passes of the last step; one of them may not be over then."""
        for chunk in chunks:
            if chunk.whole:
                self.waiting[chunk.slot] = list(chunk.whole), chunk.start
                self.tokens[chunk.slot] = made = Tokens()
                made.wait = self._wait
        wanted = {chunk.slot: len(chunk.tokens) for chunk in chunks if len(chunk.tokens)}
        wanted |= dict.fromkeys(active, 1)
        yields = [*(chunk.slot for chunk in chunks if chunk.yields), *active]
        for _ in range(rounds if wanted else 0):
            self._pass(wanted, yields)

    def _pass(self, wanted: dict[int, int], yields: Sequence[int]) -> None:
        hits: dict[str, int] = {}
        for slot in wanted:
            if slot in self.waiting:
                prompt, hit = self.waiting.pop(slot)
                self.names[slot] = self.engine.add(prompt, slot)
                hits[self.names[slot]] = hit
        names, tokens = self.names, self.tokens
        places = {names[slot]: (tokens[slot], len(tokens[slot])) for slot in yields}
        for slot in yields:
            tokens[slot].append(_UNKNOWN)
        self.passes.append((self.steps[-1], places))
        self.steps[-1].passes += 1
        try:
            self._advance({names[slot]: count for slot, count in wanted.items()}, hits)
        except PassDiffersError as error:
            self.passes.pop()
            raise WorkerLostError("differs", str(error)) from None

    def _advance(self, asked: Mapping[str, int], hits: Mapping[str, int]) -> None:
        """Take a step of the engine, and note what the passes yielded that are over."""
        for found in self.engine.step(asked, hits):
            step, places = self.passes.popleft()
            step.passes, step.end_ns = step.passes - 1, self.now_ns()
            for name, (tokens, place) in places.items():
                if not found.get(name):
                    raise WorkerLostError("failed", f"vLLM's request {name} yields no token")
                tokens[place] = found[name][-1]

    def _wait(self) -> None:
        """Let the passes be over."""
        for _ in range(2 * len(self.passes)):
            if self.passes:
                self._advance({}, {})
        if self.passes:
            raise WorkerLostError("failed", "a pass of vLLM does not end")

    def done(self) -> bool:
        """Return whether a step was begun."""
        return bool(self.steps)

    def end(self) -> Times:
        """Return the times of the oldest step, once its passes are over."""
        if self.steps[0].passes:
            self._wait()
        step = self.steps.popleft()
        start = max(step.start_ns, self.last_ns)  # until then the step before was under way
        self.last_ns = max(start, step.end_ns)
        return Times(start, self.last_ns)

    def yielded(self, slots: Sequence[int], tokens: int = 1) -> NDArray[np.int64]:
        """Return the last tokens of requests."""
        return np.array([self.tokens[slot].tolist()[-tokens:] for slot in slots], np.int64)

    def release(self, slot: int, prompt_tokens: int) -> Any:
        """Free a slot; its request leaves the engine, and a pass that is not over still yields."""
        self.waiting.pop(slot, None)
        if self.settings.stored_blocks:
            self._wait()  # only then vLLM keeps the block that the last token fills
        if slot in self.names:
            self.engine.remove([self.names.pop(slot)])
        return self.tokens.pop(slot, Tokens())

    def restart(self) -> None:
        """Take all requests out of the engine; what they yielded stays until it is released."""
        self.engine.remove(list(self.names.values()))
        self.engine.forget_prefixes()
        self.names.clear()
        self.waiting.clear()
        self.steps.clear()

    def close(self) -> None:
        """End the engine."""
        self._wait()
        self.engine.close()

    def _test_itself(self) -> None:
        """Run six passes: a stage, parts of a prompt beside a round, rounds over a part."""
        size = min(4, self.length - 2)
        if size < 2:
            return
        first, other, half = [1] * size, [2] * size, size // 2
        steps: list[tuple[list[Chunk], list[int]]] = [
            ([Chunk(0, 0, first, True, whole=first)], []),
            ([Chunk(0, 0, first[:half], False, whole=first)], []),
            ([Chunk(0, half, first[half:], True)], []),
            ([Chunk(1, 0, other[:half], False, whole=other)], [0]),
            ([Chunk(1, half, other[half:], True)], []),
            ([], [1]),
        ]
        kept = steps if self.slots > 1 else steps[:3]
        try:
            for chunks, active in kept:
                if chunks and chunks[0].whole:
                    self.release(chunks[0].slot, size)
                self.begin(chunks, active, 1, 0)
                self.end()
        except (WorkerLostError, RuntimeError) as error:
            # a RuntimeError: its kernels do not take the model, such as its head size
            said = error.message if isinstance(error, WorkerLostError) else str(error)
            raise InputError(
                f"vLLM {self.engine.version} fails the self-test at the start: {said}",
                field="worker",
                remedy="use another version of vLLM, leave --engine-arg out, or --worker torch",
            ) from None
        for slot in range(self.slots)[:2]:
            self.release(slot, size)
