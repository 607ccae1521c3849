"""How much work and memory re-deriving a bound may take: a small file can ask for a lot of both."""

from __future__ import annotations

DEFAULT_BUDGET = 2_000_000_000
"""Cells of tables filled for a certificate: a few seconds, several times what any of ours takes."""
STEP = 1_000
"""What a step of a search, in Python, counts for."""
_PART_AT_ONCE = 50


class BudgetError(ValueError):
    """A certificate takes more than its budget to verify."""


class Budget:
    """What may be spent on one certificate, all its parts together, and what is left of it.

    Counted in cells of tables, so that the verdict is the same on every machine. At one time a
    hundredth of all cells may be held.
    """

    def __init__(self, cells: int | None = DEFAULT_BUDGET) -> None:
        """Take the cells that may be filled; None: any number."""
        self.cells = self.left = cells

    def spend(self, cells: int) -> None:
        """Count work before it is done; ``BudgetError`` where it is too much."""
        if self.left is None:
            return
        self.left -= cells
        if self.left < 0:
            raise BudgetError(self._message("work"))

    def hold(self, cells: int) -> None:
        """Look at a table's size before it is made; ``BudgetError`` where it is too large."""
        if self.cells is not None and cells * _PART_AT_ONCE > self.cells:
            raise BudgetError(self._message("memory"))

    def _message(self, what: str) -> str:
        return (
            f"verifying the certificate takes more {what} than its budget of {self.cells:,} cells "
            "allows; a larger one (budget=, or --budget on the command line) may verify it"
        )
