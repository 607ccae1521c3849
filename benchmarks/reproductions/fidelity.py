"""Measured vLLM runs beside their simulation, fitted by one recipe; each left out once.

python -m benchmarks.reproductions.fidelity

Needs ``ORSCHED_DATA``. Two runs of vLLM servers are fitted on their first 150 requests and scored
on all and on the rest; choices of the recipe are made by the one run and scored on the other. All
simulated schedules pass the checker.
"""

from __future__ import annotations

import argparse
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import orsched
from benchmarks.reproductions import fidelity_setting as setting
from benchmarks.reproductions.fidelity_families import Affine, Knots
from benchmarks.reproductions.findings import Findings
from benchmarks.speed.section import table
from orsched.calibration import fit_run
from orsched.calibration.recipe import TimesOfShape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.calibration import MeasuredRun, RunFit

GOALS = {"makespan": 5.0, "mean TPOT": 5.0, "mean TTFT": 10.0}
"""Per cent."""

POWERS = {1.0: "sum", 1.5: "power 1.5", 3.0: "power 3", 16.0: "larger"}
KNOTS = ((1, 2048), (128, 2048), (1, 128, 2048))


@lru_cache(maxsize=8)
def measured(recorded: setting.Recorded) -> MeasuredRun:
    """Return a run, read once."""
    return recorded.read()


def fitted(recorded: setting.Recorded, base: Any, **options: Any) -> RunFit:
    """Fit a run by the recipe on its first requests."""
    options = {"requests": setting.FITTED, **options}
    return fit_run(measured(recorded), recorded.server, base, **options)


def checked(recorded: setting.Recorded, found: RunFit) -> None:
    """Hold the simulated schedule against every rule."""
    instance, schedule, _ = measured(recorded).simulate(found.cost, recorded.server)
    violations = orsched.check(instance, schedule)
    if violations:
        raise AssertionError(violations[:3])


def shown(name: str, seconds: float) -> str:
    """Return a figure as text."""
    return f"{1e3 * seconds:.2f} ms" if name == "mean TPOT" else f"{seconds:.2f} s"


def compared(found: RunFit) -> list[dict[str, Any]]:
    """Return a row a figure: measured, simulated, errors of all requests and of the rest."""
    every, rest = found.errors(), found.errors(rest=True)
    return [
        {
            "figure": name,
            "measured": shown(name, value),
            "simulated": shown(name, found.simulated[name]),
            "error": f"{100 * every[name]:+.1f} %",
            "requests 150 to 299 only": f"{100 * rest[name]:+.1f} %",
        }
        for name, value in found.measured.items()
    ]


def one_recipe(report: Findings) -> None:
    """Fit and score the runs."""
    for recorded, base, by in (
        (setting.RTX_4090, setting.RTX_4090.shape, "the model's shape"),
        (setting.RTX_PRO, setting.RTX_PRO.shape, "the model's shape"),
        (setting.RTX_4090, setting.kernel_profile(), "a profile of kernels"),
    ):
        report.head(f"{recorded.name}, by {by}")
        offset = measured(recorded).offset_ns
        print(f"clocks: engine times + {offset / 1e6:.3f} ms")
        found = fitted(recorded, base)
        checked(recorded, found)
        for constant in found.constants:
            print(f"fitted: {constant.text()}")
        print("\n".join(table(compared(found))))
        for rest, which in ((False, "all"), (True, "rest")):
            errors = found.errors(rest=rest)
            for name, goal in GOALS.items():
                off = 100 * errors[name]
                report.claim(f"{name}, {which}, within {goal:g} %: {off:+.2f} %", abs(off) <= goal)


def choices(recorded: setting.Recorded) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Return what the recipe could have been, by name: the cost models, and the options."""
    clients = recorded.server.clients
    bases: dict[str, Any] = {"shape": recorded.shape}
    for power, name in POWERS.items():
        bases[f"shape, {name}"] = TimesOfShape(recorded.shape, clients, power)
    bases["affine"] = Affine()
    bases |= {f"dense at {', '.join(map(str, knots))}": Knots(clients, *knots) for knots in KNOTS}
    return {
        f"{name}; {weighting}": (base, {"weighting": weighting})
        for name, base in bases.items()
        for weighting in ("seconds", "relative")
    }


def firmness(report: Findings) -> dict[str, dict[str, RunFit]]:
    """Print what other fits would have said of both runs; return those on the first 150."""
    report.head("other fits: errors of requests 150 to 299, per cent")
    fits: dict[str, dict[str, RunFit]] = {}
    rows = []
    for count in (75, 100, 125):
        row: dict[str, Any] = {"cost model; weights": "shape; seconds", "requests": count}
        for recorded in setting.RECORDED:
            row |= _errors(recorded, fitted(recorded, recorded.shape, requests=count))
        rows.append(row)
    for name in choices(setting.RTX_4090):
        row = {"cost model; weights": name, "requests": setting.FITTED}
        fits[name] = {}
        for recorded in setting.RECORDED:
            base, options = choices(recorded)[name]
            fits[name][recorded.name] = found = fitted(recorded, base, **options)
            row |= _errors(recorded, found)
        rows.append(row)
    print("\n".join(table(rows)))
    return fits


def _errors(recorded: setting.Recorded, found: RunFit) -> dict[str, str]:
    """Return the errors in the goals' figures of what was not fitted to."""
    errors = found.errors(rest=True)
    text = " / ".join(f"{100 * errors[name]:+.1f}" for name in GOALS)
    return {recorded.name.partition(",")[0]: text}


def worst(found: RunFit) -> float:
    """Return the largest error by its goal, over the requests that were not fitted to."""
    errors = found.errors(rest=True)
    return max(abs(100 * errors[name]) / goal for name, goal in GOALS.items())


def leave_one_out(report: Findings, fits: dict[str, dict[str, RunFit]]) -> None:
    """Choose the cost model and the weights by the other runs, and score the run left out."""
    report.head("each vLLM run left out: the recipe chosen by the other")
    rows = []
    for recorded in setting.RECORDED:
        others = [other.name for other in setting.RECORDED if other != recorded]
        chosen = min(fits, key=lambda name: max(worst(fits[name][other]) for other in others))
        for name, why in ((chosen, "by the other run"), ("shape; seconds", "the recipe")):
            errors = fits[name][recorded.name].errors(rest=True)
            row = {"left out": recorded.name, "chosen": why, "cost model; weights": name}
            row |= {figure: f"{100 * errors[figure]:+.1f} %" for figure in GOALS}
            rows.append(row)
    print("\n".join(table(rows)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and run; what does not hold is printed, and is no error."""
    parser = argparse.ArgumentParser(prog="fidelity", description=__doc__.splitlines()[0])
    parser.parse_args(arguments)
    report = Findings()
    one_recipe(report)
    leave_one_out(report, firmness(report))
    print(f"\n{report.misses} goals are missed" if report.misses else "\nall goals are met")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
