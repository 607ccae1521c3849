"""Over-sampling: N of N' samples of each prompt, the others aborted and carried over.

The checks: enough of a group were done when others were aborted, and nothing serves them after.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from orsched.checker.checker import check
from orsched.common.errors import InputError
from orsched.common.units import NEVER
from orsched.heuristics.policy_method import PolicyMethod
from orsched.metrics.summary import gap, summarise
from orsched.metrics.timeline import Timeline
from orsched.metrics.token_times import finishes_ns
from orsched.models.bounds.bounds import Bound, bound
from orsched.simulator.aborting import group_rows, simulate_keeping
from orsched.solving.method_choice import choose_all

if TYPE_CHECKING:
    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.requests import Requests
    from orsched.data.schedule import Schedule


def keep_violations(
    instance: Instance, keep: int, tokens: IntColumn, served: Instance, schedule: Schedule
) -> list[str]:
    """Return what is wrong with the aborts of a schedule; [] if right.

    ``tokens`` are those that each request of ``instance`` has got; ``served`` holds the requests
    that have some, in the same order and with these as outputs; that the schedule is valid for it
    ``check`` says. A group is full when ``keep`` of its requests are done. Only full groups have
    requests that are not, and none of these is in a step that begins at that moment or later, but
    for the steps up to the next token where a prefill had begun before. Of several workers at one
    moment the first decides first.
    """
    requests, found = instance.requests, []
    rows = np.flatnonzero(tokens > 0)
    expected = requests.take(rows).replace(output_tokens=tokens[rows])
    if requests.group is None or (tokens > requests.output_tokens).any():
        return ["a request has more tokens than it yields, or none has a group"]
    if served.requests.replace(ids=expected.ids) != expected or served.workers != instance.workers:
        return ["the instance that was served is another one"]
    line = Timeline(served, schedule, strict=False)
    times, many = np.unique(np.append(line.start_ns, line.end_ns)), len(instance.workers)
    starts, ends = (np.searchsorted(times, column) * many + line.worker
                    for column in (line.start_ns, line.end_ns))  # fmt: skip
    finish, last = np.full((2, len(instance)), -1, np.int64)
    finish[rows[line.request]] = ends[line.last]
    last[rows[line.request]] = starts[line.last]
    of, had = rows[line.stay_request], line.yielded_before
    before, begun = tokens.copy(), np.full(len(instance), NEVER)
    before[of] = had  # tokens before the last stay
    tried = had == before[of]
    np.minimum.at(begun, of[tried], starts[line.first[line.stay_row]][tried])
    done = tokens == requests.output_tokens
    for group in np.unique(requests.group).tolist():
        mine = requests.group == group
        full = np.sort(finish[mine & done])
        if len(full) < keep:
            found.append(f"group {group} has {len(full)} requests that are done, fewer than {keep}")
            continue
        due = (tokens == before + 1) & (begun < full[keep - 1])
        for row in np.flatnonzero(mine & ~done & (last >= full[keep - 1]) & ~due).tolist():
            found.append(f"request {row} is served after its group is full")
    return found


MONOTONE = ("affine", "roofline")
"""Cost models whose times never fall as a step gets more to do."""


def least_of_groups(instance: Instance, keep: int) -> Instance:
    """Return an instance of which every bound on the makespan holds for ``keep`` of each group.

    It has, for each group, the ``keep`` smallest outputs, each with the smallest prompt of the
    group. Proof: a schedule completes some ``keep`` requests of the group. In order of output, the
    k-th of them has at least the k-th smallest output and at least the smallest prompt. Let the
    k-th request here take part in its steps, with fewer prompt tokens and as many rounds as it
    needs, and leave all other work out: no step gets more tokens, requests, contexts or blocks,
    and under the cost models of ``MONOTONE`` none gets longer. Steps without work are left out, and
    idle time is allowed, so this is a schedule of the new instance that ends no later.

    Raises ``InputError`` for other cost models, prefix caches (where a request of the kept ones may
    share more than the smallest), and as ``oversample``.
    """
    rows = group_rows(instance, keep)
    if instance.caches_prefixes:
        raise InputError("prefix caches with requests to abort", field="memory", remedy="leave out")
    for worker in instance.workers:
        if worker.cost.model not in MONOTONE:
            raise InputError(
                f"no bound with requests to abort under {worker.cost.model} costs",
                field="cost",
                remedy=f"use {' or '.join(MONOTONE)}",
            )
    requests = instance.requests
    taken, prompts = list[int](), list[int]()
    for mine in rows.values():
        taken += sorted(mine, key=requests.output_tokens.__getitem__)[:keep]
        prompts += [int(requests.prompt_tokens[mine].min())] * keep
    least = requests.take(taken).replace(prompt_tokens=prompts, prefixes=None)
    return instance.replace(requests=least, name=f"{instance.name}, least {keep} of each group")


@dataclass(frozen=True, eq=False)
class Oversampled:
    """What came of a batch of which ``keep`` requests of each group were wanted.

    Attributes:
        instance: the batch as it was given.
        keep: how many of each group.
        tokens: what each request got, all of its output where it is done.
        served: the requests that got some, with these as their outputs.
        schedule: of ``served``: an aborted request ends with the last token that it got.
        bound: for any schedule that completes ``keep`` of each group (``least_of_groups``).
        violations: what is wrong with schedule and aborts; empty.
    """

    instance: Instance
    keep: int
    tokens: IntColumn
    served: Instance
    schedule: Schedule
    bound: Bound
    violations: tuple[str, ...]

    @property
    def makespan_ns(self) -> int:
        """The end of the last step."""
        return self.schedule.makespan_ns

    @property
    def gap(self) -> float | None:
        """(makespan - bound) / bound."""
        return gap(self.makespan_ns, self.bound.value_ns)

    @property
    def aborted(self) -> IntColumn:
        """Rows of the requests that were not done."""
        return np.flatnonzero(self.tokens < self.instance.requests.output_tokens)

    @property
    def tail_ns(self) -> int:
        """From the finish of nine tenths of the requests that are done to the makespan."""
        rows = np.flatnonzero(self.tokens > 0)
        done = (self.tokens == self.instance.requests.output_tokens)[rows]
        ends = np.sort(finishes_ns(Timeline(self.served, self.schedule))[done])
        return self.makespan_ns - int(ends[-(-9 * len(ends) // 10) - 1])

    def carried(self) -> Requests:
        """Return the aborted requests as requests of the next batch: what they got belongs to the
        prompt, and the rest of the output is left. Predictions are left out."""
        rows, requests = self.aborted, self.instance.requests
        got = self.tokens[rows]
        return requests.take(rows).replace(
            prompt_tokens=requests.prompt_tokens[rows] + got,
            output_tokens=requests.output_tokens[rows] - got,
            predicted_tokens=None,
            prefixes=None,
        )


def oversample(instance: Instance, policy: str = "vllm", *, keep: int) -> Oversampled:
    """Serve a batch until ``keep`` requests of each group are done, and abort the others then.

    All arrive at 0. Waiting requests leave when their group is full, those on a client at the end
    of the round or prefill in progress, with one token at least.

    Args:
        instance: requests with groups, on workers without prefix caches.
        policy: a method by name, with optional parameters: ``vllm`` and what is built on it.
        keep: how many of each group.

    Raises ``InputError`` for requests without groups or with later arrivals, another ``keep``, a
    prefix cache, a cost model without such bounds, or a policy that cannot abort.

    Example::

        >>> from orsched.instances.rollouts import rollouts
        >>> found = oversample(rollouts(prompts=4, samples=6, clients=4, workers=2), keep=4)
        >>> found.violations, len(found.aborted) <= 8, found.bound.value_ns <= found.makespan_ns
        ((), True, True)
    """
    least = least_of_groups(instance, keep)
    (chosen,) = choose_all([policy])
    if not isinstance(chosen.method, PolicyMethod):
        raise InputError(f"{policy} cannot abort requests", field="policy", remedy="use vllm")
    made, _ = chosen.method.build(instance, chosen.information, chosen.parameters, 0)
    simulated, tokens = simulate_keeping(instance, made, keep)
    rows = np.flatnonzero(tokens > 0)
    requests = instance.requests.take(rows).replace(output_tokens=tokens[rows])
    served = instance.replace(requests=requests)
    work, place = simulated.schedule.work, np.cumsum(tokens > 0) - 1
    schedule = replace(
        simulated.schedule,
        instance_sha256=served.sha256,
        work=replace(work, request=place[work.request]),
    )
    schedule = replace(schedule, results=summarise(served, schedule))
    faults = [str(each) for each in check(served, schedule)]
    faults += keep_violations(instance, keep, tokens, served, schedule)
    lower = bound(least, allows=("chunks", "mixed", "restarts"))
    return Oversampled(instance, keep, tokens, served, schedule, lower, tuple(faults))
