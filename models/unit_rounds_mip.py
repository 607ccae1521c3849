"""The time-indexed program of the unit-round model, Jaillet et al. (arXiv 2502.07115), as rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.costs.unit_rounds import ROUND_NS, UNIT_COST
from orsched.errors import InputError
from orsched.models.full_mip.linear import BINARY, LinearModel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.instance import Instance


class UnitRoundsMip:
    """A 0-1 variable ``s_i_k`` for each request i and each round k in which it may start.

    Rows: one start each (``one_i``); in every round t the tokens held are within the memory
    (``m_t``). The objective is the sum of starts, in rounds: the total latency less a constant,
    ``constant``. Rounds are those before ``rounds``; whoever starts later has the variable
    ``s_i_later``, at the cost of the first round after these and in no memory: a relaxation, so
    that a bound holds for all schedules without evictions.

    Args:
        instance: of the unit-round model; others are an ``InputError``.
        rounds: how many rounds have variables of their own; more than any arrival.
    """

    def __init__(self, instance: Instance, rounds: int) -> None:
        require_unit_rounds(instance)
        memory, requests = instance.worker.memory, instance.requests
        assert memory is not None
        self.instance, self.rounds = instance, rounds
        self.model = LinearModel()
        self.starts: list[dict[int, int]] = []
        held: list[list[tuple[int, int]]] = [[] for _ in range(rounds + memory.blocks + 1)]
        rows = zip(requests.prompt_tokens, requests.output_tokens, requests.arrival_ns, strict=True)
        for i, (prompt, output, arrival_ns) in enumerate(tuple(map(int, row)) for row in rows):
            first = arrival_ns // ROUND_NS
            own = {k: self.model.add(f"s_{i}_{k}", BINARY, 1) for k in range(first, rounds)}
            for start, column in own.items():
                for age in range(1, output + 1):
                    held[start + age].append((column, prompt + age))
            own[rounds] = self.model.add(f"s_{i}_later", BINARY, 1)
            self.model.row(f"one_{i}", [(column, 1) for column in own.values()], 1, 1)
            self.starts.append(own)
        for t, terms in enumerate(held):
            if terms:
                self.model.row(f"m_{t}", terms, most=memory.blocks)
        self.model.minimise((column, k) for own in self.starts for k, column in own.items())

    @property
    def constant(self) -> int:
        """Rounds to add to a sum of starts for the total latency."""
        requests = self.instance.requests
        return int(requests.output_tokens.sum()) - int(requests.arrival_ns.sum()) // ROUND_NS

    def values_of(self, starts: Sequence[int]) -> list[int]:
        """Return the values of all variables for given starts; late ones are ``later``."""
        values = [0] * len(self.model.names)
        for own, start in zip(self.starts, starts, strict=True):
            values[own[min(start, self.rounds)]] = 1
        return values

    def starts_of(self, values: Sequence[float]) -> list[int] | None:
        """Return the round in which each request starts; None where one starts later."""
        found = [max(own, key=lambda k, of=own: values[of[k]]) for own in self.starts]  # type: ignore[misc]
        return None if self.rounds in found else found


def require_unit_rounds(instance: Instance) -> None:
    """Raise ``InputError`` where an instance is not one of the unit-round model."""
    memory = instance.worker.memory if len(instance.workers) == 1 else None
    if (
        memory is None
        or (memory.block_tokens, memory.is_paged) != (1, True)
        or memory.prefix_cache is not None
        or instance.worker.cost != UNIT_COST
        or instance.worker.clients < len(instance)
        or instance.worker.prefill_limit is not None
        or instance.first_token != "decode"
        or (instance.requests.arrival_ns % ROUND_NS).any()
    ):
        raise InputError(
            "the instance is not one of unit rounds",
            field="instance",
            remedy="make one with orsched generate unit-rounds, or unit_instance",
        )
