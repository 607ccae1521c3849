"""How far predictions are from measured rows of served configurations.

python -m benchmarks.validation [FILE ...] [--gpu NAME] [--only WORDS] [--by gpu,model] [--json]
    [-o PICTURE]

FILE holds served configurations as rows, with the columns of AIConfigurator's measured rows or of
InferenceX's runs: each is simulated in closed loop on the machine that the data sheet gives. Rows
that cannot be expressed are counted by reason. Without FILE: aic/*.csv in ORSCHED_DATA, or with
--gpu inferencex/*.csv, whose tables do not name the GPU. --only takes the rows whose GPU and model
have all these words. Errors are medians of absolute errors,
and of errors (bias), in per cent; ``order`` is Kendall's tau of measured and predicted tokens a
second and GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.speed.section import table
from orsched.common.errors import InputError
from orsched.planning.validation.errors import errors_of, validate
from orsched.planning.validation.served import read_served
from orsched.views.planning_charts import DIMENSIONS, Validation, save_predicted

if TYPE_CHECKING:
    from collections.abc import Sequence


def shown(group: dict[str, Any]) -> dict[str, Any]:
    """Return a row of the table, errors in per cent."""
    row = {name: group[name] for name in ("by", "value", "rows")}
    for name in ("tpot", "tpot_bias", "ttft", "ttft_bias", "throughput", "makespan"):
        share = group[name]
        row[f"{name.replace('_', ' ')} %"] = "-" if share is None else f"{100 * share:.1f}"
    return row | {"order": "-" if group["order"] is None else f"{group['order']:.2f}"}


def some(files: Sequence[Path], words: Sequence[str]) -> Validation:
    """Return the errors of rows whose GPU and model have all words."""
    rows: list[dict[str, Any]] = []
    skipped: list[dict[str, Any]] = []
    for each in (each for file in files for each in read_served(file)):
        named = re.split(r"[/ _]", f"{each.gpu} {each.model}".lower())
        if not set(words) <= set(named):
            continue
        try:
            rows += errors_of(each)
        except InputError as error:
            skipped.append({"id": each.id, "reason": error.problem})
    return Validation(tuple(rows), tuple(skipped))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the errors; 2 for a file that cannot be read."""
    parser = argparse.ArgumentParser("validation", description=__doc__)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--gpu", help="of rows whose table does not name one")
    parser.add_argument("--only", default="", help="words of GPU and model, such as h100,llama")
    parser.add_argument("--by", default=",".join(DIMENSIONS), help="dimensions of the table")
    parser.add_argument("--json", action="store_true", help="rows, what is skipped, and groups")
    parser.add_argument("-o", dest="picture", type=Path, help="draw predicted against measured")
    given = parser.parse_args(arguments)
    folder = Path(os.environ.get("ORSCHED_DATA", "")) / ("inferencex" if given.gpu else "aic")
    try:
        files = given.files or sorted(folder.glob("*.csv"))
        found = some(files, given.only.split(",")) if given.only else validate(files, given.gpu)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if given.json:
        print(json.dumps(found.to_dict()))
    else:
        wanted = ("all", *given.by.split(","))
        print("\n".join(table([shown(group) for group in found.groups() if group["by"] in wanted])))
    served = len({row["id"] for row in found.rows})
    print(f"{served:,} predicted, {len(found.skipped):,} left out", file=sys.stderr)
    for reason, count in found.reasons.items():
        print(f"{count:,} left out: {reason}", file=sys.stderr)
    if given.picture is not None and found.rows:
        save_predicted(found.rows, given.picture)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
