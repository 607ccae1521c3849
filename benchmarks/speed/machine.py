"""The machine and the moment: what a figure needs to mean anything."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from orsched.common.versions import versions


def describe() -> dict[str, Any]:
    """Return processor, memory, versions, commit, load and date as JSON values."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": _field(Path("/proc/cpuinfo"), "model name") or platform.processor(),
        "cores": os.cpu_count(),
        "memory": _field(Path("/proc/meminfo"), "MemTotal"),
        "load_average": load(),
        "commit": _commit(),
        "versions": versions(),
    }


def load() -> list[float]:
    """Return the load average over 1, 5 and 15 minutes."""
    return [round(x, 2) for x in os.getloadavg()]


def _field(path: Path, name: str) -> str | None:
    """Return the first value of a name in a file of ``name: value`` lines."""
    if not path.is_file():
        return None
    for line in path.read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return None


def _commit() -> str | None:
    """Return the commit of the checkout, marked if files differ from it, or None without git."""
    here = Path(__file__).parent
    command = ["git", "describe", "--always", "--dirty", "--abbrev=10", "--exclude=*"]
    try:
        done = subprocess.run(command, cwd=here, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
