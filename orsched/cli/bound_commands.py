"""``orsched bound`` and ``orsched pack``: what is proven, with certificates, and their checks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orsched.cli.artefacts import check_paths
from orsched.cli.declaring import AT_LEAST_1, argument, command, option
from orsched.cli.ending import EXIT_INTERRUPTED, ended_by
from orsched.cli.machines import say_machine
from orsched.cli.options import INSTANCE, SEED, CpuTimed, Limits, Printed, seconds
from orsched.cli.output import (
    LISTS,
    ProgressPrinter,
    print_facts,
    print_json,
    print_rows,
    remark,
    require_format,
    say,
)
from orsched.cli.request_options import RequestsAndCopies, load_admitted, load_instance
from orsched.common.errors import InputError
from orsched.solving.objectives import PERCENTILES
from orsched.solving.progress import clear_line

if TYPE_CHECKING:
    from orsched.data.instance import Instance
    from orsched.models.packing import PackingResult


@command(
    "bound",
    usual="objective allows time_limit certificate attainment slo_ttft slo_tpot clients cost style",
)
class BoundCommand(CpuTimed, Limits, Printed, RequestsAndCopies):
    """Print a proven lower bound for INSTANCE, with the certificate that proves it.

    The objective bulk has an upper bound: on the tokens of bulk requests that any schedule can do
    while the attainment of the others' limits is reached.
    """

    instance: str = INSTANCE
    objective: str = option(
        "makespan, jct_mean, ttft_mean, weighted_jct_mean, weighted_tardiness_mean, lateness_max, "
        "ttft_p50, ttft_p99, jct_p50, jct_p99, slo_attainment or bulk.",
        choices=[
            "makespan",
            "mean_jct",
            "mean_ttft",
            "weighted_jct_mean",
            "weighted_tardiness_mean",
            "lateness_max",
            *PERCENTILES,
            "slo_attainment",
            "bulk",
            "jct_mean",
            "ttft_mean",
        ],
        default="makespan",
        metavar="NAME",
    )
    time_limit: float | None = seconds(
        "Return the best bound found in this time; the first one is always computed."
    )
    allows: str | None = option(
        "What schedules may do for which it holds beside whole prefills between rounds: chunks, "
        "mixed, restarts, moves.",
        metavar="A,B,C",
    )
    certificate: bool = option("Print the certificate, as JSON.")
    sensitivity: bool = option("Print how it changes with clients, prefill cap and memory.")
    attainment: float | None = option(
        "bulk: share of the requests with limits that are to meet them.  [default: 0.9]"
    )
    horizon_s: float | None = seconds(
        "bulk: until when work counts (default: when the last request is due).", "--horizon"
    )
    measure: str | None = option(
        "bulk: limits are met by the mean of the tokens, or by each.  [default: attained]",
        choices=["attained", "in_time"],
    )
    restarts: int | None = option(
        "bulk: for schedules with at most so many evictions (default: any number).",
        type=click.IntRange(min=0),
        metavar="N",
    )
    windows: int | None = option("bulk: time windows at most.", type=AT_LEAST_1)

    @property
    def bulk(self) -> dict[str, Any]:
        """What was given of the options that are for bounds on bulk work only."""
        return {name: value for name in _OF_BULK if (value := getattr(self, name)) is not None}

    def _run(self) -> None:
        from orsched.checker.certificates import bound_violations
        from orsched.common.errors import InvalidScheduleError
        from orsched.common.units import NS_PER_S
        from orsched.data.service_classes import SLO
        from orsched.metrics.class_metrics import limited_by
        from orsched.models.bounds.bounds import bound, no_floor
        from orsched.models.bounds.ordering import ordering_cannot_help
        from orsched.solving.objectives import other_name

        if self.certificate:
            require_format(self.style, LISTS, "a certificate")
        if self.objective == "bulk":
            problem = load_instance(self.instance)
            if self.slo_text is not None:
                raise InputError(
                    "is not for bounds", field="--slo", remedy="give --slo-ttft and --slo-tpot"
                )
            if self.allows is not None:
                raise InputError(
                    "is for lower bounds, not on bulk work", field="--allows", remedy="leave it out"
                )
            _print_bulk_bound(problem, self)
            return
        problem, given = load_admitted(self.instance), self.bulk
        if self.objective == "slo_attainment":
            limits = {f"{name}_s": given.pop(f"slo_{name}", None) for name in ("ttft", "tpot")}
            if any(limits.values()):
                problem = limited_by(problem, SLO(**limits))
        for name in (*given, *(["slo"] if self.slo_text is not None else [])):
            raise InputError(
                f"is for bounds on bulk work, not on {self.objective}",
                field=f"--{name.removesuffix('_s').replace('_', '-')}",
                remedy="add --objective bulk",
            )
        objective = other_name(self.objective)
        allowed = [name.strip() for name in (self.allows or "").split(",") if name.strip()]
        if self.sensitivity:
            _print_sensitivity(problem, objective, self.time_limit, allowed, self.style)
            return
        with ProgressPrinter("proving") as progress:
            found = bound(problem, objective, self.time_limit, allowed)
            progress.say("verifying")
            faults = bound_violations(problem, found.to_dict(), objective)
        if faults:
            raise InvalidScheduleError(f"the certificate does not hold: {faults[0]}", faults)
        if self.certificate:
            print_json(found.to_dict())
            return
        claims = found.certificate
        facts = {"bound": found.name, "bound_s": found.value_s, "bound_ns": found.value_ns}
        if objective == "slo_attainment":
            facts = {"bound": found.name}
            facts |= {name: claims[name] for name in ("requests", "missed") if name in claims}
        for name in ("prefill_stages", "decode_rounds"):
            if name in claims:
                facts[name] = claims[name]["value"]
                facts[f"{name}_by"] = claims[name]["reason"]
        facts |= {"certificate": "verified", "holds_for": str(found.schedules)}
        for name, value in found.reference.items():
            facts[f"reference_{name.removesuffix('_ns')}_s (no bound)"] = value / NS_PER_S
        say_machine(problem)
        print_facts(facts, self.style)
        note = ordering_cannot_help(problem, found) if objective == "makespan" else None
        for text in (note, no_floor(problem, allowed)):
            if text:
                say(text, "note")


def _print_sensitivity(
    problem: Instance, objective: str, seconds: float | None, allowed: list[str], style: str
) -> None:
    """Print a row for each change of the workers."""
    from orsched.common.units import NS_PER_S
    from orsched.models.bounds.sensitivity import sensitivity

    with ProgressPrinter("proving"):
        found = sensitivity(problem, objective, time_limit=seconds, allows=allowed)
    rows = [
        {
            "field": row.field,
            "factor": row.factor,
            "value": row.value,
            "bound_s": None if row.bound_ns is None else row.bound_ns / NS_PER_S,
            "change_%": None if row.change is None else round(100 * row.change, 2),
            "bound": row.bound or "a request does not fit",
        }
        for row in found.rows
    ]
    print_rows(rows, style)


_OF_BULK = (
    "attainment", "horizon_s", "measure", "restarts", "windows", "slo_ttft", "slo_tpot",
)  # fmt: skip


def _print_bulk_bound(instance: Instance, given: BoundCommand) -> None:
    """Bound bulk work, verify the certificate, and print the bound or the certificate."""
    from orsched.models.bounds.bulk_bound import bulk_bound

    options = given.bulk
    limits = {name: options.pop(name) for name in ("slo_ttft", "slo_tpot") if name in options}
    if limits:
        text = ",".join(f"{name.removeprefix('slo_')}={value}" for name, value in limits.items())
        instance = instance.with_classes(f"interactive:{text}")
    found = bulk_bound(instance, time_limit=given.time_limit, **options)
    if given.certificate:
        classes = [kind.to_dict() for kind in instance.classes]
        print_json({"format": BOUND, **found.to_dict(), "classes": classes})
        return
    facts = {
        "bound": found.name,
        "bulk_tokens": found.value,
        "bulk_tokens_per_s": found.tokens_per_s,
        "horizon_s": found.horizon_s,
        "attainment": found.attainment,
        "feasible": found.feasible,
        "most_attained": found.most_attained,
        "windows": len(found.certificate["windows"]) - 1,
        "certificate": "verified",
    }
    print_facts(facts, given.style)
    if not found.feasible:
        say("no schedule reaches the attainment: too few requests can meet their limits", "note")


BOUND = "orsched/bound"
PACKING = "orsched/packing"
_HEAD = 200
"""Bytes in which a file of one of these says what it is."""


def claim_of(path: Path, kind: str) -> dict[str, Any] | None:
    """Return the bound or packing that a file holds as it was printed; None for other files."""
    try:
        with path.open("rb") as file:
            if kind.encode() not in file.read(_HEAD):
                return None
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and found.get("format") == kind else None


def check_bulk_claim(instance: Instance, claim: dict[str, Any], budget: int) -> list[str]:
    """Return what is wrong with a bound for an instance with the classes that it states."""
    from orsched.checker.certificates import bulk_violations
    from orsched.data.service_classes import ServiceClass

    kinds = claim.get("classes")
    if not isinstance(kinds, list):
        raise InputError("must be a list of classes", field="classes")
    instance = instance.replace(classes=tuple(map(ServiceClass.from_dict, kinds)))
    document = {name: claim[name] for name in claim if name not in ("format", "classes")}
    return bulk_violations(instance, document, budget)


@command("pack")
class PackCommand(CpuTimed, Printed):
    """Pack the sizes in SOURCE onto identical clients: the least makespan, P||Cmax, with a proof.

    SOURCE is a file of whole numbers, one a line, as a column of CSV, or JSON (a list), or an
    instance (a name or a file): then the sizes are the decode rounds of its requests.

    Example: orsched pack gsm8k-llama65b -o packing.json
    """

    source: str = argument("SOURCE")
    clients: int | None = option(
        "Clients (machines, bins) to pack onto; default: those of the instance's worker.",
        type=AT_LEAST_1,
        metavar="N",
    )
    column: str | None = option("The column of a CSV file that holds the sizes.", metavar="NAME")
    time_limit: float | None = seconds(
        "End with the best packing and bound so far (default: a fixed amount of work)."
    )
    gap: float = option(
        "End once the makespan is proven to be so close to the least: 0.01 is 1 %.",
        default=0.0,
        show_default=False,
        metavar="SHARE",
    )
    output: Path | None = option(
        "Write sizes, assignment and certificate (.json), for orsched check.", "-o"
    )
    seed: int = SEED

    def _run(self) -> int:
        from orsched.models.packing import pack

        self.require_ends()
        output = self.output
        check_paths({"PACKING": output}, [self.source])
        with ProgressPrinter("packing"):
            with ended_by(self.time_limit):
                sizes, own = sizes_of(self.source, self.column)
            count = _clients(self.clients, own)
            result = pack(sizes, count, self.time_limit, self.seed, gap=self.gap)
            document = _packing_document(sizes, self.column, count, result)
            if output is not None:
                from orsched.files.document import write_text

                write_text(output, json.dumps(document, indent=1) + "\n")
                remark(f"{len(sizes)} sizes on {document['clients']} clients written to {output}")
        _print_packing(document, self.style)
        return EXIT_INTERRUPTED if result.interrupted else 0


def sizes_of(source: str, column: str | None = None) -> tuple[list[int], int | None]:
    """Return sizes, and the clients of an instance's worker or None where there are only sizes."""
    found = sizes_or_instance(source, column)
    if isinstance(found, list):
        return found, None
    return found.rounds_needed.tolist(), found.worker.clients


