"""``sample_average`` as a registered method."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from orsched.errors import InputError, TimeLimitError
from orsched.heuristics.planning import in_time
from orsched.heuristics.sample_average.params import SampleParams
from orsched.heuristics.sample_average.policy import GATES, Plan, PlannedOrder, plan_values
from orsched.heuristics.sample_average.scenarios import draw_scenarios
from orsched.heuristics.sample_average.search import Scenarios, first_plans, neighbours
from orsched.methods import Outcome, Progress, Run
from orsched.parameters import read_params
from orsched.policy import Information
from orsched.result import Termination
from orsched.simulator import simulate_policy

if TYPE_CHECKING:
    from orsched.columns import IntColumn
    from orsched.heuristics.sample_average.search import Value
    from orsched.instance import Instance

_MOVES = 10
"""Changes of the plan that are tried in an iteration."""


@dataclass(frozen=True)
class SampleAverage:
    """Plans an order on drawn lengths, then serves in it whatever the lengths are.

    First stage: the order, which with free clients is the assignment too, and the gate. Second: the
    lengths are revealed round by round, and each free client gets the next of the order. The plan
    is that with the least mean of the objective over the scenarios that a local search finds.
    """

    name: str = "sample_average"
    information: tuple[Information, ...] = (Information.PREDICTED, Information.CLAIRVOYANT)
    summary: str = "the order that is best in the mean over lengths drawn from their distributions"
    params: ClassVar[type] = SampleParams
    objectives: ClassVar[tuple[str, ...]] = (
        "makespan", "jct_mean", "weighted_jct_mean", "ttft_mean",
    )  # fmt: skip

    def check_parameters(self, parameters: dict[str, Any]) -> None:
        """Raise ``InputError`` for parameters that are wrong on whatever instance."""
        read_params(SampleParams, parameters)

    def __call__(self, instance: Instance, run: Run) -> Outcome:
        """Plan until ``run.stop``, then run on the truth; ``InputError`` for arrivals over time."""
        params = read_params(SampleParams, run.parameters)
        instance.require_stages(self.name)
        arrivals = instance.requests.arrival_ns
        if len(instance) and arrivals.max() > arrivals.min():
            raise InputError(
                f"{self.name} plans requests that all arrive at the same time",
                field="arrival_ns",
                remedy="set arrivals to 0, or choose another method",
            )
        lengths = self._lengths(instance, params, run)
        plan, termination = self._plan(instance, params, lengths, run)
        policy = PlannedOrder(plan, lengths, params.risk, run.information)
        done = simulate_policy(instance, policy, deadline=lambda: in_time(run))
        values = {"scenarios": params.scenarios, "risk": params.risk, **plan_values(plan)}
        return Outcome(
            done.schedule, termination, done.decision_ns, values, notes=_points(instance, run)
        )

    def _lengths(self, instance: Instance, params: SampleParams, run: Run) -> IntColumn:
        if run.information is Information.CLAIRVOYANT:
            return instance.requests.output_tokens[None, :]
        return draw_scenarios(instance, params.scenarios, run.seed)

    def _plan(
        self, instance: Instance, params: SampleParams, lengths: IntColumn, run: Run
    ) -> tuple[Plan, Termination]:
        """Search for the plan of the least mean; Ctrl-C and a time limit keep the best so far."""
        if len(instance) == 0:
            return Plan((), GATES[0]), Termination.FINISHED
        scenarios = Scenarios(
            instance, lengths, run.objective, run.information, params.risk,
            deadline=lambda: in_time(run),
        )  # fmt: skip
        best: Plan | None = None
        value: Value | None = None
        iteration = 0
        try:
            for plan in first_plans(instance, lengths):
                found = scenarios.value(plan, None if value is None else value.total - 1)
                if found is not None:
                    best, value = plan, found
            assert best is not None
            assert value is not None
            changes = neighbours(best, run.seed)
            while True:
                improved = False
                for _ in range(_MOVES):
                    plan = next(changes)(best)
                    if plan == best:
                        continue
                    found = scenarios.value(plan, value.total)
                    if found is not None:
                        improved |= found.total < value.total
                        best, value = plan, found
                iteration += 1
                mean_ns = float(scenarios.times.value_ns(value.total) / scenarios.count)
                makespan_ns = value.makespan_ns // scenarios.count
                run.report(Progress(self.name, iteration, makespan_ns, improved, value=mean_ns))
                ended = run.why_ended(iteration, math.ceil(mean_ns))
                if ended is not None:
                    return best, ended
        except TimeLimitError:
            if best is None:
                raise
            return best, Termination.TIME_LIMIT
        except KeyboardInterrupt:
            if best is None:
                raise
            return best, Termination.INTERRUPTED


def _points(instance: Instance, run: Run) -> tuple[str, ...]:
    """Say that there was nothing to draw from."""
    requests = instance.requests
    drawn = run.information is Information.CLAIRVOYANT or requests.predicted_quantiles is not None
    if drawn or len(instance) == 0:
        return ()
    return ("no distributions are predicted: the plan is for the predicted lengths as they are",)


SAMPLE_AVERAGE = SampleAverage()
