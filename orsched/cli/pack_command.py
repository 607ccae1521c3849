"""``orsched pack``: sizes onto identical clients, with a proof; and the check of what it wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orsched.cli.artefacts import check_paths
from orsched.cli.deadline import ended_by
from orsched.cli.options import FORMAT, SEED, load_instance, with_options
from orsched.cli.output import print_facts, print_json, print_rows, remark, say
from orsched.cli.progress import ProgressPrinter
from orsched.cli.seconds import SECONDS
from orsched.common.errors import InputError
from orsched.solving.progress import clear_line

if TYPE_CHECKING:
    from orsched.models.packing import PackingResult

PACKING = "orsched/packing"
_HEAD = 200
"""Characters in which a packing file says what it is."""


@click.command("pack", short_help="Pack sizes onto clients so that the fullest is least full.")
@click.argument("source", metavar="SOURCE")
@click.option(
    "--clients",
    type=click.IntRange(min=1),
    metavar="N",
    help="Clients (machines, bins) to pack onto; default: those of the instance's worker.",
)
@click.option("--column", metavar="NAME", help="The column of a CSV file that holds the sizes.")
@click.option(
    "--time-limit",
    type=SECONDS,
    metavar="SECONDS",
    help="End with the best packing and bound so far (default: a fixed amount of work).",
)
@click.option(
    "--gap",
    type=float,
    default=0.0,
    metavar="SHARE",
    help="End once the makespan is proven to be so close to the least: 0.01 is 1 %.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write sizes, assignment and certificate (.json), for orsched check.",
)
@with_options(SEED, FORMAT)
def pack_command(
    source: str,
    clients: int | None,
    column: str | None,
    time_limit: float | None,
    gap: float,
    output: Path | None,
    seed: int,
    style: str,
) -> int:
    """Pack the sizes in SOURCE onto identical clients: the least makespan, P||Cmax, with a proof.

    SOURCE is a file of whole numbers, one a line, as a column of CSV, or JSON (a list), or an
    instance (a name or a file): then the sizes are the decode rounds of its requests.

    Example: orsched pack gsm8k-llama65b -o packing.json
    """
    from orsched.common.stop import MaxRuntime, require_gap
    from orsched.models.packing import pack

    if time_limit is not None:
        MaxRuntime(time_limit)  # validates
    require_gap(gap, "--gap")
    check_paths({"PACKING": output}, [source])
    with ProgressPrinter("packing"):
        with ended_by(time_limit):
            sizes, own = sizes_of(source, column)
        count = _clients(clients, own)
        result = pack(sizes, count, time_limit, seed, gap=gap)
        document = packing_document(sizes, column, count, result)
        if output is not None:
            from orsched.files.atomic import write_text

            write_text(output, json.dumps(document, indent=1) + "\n")
            remark(f"{len(sizes)} sizes on {document['clients']} clients written to {output}")
    _print(document, style)
    return 130 if result.interrupted else 0


def sizes_of(source: str, column: str | None = None) -> tuple[list[int], int | None]:
    """Return sizes, and the clients of an instance's worker or None where there are only sizes."""
    path = Path(source)
    if path.is_file() and not _is_instance(path):
        from orsched.files.sizes import read_sizes

        return read_sizes(path, column), None
    if column is not None:
        raise InputError("an instance has no columns", field="--column", remedy="leave it out")
    instance = load_instance(source)
    return instance.rounds_needed.tolist(), instance.worker.clients


def _is_instance(path: Path) -> bool:
    if path.suffix.lower() == ".parquet":
        return True
    with path.open("rb") as stream:
        return b'"orsched/instance"' in stream.read(_HEAD)


def _clients(given: int | None, own: int | None) -> int:
    if given is None and own is None:
        raise InputError(
            "sizes alone do not say how many clients there are",
            field="--clients",
            remedy="give --clients N",
        )
    return given or own or 1


def packing_document(
    sizes: list[int], column: str | None, clients: int, result: PackingResult
) -> dict[str, Any]:
    """Return what is printed as JSON and written: all that the check needs, and the run."""
    bound = result.bound
    return {
        "format": PACKING,
        "version": 1,
        **({} if column is None else {"column": column}),
        "jobs": len(sizes),
        "clients": clients,
        "makespan": result.makespan,
        "bound": bound,
        "gap": (result.makespan - bound) / bound if bound else 0.0,
        "optimal": result.optimal,
        "certificate": result.certificate,
        "sizes": sizes,
        "assignment": result.assignment,
        "run": {"runtime_s": result.runtime, "interrupted": result.interrupted},
    }


def _print(document: dict[str, Any], style: str) -> None:
    sizes, assignment = document["sizes"], document["assignment"]
    if style == "json":
        clear_line(end=True)
        print_json(document)
        return
    if style == "csv":
        pairs = enumerate(zip(sizes, assignment, strict=True))
        rows = [{"job": job, "size": size, "client": client} for job, (size, client) in pairs]
        print_rows(rows, "csv", ("job", "size", "client"))
        return
    facts = {name: document[name] for name in ("jobs", "clients", "makespan", "bound", "gap")}
    proof = document["certificate"]["bound"]
    print_facts(
        {
            **facts,
            "proven": "optimal" if document["optimal"] else "not optimal",
            "bound by": proof,
            "seconds": document["run"]["runtime_s"],
        },
        "table",
    )
    jobs: dict[int, list[int]] = {}
    for job, client in enumerate(assignment):
        jobs.setdefault(client, []).append(job)
    for client, own in sorted(jobs.items()):
        load = sum(sizes[job] for job in own)
        click.echo(f"client {client}: load {load}, jobs {' '.join(map(str, own))}")


def packing_claim(path: Path) -> dict[str, Any] | None:
    """Return the packing that a file holds; None for other files."""
    try:
        with path.open("rb") as stream:
            if PACKING.encode() not in stream.read(_HEAD):
                return None
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and found.get("format") == PACKING else None


def check_packing(source: str, claim: dict[str, Any], budget: int) -> list[str]:
    """Return what is wrong with a packing of the sizes in a file or of an instance."""
    from types import SimpleNamespace

    from orsched.checker.packing import packing_violations
    from orsched.common.columns import whole_number
    from orsched.files.document import require_format

    require_format(claim, PACKING)
    for name in ("sizes", "assignment"):
        if not isinstance(claim.get(name), list):
            raise InputError("must be a list of whole numbers", field=name)
    clients = whole_number(claim.get("clients"), "clients", minimum=1)
    column = claim.get("column")
    if column is not None and not isinstance(column, str):
        raise InputError("must be a text", field="column")
    sizes, _ = sizes_of(source, column)
    found = []
    if sizes != claim["sizes"]:
        found.append(f"the sizes are not those of {source}")
    said = SimpleNamespace(
        makespan=claim.get("makespan"),
        bound=claim.get("bound"),
        optimal=claim.get("optimal"),
        assignment=claim["assignment"],
        certificate=claim.get("certificate"),
    )
    found += packing_violations(sizes, clients, said, budget)
    certificate = claim.get("certificate")
    if isinstance(certificate, dict) and certificate.get("value") != claim.get("bound"):
        found.append("the certificate states another value than the bound")
    return found


def say_packed(path: Path, source: str, claim: dict[str, Any]) -> None:
    """Print the verdict on a packing without faults."""
    what = "optimal" if claim["optimal"] else f"at least {claim['bound']}"
    say(f"{path} is a packing of {source} with makespan {claim['makespan']}, proven {what}")
