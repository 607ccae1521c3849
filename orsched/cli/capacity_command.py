"""``orsched capacity``: how many workers are enough, and how many cannot be."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from orsched.cli.artefacts import check_paths, require_packages
from orsched.cli.columns import Viewed, given_view, require_columns, viewed
from orsched.cli.declaring import FOLDER, THERE, command, option
from orsched.cli.ending import EXIT_INTERRUPTED, EXIT_INVALID
from orsched.cli.machines import say_machine
from orsched.cli.options import (
    CONCURRENCY,
    INSTANCE,
    JOBS,
    PARAMETERS,
    RAY_ADDRESS,
    Limits,
    Timed,
)
from orsched.cli.output import ProgressPrinter, print_json, print_rows, printable, remark, say
from orsched.cli.policies import own_code, require_named
from orsched.cli.request_options import Requests, load_instance
from orsched.common.errors import InfeasibleError, InputError
from orsched.common.parameters import read_pairs

if TYPE_CHECKING:
    from pathlib import Path

    from orsched.data.instance import Instance
    from orsched.data.workers import Worker
    from orsched.planning.capacity import Capacity

_COLUMNS = (
    "workers", "suffices", "attainment", "attainment_low", "attainment_high", "ttft_p99_s",
    "tpot_p99_s", "slo_limits", "overloaded",
)  # fmt: skip


class Fleets(Limits, Timed, Viewed, Requests):
    """Requests, limits and machines of questions that many simulations answer."""

    attainment: float = option(
        "Share of the requests that must keep both limits.", default=0.9, metavar="SHARE"
    )
    arrivals: str | None = option(
        "Other arrivals: poisson:rate=3, gamma:rate=3,cv=2, replay:scale=1.5, at_once, ...",
        metavar="SPEC",
    )
    concurrency: int | None = CONCURRENCY
    sample: int | None = option("Draw N requests for each replication.", metavar="N")
    replications: int | None = option(
        "Traces to draw; all runs meet the same (default: 5 if arrivals are random, else 1).",
        metavar="N",
    )
    machines: tuple[str, ...] = option(
        "A worker file, or 'instance', and the price (GPUs) of one; may be given several times.",
        "--machine",
        metavar="NAME=FILE:PRICE",
    )
    seed: int = option("Seed of the first trace.", default=0)
    jobs: int | None = JOBS
    cluster: str = option(
        "Where simulations run: processes here, or actors of a Ray cluster.",
        choices=["local", "ray"],
        default="local",
    )
    ray_address: str | None = RAY_ADDRESS
    folder: Path | None = option(
        "Keep finished simulations here: the same command goes on where it was.", type=FOLDER
    )

    def asked(self, path: str, progress: ProgressPrinter) -> dict[str, Any]:
        """Load what is asked about; return the arguments of ``capacity`` and ``tune`` by name."""
        from orsched.planning.capacity.question import ASKED

        problem = load_instance(path)
        if self.concurrency is not None:
            problem = problem.replace(concurrency=self.concurrency)
        own = {name: getattr(self, name) for name in ASKED if hasattr(self, name)}
        kinds = read_machines(self.machines, problem)
        given = {"instance": problem, "machines": kinds, "callback": progress.say}
        return own | given | {"slo": self.slo_text}


@command(
    "capacity",
    usual="policy slo_ttft slo_text attainment arrivals machines folder plot verify style",
)
class CapacityCommand(Fleets):
    """Find the fewest workers that keep latency limits on INSTANCE, and prove which are too few.

    The requests are those of INSTANCE, with other arrivals where given; fleets of its worker, or of
    --machine, are simulated with the policy. Limits are those of its interactive requests, or of
    all where there are none.

    Example: orsched capacity gsm8k-llama65b --arrivals poisson:rate=20 --slo-ttft 1
    --slo-tpot 0.05 --attainment 0.9
    """

    instance: str = INSTANCE
    policy: str = option("A method's name, or module:Class.", default="vllm")
    confidence: float = option("Level of the intervals.", default=0.95, metavar="LEVEL")
    criterion: str | None = option(
        "What must reach the attainment: the measured share (default for one trace), or the lower "
        "end of its interval (default for replications).",
        choices=["measured", "confident"],
    )
    max_workers: int = option("The largest fleet to try.", default=1024)
    exhaustive: bool = option("Try every fleet in order, without bisection.")
    failures: str | None = option(
        "Workers fail and are repaired, drawn for each replication: mtbf=3600,mttr=120.",
        metavar="SPEC",
    )
    autoscale: str | None = option(
        "Workers go on and off by load: min=1,target=0.7,startup=40.", metavar="SPEC"
    )
    schedule: str | None = option(
        "Find the fewest workers in each window of time, too: every=300,startup=40.",
        metavar="SPEC",
    )
    split: str | None = option(
        "Machines prefill or decode, with disaggregated; the link: free, bandwidth=25e9,...",
        metavar="LINK",
    )
    plot: Path | None = option("Draw attainment and p99 against workers (.png, ...).")
    verify: Path | None = option(
        "Verify the lower bound of a result that was printed as JSON, and simulate nothing.",
        type=THERE,
        metavar="FILE.json",
    )
    parameters: tuple[str, ...] = PARAMETERS

    def _run(self) -> int:
        from orsched.planning.capacity import capacity, question

        self.note_milliseconds()
        parameters = read_pairs(self.parameters, "--param")
        require_named(self.policy, None, parameters)
        check_paths({"plot": self.plot}, [self.instance])
        require_packages({"plot": self.plot})
        with ProgressPrinter("loading") as progress:
            asked = self.asked(self.instance, progress) | {"parameters": parameters}
            problem, kinds = asked["instance"], asked["machines"]
            several = self.split is not None or (kinds and len(kinds) > 1)
            machines = question.read_machines(problem, kinds, self.split is not None)
            names = [machine.name for machine in machines] if several else []
            require_columns((*_COLUMNS, *names), ())
            if self.verify is not None:
                progress.say("verifying")
                return _verify(problem, [machine.worker for machine in machines], self.verify)
            progress.say("proving")
            asked |= {"max_workers": self.max_workers, "exhaustive": self.exhaustive}
            try:
                with own_code([self.policy], parameters):
                    found = capacity(policy=self.policy, **asked)
            except InfeasibleError as error:
                if self.style == "json":
                    print_json(_nothing(str(error)))
                raise
            progress.say("writing")
        if kinds is None:
            say_machine(problem)
        _print(found, self.style)
        if self.plot is not None:
            from orsched.planning.capacity import save_capacity

            save_capacity(found, self.plot)
            remark(f"plot written to {self.plot}")
        return EXIT_INTERRUPTED if found.termination == "interrupted" else 0


def read_machines(
    texts: tuple[str, ...], instance: Instance
) -> dict[str, tuple[Worker, float]] | None:
    """Return the machines of ``NAME=FILE:PRICE`` texts, None without; ``InputError`` if wrong."""
    from orsched.solving.scenario import read_workers

    if not texts:
        return None
    found: dict[str, tuple[Worker, float]] = {}
    for text in texts:
        name, equals, rest = text.partition("=")
        source, colon, price = rest.rpartition(":")
        try:
            number = float(price)
        except ValueError:
            number = float("nan")
        if not (name and equals and source and colon) or number != number:
            raise InputError(
                f"{text!r} is not NAME=FILE:PRICE",
                field="--machine",
                remedy="e.g. a100=a100.json:2.5, or small=instance:1",
            )
        if name in found:
            raise InputError(
                f"{name} is given twice",
                field="--machine",
                remedy="give each machine a name of its own",
            )
        if source == "instance":
            found[name] = (instance.workers[0], number)
            continue
        workers = read_workers([source])
        assert isinstance(workers, tuple)
        found[name] = (workers[0], number)
    return found


def _nothing(why: str) -> dict[str, Any]:
    """Return the object that is printed where no number of workers can suffice."""
    names = (
        "workers", "lower_bound_workers", "attainment", "attainment_low", "attainment_high",
        "ttft_p99_s", "tpot_p99_s", "bulk_tokens_per_s",
    )  # fmt: skip
    return {
        **dict.fromkeys(names),
        "simulations": 0,
        "certificate": None,
        "infeasible": why,
    }


def _print(found: Capacity, style: str) -> None:
    for note in found.notes:
        say(note, "note")
    rows = viewed(found.rows())
    if style == "json":
        print_json(found.to_dict() | {"curve": rows})
        return
    if style == "csv":
        print_rows(rows, style)
        return
    click.echo(printable(str(found)))
    if found.bulk_tokens_per_s is not None:
        click.echo(f"{found.bulk_tokens_per_s:,.1f} output tokens/s of bulk requests")
    if found.schedule is not None:
        plan, hours = found.schedule.to_dict(), found.estimate and found.estimate.worker_hours
        click.echo(
            f"workers every {plan['every_s']:g} s: {' '.join(map(str, plan['workers']))}; peak "
            f"{plan['peak']}, mean {plan['mean']:.2f}, {plan['worker_hours']:.3f} worker hours "
            f"({hours:.3f} of a constant fleet), attainment {plan['attainment']:.3f}"
        )
    if len(found.lower_bounds) > 1:
        parts = ", ".join(f"{name} {count}" for name, count in found.lower_bounds.items())
        click.echo(f"workers that each limit forces (proven): {printable(parts)}")
    print_rows(rows if given_view().columns else [_shown(row) for row in rows], style)


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row as people read it: shares with three digits, the interval in one column."""
    own = ("slo_limits", "overloaded")
    shown = {
        name: row[name]
        for name in row
        if "attainment" not in name and "p99" not in name and name not in own
    }
    low, high = row["attainment_low"], row["attainment_high"]
    shown["attainment, interval"] = f"{row['attainment']:.3f}  {low:.3f}-{high:.3f}"
    for name, heading in (("ttft_p99_s", "TTFT p99 s"), ("tpot_p99_s", "TPOT p99 s")):
        shown[heading] = "-" if row[name] is None else f"{row[name]:.4g}"
    for name, each in (row.get("slo_limits") or {}).items():
        value = "-" if each["value_s"] is None else f"{each['value_s']:.4g}"
        shown[f"limited {name} s"] = value if each["kept"] else f"{value} (not kept)"
    if row["overloaded"]:
        shown["suffices"] = "overloaded" if not shown["suffices"] else "yes, but overloaded"
    return shown


def _verify(instance: Instance, workers: list[Worker], path: Path) -> int:
    """Verify the certificate of a printed result; say what it proves."""
    from orsched.files.text import parse_json, read_text
    from orsched.planning.capacity import proof_violations

    document = parse_json(read_text(path))
    if not isinstance(document, dict) or not isinstance(document.get("certificate"), dict):
        raise InputError(
            "holds no certificate",
            file=str(path),
            field="certificate",
            remedy="give the JSON that orsched capacity --format json prints",
        )
    claim = document["certificate"]
    found = proof_violations(instance, claim, workers)
    if not found and len(claim["weights"]) == 1:
        lower = claim["speed"] + 1
        if document.get("lower_bound_workers") != lower:
            found = [f"lower_bound_workers is {document.get('lower_bound_workers')!r}, not {lower}"]
    for each in found:
        say(each)
    if found:
        return EXIT_INVALID
    weights = json.dumps(claim["weights"])
    click.echo(f"proven: fleets of weight {claim['speed']} or less are too small ({weights} each)")
    return 0
