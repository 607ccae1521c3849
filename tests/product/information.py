"""INV-8 end to end: what a policy cannot know yet does not change what is done until it can."""

from __future__ import annotations

import numpy as np

from tests.product.laws import DECODE, Account


def revealed_by(instance, schedule, moment):
    """Return tokens by request, and the requests that are done, in the steps begun by a moment.

    A step that has begun counts as a whole: what ends it is as much as known.
    """
    account = Account(instance, schedule)
    prefix = sum(step.start_ns <= moment for step in account.steps)
    tokens = np.zeros(len(instance), np.int64)
    prefilled = dict.fromkeys(account.stays, 0)
    for row in account.rows:
        for number in account.served_in(row):
            if number >= prefix:
                continue
            key = (row.request, row.stay)
            if row.phase == DECODE:
                tokens[row.request] += account.steps[number].rounds
            elif row.tokens and row.phase == 0:
                prefilled[key] += row.tokens
                complete = prefilled[key] == account.due[key]
                tokens[row.request] += complete and instance.first_token == "prefill"
    return tokens, tokens == instance.requests.output_tokens, prefix


def otherwise(instance, schedule, moment):
    """Return the instance with other lengths of all who are not done at a moment, or None.

    Each gets what another has left; where that changes nothing, as much as the limit allows.
    """
    tokens, done, prefix = revealed_by(instance, schedule, moment)
    outputs = instance.requests.output_tokens.copy()
    open_rows = np.flatnonzero(~done)
    left = np.roll(outputs[open_rows] - tokens[open_rows], 1)
    outputs[open_rows] = np.minimum(tokens[open_rows] + left, instance.output_limit_tokens)
    if (outputs == instance.requests.output_tokens).all():
        outputs[open_rows] = instance.output_limit_tokens
    if (outputs == instance.requests.output_tokens).all():
        return None, prefix
    return instance.replace(requests=instance.requests.replace(output_tokens=outputs)), prefix


def begun(schedule, prefix):
    """Return what is done in the first steps of a schedule: the steps, and who does what in them.

    ``prefix`` is a number of steps.
    """
    steps = [getattr(schedule.steps, name)[:prefix].tolist() for name in vars(schedule.steps)]
    w = schedule.work
    columns = (w.request, w.stay, w.first_step, w.client, w.phase, w.tokens, w.last_step)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    cut = [(*row[:-1], min(row[-1], prefix - 1)) for row in rows if row[2] < prefix]
    return steps, cut
