"""Versions of orsched and of what it runs on, for bug reports and the ``run`` block of files."""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched._version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

PACKAGES = (
    "numpy",
    "pandas",
    "matplotlib",
    "networkx",
    "pyscipopt",
    "ortools",
    "click",
    "plotly",
    "numba",
    "pyarrow",
    "openpyxl",
    "scikit-learn",
    "torch",
    "transformers",
    "ray",
)
"""Distributions that ``versions`` looks for: the dependencies and the extras."""


def versions() -> dict[str, str | None]:
    """Return versions of orsched, Python, the platform and each package (None: not installed)."""
    found: dict[str, str | None] = {
        "orsched": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
    }
    return found | {name: _version(name) for name in PACKAGES}


def environment(packages: Sequence[str] = ()) -> dict[str, Any]:
    """Return what a ``run`` block says of versions and machine; packages that it names, too."""
    return {
        "orsched": __version__,
        "python": ".".join(map(str, sys.version_info[:3])),
        "numpy": np.__version__,
        **{name: _version(name) for name in packages},
        "platform": sys.platform,
        "cpus": os.cpu_count(),
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def show_versions() -> None:
    """Print ``versions()`` as a table on stdout, for bug reports.

    >>> orsched.show_versions()  # doctest: +ELLIPSIS
    orsched ...
    """
    found = versions()
    width = max(map(len, found))
    for name, version in found.items():
        sys.stdout.write(f"{name:<{width}}  {version or 'not installed'}\n")
