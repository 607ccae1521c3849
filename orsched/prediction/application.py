"""Predicted tokens for the requests of an instance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orsched.common.errors import InputError
from orsched.data.instance import require_instance
from orsched.prediction.prompt import as_prompts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.data.instance import Instance
    from orsched.prediction.predictor import LengthPredictor
    from orsched.prediction.prompt import Prompt


def predict_instance(
    instance: Instance,
    predictor: LengthPredictor,
    prompts: Sequence[Prompt | str],
    *,
    ids: Sequence[str] | None = None,
    point: str | float = "median",
) -> Instance:
    """Return the instance with predicted distributions, and a point of each as predicted tokens.

    Whole tokens from 1 to the output limit, at the levels of the predictor's quantiles and, where
    it has tails, of their knots.

    Args:
        instance: whose requests they are.
        predictor: a fitted one.
        prompts: one a request, in the order of the requests or named by ``ids``.
        ids: the request that each prompt belongs to, by its name; None: the order.
        point: of the distribution, see ``LengthDistribution.tokens``.

    Raises:
        InputError: a request has no prompt or two, or a prompt has no request.
    """
    require_instance(instance)
    asked = as_prompts(prompts)
    if ids is not None and instance.requests.ids is not None:
        asked = _in_order(instance.requests.ids, asked, ids)
    if len(asked) != len(instance):
        raise InputError(
            f"{len(asked)} prompts for {len(instance)} requests",
            field="prompts",
            remedy="one a request, in the same order, or both with id",
        )
    found, limit = predictor.predict(asked), instance.output_limit_tokens
    levels, values = found.columns()
    requests = instance.requests.replace(
        predicted_tokens=np.clip(found.tokens(point), 1, limit),
        predicted_quantiles=np.clip(np.rint(values), 1, limit).astype(np.int64),
        quantile_levels=levels,
    )
    return instance.replace(requests=requests)


def _in_order(
    names: Sequence[str], prompts: Sequence[Prompt], ids: Sequence[str]
) -> Sequence[Prompt]:
    """Return the prompts in the order of the requests' names."""
    found: dict[str, Prompt] = {}
    for row, (name, prompt) in enumerate(zip(ids, prompts, strict=True)):
        if name in found:
            raise InputError(f"{name!r} appears twice", row=row, field="id", remedy="keep one")
        found[name] = prompt
    for row, name in enumerate(names):
        if name not in found:
            raise InputError(
                f"no prompt for request {name!r}", row=row, field="id", remedy="add its prompt"
            )
    if len(found) > len(names):
        known = set(names)
        extra = next(name for name in found if name not in known)
        raise InputError(
            f"no request for prompt {extra!r}",
            field="id",
            remedy="leave the prompt out, or give the instance of these prompts",
        )
    return [found[name] for name in names]
