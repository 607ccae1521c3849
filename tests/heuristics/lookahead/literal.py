"""The unit-round model and its admission rule as the papers write them, one round at a time."""

from __future__ import annotations


def held(prompts, outputs, starts, moment):
    """Tokens held in a round by those started: s + (t - k) for k < t <= k + o."""
    return sum(prompts[i] + moment - k for i, k in starts.items() if k < moment <= k + outputs[i])


def admissions(prompts, outputs, arrivals, memory, key, foreseen=None):
    """Return the round in which each request starts: in the order of the key until one fails.

    ``foreseen`` are the lengths by which memory is foreseen, no less than the true ones.
    """
    foreseen = foreseen or outputs
    starts, moment = {}, 0
    order = sorted(range(len(prompts)), key=lambda i: (key(i), arrivals[i], i))
    while len(starts) < len(prompts):
        running = {i: k for i, k in starts.items() if k + outputs[i] > moment}
        for i in order:
            if i in starts or arrivals[i] > moment:
                continue
            trial = {**running, i: moment}
            ends = {k + foreseen[j] for j, k in trial.items()}
            if any(held(prompts, foreseen, trial, end) > memory for end in ends if end > moment):
                break
            starts[i] = running[i] = moment
        moment += 1
    return starts