def sizes_or_instance(source: str, column: str | None = None) -> list[int] | Instance:
    """Return the whole numbers in a file, or the instance that a name or a file stands for."""
    path = Path(source)
    if path.is_file() and not _is_instance(path):
        from orsched.files.tables import read_sizes

        return read_sizes(path, column)
    if column is not None:
        raise InputError("an instance has no columns", field="--column", remedy="leave it out")
    return load_instance(source)


def _is_instance(path: Path) -> bool:
    if path.suffix.lower() == ".parquet":
        return True
    with path.open("rb") as stream:
        return b'"orsched/instance"' in stream.read(_HEAD)


def _clients(given: int | None, own: int | None) -> int:
    if given is None and own is None:
        raise InputError(
            "sizes alone do not give the number of clients",
            field="--clients",
            remedy="give --clients N",
        )
    return given or own or 1


def _packing_document(
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


def _print_packing(document: dict[str, Any], style: str) -> None:
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
    print_loads("client", sizes, assignment)


def print_loads(word: str, sizes: list[int], assignment: list[int]) -> None:
    """Print the sum of sizes and the jobs of each machine that has some."""
    jobs: dict[int, list[int]] = {}
    for job, machine in enumerate(assignment):
        jobs.setdefault(machine, []).append(job)
    for machine, own in sorted(jobs.items()):
        load = sum(sizes[job] for job in own)
        click.echo(f"{word} {machine}: load {load}, jobs {' '.join(map(str, own))}")


def check_packing(source: str, claim: dict[str, Any], budget: int) -> list[str]:
    """Return what is wrong with a packing of the sizes in a file or of an instance."""
    from types import SimpleNamespace

    from orsched.checker.certificates import packing_violations
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


def packed_words(path: Path, source: str, claim: dict[str, Any]) -> str:
    """Return the verdict on a packing without faults."""
    what = "optimal" if claim["optimal"] else f"at least {claim['bound']}"
    return f"{path} is a packing of {source} with makespan {claim['makespan']}, proven {what}"
