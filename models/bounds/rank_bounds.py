"""Choices for bounds by ranks on the sums of ends and first tokens of one worker.

``orsched.certificates.rank_costs`` says what they prove.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.certificates.budget import Budget
from orsched.certificates.rank_costs import (
    KINDS,
    WEIGHTED,
    Choices,
    least_sum_by_ranks,
    weights_of,
    work_of,
)
from orsched.models.bounds.aggregate_machine import choices_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orsched.certificates.rank_costs import Work
    from orsched.certificates.scope import Scope
    from orsched.data.instance import Instance

MOST_REQUESTS = 10_000
MOST_RANKS, MOST_CELLS = 20_000, 20_000_000
_FEW = 500
_QUANTILES, _SMOOTH = (0.5, 0.35, 0.65), (5, 0, 1, 20)


def rank_certificates(
    instance: Instance, objective: str, scope: Scope, out_of_time: Callable[[], bool]
) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Yield kind, bound on the sum and choices of bounds by ranks; none where they do not apply.

    They are of one worker; of first tokens only without restarts.
    A stage's fixed time is shared by clients, and by the cap where there is one. The level is each
    of a few that are in the middle of the requests, and prices are averaged over few ranks or many
    (among more than ``_FEW`` requests, one of each is tried).
    Above ``MOST_REQUESTS`` requests there are none: their tables grow with the square.
    """
    kind = next(name for name, known in KINDS.items() if known == objective)
    one = len(instance.workers) == 1 and instance.link is None
    if not one or (scope.restarts and objective == "mean_ttft"):
        return
    if len(instance) > MOST_REQUESTS:
        return
    (first,) = choices_of(instance, scope)
    grain, weights = 1, None
    if objective == WEIGHTED:
        each = weights_of(instance)
        common, most = int(np.gcd.reduce(each)), min(MOST_RANKS, MOST_CELLS // len(instance))
        grain = max(common, -(-sum(each.tolist()) // most))
        weights = weights_of(instance, grain)
    one_made = False  # of few requests the first is made, whatever the time
    shares = ["clients"] if instance.worker.prefill_limit is None else ["clients", "cap"]
    for share in shares:
        choices = {**first, "stage_share": share, "round_share": "clients"}
        work = work_of(instance, scope, choices, weights)
        for level in _levels(kind, work):
            if (one_made or len(work) > _FEW) and out_of_time():
                return
            one_made = True
            for smooth in _SMOOTH if len(work) <= _FEW else _SMOOTH[:1]:
                chosen = Choices(level, smooth, grain)
                total = least_sum_by_ranks(kind, instance, work, chosen, Budget(None))
                yield kind, total, {**scope.stated(), "workers": [choices], **chosen.stated(kind)}


def _levels(kind: str, work: Work) -> list[int]:
    """Return levels to try: what prefills take, by round for ends."""
    some = work.rounds > 0
    parts, weights = work.stages, np.ones(len(work), np.int64)
    if kind != "queue_ranks":
        if not some.any():
            return [0]
        parts = work.stages[some] // work.rounds[some]
        weights = work.rounds[some]
    tried = _QUANTILES if len(work) <= _FEW else _QUANTILES[:1]
    order = np.argsort(parts, kind="stable")
    done = np.cumsum(weights[order])
    at = [int(np.searchsorted(done, part * done[-1])) for part in tried]
    middle = (int(parts[order[min(k, len(order) - 1)]]) for k in at)
    return list(dict.fromkeys([*middle, 0]))
