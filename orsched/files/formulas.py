"""CSV texts that a spreadsheet would take for formulas: written unchanged, with a warning."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_FORMULA = re.compile(r"[=@\t\r]|[+-](?![0-9.]+$)")
_LOG = logging.getLogger(__name__)


def warn_of_formulas(texts: Iterable[object], where: str) -> None:
    """Log a warning if texts begin as formulas do.

    A CSV file has no way to say that a cell is no formula: an apostrophe before it would be part of
    the text for everyone but a spreadsheet.
    """
    found = [text for text in texts if isinstance(text, str) and _FORMULA.match(text)]
    if found:
        _LOG.warning(
            "%s: a spreadsheet would run %d text%s as a formula, %.60r first: import such columns "
            "as text",
            where,
            len(found),
            "s" if len(found) > 1 else "",
            found[0],
        )
