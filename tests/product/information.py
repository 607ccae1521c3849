"""INV-8 end to end: what a policy cannot know yet does not change what is done until it can."""

from __future__ import annotations

import numpy as np

from tests.product.laws import DECODE, Account, Row, Step, rows_of


def revealed_by(instance, schedule, moment):
    """Return tokens by request, and the requests that are done, in the steps begun by a moment.

    A step that has begun counts as a whole: who is done in it is done.
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


def begun(schedule, prefix, moment):
    """Return what is begun by a moment: the steps, and who does what in them.

    ``prefix`` is their number. Of a step that is under way its end is left out: that of rounds may
    hang on what happens to other workers until then.
    """
    steps = rows_of(Step, schedule.steps)[:prefix]
    seen = [s if s.end_ns <= moment else (s.worker, s.phase, s.start_ns) for s in steps]
    last = {step.worker: number for number, step in enumerate(steps)}
    rows = [row for row in rows_of(Row, schedule.work) if row.first_step < prefix]
    cut = [
        row._replace(last_step=min(row.last_step, last[steps[row.first_step].worker]))
        for row in rows
    ]
    return seen, cut
