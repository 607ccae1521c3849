"""Parameters of shortest job first and of what it is compared with."""

from __future__ import annotations

from dataclasses import dataclass

from orsched.common.columns import whole_number
from orsched.common.scalars import require_one_of
from orsched.common.units import MAX_TOKENS, seconds_to_ns

BATCHING = ("none", "dynamic", "continuous")


@dataclass(frozen=True)
class BatchingParams:
    """The three batching modes of SSJF (Qiu et al., section 3.2).

    Attributes:
        batching: ``none``: one request after the other; ``dynamic``: a static batch when it is full
            or its oldest request has waited for the timeout; ``continuous``: a request that is done
            makes room for the next at once, prompts are prefilled beside rounds (Orca).
        max_batch_size: most requests at a time under ``dynamic`` and ``continuous``; None: the
            worker's clients. The paper has 4.
        batch_wait_timeout_s: how long ``dynamic`` waits for a batch to fill.
    """

    batching: str = "continuous"
    max_batch_size: int | None = None
    batch_wait_timeout_s: float = 0.01

    def __post_init__(self) -> None:
        require_one_of(self.batching, "batching", BATCHING)
        if self.max_batch_size is not None:
            whole_number(self.max_batch_size, "max_batch_size", minimum=1, maximum=MAX_TOKENS)
        seconds_to_ns(self.batch_wait_timeout_s, "batch_wait_timeout_s")


@dataclass(frozen=True)
class ShortestFirstParams(BatchingParams):
    """Parameters of ``ssjf`` and ``sjf``.

    Attributes:
        aging_s: a wait of so many seconds counts as much as one token less; None: no aging, as in
            the paper's experiments, so that a long request may wait forever. A request of known
            length L is overtaken only by those that arrive within (L - 1) * aging_s after it.
        predictor_latency_s: time from a request's arrival until its length is predicted; it cannot
            start before. 0: the prediction is off the critical path, made while others are served.
            The paper measures 0.0076 on average.
    """

    aging_s: float | None = None
    predictor_latency_s: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.aging_s is not None:
            seconds_to_ns(self.aging_s, "aging_s")
        seconds_to_ns(self.predictor_latency_s, "predictor_latency_s")
