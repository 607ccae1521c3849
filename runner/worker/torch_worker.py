"""A worker on torch: slots with caches of their own, prefill of several requests, decode rounds."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from orsched.common.errors import InputError
from orsched.runner.worker.attention import SlotAttention
from orsched.runner.worker.decoder import forward_of
from orsched.runner.worker.graphs import Budget, Graphs, Size
from orsched.runner.worker.language_model import load_model, settled, shape_of
from orsched.runner.worker.layout import (
    Extent,
    Slots,
    extent_of,
    lay_out,
    nothing,
    pack,
    runs_of,
    spans_of,
    unpack,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import torch

    from orsched.runner.devices.settings import WorkerSettings
    from orsched.runner.worker.graphs import Mode
    from orsched.runner.worker.layout import Chunk, Inputs, Run


class PrefixStore:
    """Room for some blocks of keys and values of every layer."""

    def __init__(
        self,
        slots: Slots,  # whose blocks are stored
        blocks: int,  # how many blocks there is room for
        block_tokens: int,  # tokens a block
        to_device: Callable[[np.ndarray], torch.Tensor],  # from the host to the slots' device
    ) -> None:
        self.slots, self.size, self.to_device = slots, block_tokens, to_device
        self.layers = [
            tuple(each.new_zeros(blocks * block_tokens, *each.shape[1:]) for each in pair)
            for pair in slots.rows
        ]

    def bytes(self) -> int:
        """Return the memory that the store takes."""
        return sum(each.nbytes for pair in self.layers for each in pair)

    def save(self, chunks: Iterable[Chunk]) -> None:
        """Copy blocks of the chunks' slots into the store, as their ``saves`` say."""
        self._copy([(row, c.slot, block) for c in chunks for block, row in c.saves], False)

    def load(self, chunks: Iterable[Chunk]) -> None:
        """Copy blocks of the store into the chunks' slots, as their ``loads`` say."""
        self._copy([(row, c.slot, block) for c in chunks for block, row in c.loads], True)

    def _copy(self, moves: Sequence[tuple[int, int, int]], into_slots: bool) -> None:
        import numpy as np

        if not moves:
            return
        row, slot, block = np.array(moves, np.int64).T
        tokens, length = np.arange(self.size), self.slots.length
        stored = (row * self.size)[:, None] + tokens
        placed = (slot * length + block * self.size)[:, None] + tokens
        at, there = self.to_device(np.stack([stored.ravel(), placed.ravel()]))
        for own, slots in zip(self.layers, self.slots.rows, strict=True):
            for mine, theirs in zip(own, slots, strict=True):
                if into_slots:
                    theirs.index_copy_(0, there, mine[at])
                else:
                    mine.index_copy_(0, at, theirs[there])


def in_waves(chunks: Sequence[Chunk]) -> list[list[Chunk]]:
    """Return chunks in waves: a block is loaded after it is stored, also within one admission."""
    waves: list[list[Chunk]] = []
    stored: dict[int, int] = {}  # row of the store -> wave that fills it
    for chunk in chunks:
        wave = max((stored.get(row, -1) + 1 for _, row in chunk.loads), default=0)
        while len(waves) <= wave:
            waves.append([])
        waves[wave].append(chunk)
        stored |= {row: wave for _, row in chunk.saves}
    return waves


