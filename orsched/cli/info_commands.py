"""``orsched bound`` and ``orsched info``."""

from __future__ import annotations

from typing import Any

import click

from orsched.cli.bulk_bounds import bulk_options, print_bulk_bound, refuse_bulk_options
from orsched.cli.machine_output import say_machine
from orsched.cli.options import FORMAT, INSTANCE, load_instance, with_options
from orsched.cli.output import LISTS, print_facts, print_json, require_format, say, table
from orsched.cli.progress import ProgressPrinter
from orsched.cli.request_options import COPIES, REQUEST_OPTIONS, load_admitted
from orsched.cli.seconds import SECONDS
from orsched.cli.wrapping import line_width, wrapped


@click.command("bound", short_help="Print a proven lower bound with its certificate.")
@INSTANCE
@click.option(
    "--objective",
    type=click.Choice(
        ["makespan", "mean_jct", "mean_ttft", "weighted_jct_mean", "bulk", "jct_mean", "ttft_mean"]
    ),
    default="makespan",
    show_default=True,
    metavar="NAME",
    help="makespan, jct_mean, ttft_mean or bulk.",
)
@click.option(
    "--time-limit",
    type=SECONDS,
    metavar="SECONDS",
    help="Return the best bound found in this time; the first one is always computed.",
)
@click.option(
    "--allows",
    metavar="A,B,C",
    help="What schedules may do for which it holds beside whole prefills between rounds: chunks, "
    "mixed, restarts.",
)
@click.option("--certificate", is_flag=True, help="Print the certificate, as JSON.")
@bulk_options
@with_options(FORMAT, *REQUEST_OPTIONS, COPIES)
def bound_command(
    instance: str,
    objective: str,
    time_limit: float | None,
    allows: str | None,
    certificate: bool,
    style: str,
    **bulk: Any,
) -> None:
    """Print a proven lower bound for INSTANCE, with the certificate that proves it.

    The objective bulk has an upper bound: on the tokens of bulk requests that any schedule can do
    while the attainment of the others' limits is reached.
    """
    from orsched.checker.latency_certificates import bound_violations
    from orsched.common.errors import InputError, InvalidScheduleError
    from orsched.common.units import NS_PER_S
    from orsched.models.bounds.bounds import bound, no_floor
    from orsched.models.bounds.no_queue import ordering_cannot_help
    from orsched.solving.objectives import other_name

    problem = load_instance(instance) if objective == "bulk" else load_admitted(instance)
    if objective == "bulk":
        if allows is not None:
            raise InputError(
                "is for lower bounds, not on bulk work", field="--allows", remedy="leave it out"
            )
        print_bulk_bound(problem, bulk, time_limit, certificate, style)
        return
    refuse_bulk_options(bulk, objective)
    if certificate:
        require_format(style, LISTS, "a certificate")
    objective = other_name(objective)
    allowed = [name.strip() for name in (allows or "").split(",") if name.strip()]
    with ProgressPrinter("proving") as progress:
        found = bound(problem, objective, time_limit, allowed)
        progress.say("verifying")
        faults = bound_violations(problem, found.to_dict(), objective)
    if faults:
        raise InvalidScheduleError(f"the certificate does not hold: {faults[0]}", faults)
    if certificate:
        print_json(found.to_dict())
        return
    facts = {"bound": found.name, "bound_s": found.value_s, "bound_ns": found.value_ns}
    claims = found.certificate
    for name in ("prefill_stages", "decode_rounds"):
        if name in claims:
            facts[name] = claims[name]["value"]
            facts[f"{name}_by"] = claims[name]["reason"]
    facts |= {"certificate": "verified", "holds_for": str(found.schedules)}
    for name, value in found.reference.items():
        facts[f"reference_{name.removesuffix('_ns')}_s (no bound)"] = value / NS_PER_S
    say_machine(problem)
    print_facts(facts, style)
    note = ordering_cannot_help(problem, found) if objective == "makespan" else None
    for text in (note, no_floor(problem, allowed)):
        if text:
            say(text, "note")


@click.command("info", short_help="Describe an instance, a method, a generator; list them.")
@click.argument("name", required=False, metavar="[NAME]")
@with_options(FORMAT, *REQUEST_OPTIONS, COPIES)
def info_command(name: str | None, style: str) -> None:
    """Describe NAME: an instance (a name or a path), a method, a generator, a cost model or a
    machine; or "machines", which lists GPUs, models and machines.

    Of a method, its parameters, what it may know and where it comes from; of a generator, its
    arguments; NAME may be module:Class of a policy of your own. Without NAME, list instances,
    generators, methods and versions.

    Examples: orsched info pang-100x20; orsched info vllm; orsched info gsm8k
    """
    if name is None:
        require_format(style, LISTS, "the list of names")
        _list_all(style)
        return
    from orsched.cli.info_topics import topic

    show = topic(name)
    if show is None:
        from orsched.calibration.descriptions import machine_words

        problem = load_instance(name)
        print_facts(problem.summary() | {"machine": machine_words(problem)}, style, wrap=True)
    else:
        show(name, style)


def _list_all(style: str) -> None:
    """Print what there is by name, and the versions."""
    from orsched.calibration.catalogue import machines, measured
    from orsched.common.registry import names
    from orsched.common.versions import versions
    from orsched.instances import catalog
    from orsched.solving.method_choice import method_named, method_names

    methods = [method_named(name) for name in method_names()]
    if style != "table":
        facts = {
            "instances": catalog.names(),
            "generators": list(catalog.GENERATORS),
            "methods": [m.name for m in methods],
            "cost_models": names("cost_models"),
            "machines": [machine.name for machine in machines()],
            "versions": versions(),
        }
        print_json(facts)
        return
    some = ", ".join(machine.name for machine in measured())
    listed = {
        "instances:": ", ".join(catalog.names()),
        "generators:": ", ".join(catalog.GENERATORS),
        "cost models:": ", ".join(names("cost_models")),
        "machines:": f"{some}, and those of data sheets: orsched info machines",
    }
    for head, text in listed.items():
        click.echo(wrapped(text, head, 13))
    left = max(len(m.name) for m in methods) + 2
    click.echo("\n" + wrapped("what it does [what it may know of output lengths]", "method", left))
    click.echo("-" * (left - 2) + "  " + "-" * (line_width() - left))
    for m in methods:
        click.echo(wrapped(f"{m.summary} [{', '.join(m.information)}]", m.name, left))
    click.echo()
    found = [{"package": k, "version": v or "not installed"} for k, v in versions().items()]
    click.echo(table(found))
    click.echo("\norsched info NAME describes one of these.")
