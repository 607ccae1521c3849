"""A worker on torch: slots with caches of their own, prefill of several requests, decode rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.errors import InputError
from orsched.runner.attention import Chunks, Layout, SlotAttention, install
from orsched.runner.language_model import load_model, shape_of
from orsched.runner.slots import Slots

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from orsched.runner.chunk import Chunk

REACH_STEP = 64
"""Rounds attend to multiples of so many tokens, so that shapes seldom change."""


class TorchWorker:
    """Executes prefill stages, rounds and mixed steps of a decoder-only model.

    Everything that changes from token to token stays on the device; the host waits only for
    ``read``. Greedy decoding.

    Args:
        model: a preset or a folder (``load_model``).
        slots: requests that are on the worker at one time.
        length: tokens of the longest request, prompt and output.
        device: as torch names it.
        dtype: of weights and caches.
        seed: of random weights.

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
    ) -> None:
        import torch

        self.model = load_model(model, device, dtype, seed)
        self.shape = shape_of(self.model.config)
        if not 1 <= length <= self.shape.positions:
            raise InputError(
                f"{length} tokens a request; the model has {self.shape.positions} positions",
                field="length",
            )
        if slots < 1:
            raise InputError(f"{slots} slots", field="slots", remedy="at least 1")
        self.slots = Slots(self.shape, slots, length, next(self.model.parameters()))
        self.attention = SlotAttention(self.slots)
        install(self.model, self.attention)
        self.device = torch.device(device)
        self.lengths = [0] * slots  # what the host knows of the device's lengths
        self.written = torch.zeros((slots, length + 1), dtype=torch.int64, device=device)
        self.forward_passes = 0
        self._no_mask = torch.zeros((1, 1, 1, 1), device=device)
        self.mask = torch.zeros(slots, dtype=torch.int64, device=device)
        self._active: tuple[int, ...] = ()

    # -- steps ----------------------------------------------------------------------------

    def prefill(self, chunks: Sequence[Chunk]) -> None:
        """Process tokens of requests, each at the end of what its slot's cache holds."""
        self.step(chunks, ())

    def decode(self, active: Sequence[int], rounds: int = 1) -> None:
        """Let the requests in the slots ``active`` yield a token in each of some rounds."""
        for _ in range(rounds):
            self.step((), active)

    def step(self, chunks: Sequence[Chunk], active: Sequence[int]) -> None:
        """Process chunks, and a round over the active slots, in one forward pass."""
        import torch

        rows, reach = self._reach(active)
        with torch.inference_mode():
            if rows:
                self._set_mask(active)
            if any(len(chunk.tokens) for chunk in chunks):
                self._pass_with_chunks([c for c in chunks if len(c.tokens)], rows, reach)
            elif rows:
                self._pass_round(rows, reach)
            self._feed([chunk for chunk in chunks if chunk.feeds is not None])
        for slot in active:
            self.lengths[slot] += 1

    def _reach(self, active: Sequence[int]) -> tuple[int, int]:
        """Return how many slots a round runs over, and how far their caches reach."""
        if not active:
            return 0, 0
        reach = 1 + max(self.lengths[slot] for slot in active)
        return max(active) + 1, min(self.slots.length, -(-reach // REACH_STEP) * REACH_STEP)

    def _pass_round(self, rows: int, reach: int) -> None:
        """Run a round over the first slots; the host only says how many and how far."""
        slots = self.slots
        self.attention.layout = Layout(rows, reach, None)
        hidden = self._forward(slots.tokens[:rows], self._positions(rows))
        self._advance(self._best(hidden), rows)

    def _pass_with_chunks(self, chunks: Sequence[Chunk], rows: int, reach: int) -> None:
        """Run a prefill, beside a round if there are rows."""
        import torch

        slots, placed = self.slots, self._place(chunks)
        self.attention.layout = Layout(rows, reach, placed)
        flat = self._to_device([token for chunk in chunks for token in chunk.tokens])
        tokens = torch.cat([slots.tokens[:rows], flat])
        hidden = self._forward(tokens, torch.cat([self._positions(rows), placed.position]))
        yielding, last, end = [], [], rows - 1
        for chunk in chunks:
            end += len(chunk.tokens)
            self.lengths[chunk.slot] = chunk.start + len(chunk.tokens)
            if chunk.yields:
                yielding.append(chunk.slot)
                last.append(end)
        if rows:
            self._advance(self._best(hidden[:rows]), rows)
        slots.lengths[placed.slots] = self._to_device([self.lengths[c.slot] for c in chunks])
        if yielding:
            at = self._to_device(yielding)
            slots.tokens[at] = self._best(hidden[self._to_device(last)])
            self.written[at, slots.lengths[at]] = slots.tokens[at]

    def _feed(self, chunks: Sequence[Chunk]) -> None:
        """Let the next round of these requests process the last token of their prompts."""
        if not chunks:
            return
        for chunk in chunks:
            self.lengths[chunk.slot] = chunk.start + len(chunk.tokens)
        rows = [(c.slot, c.feeds or 0, self.lengths[c.slot]) for c in chunks]
        at, tokens, lengths = self._to_device(
            [x for row in zip(*rows, strict=True) for x in row]
        ).view(3, -1)
        self.slots.tokens[at] = tokens
        self.slots.lengths[at] = lengths

    def _positions(self, rows: int) -> torch.Tensor:
        """Return where the rows' next tokens go; a full slot takes part without effect."""
        return self.slots.lengths[:rows].clamp(max=self.slots.length - 1)

    def _forward(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        self.forward_passes += 1
        found = self.model.base_model(
            input_ids=tokens[None],
            position_ids=positions[None],
            attention_mask=self._no_mask,
            use_cache=False,
        )
        hidden: torch.Tensor = found.last_hidden_state[0]
        return hidden

    def _best(self, hidden: torch.Tensor) -> torch.Tensor:
        best: torch.Tensor = self.model.get_output_embeddings()(hidden).argmax(-1)
        return best

    def _advance(self, best: torch.Tensor, rows: int) -> None:
        """Give a token to each active slot; the other rows stay as they are."""
        slots, mask = self.slots, self.mask[:rows]
        slots.lengths[:rows] += mask
        slots.tokens[:rows] = slots.tokens[:rows] * (1 - mask) + best * mask
        self.written[:rows].scatter_(1, slots.lengths[:rows, None], slots.tokens[:rows, None])

    def _set_mask(self, active: Sequence[int]) -> None:
        """Write 1 for each active slot and 0 for the others, unless it is so already."""
        key = tuple(active)
        if key != self._active:
            host = [0] * self.slots.count
            for slot in key:
                host[slot] = 1
            self.mask.copy_(self._to_device(host))
            self._active = key

    def _to_device(self, values: Sequence[int]) -> torch.Tensor:
        """Return numbers on the device; the host does not wait for the copy."""
        import torch

        host = torch.tensor(values, dtype=torch.int64)
        if self.device.type == "cpu":
            return host
        return host.pin_memory().to(self.device, non_blocking=True)

    def _place(self, chunks: Sequence[Chunk]) -> Chunks:
        """Lay out chunks in a batch."""
        import torch

        sizes = [len(chunk.tokens) for chunk in chunks]
        longest = max(sizes)
        row = [i for i, size in enumerate(sizes) for _ in range(size)]
        column = [place for size in sizes for place in range(size)]
        slot = [chunks[i].slot for i in row]
        position = [chunks[i].start + place for i, place in zip(row, column, strict=True)]
        each = self._to_device([*row, *column, *slot, *position]).view(4, -1)
        batch = torch.full((len(chunks), longest), -1, device=self.device)
        batch[each[0], each[1]] = each[3]
        return Chunks(
            slots=self._to_device([chunk.slot for chunk in chunks]),
            row=each[0],
            column=each[1],
            slot=each[2],
            position=each[3],
            longest=longest,
            reach=max(c.start + size for c, size in zip(chunks, sizes, strict=True)),
            positions=batch,
            fresh=not any(chunk.start for chunk in chunks),
        )

    # -- what came of it ------------------------------------------------------------------

    def take(self, slot: int, prompt_tokens: int) -> torch.Tensor:
        """Return what the request in a slot has yielded, on the device: nobody waits."""
        return self.written[slot, prompt_tokens : self.lengths[slot] + 1].clone()

    def release(self, slot: int) -> None:
        """Let a slot be free for another request."""
        self.lengths[slot] = 0

    def pretend(self, lengths: Sequence[int]) -> None:
        """Let the first slots have caches of some lengths, with nothing in them (for profiles)."""
        padded = [*lengths, *[0] * (self.slots.count - len(lengths))]
        self.lengths = padded
        self.slots.lengths.copy_(self._to_device(padded))
