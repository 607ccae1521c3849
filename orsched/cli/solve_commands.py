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
from orsched.cli.options import (
    ALLOW_CODE,
    INFORMATION,
    INSTANCE,
    PARAMETERS,
    SEED,
    Judged,
    Problem,
    Search,
    derived,
    merged,
)
from orsched.cli.output import ProgressPrinter, remark, say
from orsched.cli.policies import own_code, require_named, require_search
from orsched.cli.request_options import (
    Requests,
    RequestsAndCopies,
    engine_policy,
    load_instance,
)
from orsched.common.errors import InputError
from orsched.common.parameters import read_pairs

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


@command(
    "solve",
    usual="method objective time_limit slo_ttft slo_text clients output report gantt style",
)
class SolveCommand(Search, _OneSchedule, RequestsAndCopies):
    """Make a schedule for INSTANCE (a name or a path), bound it and check it."""

    instance: str = INSTANCE
    method: str | None = option(
        "A method (see orsched info), module:Class or path/to/own.py:Class.  [default: hybrid; "
        "with another objective than the makespan, and where requests arrive when others have "
        "ended: auto; with --engine its own]"
    )
    information: str | None = INFORMATION
    initial: Path | None = option(
        "Start from this schedule; windows and exact go on from it. The result is never worse.",
        metavar="SCHEDULE",
    )
    parameters: tuple[str, ...] = PARAMETERS
    seed: int = SEED
    history: Path | None = HISTORY

    def _run(self) -> int:
        from orsched.files import load_schedule
        from orsched.solving.objectives import MAKESPAN
        from orsched.solving.result import Termination
        from orsched.solving.solver import default_method, solve

        self.require_ends()
        parameters = read_pairs(self.parameters, "--param")
        slo, paths = self.slo, given_files(self)
        check_paths(paths, [self.instance, *([] if self.initial is None else [self.initial])])
        require_packages(paths)
        aim = self.objective or MAKESPAN
        method = self.method or engine_policy("hybrid" if aim.is_makespan else "auto")
        require_named(method, self.information, parameters)
        require_search([method], self.ends_of_search)
        with ProgressPrinter("loading") as progress:
            with ended_by(self.time_limit), own_code([method], parameters):
                problem = load_instance(self.instance).admitted()
                method = self.method or default_method(aim, problem)
                start = None if self.initial is None else load_schedule(self.initial)
                require_contents(problem, paths)
                progress.say(method)
                result = solve(
                    problem,
                    method,
                    aim,
                    seed=self.seed,
                    initial_schedule=start,
                    callback=progress.callback,
                    information=self.information,
                    parameters=parameters,
                    time_limit=self.time_left,
                    iterations=self.iterations,
                    gap=self.gap,
                    slo=slo,
                    bounds=self.bounds,
                )
            progress.say("writing")
            self.finish(problem, result)
        return EXIT_INTERRUPTED if result.termination is Termination.INTERRUPTED else 0


@command(
    "simulate",
    usual="policy parameters workers arrivals slo_ttft slo_text clients output report style",
)
class SimulateCommand(Problem, _OneSchedule, Requests):
    """Run a policy on INSTANCE from start to end, once; bound and check its schedule.

    Example: orsched simulate gsm8k-llama65b --workers 4 --arrivals poisson:rate=30
    --policy fcfs --param dispatch=fewest_requests
    """

    instance: str = INSTANCE
    policy: str | None = option(
        "A method's name, module:Class or path/to/own.py:Class of your own (default: the "
        "engine's, else fcfs)."
    )
    information: str | None = INFORMATION
    parameters: tuple[str, ...] = PARAMETERS
    allow_code: bool = ALLOW_CODE
    instance_output: Path | None = option(
        "Write the instance as it is simulated (.json or .parquet), for check and report."
    )

    def _run(self) -> None:
        from orsched.files import save_instance
        from orsched.solving.solver import own_policy, simulate

        slo, paths, config = self.slo, given_files(self), self.config
        written = {**paths, "instance-output": self.instance_output}
        check_paths(written, self.read(self.instance))
        run = self.scenario(self.policy, self.parameters)
        require_packages(paths)
        if config is not None:
            run = merged(run, config, self.allow_code)
        if self.information is not None and run.information is not None:
            raise InputError(
                f"{config} already says this", field="--information", remedy="say it once"
            )
        run = run._replace(information=self.information or run.information)
        check_paths(written, run.files or ())
        name = engine_policy("fcfs") if run.policy is None else run.policy
        try:
            require_named(name, run.information, run.parameters)
        except InputError as error:  # the file alone says it
            if config is None or self.policy or self.parameters:
                raise
            raise error.located(file=str(config)) from None
        with ProgressPrinter("loading") as progress:
            loaded = load_instance(self.instance)
            name = run.policy or own_policy(loaded)
            problem = derived(loaded, run)
            require_contents(problem, paths)
            progress.say(name)
            with own_code([name], run.parameters):
                result = simulate(
                    problem,
                    name,
                    seed=run.seed or 0,
                    information=run.information,
                    parameters=run.parameters,
                    slo=slo,
                    bounds=self.bounds,
                    objective=self.objective or "makespan",
                )
            progress.say("writing")
            if self.instance_output is not None:
                save_instance(problem, self.instance_output)
                remark(f"instance written to {self.instance_output}")
            self.finish(problem, result)
        # What check makes of the file.
        read = loaded.admitted() if run.workers is None else loaded
        alone = self.output is not None and self.instance_output is None
        if alone and problem.sha256 != read.sha256:
            needed = "check and report need the instance as it was simulated"
            say(f"{needed}: --instance-output writes it", "note")
