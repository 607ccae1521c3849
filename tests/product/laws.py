"""What a literal reading of a schedule (``tests.by_the_book``) leaves open: INV-12, and INV-8 end
to end. What a policy cannot know yet does not change what is done until it can."""

import numpy as np

from tests.by_the_book import DECODE, PREFILL, table


def work_is_conserved(book):
    """INV-12: no worker rests while a request that it serves later is there."""
    first = {stay.request: stay for stay in reversed(book.stays)}
    ends = [0] * len(book.instance.workers)
    for number, step in enumerate(book.steps):
        if step.start_ns > ends[step.worker]:
            for request, stay in first.items():
                waits = stay.worker == step.worker and book.finish[request] > step.start_ns
                arrived = int(book.requests.arrival_ns[request])
                assert not waits or arrived >= step.start_ns, (number, request)
        ends[step.worker] = step.end_ns


def revealed_by(book, moment):
    """Return tokens by request, and those done, in the steps begun by a moment, counted whole."""
    prefix = sum(step.start_ns <= moment for step in book.steps)
    tokens = np.zeros(len(book.instance), np.int64)
    for stay in book.stays:
        prefilled = stay.hit
        for number, (phase, count, _) in stay.does.items():
            if number < prefix and phase == DECODE:
                tokens[stay.request] += book.steps[number].rounds
            elif number < prefix and phase == PREFILL:
                prefilled += count
                tokens[stay.request] += book.by_prefill and prefilled == stay.due
    return tokens, tokens == book.requests.output_tokens, prefix


def otherwise(book, moment):
    """Return the instance with other lengths of all who are not done at a moment, or None. Each
    gets what another has left; where that changes nothing, as much as the limit allows."""
    tokens, done, prefix = revealed_by(book, moment)
    limit, requests = book.instance.output_limit_tokens, book.requests
    outputs = requests.output_tokens.copy()
    open_rows = np.flatnonzero(~done)
    left = np.roll(outputs[open_rows] - tokens[open_rows], 1)
    outputs[open_rows] = np.minimum(tokens[open_rows] + left, limit)
    if (outputs == requests.output_tokens).all():
        outputs[open_rows] = limit
    if (outputs == requests.output_tokens).all():
        return None, prefix
    return book.instance.replace(requests=requests.replace(output_tokens=outputs)), prefix


def begun(schedule, prefix, moment):
    """Return the ``prefix`` steps that are begun by a moment, and who does what in them. Of a step
    that is under way its end is left out: that of rounds may hang on what happens to other workers
    until then."""
    steps = table(schedule.steps)[:prefix]
    seen = [vars(s) if s.end_ns <= moment else (s.worker, s.phase, s.start_ns) for s in steps]
    last = {step.worker: number for number, step in enumerate(steps)}
    return seen, [
        {**vars(row), "last_step": min(row.last_step, last[steps[row.first_step].worker])}
        for row in table(schedule.work)
        if row.first_step < prefix
    ]
