"""One run in Echo's setting, with the figures that the paper reports."""

from __future__ import annotations

from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from benchmarks.reproductions import echo_setting as setting
from orsched.checker import check
from orsched.policy import Information
from orsched.registry import resolve
from orsched.simulator import simulate_policy
from orsched.timeline import Timeline
from orsched.units import NS_PER_S, seconds_to_ns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orsched.instance import Instance
    from orsched.schedule import Schedule

    Column = NDArray[np.int64]

Parameters = tuple[tuple[str, Any], ...]


class Figures(NamedTuple):
    """What a run yields up to the end of the day.

    Attributes:
        bulk_tokens: tokens of bulk requests: prompts of those that have their first token, cached
        or
            computed, and the tokens yielded.
        answered: bulk requests that are done.
        attainment: share of the interactive requests of which every token is in time.
        tokens_in_time: share of their tokens.
        ttft_ns, tpot_ns: of each interactive request; TPOT is the mean behind the first token.
        hit, computed: prompt tokens of bulk stays that began in the day, found and computed.
        steps: steps of the schedule.
        preemptions: stays of bulk requests that were cut short.
    """

    bulk_tokens: int
    answered: int
    attainment: float
    tokens_in_time: float
    ttft_ns: Column
    tpot_ns: Column
    hit: int
    computed: int
    steps: int
    preemptions: int

    @property
    def hit_rate(self) -> float:
        """Share of the bulk prompt tokens that were found in the cache."""
        return self.hit / max(1, self.hit + self.computed)


class TokenTimes:
    """The time of every token of a schedule.

    Attributes:
        request: request of each token.
        number: its number, from 0.
        time_ns: its time.
    """

    def __init__(self, problem: Instance, schedule: Schedule) -> None:
        self.problem = problem
        self.line = line = Timeline(problem, schedule)
        self.requests: list[Column] = []
        self.times: list[Column] = []
        self._first_tokens(line)
        self._rounds(line)
        request, time = np.concatenate(self.requests), np.concatenate(self.times)
        order = np.lexsort((time, request))
        self.request, self.time_ns = request[order], time[order]
        counts = np.bincount(self.request, minlength=len(problem))
        begins = np.cumsum(counts) - counts
        self.number: Column = np.arange(len(self.request)) - begins[self.request]

    def _first_tokens(self, line: Timeline) -> None:
        """Tokens that prefills yield: the last prefill row of each stay that decodes or ends."""
        rows = np.flatnonzero(line.is_prefill)
        after = np.append(line.request[1:] != line.request[:-1], True)
        after |= np.append(line.stay[1:] != line.stay[:-1], True)
        followed = np.append(~line.is_prefill[1:], False) & ~after
        done = rows[followed[rows] | _ends_request(line)[rows]]
        self.requests.append(line.request[done])
        self.times.append(line.end_ns[line.last[done]])

    def _rounds(self, line: Timeline) -> None:
        """Tokens of rounds; those of a run of rounds are spread evenly over it."""
        ends, starts, rounds = line.end_ns, line.start_ns, np.where(line.has_rounds, line.rounds, 0)
        for row in np.flatnonzero(~line.is_prefill).tolist():
            first, last = int(line.first[row]), int(line.last[row]) + 1
            count = rounds[first:last]
            if (count == 1).all():
                times = ends[first:last]
            else:
                places = np.repeat(np.arange(first, last), count)
                within = np.arange(len(places)) - np.repeat(np.cumsum(count) - count, count) + 1
                length = (ends - starts)[places]
                times = starts[places] + length * within // rounds[places]
            self.times.append(times)
            self.requests.append(np.full(len(times), line.request[row]))


def _ends_request(line: Timeline) -> NDArray[np.bool_]:
    """Whether a row is the last of its request."""
    return np.append(line.request[1:] != line.request[:-1], True)


@cache
def problem_of(workload: str, seed: int, changes: Parameters = ()) -> Instance:
    """Return an instance of the setting."""
    return setting.instance(workload, seed, **dict(changes))


@cache
def run(
    workload: str, method: str, parameters: Parameters = (), seed: int = 0, changes: Parameters = ()
) -> tuple[Figures, Schedule]:
    """Return the figures and the schedule of a method; ``changes`` are of the instance."""
    problem = problem_of(workload, seed, changes)
    policy, _ = resolve("methods", method).build(problem, Information.NONE, dict(parameters), seed)
    schedule = simulate_policy(problem, policy).schedule
    wrong = check(problem, schedule, limit=1)
    if wrong:
        raise AssertionError(f"the checker rejects the schedule: {wrong[0]}")
    return figures(problem, schedule, dict(changes).get("day_s", setting.DAY_S)), schedule


def figures(problem: Instance, schedule: Schedule, day_s: float) -> Figures:
    """Measure a schedule up to the end of the day."""
    tokens = TokenTimes(problem, schedule)
    end, bulk, requests = seconds_to_ns(day_s, "day_s"), problem.bulk, problem.requests
    in_day = tokens.time_ns <= end
    of_bulk = bulk[tokens.request]
    begun = tokens.request[in_day & of_bulk & (tokens.number == 0)]
    total = int(requests.prompt_tokens[begun].sum()) + int((in_day & of_bulk).sum())
    answered = np.bincount(tokens.request[in_day & of_bulk], minlength=len(problem))
    done = int(((answered == requests.output_tokens) & bulk).sum())
    ttft = np.array([each.ttft_ns or 0 for each in problem.classes])[requests.service_class]
    tpot = np.array([each.tpot_ns or 0 for each in problem.classes])[requests.service_class]
    due = requests.arrival_ns + ttft
    late = tokens.time_ns > due[tokens.request] + tokens.number * tpot[tokens.request]
    late &= ~of_bulk
    lost = np.zeros(len(problem), bool)
    lost[tokens.request[late]] = True
    first = np.zeros(len(problem), np.int64)
    last = first.copy()
    first[tokens.request[::-1]] = tokens.time_ns[::-1]
    last[tokens.request] = tokens.time_ns
    people = np.flatnonzero(~bulk)
    gaps = np.maximum(requests.output_tokens[people] - 1, 1)
    hit, computed = bulk_prompts(problem, schedule, tokens.line, end)
    stays = np.bincount(tokens.line.stay_request[bulk[tokens.line.stay_request]])
    return Figures(
        total,
        done,
        1 - float(lost[people].mean()),
        1 - int(late.sum()) / max(1, int((~of_bulk).sum())),
        first[people] - requests.arrival_ns[people],
        (last[people] - first[people]) // gaps,
        hit,
        computed,
        len(schedule.steps),
        int(np.maximum(stays - 1, 0).sum()),
    )


def bulk_prompts(
    problem: Instance, schedule: Schedule, line: Timeline, end_ns: int
) -> tuple[int, int]:
    """Return the prompt tokens that bulk stays found in the cache, and computed, up to a time."""
    rows = line.is_prefill & problem.bulk[line.request] & (line.end_ns[line.first] <= end_ns)
    hits = schedule.work.hit
    found = 0 if hits is None else int(hits[line.row][rows].sum())
    return found, int(line.tokens[rows].sum())


def seconds(value: float) -> float:
    """Return nanoseconds in seconds."""
    return value / NS_PER_S


__all__ = ["Figures", "TokenTimes", "cached_property", "problem_of", "run"]
