"""The runs behind the page: the shipped studies, their figures by workload, load and policy."""

from __future__ import annotations

import csv
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.worth import corpus
from benchmarks.worth.chat import NAME, write_chat
from orsched.common.errors import InputError
from orsched.planning.study import run

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

FOLDER = Path(__file__).parent
STUDIES = ("sharegpt", "ssjf-chat", "azure-conv", "azure-code", "mooncake", "corpus")
LOADS = ("0.7", "0.9", "1.2", "all at 0")
"""Arrivals of each study, in its order: the rate over that of ``vllm`` in saturation."""

NO_PREDICTION = "none"
FAMILIES = {
    "vllm": "shortest first",
    "vllm, shortest first": "shortest first",
    "gittins": "gittins",
    "gittins, predicted": "gittins",
}
"""The family of each policy of the studies: what it does without predictions is its baseline."""


class Row(NamedTuple):
    """Figures of one run.

    Attributes:
        workload, load, family, predictor, seed: what was run.
        mean_s, p99_s: of the JCT.
        makespan_s: when the last request is done.
        gap: makespan over its proven bound, less 1.
        over_bound: mean JCT over its proven bound.
    """

    workload: str
    load: str
    family: str
    predictor: str
    seed: int
    mean_s: float
    p99_s: float
    makespan_s: float
    gap: float
    over_bound: float


def run_all(folder: Path, names: Sequence[str], seeds: int, jobs: int) -> list[Row]:
    """Run what is not finished of the studies into a folder, and return all their figures."""
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for name in names:
        study = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
        study["seeds"] = f"0:{seeds}"
        if study["instances"][0]["name"] == NAME:
            write_chat(folder)
            study["instances"][0]["name"] = str((folder / NAME).resolve())
        if name == "corpus":
            _place_corpus(study, folder)
        done = run(study, folder / name, jobs=jobs)
        for row in done.failed:
            raise SystemExit(f"{name}: {row['policy']}: {row['error']}")
        found += rows_of(done.rows, study["arrivals"])
        print(f"{name}: {done.cells} cells, {done.ran} of them run now", flush=True)
    return found


def _place_corpus(study: dict[str, Any], folder: Path) -> None:
    """Write the files of the seeded corpus, unless they are there, and name them in the study."""
    paths = [folder / each["name"] for each in study["instances"]]
    if not all(path.is_file() for path in paths):
        corpus.write_corpus(folder)
    for each, path in zip(study["instances"], paths, strict=True):
        each["name"] = str(path.resolve())


def rows_of(table: Iterable[Mapping[str, Any]], arrivals: Sequence[str]) -> list[Row]:
    """Return the rows of a study's table, those without predictions once.

    A policy that sees no predictions stands in the table once for each predictor: the figures must
    be the same.
    """
    found: dict[tuple[Any, ...], Row] = {}
    for cell in table:
        row = _row(cell, arrivals)
        if found.setdefault(row[:5], row) != row:
            raise AssertionError(f"a run without predictions depends on them: {row}")
    return list(found.values())


def _row(cell: Mapping[str, Any], arrivals: Sequence[str]) -> Row:
    workload, _, told = cell["instance"].partition(": ")
    if cell["information"] == "none":
        told = NO_PREDICTION
    told = told or _predictor(cell["predictions"])
    seconds = [cell[name] / 1e9 for name in ("jct_ns_mean", "jct_ns_p99", "makespan_ns")]
    return Row(
        workload,
        LOADS[list(arrivals).index(cell["arrivals"])],
        FAMILIES[cell["policy"]],
        told,
        cell["seed"],
        *seconds,
        cell["makespan_ns"] / cell["bound_ns"] - 1,
        cell["jct_ns_mean"] / cell["jct_bound_ns"],
    )


def _predictor(spec: str | None) -> str:
    """Return what the page calls a predictor; None: the instance's own, the published classes."""
    if spec is None or spec.startswith("percentiles"):
        return "five classes"
    if spec.startswith("noise"):
        return f"noise {float(spec.partition('=')[2]):g}"
    return spec.replace("_", " ")


def save(rows: Sequence[Row], path: Path) -> None:
    """Write rows as CSV, with five digits: more than the page shows."""
    with path.open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(Row._fields)
        out.writerows((*row[:5], *(f"{value:.5g}" for value in row[5:])) for row in rows)


def load(path: Path) -> list[Row]:
    """Read what ``save`` wrote; raises ``InputError`` for another file, or none."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            heading, *lines = csv.reader(file)
        if heading != list(Row._fields):
            raise ValueError("the headings are others")
        return [Row(*line[:4], int(line[4]), *map(float, line[5:])) for line in lines]
    except (OSError, ValueError, TypeError, IndexError) as error:
        why = getattr(error, "strerror", None) or error
        remedy = "name a file that --save has written"
        raise InputError(f"cannot be read: {why}", file=str(path), remedy=remedy) from None
