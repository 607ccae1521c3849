"""What a schedule has done of its bulk requests by a moment."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from orsched.metrics.request_times import request_times
from orsched.metrics.timeline import Timeline

if TYPE_CHECKING:
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule


def bulk_tokens(
    instance: Instance,
    schedule: Schedule,
    moment_ns: int,
    prompt_weight: int = 1,
    output_weight: int = 1,
    credit: str = "output",
) -> int:
    """Return the tokens of bulk requests that are done by a moment, weighted.

    An output token counts when it is there. A prompt counts in proportion to the output that is
    there (``credit`` ``output``), or when its first prefill is complete (``prefill``). Of a run of
    rounds that goes on at the moment those count that have ended, as if all lasted equally long.
    """
    line, bulk, requests = Timeline(instance, schedule), instance.bulk, instance.requests
    yielded = _yielded_by(line, moment_ns)
    done = output_weight * int(yielded[bulk].sum())
    if credit == "prefill":
        ready = request_times(instance, schedule, line)["prefill_end_ns"]
        begun = bulk & (ready >= 0) & (ready <= moment_ns)
        return done + prompt_weight * int(requests.prompt_tokens[begun].sum())
    columns = (requests.prompt_tokens[bulk], yielded[bulk], requests.output_tokens[bulk])
    rows = zip(*(column.tolist() for column in columns), strict=True)
    prompts = sum((Fraction(p * some, output) for p, some, output in rows), Fraction(0))
    return done + prompt_weight * prompts.numerator // prompts.denominator


def _yielded_by(line: Timeline, moment_ns: int) -> np.ndarray:
    """Return the tokens that each request has yielded by a moment."""
    count = len(line.instance)
    start, end, rounds = line.start_ns, line.end_ns, line.rounds * line.has_rounds
    length = np.maximum(end - start, 1)
    done = np.where(end <= moment_ns, rounds, 0)
    going = (start < moment_ns) & (end > moment_ns)
    done[going] = (moment_ns - start[going]) * rounds[going] // length[going]
    before = np.concatenate([[0], np.cumsum(done)])
    rows = line.decodes
    yielded = np.zeros(count, np.int64)
    np.add.at(yielded, line.request[rows], before[line.last[rows] + 1] - before[line.first[rows]])
    if line.instance.first_token == "prefill":
        whole = line.prefills[line.cached_after[line.prefills] >= _due(line)[line.prefills]]
        whole = whole[line.end_ns[line.last[whole]] <= moment_ns]
        np.add.at(yielded, line.request[whole], 1)
    return yielded


def _due(line: Timeline) -> np.ndarray:
    """Return for each row the tokens that its stay has to prefill."""
    return line.due[line.stay_of]
