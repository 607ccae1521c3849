"""Scenarios: output lengths of all requests at once, drawn from their predicted distributions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orsched.errors import InputError
from orsched.length_quantiles import LengthLaw

if TYPE_CHECKING:
    from orsched.columns import IntColumn
    from orsched.instance import Instance


def draw_scenarios(instance: Instance, count: int, seed: int) -> IntColumn:
    """Return lengths of shape (count, requests), each request by its own law, independently.

    Latin hypercube: of each request one length comes from each of ``count`` equal shares of its
    distribution, in a random order, so that few scenarios hold its mean well (McKay, Beckman and
    Conover 1979). Whole tokens from 1 to the output limit. Where lengths are predicted as points,
    there is one scenario: these.

    Raises ``InputError`` where nothing is predicted.
    """
    requests, limit = instance.requests, instance.output_limit_tokens
    quantiles, levels = requests.predicted_quantiles, requests.quantile_levels
    if quantiles is None and requests.predicted_tokens is not None:
        points: IntColumn = np.clip(requests.predicted_tokens, 1, limit)[None, :]
        return points
    if quantiles is None or not levels:
        raise InputError(
            "no distributions of lengths are predicted",
            field="predicted_quantiles",
            remedy="orsched convert --predict MODEL adds them, or columns output_q10, output_q50, "
            "... of the requests",
        )
    law, draws = LengthLaw(levels), np.random.Generator(np.random.PCG64([seed, count]))
    found = np.empty((count, len(requests)), dtype=np.int64)
    for column, row in enumerate(quantiles.tolist()):
        shares = (draws.permutation(count) + draws.uniform(1e-9, 1, count)) / count
        for place, share in enumerate(shares.tolist()):
            length = law.quantile(row, min(share, 1 - 1e-9))
            found[place, column] = min(max(1, round(length)), limit)
    return found


def mean_scenario(scenarios: IntColumn) -> IntColumn:
    """Return the one scenario of mean lengths, of shape (1, requests)."""
    found: IntColumn = np.maximum(1, np.rint(scenarios.mean(axis=0)).astype(np.int64))[None, :]
    return found
