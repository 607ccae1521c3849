"""Versions of orsched and of what it runs on, for bug reports and the ``run`` block of files."""

from __future__ import annotations

import platform
import sys
from importlib import metadata

from orsched._version import __version__

PACKAGES = (
    "numpy",
    "pandas",
    "matplotlib",
    "networkx",
    "pyscipopt",
    "ortools",
    "click",
    "plotly",
    "pyarrow",
    "torch",
    "transformers",
)
"""Distributions that ``versions`` looks for: the dependencies and the runner's extra."""


def versions() -> dict[str, str | None]:
    """Return versions by name: orsched, Python, the platform and each package.

    Nothing is imported; a package that is not installed has the version None.
    """
    found: dict[str, str | None] = {
        "orsched": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
    }
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def show_versions() -> None:
    """Print ``versions()`` as a table on stdout, for bug reports."""
    found = versions()
    width = max(map(len, found))
    for name, version in found.items():
        sys.stdout.write(f"{name:<{width}}  {version or 'not installed'}\n")
