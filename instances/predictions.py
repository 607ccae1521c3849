"""Predicted output lengths: the truth with a log-normal error."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from orsched.errors import InputError
from orsched.instances.streams import stream

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orsched.instance import Instance


def predict(
    output_tokens: NDArray[np.int64], sigma: float, seed: int, limit: int
) -> NDArray[np.int64]:
    """Return ``clip(round(true * exp(N(0, sigma^2))), 1, limit)`` for each length.

    The errors come from the stream ``predictions``; row r's error depends on the seed and on r
    only. ``sigma`` 0 returns the truth (cut at the limit).

    Raises:
        InputError: sigma is negative or not finite.
    """
    if isinstance(sigma, bool) or not isinstance(sigma, (int, float)) or not math.isfinite(sigma):
        raise InputError(f"{sigma!r} is not a finite number", field="sigma")
    if sigma < 0:
        raise InputError(f"{sigma} is negative", field="sigma", remedy="0 means exact predictions")
    error = stream("predictions", seed).standard_normal(len(output_tokens))
    with np.errstate(over="ignore"):
        predicted = np.rint(output_tokens * np.exp(sigma * error))
    return np.clip(predicted, 1, limit).astype(np.int64)


def with_predictions(instance: Instance, sigma: float, seed: int = 0) -> Instance:
    """Return the instance with predicted output lengths of relative error ``sigma``.

    Predictions are cut at the instance's output limit. Raises ``InputError`` as ``predict``.
    """
    req = instance.requests
    predicted = predict(req.output_tokens, sigma, seed, instance.output_limit_tokens)
    return instance.replace(requests=req.replace(predicted_tokens=predicted))
