"""An instance as the search for sums of times sees it: kinds of requests, whole numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from orsched.models.full_mip.aim import Terms
    from orsched.models.full_mip.problem import Problem


class Kind(NamedTuple):
    """Requests that an exchange leaves the same; times in units.

    Attributes:
        rounds, prompt, arrival, blocks: what each of them needs.
        finish, first: coefficients of its last and of its first token.
    """

    rounds: int
    prompt: int
    arrival: int
    blocks: int
    finish: int
    first: int

    @property
    def weight(self) -> int:
        """What a unit of time costs while it waits."""
        return self.finish + self.first


class Role(NamedTuple):
    """What running requests have in common, beside the rounds that they have left.

    Attributes:
        finish: coefficient of the last token.
        first: coefficient of the first token where that is still to come, else 0.
        blocks: of memory.
    """

    finish: int
    first: int
    blocks: int


@dataclass(frozen=True)
class Case:
    """A problem and its objective, with equal requests together; times in units of the problem.

    Attributes:
        kinds: the fewest rounds first.
        rows: the requests of each kind.
        clients, round_fixed, round_client, prompt_token, levels, memory: as ``Problem`` has them.
        makespan: coefficient of the end.
        in_round: whether a round yields the first token, not the prefill.
    """

    kinds: tuple[Kind, ...]
    rows: tuple[tuple[int, ...], ...]
    clients: int
    round_fixed: int
    round_client: int
    prompt_token: int
    levels: tuple[tuple[int, int], ...]
    memory: int | None
    makespan: int
    in_round: bool

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """How many requests of each kind there are."""
        return tuple(len(each) for each in self.rows)

    @cached_property
    def first_stages(self) -> int:
        """How many sets of requests, but for exchanges, are no more than there are clients."""
        ways = [1] + [0] * self.clients
        for count in self.counts:
            ways = [sum(ways[max(0, k - count) : k + 1]) for k in range(len(ways))]
        return sum(ways) - 1

    @cached_property
    def stage(self) -> int:
        """The least fixed time of a stage."""
        return min(time for _, time in self.levels)

    @cached_property
    def is_one_level(self) -> bool:
        """Whether all prompts fit into one stage of the same fixed time, whatever is in it."""
        tokens = sum(k.prompt * count for k, count in zip(self.kinds, self.counts, strict=True))
        return len(self.levels) == 1 and self.levels[0][0] >= tokens

    @cached_property
    def has_ends_of_stages(self) -> bool:
        """Whether something counts that comes at the end of a stage."""
        at_prefill = not self.in_round and any(each.first for each in self.kinds)
        return at_prefill or any(each.rounds == 0 for each in self.kinds)

    def stage_time(self, tokens: int) -> int | None:
        """Return how long a stage takes with so many tokens; None where they are too many."""
        for cap, time in self.levels:
            if tokens <= cap:
                return time + self.prompt_token * tokens
        return None


def read_case(problem: Problem, terms: Terms, in_round: bool) -> Case:
    """Return the case of a problem with the times of tokens inside, and of a sum of times."""
    found: dict[Kind, list[int]] = {}
    for row, needed in enumerate(problem.needed):
        kind = Kind(
            needed,
            problem.prompts[row],
            problem.arrivals[row],
            problem.blocks[row],
            terms.finish[row],
            terms.first[row],
        )
        found.setdefault(kind, []).append(row)
    kinds = sorted(found)
    return Case(
        tuple(kinds),
        tuple(tuple(found[kind]) for kind in kinds),
        problem.clients,
        problem.round_fixed,
        problem.round_client,
        problem.prompt_token,
        problem.levels,
        problem.memory_blocks,
        terms.makespan,
        in_round,
    )
