"""Queues that reject: what a server with a limit does not take, found before the rest is judged."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from orsched.common.columns import whole_number
from orsched.common.units import MAX_TOKENS
from orsched.data.instance import refusal_note
from orsched.simulator import rejected_requests

if TYPE_CHECKING:
    from collections.abc import Callable

    from orsched.data.instance import Instance
    from orsched.solving.method_choice import Chosen
    from orsched.solving.result import Result

LIMIT = "max_num_queued_reqs"
"""The parameter: most requests that wait or run; vLLM answers others with HTTP 503."""


def without_rejected(
    instance: Instance, chosen: Chosen, seed: int
) -> tuple[Instance, Chosen, Callable[[Result], Result]]:
    """Return the instance of the requests that are taken, the method for it, and what adds notes.

    A rejected request leaves no trace in a schedule: that of the others is the same without it.
    The method that serves them has no limit any more, for each of them finds room. Nothing changes
    where no limit is given or none is reached.
    """
    limit = chosen.parameters.get(LIMIT)
    build = getattr(chosen.method, "build", None)
    if limit is None or build is None or not len(instance):
        return instance, chosen, lambda result: result
    most = whole_number(limit, LIMIT, minimum=1, maximum=MAX_TOKENS)
    if most >= len(instance):
        return instance, chosen, lambda result: result
    rest = {name: value for name, value in chosen.parameters.items() if name != LIMIT}
    policy, _ = build(instance, chosen.information, rest, whole_number(seed, "seed"))
    rejected = np.zeros(len(instance), bool)
    rejected[rejected_requests(instance, policy, most)] = True
    many = int(rejected.sum())
    note = f"no request is rejected ({LIMIT}={most})"
    if many:
        note = (
            f"{many:,} of {len(instance):,} requests are rejected, for {most:,} waited or ran as "
            f"they arrived ({LIMIT}); each attainment counts them as missed"
        )
    taken = instance.with_refused(rejected) if many else instance
    before, own = refusal_note(instance), refusal_note(taken)

    def noted(result: Result) -> Result:
        others = (each for each in result.notes if each not in own)
        return replace(result, notes=(note, *before, *others))

    return taken, chosen._replace(parameters=rest), noted
