"""Other cost models of few constants that the measured runs were tried with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.calibration.fit_jointly import Basis
from orsched.costs import AffineCost

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.calibration.recipe import StepWork
    from orsched.costs import CostModel

LONGEST = 4096


class Knots:
    """Two tables: dense layers by these numbers of tokens, and a time for reading a token."""

    def __init__(self, clients: int, *knots: int) -> None:
        self.basis, self.clients = Basis(knots), clients
        self.names = (*(f"ms at {knot} tokens" for knot in knots), "ns a token of context")
        self.units = (*(1e6 for _ in knots), 1.0)
        self.start = (*(1e8 * (1 + knot / 1000) for knot in knots), 50.0)

    def cost(self, values: Sequence[float]) -> CostModel:
        """Return the tables."""
        return self.basis.cost(values, self.clients, LONGEST)

    def row(self, step: StepWork) -> list[float]:
        """Return what each constant counts for; contexts grow by one a round."""
        mean = step.context_sum + step.active * (step.rounds - 1) / 2
        row = self.basis.row(step.prompts, step.active, 0)
        return [step.rounds * each for each in (*row[:-1], mean)]


class Affine:
    """A step, a prompt token, a request."""

    names = ("ms a step", "ms a prompt token", "ms a request")
    units = (1e6, 1e6, 1e6)
    start = (3e7, 1e5, 1e5)

    def cost(self, values: Sequence[float]) -> CostModel:
        """Return the affine model with one fixed time."""
        fixed, token, client = map(round, values)
        return AffineCost(
            prefill_fixed_ns=fixed,
            prefill_token_ns=token,
            round_fixed_ns=fixed,
            round_client_ns=client,
        )

    def row(self, step: StepWork) -> list[float]:
        """Return what each constant counts for."""
        return [step.rounds * each for each in (1.0, float(sum(step.prompts)), float(step.active))]
