"""What a run would take at a device's peaks, by the terms of a roofline, beside what it took."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from orsched.calibration.observed import StepContents
    from orsched.runner.utilization import ModelSize, Peaks

TERMS = ("weights", "tokens", "context", "attended")


def roofline_s(size: ModelSize, steps: StepContents, peaks: Peaks) -> dict[str, float]:
    """Return seconds at the peaks by term, over all steps of a run.

    A forward pass reads the weights or computes its tokens, whichever takes longer; the caches of
    its round are read and what its prompts attend to is computed besides. ``weights`` is the time
    of the passes that are bound by reading them, ``tokens`` of the others. Sums over requests that
    a worker fills up with nobody's rows are not in it: they are no work that anybody needs.
    """
    rounds = np.where(steps.active > 0, steps.rounds, 0).astype(np.float64)
    passes = np.maximum(rounds, 1)
    tokens = steps.tokens + steps.active * rounds
    scored = steps.prompts + steps.active * rounds
    products = 2.0 * size.weights * tokens + 2.0 * size.output_weights * scored
    reading = (size.weights + size.output_weights) * size.number_bytes / peaks.bytes_per_s
    computing = products / passes / peaks.flops_per_s
    bound_by_weights = reading >= computing
    contexts = rounds * (steps.context_sum + steps.active * (rounds - 1) / 2)
    attended = 4.0 * size.layers * size.heads * size.head_dim * steps.attended
    return {
        "weights": float((passes * reading)[bound_by_weights].sum()),
        "tokens": float((passes * computing)[~bound_by_weights].sum()),
        "context": float((contexts * size.cache_bytes).sum() / peaks.bytes_per_s),
        "attended": float(attended.sum() / peaks.flops_per_s),
    }
