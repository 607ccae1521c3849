"""``orsched solve`` and ``orsched simulate``: one schedule of one instance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.cli.artefacts import (
    HISTORY,
    OneSchedule,
    check_paths,
    given_files,
    require_contents,
    require_packages,
    write_artefacts,
)
from orsched.cli.columns import ViewedResults, print_methods, with_classes
from orsched.cli.declaring import command, option
from orsched.cli.ending import EXIT_INTERRUPTED, ended_by
from orsched.cli.options import ALLOW_CODE, INFORMATION, INSTANCE, PARAMETERS, SEED, Judged, Search
from orsched.cli.output import ProgressPrinter, remark, say
from orsched.cli.policies import own_code, require_named, require_search
from orsched.cli.problem_options import Problem, derived, merged
from orsched.cli.request_options import Requests, RequestsAndCopies, load_instance
from orsched.common.errors import InputError
from orsched.common.pairs import read_pairs

if TYPE_CHECKING:
    from pathlib import Path

    from orsched.data.instance import Instance
    from orsched.solving.result import Result


class _OneSchedule(Judged, OneSchedule, ViewedResults):
    """What is asked of one schedule: how it is judged, printed and written."""

    def finish(self, instance: Instance, result: Result) -> None:
        """Write the files that were asked for, then print the one row."""
        write_artefacts(instance, result.schedule, given_files(self))
        row = with_classes(result, self.style)
        print_methods([row], [result], self.style, instance, single=True, objective=self.objective)


class SolveOptions(Search, _OneSchedule, RequestsAndCopies):
    """Options of ``orsched solve``."""

    instance: str = INSTANCE
    method: str | None = option(
        "A method (see orsched info), module:Class or path/to/own.py:Class.  [default: hybrid; "
        "with another objective than the makespan: auto]"
    )
    information: str | None = INFORMATION
    initial: Path | None = option(
        "Start from this schedule; windows and exact go on from it. The result is never worse.",
        metavar="SCHEDULE",
    )
    parameters: tuple[str, ...] = PARAMETERS
    seed: int = SEED
    history: Path | None = HISTORY


@command(
    "solve",
    SolveOptions,
    "Make a schedule, bound it and check it.",
    usual="method objective time_limit slo_ttft slo_tpot clients output report gantt style",
)
def solve_command(given: SolveOptions) -> int:
    """Make a schedule for INSTANCE (a name or a path), bound it and check it."""
    from orsched.files import load_schedule
    from orsched.solving.objectives import MAKESPAN
    from orsched.solving.result import Termination
    from orsched.solving.solver import default_method, solve

    given.require_ends()
    parameters = read_pairs(given.parameters, "--param")
    slo, paths = given.slo, given_files(given)
    check_paths(paths, [given.instance, *([] if given.initial is None else [given.initial])])
    require_packages(paths)
    aim = given.objective or MAKESPAN
    method = given.method or default_method(aim)
    require_named(method, given.information, parameters)
    require_search([method], given.ends_of_search)
    with ProgressPrinter("loading") as progress:
        with ended_by(given.time_limit), own_code([method]):
            problem = load_instance(given.instance).admitted()
            start = None if given.initial is None else load_schedule(given.initial)
            require_contents(problem, paths)
            progress.say(method)
            result = solve(
                problem,
                method,
                aim,
                seed=given.seed,
                initial_schedule=start,
                callback=progress.callback,
                information=given.information,
                parameters=parameters,
                time_limit=given.time_left,
                iterations=given.iterations,
                gap=given.gap,
                slo=slo,
                bounds=given.bounds,
            )
        progress.say("writing")
        given.finish(problem, result)
    return EXIT_INTERRUPTED if result.termination is Termination.INTERRUPTED else 0


class SimulateOptions(Problem, _OneSchedule, Requests):
    """Options of ``orsched simulate``."""

    instance: str = INSTANCE
    policy: str | None = option(
        "A method's name, module:Class or path/to/own.py:Class of your own (default: fcfs)."
    )
    information: str | None = INFORMATION
    parameters: tuple[str, ...] = PARAMETERS
    allow_code: bool = ALLOW_CODE
    instance_output: Path | None = option(
        "Write the instance as it is simulated (.json or .parquet), for check and report."
    )


@command(
    "simulate",
    SimulateOptions,
    "Run a policy once, from start to end.",
    usual="policy parameters workers arrivals slo_ttft slo_tpot clients output report style",
)
def simulate_command(given: SimulateOptions) -> None:
    """Run a policy on INSTANCE from start to end, once; bound and check its schedule.

    Example: orsched simulate gsm8k-llama65b --workers 4 --arrivals poisson:rate=30
    --policy fcfs --param dispatch=fewest_requests
    """
    from orsched.files import save_instance
    from orsched.solving.solver import simulate

    slo, paths, config = given.slo, given_files(given), given.config
    written = {**paths, "instance-output": given.instance_output}
    check_paths(written, given.read(given.instance))
    run = given.scenario(given.policy, given.parameters)
    require_packages(paths)
    if config is not None:
        run = merged(run, config, given.allow_code)
    if given.information is not None and run.information is not None:
        raise InputError(f"{config} already says this", field="--information", remedy="say it once")
    run = run._replace(information=given.information or run.information)
    check_paths(written, run.files or ())
    name = "fcfs" if run.policy is None else run.policy
    try:
        require_named(name, run.information, run.parameters)
    except InputError as error:  # the file alone says it
        if config is None or given.policy or given.parameters:
            raise
        raise error.located(file=str(config)) from None
    with ProgressPrinter("loading") as progress:
        loaded = load_instance(given.instance)
        problem = derived(loaded, run)
        require_contents(problem, paths)
        progress.say(name)
        with own_code([name]):
            result = simulate(
                problem,
                name,
                seed=run.seed or 0,
                information=run.information,
                parameters=run.parameters,
                slo=slo,
                bounds=given.bounds,
                objective=given.objective or "makespan",
            )
        progress.say("writing")
        if given.instance_output is not None:
            save_instance(problem, given.instance_output)
            remark(f"instance written to {given.instance_output}")
        given.finish(problem, result)
    # What check makes of the file.
    read = loaded.admitted() if run.workers is None else loaded
    alone = given.output is not None and given.instance_output is None
    if alone and problem.sha256 != read.sha256:
        say(
            "check and report need the instance as it was simulated: --instance-output writes it",
            "note",
        )
