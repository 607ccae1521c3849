"""What machine times are those of, in a line: no result without it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from orsched.calibration.catalogue import machines, measured, sheets_of
from orsched.common.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orsched.calibration.catalogue import Machine
    from orsched.costs import CostModel
    from orsched.data.instance import Instance
    from orsched.data.workers import Worker

_TOKENS = 2000


def cost_words(cost: CostModel, clients: int = 1) -> str:
    """Return the machine of the catalogue that has this cost model, or what the model says.

    A cost model that nobody named is told by two times: of a prefill, and of a round over all
    clients with contexts of 500 tokens.
    """
    for found in _known() if cost.model == "roofline" else measured():
        if found.cost == cost:
            return found.words
    limit = cost.prefill_limit
    tokens = _TOKENS if limit is None else min(_TOKENS, limit)
    stage = cost.prefill_ns([tokens]) * 1000 / NS_PER_S
    active = max(1, clients)
    a_round = cost.round_ns(active, 500 * active, 500) * 1000 / NS_PER_S
    of = f"a round of {active}" if active > 1 else "a round"
    return f"{cost.model}, {_ms(stage)} for {tokens:,} prompt tokens, {_ms(a_round)} for {of}"


def _known() -> Iterator[Machine]:
    """Yield the machines of the catalogue, then those of other numbers of GPUs."""
    yield from machines()
    for count in (2, 3, 4, 5, 6, 7, 8, 16):
        yield from sheets_of(count)


def _ms(time_ms: float) -> str:
    return f"{time_ms:,.0f} ms" if time_ms >= 100 else f"{time_ms:.3g} ms"


def machine_words(instance: Instance) -> str:
    """Return in a line which cost model the times of an instance are of, its clients and memory.

    Such as ``affine, LLaMA-65B on Ascend 910 (Pang et al.), 200 clients, 1,024 blocks of 128 tokens
    (whole)``; equal workers once, and no memory where none limits.
    """
    kinds = Counter(_words(worker) for worker in instance.workers)
    return "; ".join(f"{n} x {words}" if n > 1 else words for words, n in kinds.items())


def _words(worker: Worker) -> str:
    clients = f"{worker.clients:,} client{'s' if worker.clients != 1 else ''}"
    words = f"{cost_words(worker.cost, worker.clients)}, {clients}"
    return words if worker.memory is None else f"{words}, {worker.memory.words}"
