"""A worker on torch: slots with caches of their own, prefill of several requests, decode rounds."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from orsched.errors import InputError
from orsched.runner.worker.attention import SlotAttention
from orsched.runner.worker.decoder import forward_of
from orsched.runner.worker.graphs import Rounds
from orsched.runner.worker.language_model import load_model, shape_of
from orsched.runner.worker.layout import place, round_layout
from orsched.runner.worker.prefix_store import PrefixStore, in_waves
from orsched.runner.worker.slots import Slots

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import torch

    from orsched.runner.worker.chunk import Chunk
    from orsched.runner.worker.graphs import Mode

REACH_STEP = 64
"""Rounds attend to multiples of this many tokens, so that shapes seldom change."""


class TorchWorker:
    """Executes prefill stages, rounds and mixed steps of a decoder-only model.

    Everything that changes from token to token stays on the device; the host waits only for
    what ``take`` returns, when it reads it. Greedy decoding.

    Args:
        model: a preset or a folder (``load_model``).
        slots: requests that are on the worker at one time.
        length: tokens of the longest request, prompt and output.
        device: as torch names it.
        dtype: of weights and caches.
        seed: of random weights.
        graphs: how rounds run (``graphs.Rounds``); by default as graphs where there is a GPU.
        allow_pickle: whether weights in a folder may be pickled.
        stored_blocks: blocks of prefixes that are kept beside the slots; 0: none.
        block_tokens: tokens of such a block.

    Attributes:
        forward_passes: how many there were.

    Raises:
        InputError: the model is unknown, or has fewer positions than ``length``.
    """

    def __init__(
        self,
        model: str = "tiny",
        slots: int = 8,
        length: int = 1024,
        device: str = "cpu",
        dtype: str = "float32",
        seed: int = 0,
        graphs: Mode | None = None,
        allow_pickle: bool = False,
        stored_blocks: int = 0,
        block_tokens: int = 1,
    ) -> None:
        import torch

        self.device = torch.device(device)
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)  # streams and events are those of the current one
        self.model = load_model(model, device, dtype, seed, allow_pickle)
        self.shape = shape_of(self.model.config)
        if not 1 <= length <= self.shape.positions:
            raise InputError(
                f"{length} tokens a request; the model has {self.shape.positions} positions",
                field="length",
            )
        if slots < 1:
            raise InputError(f"{slots} slots", field="slots", remedy="at least 1")
        self.slots = Slots(self.shape, slots, length, next(self.model.parameters()))
        self.store = (
            PrefixStore(self.slots, stored_blocks, block_tokens, self._to_device)
            if stored_blocks
            else None
        )
        self.attention = SlotAttention(self.slots)
        self.forward = forward_of(self.model, self.attention)
        self.head = self.model.get_output_embeddings()
        self.lengths = [0] * slots  # what the host knows of the device's lengths
        self.written = torch.zeros((slots, length + 1), dtype=torch.int64, device=device)
        self.forward_passes = 0
        self._active: tuple[int, ...] = ()
        self.rounds = Rounds(
            self._round,
            self._without_effect,
            slots,
            length,
            None if self.attention.kernel.any_reach else REACH_STEP,
            self.device,
            graphs or ("capture" if self.device.type == "cuda" else "off"),
        )

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
                self._pass_with_chunks(sized, active)
        elif active:
            self.decode(active)
        feeding = [chunk for chunk in chunks if chunk.feeds is not None]
        if feeding:
            with torch.inference_mode():
                self._feed(feeding)

    def decode(self, active: Sequence[int], rounds: int = 1) -> None:
        """Decode a token in each of some rounds for the requests in the slots ``active``."""
        import torch

        if not active:
            return
        rows, reach = max(active) + 1, 1 + max(self.lengths[slot] for slot in active)
        with torch.inference_mode():
            self._set_active(active)
            for _ in range(rounds):
                self.rounds(rows, reach)
                reach += 1
        self.forward_passes += rounds
        for slot in active:
            self.lengths[slot] += rounds

    def prepare(self, reach: int | None = None) -> int:
        """Capture the graphs of rounds, if rounds run as graphs, so that no step waits for one.

        Args:
            reach: tokens of the longest cache to prepare for; by default a whole slot.

        Returns:
            How many graphs there are.
        """
        import torch

        with torch.inference_mode():
            return self.rounds.prepare(self.slots.length if reach is None else reach)

    def _round(self, rows: int, reach: int) -> None:
        """Run a round over the first slots: the device alone, as a graph would."""
        layout = round_layout(self.slots, rows, reach)
        self.attention.begin(layout)
        hidden = self.forward(self.slots.tokens[:rows], layout.positions)
        self._advance(self._best(hidden), rows)

    def _pass_with_chunks(self, chunks: Sequence[Chunk], active: Sequence[int]) -> None:
        """Run a prefill, beside a round if there are active slots."""
        slots, rows, reach = self.slots, 0, 0
        if active:
            rows, reach = max(active) + 1, 1 + max(self.lengths[slot] for slot in active)
            self._set_active(active)
        placed = place(slots, chunks, rows, self.rounds.bucket(reach), self._to_device)
        self.attention.begin(placed.layout)
        hidden = self.forward(placed.tokens, placed.layout.positions)
        self.forward_passes += 1
        for chunk in chunks:
            self.lengths[chunk.slot] = chunk.start + len(chunk.tokens)
        for slot in active:
            self.lengths[slot] += 1
        best = self._best(hidden[placed.last]) if len(placed.last) else placed.last
        if rows:
            self._advance(best[:rows], rows)
        slots.lengths[placed.slots] = placed.ends
        if len(placed.yielding):
            slots.tokens[placed.yielding] = best[rows:]
            self.written[placed.yielding, slots.lengths[placed.yielding]] = best[rows:]

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

    def _advance(self, best: torch.Tensor, rows: int) -> None:
        """Give a token to each active slot; the other rows stay as they are."""
        slots, active = self.slots, self.slots.active[:rows]
        slots.lengths[:rows] += active
        slots.tokens[:rows] += (best - slots.tokens[:rows]) * active
        self.written[:rows].scatter_(1, slots.lengths[:rows, None], slots.tokens[:rows, None])

    def _set_active(self, active: Sequence[int]) -> None:
        """Write 1 for each active slot and 0 for the others, unless it is so already."""
        key = tuple(active)
        if key != self._active:
            host = np.zeros(self.slots.count, np.int64)
            host[list(key)] = 1
            self.slots.active.copy_(self._to_device(host))
            self._active = key

    @contextmanager
    def _without_effect(self) -> Iterator[None]:
        """Let no slot be active: rounds then write nothing that is read."""
        kept = self.slots.active.clone()
        self.slots.active.zero_()
        try:
            yield
        finally:
            self.slots.active.copy_(kept)

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

    def release(self, slot: int) -> None:
        """Free a slot for another request."""
        self.lengths[slot] = 0

    def pretend(self, lengths: Sequence[int]) -> None:
        """Give the first slots caches of some lengths, with nothing in them (for profiles)."""
        padded = [*lengths, *[0] * (self.slots.count - len(lengths))]
        self.lengths = padded
        self.slots.lengths.copy_(self._to_device(np.array(padded, np.int64)))
