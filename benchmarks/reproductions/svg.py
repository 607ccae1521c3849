"""Figures of reproductions as SVG: the same rows give the same bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.files.document import opened

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from matplotlib.figure import Figure


def save_svg(
    draw: Callable[[Figure], object], path: Path, size: tuple[float, float], salt: str
) -> None:
    """Write what a function draws on a figure of a size in inches; ``salt`` seeds its ids."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.hashsalt": salt, "svg.fonttype": "none"}):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        with opened(path, binary=True) as file:
            figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
