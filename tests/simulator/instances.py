"""Random small instances, and a cost model whose rounds depend on contexts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import ClassVar

from hypothesis import strategies as st

from orsched import AffineCost, BlockMemory, Instance, Requests, Worker
from tests.in_order import in_order


@dataclass(frozen=True)
class ContextCost:
    """A round takes ``fixed + client * active + total * sum(contexts) + most * max(contexts)``, a
    prefill stage ``stage * (7 + sum of squared prompts)``."""

    fixed: int = 5
    client: int = 2
    total: int = 1
    most: int = 3
    stage: int = 1

    model: ClassVar[str] = "test-context"
    context_matters: ClassVar[bool] = True
    prefill_limit: ClassVar[None] = None

    def prefill_ns(self, prompts):
        return self.stage * (7 + sum(prompt * prompt for prompt in prompts))

    def round_ns(self, active, context_sum, context_max):
        return (
            self.fixed + self.client * active + self.total * context_sum + self.most * context_max
        )

    def rounds_ns(self, rounds, active, context_sum, context_max):
        growth = rounds * (rounds - 1) // 2
        return rounds * self.round_ns(active, context_sum, context_max) + growth * (
            self.total * active + self.most
        )

    def scaled(self, factor):
        return type(self)(*(value * factor for value in asdict(self).values()))

    def to_dict(self):
        return asdict(self)

    @classmethod
    def from_dict(cls, parameters):
        return cls(**parameters)


COSTS = (
    in_order(AffineCost, 3, 1, 5, 2), in_order(AffineCost, 0, 0, 0, 0),
    in_order(AffineCost, 10, 0, 1, 0), ContextCost(),
)  # fmt: skip


@st.composite
def instances(draw, most=8):
    """Feasible instances with one worker; every policy can run on them."""
    n = draw(st.integers(0, most))
    column = lambda low, high: draw(st.lists(st.integers(low, high), min_size=n, max_size=n))  # noqa: E731
    prompts, outputs, predicted = column(1, 9), column(1, 7), column(1, 9)
    arrivals = column(0, draw(st.sampled_from((0, 10, 200))))
    limit = draw(st.sampled_from((None, 9)))
    cap = draw(st.sampled_from((None, 9, 14)))
    block = draw(st.sampled_from((None, 1, 4)))
    memory = None
    if block is not None:
        least = -(-(9 + 9) // block)  # room for the largest request with the output limit
        memory = BlockMemory(draw(st.integers(least, 3 * least)), block, "whole")
    worker = Worker(draw(st.integers(1, 4)), draw(st.sampled_from(COSTS)), cap, memory)
    return Instance(
        Requests(prompts, outputs, arrival_ns=arrivals, predicted_tokens=predicted),
        worker,
        first_token=draw(st.sampled_from(("decode", "prefill"))),
        output_limit_tokens=limit,
    )
