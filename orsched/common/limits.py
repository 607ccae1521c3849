"""Limits on what small files may ask for; an environment variable or a flag raises each.

Text files cost memory in proportion to their size. Compressed tables and grids do not: a few bytes
can stand for billions of rows or cells. So these are counted before anything is made of them.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from orsched.common.errors import InputError


class Limit(NamedTuple):
    """What is counted, how many are allowed by default, and the variable that says otherwise."""

    what: str
    default: int
    variable: str

    @property
    def flag(self) -> str:
        """The option of the command line that sets the variable."""
        return "--" + self.variable.removeprefix("ORSCHED_").lower().replace("_", "-")

    def value(self) -> int:
        """Return how many are allowed; raises ``InputError`` for a variable that is no number."""
        text = os.environ.get(self.variable, "").strip()
        if not text:
            return self.default
        if not (text.isascii() and text.isdigit() and 0 < len(text) <= _MOST_DIGITS):
            raise InputError(
                f"{text!r:.40} is not a whole number",
                field=self.variable,
                remedy=f"the environment variable is {self.default} by default",
            )
        return int(text)

    def require(self, count: int, field: str | None = None, what: str | None = None) -> None:
        """Raise ``InputError`` for more than is allowed; ``what`` is counted where that differs."""
        most = self.value()
        if count > most:
            raise InputError(
                f"{count:,} {what or self.what} are more than the {most:,} that are allowed",
                field=field,
                remedy="if it should be so and memory suffices, set "
                f"{self.variable}={count}, or say orsched {self.flag} {count} COMMAND",
            )


_MOST_DIGITS = 18

ROWS = Limit("rows", 10_000_000, "ORSCHED_MAX_ROWS")
"""Rows of a Parquet file, values of lists in it, and cells and texts of a spreadsheet."""

CELLS = Limit("cells", 100_000, "ORSCHED_MAX_CELLS")
"""Cells of a study, and the values of each of its axes."""

BLOCKS = Limit("blocks of prefix caches", 2_000_000, "ORSCHED_MAX_BLOCKS")
"""Blocks of all workers with a prefix cache; ten that requests fill count as one."""

STEPS = Limit("prefill steps", 5_000_000, "ORSCHED_MAX_STEPS")
"""Steps that prompts take when each holds as many tokens as a worker allows, and decode steps of
policies that decide after a number of rounds. A schedule takes about 600 bytes for each."""

DEFAULT_BUDGET = 2_000_000_000
"""Cells of tables filled for a certificate: a few seconds, several times what any of ours takes."""
