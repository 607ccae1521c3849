"""Parameters of Echo: what the paper leaves open, with the values that are taken here."""

from __future__ import annotations

from dataclasses import dataclass

from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.common.near_names import known_names
from orsched.common.units import MAX_TOKENS
from orsched.heuristics.colocation.deadlines import require_seconds
from orsched.heuristics.colocation.params import ColocationParams, require_share

CONFIGURATIONS = ("bs", "bs+e", "bs+e+s", "echo")
ESTIMATORS = ("pooling", "machine")


@dataclass(frozen=True)
class EchoParams(ColocationParams):
    """Parameters of ``echo``.

    Attributes:
        configuration: ``bs``: vLLM's priority scheduling, bulk requests in the order of arrival, no
            regard to limits; ``bs+e``: a step with bulk work keeps to the SLO of the iteration by
            the time estimator; ``bs+e+s``: Echo's scheduler chooses the bulk requests; ``echo``:
            its KV manager as well (task-aware eviction, the threshold).
        estimator: ``pooling``: eq. (6)-(8), fitted to micro-benchmarks on the worker's cost model;
            ``machine``: the cost model itself, an estimator without error.
        buckets: number of buckets of the bulk pool, by quantiles of the prompt lengths (the paper
            says "coarsely", by the length distribution).
        candidates: most bulk requests that are tried for each admission; the paper tries all. They
            are the first of each prefix group of a bucket, in the order of the radix tree's walk
            from the last one admitted: requests of one group differ by their own tokens only.
        hit_benefit: what a cached prompt token counts in the benefit, where a computed one counts
            1 (b is not specified in the paper).
        margin: share of the SLO of the iteration that is kept free for errors of the estimator.
        window_s: past that the memory forecast looks at (an hour in the paper).
        sigmas: deviations above the mean that interactive requests are expected to need (2).
    """

    configuration: str = "echo"
    estimator: str = "pooling"
    buckets: int = 4
    candidates: int = 64
    hit_benefit: float = 1.0
    margin: float = 0.0
    window_s: float = 3600.0
    sigmas: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, known in (("configuration", CONFIGURATIONS), ("estimator", ESTIMATORS)):
            if getattr(self, name) not in known:
                raise InputError(
                    f"{getattr(self, name)!r} is unknown",
                    field=name,
                    remedy=known_names(getattr(self, name), known, "one of: "),
                )
        for name in ("buckets", "candidates"):
            whole_number(getattr(self, name), name, minimum=1, maximum=MAX_TOKENS)
        require_share(self.hit_benefit, "hit_benefit")
        require_share(self.margin, "margin")
        require_share(self.sigmas, "sigmas", 100.0)
        require_seconds(self.window_s, "window_s")
        if not self.window_s:
            raise InputError("must be more than 0", field="window_s")
