"""Parameters of ``slack``."""

from __future__ import annotations

from dataclasses import dataclass

from orsched.common.columns import whole_number
from orsched.common.scalars import require_one_of
from orsched.common.units import MAX_TOKENS
from orsched.heuristics.colocation.deadlines import require_seconds
from orsched.heuristics.colocation.params import ColocationParams, require_share


@dataclass(frozen=True)
class SlackParams(ColocationParams):
    """Parameters of ``slack``.

    Attributes:
        max_num_batched_tokens: the token budget of a step; time is what limits it.
        quantile: the slack of an interactive request is spread over the tokens that it still yields
            at this quantile of the answers seen so far; longer answers may be late at their end.
        idle_step_s: what a step may last beside which no interactive request runs.
        late_pace: a request with a late token is served at so many times its TPOT from then on.
        margin_s: time that is kept between the end of a step and the earliest due token.
        window_s, sigmas: bulk requests leave free what interactive ones need more than now at the
            mean and sigmas deviations of what they held over this past.
        order: ``rate``: the group of bulk requests with a common prefix that yields most tokens per
            second of its computation is next; ``tree``: the next one in a walk of the prefix tree.
        groups: most groups whose rates are compared; the largest ones.
    """

    max_num_batched_tokens: int = 16_384
    quantile: float = 0.9
    idle_step_s: float = 0.25
    late_pace: float = 2.0
    margin_s: float = 0.0
    window_s: float = 60.0
    sigmas: float = 2.0
    order: str = "rate"
    groups: int = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        require_share(self.quantile, "quantile")
        require_share(self.late_pace, "late_pace", 1000.0)
        require_share(self.sigmas, "sigmas", 100.0)
        for name in ("idle_step_s", "margin_s", "window_s"):
            require_seconds(getattr(self, name), name)
        require_one_of(self.order, "order", ("rate", "tree"))
        whole_number(self.groups, "groups", minimum=1, maximum=MAX_TOKENS)
