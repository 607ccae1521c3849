"""The oldest versions that ``pyproject.toml`` allows, for pip; runs before an installation."""

from __future__ import annotations

import re
import sys
import tomllib
from itertools import chain
from pathlib import Path

_FLOOR = re.compile(r"([A-Za-z0-9_.-]+)>=([0-9.]+)(,<[0-9.]+)?( *;.*)?")


def floors(project: dict[str, object]) -> list[str]:
    """Return ``name==version`` of each requirement but own extras; ``ValueError`` if not stated."""
    wanted = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    found = set()
    for requirement in wanted:
        if requirement.startswith("orsched["):
            continue
        match = _FLOOR.fullmatch(requirement)
        if not match:
            raise ValueError(f"{requirement!r} states no oldest version")
        found.add(f"{match[1]}=={match[2]}")
    return sorted(found)


if __name__ == "__main__":
    newest = sys.argv[1:] == ["newest"]
    text = (Path(__file__).resolve().parents[2] / "pyproject.toml").read_text()
    print(*([] if newest else floors(tomllib.loads(text)["project"])), sep="\n")
