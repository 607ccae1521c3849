"""The monolithic window MIP: clients are interchangeable, so a request is a window of bins.

One 0-1 variable u_iab says that request i is prefilled in bin a and done by the end of bin b.
Requests fit on J clients if and only if no bin is covered more than J times. A reference: the
optimum is that of the full MIP (the page *The full MIP* has the proof), the size K^2 n / 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.models.full_mip.formulation import Stages, padded
from orsched.models.full_mip.linear import BINARY, CONTINUOUS
from orsched.models.full_mip.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.models.full_mip.problem import Problem


class WindowsMip:
    """The window MIP of a problem with ``stages`` bins; same variables for bins as ``FullMip``."""

    name = "windows-mip"

    def __init__(self, problem: Problem, stages: int, symmetry_breaking: bool = True) -> None:
        self.problem, self.stages = problem, stages
        self.base = Stages(problem, stages)
        self.model = self.base.model
        add, bins = self.model.add, range(stages)
        self.windows = [
            {(a, b): add(f"u_{i}_{a}_{b}", BINARY, 1) for a in bins for b in range(a, stages)}
            for i in range(len(problem))
        ]
        self.tokens: list[list[int]] = []
        if problem.round_client:
            self.tokens = [
                [add(f"w_{i}_{k}", CONTINUOUS, due) for k in bins]
                for i, due in enumerate(problem.needed)
            ]
        self.base.timeline()
        self._bins()
        self._windows()
        if symmetry_breaking:
            self.base.used_first()

    def _bins(self) -> None:
        problem, base, row = self.problem, self.base, self.model.row
        for k in range(self.stages):
            starts = [
                (i, column)
                for i, windows in enumerate(self.windows)
                for (a, _), column in windows.items()
                if a == k
            ]
            covering = [
                (i, column)
                for i, windows in enumerate(self.windows)
                for (a, b), column in windows.items()
                if a <= k <= b
            ]
            base.prefills(k, starts)
            base.decodes(k, [tokens[k] for tokens in self.tokens])
            row(f"clients_{k}", [(column, 1) for _, column in covering], most=problem.clients)
            if problem.memory_blocks is not None:
                held = [(column, problem.blocks[i]) for i, column in covering]
                row(f"m_{k}", held, most=problem.memory_blocks)
            for i, arrival in enumerate(problem.arrivals):
                if arrival:
                    late = [(column, -arrival) for other, column in starts if other == i]
                    row(f"a_{i}_{k}", [(base.start_p[k], 1), *late], least=0)

    def _windows(self) -> None:
        problem, row = self.problem, self.model.row
        for i, (windows, due) in enumerate(zip(self.windows, problem.needed, strict=True)):
            row(f"one_{i}", [(column, 1) for column in windows.values()], least=1, most=1)
            for (a, b), column in windows.items():
                inside = [(self.base.rounds[k], 1) for k in range(a, b + 1)]
                row(f"long_{i}_{a}_{b}", [*inside, (column, -due)], least=0)
            if not self.tokens:
                continue
            row(f"all_{i}", [(w, 1) for w in self.tokens[i]], least=due, most=due)
            for k, w in enumerate(self.tokens[i]):
                row(f"in_{i}_{k}", [(self.base.rounds[k], 1), (w, -1)], least=0)
                over = [(c, due) for (a, b), c in windows.items() if a <= k <= b]
                row(f"on_{i}_{k}", [*over, (w, -1)], least=0)

    def values_of(self, plan: Plan) -> list[int]:
        """Return the values of all variables that stand for a plan."""
        plan = padded(plan, self.stages)
        values = [0] * len(self.model.names)
        self.base.set_times(values, plan)
        for i, share in enumerate(plan.tokens(self.problem.needed)):
            values[self.windows[i][plan.stage[i], max(share)]] = 1
            for k, tokens in share.items() if self.tokens else ():
                values[self.tokens[i][k]] = tokens
        return values

    def plan_of(self, values: Sequence[float]) -> Plan:
        """Return the plan in a solution; requests take the lowest free clients."""
        stage = tuple(
            max(windows, key=lambda window, of=windows: values[of[window]])[0]  # type: ignore[misc]
            for windows in self.windows
        )
        return Plan(stage, None, tuple(round(values[column]) for column in self.base.rounds))
