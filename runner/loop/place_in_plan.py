"""Where in a plan a stopped run is: found by the tokens that the requests have yielded."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from orsched.runner.loop.planned_steps import PlannedStep, planned_steps

if TYPE_CHECKING:
    from orsched.instance import Instance
    from orsched.runner.loop.restoring import Places
    from orsched.runner.loop.resume import Rest
    from orsched.schedule import Schedule
    from orsched.step import Step


class Place(NamedTuple):
    """A place in the steps of a worker.

    Attributes:
        restoring: who was on the worker.
        steps: those that are left, the rest of one that was cut first.
    """

    restoring: Places
    steps: list[PlannedStep]


def place_in_plan(
    instance: Instance, plan: Schedule, rest: Rest, worker: int, homes: list[int]
) -> Place | None:
    """Return the first place in a worker's steps at which as many tokens have been yielded.

    Stages that yield nothing before it are taken again where the plan has them. In the plan no
    request moves or is evicted.

    Args:
        instance: the whole.
        plan: of it.
        rest: what a run of the plan has left.
        worker: index.
        homes: worker of each request.

    Returns:
        None if there is no such place: the run has left the plan.
    """
    outputs = instance.requests.output_tokens.tolist()
    yielded = list(outputs)  # of those that are not in the rest
    for row, tokens in zip(rest.rows.tolist(), rest.yielded.tolist(), strict=True):
        yielded[row] = tokens
    walk = _Walk(instance, yielded, [row for row, home in enumerate(homes) if home == worker])
    steps = planned_steps(plan, worker)
    for index, planned in enumerate(steps):
        if not walk.left:
            return walk.place(steps[index:])
        counts = walk.counts(planned.step)
        if walk.allows(counts):
            walk.pass_step(planned.step, counts)
            continue
        cut = walk.cut(planned)
        return None if cut is None or walk.left else walk.place([cut, *steps[index + 1 :]])
    return None if walk.left else walk.place([])


class _Walk:
    """Goes through the steps of a worker.

    Attributes:
        left: tokens that were yielded and have not been met.
    """

    def __init__(self, instance: Instance, yielded: list[int], here: list[int]) -> None:
        self.prompts = instance.requests.prompt_tokens.tolist()
        self.outputs = instance.requests.output_tokens.tolist()
        self.from_prefill = instance.first_token == "prefill"
        self.due = {row: yielded[row] for row in here}  # request -> tokens that are still to come
        self.ahead = {row: self.outputs[row] for row in here}  # the same, of the whole plan
        self.left = sum(self.due.values())
        self.clients: dict[int, int] = {}
        self.cached: dict[int, int] = {}  # of those whose prefill is not complete

    def counts(self, step: Step) -> dict[int, int]:
        """Return request -> tokens that it yields in a step."""
        decode = step.decode
        if decode is None:  # a static batch: those that are done are held
            decode = [row for row in self.clients if row not in self.cached]
        counts = {row: min(step.rounds, self.ahead[row]) for row in decode}
        if self.from_prefill:
            counts |= {row: 1 for row, cached in self._chunks(step) if cached == self.prompts[row]}
        return counts

    def _chunks(self, step: Step) -> list[tuple[int, int]]:
        """Return request and cached tokens after a step's prefill."""
        sizes = step.tokens or ()
        pairs = zip(step.prefill, sizes, strict=True)
        return [(row, self.cached.get(row, 0) + size) for row, size in pairs]

    def allows(self, counts: dict[int, int]) -> bool:
        """Whether the requests have yielded as much."""
        return all(count <= self.due[row] for row, count in counts.items())

    def pass_step(self, step: Step, counts: dict[int, int]) -> None:
        """Let a step be done."""
        for row, cached in self._chunks(step):
            self.cached[row] = cached
            if cached == self.prompts[row]:
                del self.cached[row]
        new = list(step.prefill)[: len(step.clients or ())]
        self.clients.update(zip(new, step.clients or (), strict=True))
        self._take(counts)

    def _take(self, counts: dict[int, int]) -> None:
        for row, count in counts.items():
            self.due[row] -= count
            self.ahead[row] -= count
            self.left -= count
            if not self.ahead[row]:
                self.clients.pop(row, None)

    def cut(self, planned: PlannedStep) -> PlannedStep | None:
        """Let the first rounds of a step be done; return what is left of it.

        None if the requests do not agree on how many were.
        """
        step = planned.step
        if step.prefill:
            return None
        rounds = max(self.due[row] for row in self.counts(step))
        counts = self.counts(step._replace(rounds=rounds))
        if any(self.due[row] != count for row, count in counts.items()):
            return None
        self._take(counts)
        return PlannedStep(step._replace(rounds=step.rounds - rounds), 0, {})

    def place(self, steps: list[PlannedStep]) -> Place:
        """Return the place where the walk is.

        Where a prefill yields a token, those that are brought back have done the next round by it.
        """
        restoring = {row: (client, self.cached.get(row)) for row, client in self.clients.items()}
        whole = any(goal is None for _, goal in restoring.values())
        if steps and whole and self.from_prefill and not steps[0].step.prefill:
            step = steps[0].step
            left = [steps[0]._replace(step=step._replace(rounds=step.rounds - 1))]
            steps = [*(left if step.rounds > 1 else []), *steps[1:]]
        return Place(restoring, steps)
