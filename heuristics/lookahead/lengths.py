"""What a policy that looks ahead takes for the length of a request."""

from __future__ import annotations

from math import ceil, floor
from typing import TYPE_CHECKING

from orsched.policy import ClairvoyantView, PredictedView

if TYPE_CHECKING:
    from orsched.policy import View


def expected_tokens(view: View, request: int, margin: float) -> int:
    """Return the true length, or the predicted one with a margin, within the output limit."""
    if isinstance(view, ClairvoyantView):
        return view.output_tokens[request]
    assert isinstance(view, PredictedView)
    predicted = view.predicted_tokens[request]
    return max(1, min(ceil(predicted * (1 + margin)), view.output_limit_tokens))


def interval(view: View, request: int, width: float) -> tuple[int, int]:
    """Return the least and the greatest length that are taken to be possible."""
    limit = view.output_limit_tokens
    if isinstance(view, PredictedView) and (quantiles := view.predicted_quantiles(request)):
        low, high = quantiles[0], quantiles[-1]
    else:
        middle = expected_tokens(view, request, 0.0)
        low, high = ceil(middle / (1 + width)), floor(middle * (1 + width))
    return max(1, min(low, limit)), max(1, min(high, limit))


def volume(prompt: int, output: int) -> int:
    """Return the token-rounds of a request: it holds s + 1 to s + o tokens for a round each."""
    return prompt * output + output * (output + 1) // 2
