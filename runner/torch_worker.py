"""A worker on torch: slots with caches of their own, prefill of several requests, decode rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from orsched.errors import InputError
from orsched.runner.attention import Chunks, Layout, SlotAttention, install
from orsched.runner.language_model import load_model, shape_of
from orsched.runner.slots import Slots

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

REACH_STEP = 64
"""Rounds attend to multiples of so many tokens, so that shapes seldom change."""


class Chunk(NamedTuple):
    """Tokens of a request that a step processes.

    Attributes:
        slot: where the request is.
        start: tokens of it that are in the slot's cache already.
        tokens: what to process.
        yields: whether the first token follows from it (the prompt ends here).
    """

    slot: int
    start: int
    tokens: Sequence[int]
    yields: bool


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
        self._masks: dict[tuple[int, ...], torch.Tensor] = {}

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

        with torch.inference_mode():
            self._step(chunks, active)

    def _step(self, chunks: Sequence[Chunk], active: Sequence[int]) -> None:
        import torch

        rows = max(active) + 1 if active else 0
        reach = 1 + max((self.lengths[slot] for slot in active), default=0)
        reach = min(self.slots.length, -(-reach // REACH_STEP) * REACH_STEP)
        placed = self._place(chunks) if chunks else None
        slots = self.slots
        tokens, positions = [], []
        if rows:
            tokens.append(slots.tokens[:rows])
            positions.append(slots.lengths[:rows].clamp(max=slots.length - 1))
        if placed is not None:
            flat = [token for chunk in chunks for token in chunk.tokens]
            tokens.append(torch.tensor(flat, dtype=torch.int64).to(self.device, non_blocking=True))
            positions.append(placed.position)
        self.attention.layout = Layout(rows, reach, placed)
        hidden = self._forward(torch.cat(tokens), torch.cat(positions))
        self._yield(hidden, rows, chunks, active)

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

    def _yield(
        self,
        hidden: torch.Tensor,
        rows: int,
        chunks: Sequence[Chunk],
        active: Sequence[int],
    ) -> None:
        """Pick the next tokens of those that yield one, and let the lengths grow."""
        import torch

        slots, last, end = self.slots, [], rows - 1
        for chunk in chunks:
            end += len(chunk.tokens)
            self.lengths[chunk.slot] = chunk.start + len(chunk.tokens)
            if chunk.yields:
                last.append((end, chunk.slot))
        if rows:
            mask = self._mask(active, rows)
            slots.lengths[:rows] += mask
            for slot in active:
                self.lengths[slot] += 1
        if chunks:
            grown = [chunk.slot for chunk in chunks]
            slots.lengths[grown] = torch.tensor(
                [self.lengths[slot] for slot in grown], device=self.device
            )
        if not rows and not last:
            return
        picked = torch.cat(
            [hidden[:rows], hidden[[place for place, _ in last]]] if last else [hidden[:rows]]
        )
        best = self.model.get_output_embeddings()(picked).argmax(-1)
        if rows:
            slots.tokens[:rows] = torch.where(mask > 0, best[:rows], slots.tokens[:rows])
        if last:
            slots.tokens[[slot for _, slot in last]] = best[rows:]
        touched = sorted({*active, *(slot for _, slot in last)})
        self.written[touched, slots.lengths[touched]] = slots.tokens[touched]

    def _mask(self, active: Sequence[int], rows: int) -> torch.Tensor:
        """Return 1 for each active slot, 0 for the others."""
        import torch

        key = tuple(active)
        mask = self._masks.get(key)
        if mask is None:
            host = torch.zeros(rows, dtype=torch.int64)
            host[list(active)] = 1
            self._masks = {key: host.to(self.device)}
            mask = self._masks[key]
        return mask

    def _place(self, chunks: Sequence[Chunk]) -> Chunks:
        """Lay out chunks in a batch."""
        import torch

        sizes = [len(chunk.tokens) for chunk in chunks]
        longest = max(sizes)
        row = [i for i, size in enumerate(sizes) for _ in range(size)]
        column = [place for size in sizes for place in range(size)]
        positions = torch.full((len(chunks), longest), -1)
        for i, (chunk, size) in enumerate(zip(chunks, sizes, strict=True)):
            positions[i, :size] = torch.arange(chunk.start, chunk.start + size)
        at = torch.tensor([row, column])
        slots = torch.tensor([chunk.slot for chunk in chunks])
        where = torch.stack([at[0], at[1], slots[at[0]], positions[at[0], at[1]]])
        row_, column_, slot_, position_ = where.to(self.device, non_blocking=True)
        return Chunks(
            slots=slots.to(self.device, non_blocking=True),
            row=row_,
            column=column_,
            slot=slot_,
            position=position_,
            longest=longest,
            reach=max(c.start + size for c, size in zip(chunks, sizes, strict=True)),
            positions=positions.to(self.device, non_blocking=True),
            fresh=not any(chunk.start for chunk in chunks),
        )

    # -- what came of it ------------------------------------------------------------------

    def read(self, slot: int, prompt_tokens: int) -> list[int]:
        """Return the tokens that the request in a slot has yielded; waits for the device."""
        found: list[int] = self.written[slot, prompt_tokens : self.lengths[slot] + 1].tolist()
        return found

    def release(self, slot: int) -> None:
        """Let a slot be free for another request."""
        self.lengths[slot] = 0