class TorchWorker:
    """Executes prefill stages, rounds and mixed steps of a decoder-only model.

    Everything that changes from token to token stays on the device; the host waits only for
    what ``take`` returns, when it reads it. Greedy decoding.

    Args:
        settings: of the worker.
        graphs: how steps run (``graphs.Graphs``); by default as graphs where there is a GPU.

    Attributes:
        device: with its index, settled once: ``cuda`` is the current GPU.
        forward_passes: how many there were.
        padded_rows, padded_tokens: what graphs computed for no request, in rounds and in chunks.

    Raises:
        InputError: the model is unknown, or has fewer positions than ``length``.
    """

    def __init__(self, settings: WorkerSettings, graphs: Mode | None = None) -> None:
        import torch

        slots, length = settings.slots, settings.length
        self.device = torch.device(settled(settings.device))
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)  # streams and events are those of the current one
        self.model = load_model(
            settings.model, str(self.device), settings.dtype, settings.seed, settings.allow_pickle
        )
        self.shape = shape_of(self.model.config)
        if length > self.shape.positions:
            raise InputError(
                f"{length} tokens a request; the model has {self.shape.positions} positions",
                field="length",
                remedy="give shorter slots, or a model with more positions",
            )
        self.slots = Slots(self.shape, slots, length, next(self.model.parameters()))
        self.store = None
        if settings.stored_blocks:
            stored = settings.stored_blocks, settings.block_tokens
            self.store = PrefixStore(self.slots, *stored, self._to_device)
        self.attention = SlotAttention(self.slots)
        self.forward = forward_of(self.model, self.attention)
        self.head = self.model.get_output_embeddings()
        self.lengths = [0] * slots  # what the host knows of the device's lengths
        self.written = torch.zeros(
            (slots + 1, length + 1), dtype=torch.int64, device=self.device
        )  # the unused row is the last
        self.forward_passes = self.padded_rows = self.padded_tokens = 0
        self._active: tuple[int, ...] = ()
        self.graphs = Graphs(
            self._graphed,
            self._idle,
            slots,
            length,
            (self.attention.rounds.any_reach, self.attention.chunks.any_reach),
            self.device,
            graphs or ("capture" if self.device.type == "cuda" else "off"),
            Budget(settings.graph_sizes, settings.graph_bytes),
        )
        self._numbers = self.slots.lengths.new_zeros(_extent(self.graphs.most).numbers())

    # -- steps ----------------------------------------------------------------------------

    def prefill(self, chunks: Sequence[Chunk]) -> None:
        """Process tokens of requests, each at the end of what its slot's cache holds."""
        self.step(chunks, ())

    def step(self, chunks: Sequence[Chunk], active: Sequence[int]) -> None:
        """Process chunks, and a round over the active slots, in one forward pass.

        Chunks that reuse what others of the same step store are processed after those, without a
        further round.
        """
        if self.store is None:
            self._step(chunks, active)
            return
        for wave in in_waves(chunks):
            self.load(wave)
            self._step(wave, active)
            self.save(wave)
            active = ()

    def load(self, chunks: Sequence[Chunk]) -> None:
        """Copy what is stored into slots, without computing anything."""
        import torch

        if self.store is not None:
            with torch.inference_mode():
                self.store.load(chunks)

    def save(self, chunks: Sequence[Chunk]) -> None:
        """Store blocks of requests that leave, before their slots are used again."""
        import torch

        if self.store is not None:
            with torch.inference_mode():
                self.store.save(chunks)

    def _step(self, chunks: Sequence[Chunk], active: Sequence[int]) -> None:
        import torch

        sized = [chunk for chunk in chunks if len(chunk.tokens)]
        if sized:
            with torch.inference_mode():
                self._pass(sized, active)
        elif active:
            self.decode(active)
        feeding = [chunk for chunk in chunks if chunk.feeds is not None]
        if feeding:
            with torch.inference_mode():
                self._feed(feeding)

    def decode(self, active: Sequence[int], rounds: int = 1) -> None:
        """Decode a token in each of some rounds for the requests in the slots ``active``."""
        import torch

        with torch.inference_mode():
            for _ in range(rounds if active else 0):
                self._pass((), active)

    def prepare(self, reach: int | None = None) -> int:
        """Capture graphs, if steps run as graphs, so that no step waits for one; return how many.

        ``reach``: tokens of the longest cache to prepare for; by default a whole slot.
        """
        import torch

        with torch.inference_mode():
            return self.graphs.prepare(self.slots.length if reach is None else reach)

    def _pass(self, chunks: Sequence[Chunk], active: Sequence[int]) -> None:
        """Run a round over some slots, chunks of prompts, or both, in one forward pass."""
        reach = 1 + max((self.lengths[slot] for slot in active), default=-1)
        if reach > self.slots.length:
            raise InputError("a slot is full", field="active", remedy="a larger length")
        if active:
            active = sorted(active)
            self._set_active(active)
        extent = extent_of(chunks)
        size = Size(len(active), reach, extent.tokens, extent.prompts)
        fitting = self.graphs.fitting(size)
        if fitting is None:
            runs = runs_of(active, self.lengths, self.slots.length)
            inputs = None
            if chunks:
                packed = self._to_device(pack(self.slots, chunks, extent))
                inputs = unpack(packed, extent, spans_of(chunks))
            self._run(size.rows, max((run.reach for run in runs), default=0), runs, inputs)
        else:
            if chunks:
                packed = self._to_device(pack(self.slots, chunks, _extent(fitting)))
                self._numbers[: len(packed)].copy_(packed)
            self.graphs.replay(fitting)
            self.padded_rows += fitting.rows - size.rows
            self.padded_tokens += fitting.tokens - size.tokens
        self.forward_passes += 1
        for chunk in chunks:
            self.lengths[chunk.slot] = chunk.start + len(chunk.tokens)
        for slot in active:
            self.lengths[slot] += 1

    def _graphed(self, size: Size) -> None:
        """Run a step of a size: the device alone, on tensors that stay, as a graph does."""
        extent = _extent(size)
        inputs = unpack(self._numbers, extent) if size.tokens else None
        self._run(size.rows, size.reach, None, inputs)

    def _run(
        self, rows: int, reach: int, runs: tuple[Run, ...] | None, inputs: Inputs | None
    ) -> None:
        """Run a step without a word from the host."""
        import torch

        slots = self.slots
        layout = lay_out(slots, rows, reach, runs, inputs)
        tokens = slots.tokens[layout.slots]
        if inputs is not None:
            tokens = torch.cat([tokens, inputs.tokens])
        self.attention.begin(layout)
        hidden = self.forward(tokens, layout.positions)
        if inputs is None:
            self._advance(layout.slots, self._best(hidden))
            return
        wanted = torch.cat([hidden[:rows], hidden[rows:][inputs.last]])
        best = self._best(wanted) if len(wanted) else tokens[:0]
        if rows:
            self._advance(layout.slots, best[:rows])
        slots.lengths.index_copy_(0, inputs.slots, inputs.ends)
        if len(inputs.yielding):
            self._write(inputs.yielding, best[rows:])

    def _feed(self, chunks: Sequence[Chunk]) -> None:
        """Have the next round of these requests process the last token of their prompts."""
        for chunk in chunks:
            self.lengths[chunk.slot] = chunk.start + len(chunk.tokens)
        rows = [(c.slot, c.feeds or 0, self.lengths[c.slot]) for c in chunks]
        at, tokens, lengths = self._to_device(np.array(rows, np.int64).T)
        self.slots.tokens[at] = tokens
        self.slots.lengths[at] = lengths

    def _best(self, hidden: torch.Tensor) -> torch.Tensor:
        best: torch.Tensor = self.head(hidden).argmax(-1)
        return best

    def _advance(self, at: torch.Tensor, best: torch.Tensor) -> None:
        """Give a token to each slot of a round; the unused one stays as it is."""
        slots = self.slots
        slots.lengths.index_copy_(0, at, slots.lengths[at] + slots.one[at])
        self._write(at, best)

    def _write(self, at: torch.Tensor, best: torch.Tensor) -> None:
        """Note the tokens that slots have yielded, and that they process them next."""
        self.slots.tokens.index_copy_(0, at, best)
        self.written[at, self.slots.lengths[at]] = best

    def _set_active(self, active: Sequence[int]) -> None:
        """Let a round's rows be these slots, then the unused one, unless it is so already."""
        key = tuple(active)
        if key != self._active:
            host = np.full(self.slots.count, self.slots.unused, np.int64)
            host[: len(key)] = key
            self.slots.order.copy_(self._to_device(host))
            self._active = key

    @contextmanager
    def _idle(self, size: Size) -> Iterator[None]:
        """Let all rows and tokens be unused: steps then write nothing that is read."""
        kept = self.slots.order.clone()
        self.slots.order.fill_(self.slots.unused)
        if size.tokens:
            idle = self._to_device(nothing(self.slots, _extent(size)))
            self._numbers[: len(idle)].copy_(idle)
        try:
            yield
        finally:
            self.slots.order.copy_(kept)

    def _to_device(self, values: np.ndarray) -> torch.Tensor:
        """Return numbers on the device; the host does not wait for the copy."""
        import torch

        host = torch.from_numpy(np.ascontiguousarray(values))
        if self.device.type == "cpu":
            return host
        return host.pin_memory().to(self.device, non_blocking=True)

    # -- what came of it ------------------------------------------------------------------

    def take(self, slot: int, prompt_tokens: int) -> torch.Tensor:
        """Return what the request in a slot has yielded, on the device, without waiting."""
        return self.written[slot, prompt_tokens : self.lengths[slot] + 1].clone()

    def last(self, slots: Sequence[int], tokens: int) -> np.ndarray:
        """Return the last tokens of requests, int64 [slots, tokens]; the host waits for them."""
        import torch

        ends = np.array([self.lengths[slot] + 1 for slot in slots], np.int64)
        columns = ends[:, None] + np.arange(-tokens, 0)
        rows = np.broadcast_to(np.array(slots, np.int64)[:, None], columns.shape)
        place = torch.from_numpy(np.stack([rows, columns])).to(self.device)
        found: np.ndarray = self.written[place[0], place[1]].cpu().numpy()
        return found

    def release(self, slot: int) -> None:
        """Free a slot for another request."""
        self.lengths[slot] = 0

    def pretend(self, lengths: Sequence[int]) -> None:
        """Give the first slots caches of some lengths, with nothing in them (for profiles)."""
        padded = [*lengths, *[0] * (self.slots.count - len(lengths))]
        self.lengths = padded
        self.slots.lengths.copy_(self._to_device(np.array([*padded, 0], np.int64)))


def _extent(size: Size) -> Extent:
    """Return the room that a graph's chunks take: all prompts yield."""
    return Extent(size.tokens, size.prompts, size.prompts)
