"""What ``run`` requires when output lengths are known in the run only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.data.schedule import Schedule

if TYPE_CHECKING:
    from collections.abc import Collection

    from orsched.data.instance import Instance
    from orsched.runner.policy_source import PolicySource
    from orsched.runner.worker_pool import RunSettings


def with_open_lengths(
    instance: Instance, source: object, settings: RunSettings, resume: Schedule | None
) -> Instance:
    """Return an instance in which each request may yield up to the output limit.

    Raises:
        InputError: a schedule is to be followed, a run to be resumed, or nothing yields tokens.
    """
    for wrong, problem in (
        (isinstance(source, Schedule), "a schedule says how many tokens each request yields"),
        (resume is not None, "a run that is resumed has the lengths of its instance"),
        (settings.worker != "torch", "a virtual worker yields no tokens"),
    ):
        if wrong:
            raise InputError(problem, field="end_of_sequence", remedy="leave it out")
    most = np.full(len(instance), instance.output_limit_tokens, np.int64)
    return instance.replace(requests=instance.requests.replace(output_tokens=most))


def require_tokens(tokens: Collection[int], settings: RunSettings) -> None:
    """Raise ``InputError`` for a token that the model never yields."""
    from orsched.runner.capacity import model_config
    from orsched.runner.worker.language_model import shape_of

    vocabulary = shape_of(model_config(settings.model)).vocabulary
    for token in tokens:
        whole_number(token, "end_of_sequence", maximum=vocabulary - 1)


def require_live(resolved: PolicySource) -> None:
    """Raise ``InputError`` unless a policy decides as it goes."""
    if resolved.follows:
        raise InputError(
            f"{resolved.plan.method} plans beforehand with lengths that are not known",
            field="end_of_sequence",
            remedy="take a policy with information none or predicted",
        )
