"""``orsched tune``: the setting of an engine that serves requests best, and its flags."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from orsched.cli.artefacts import SUFFIXES, check_paths, require_packages
from orsched.cli.capacity_command import Fleets
from orsched.cli.columns import viewed
from orsched.cli.declaring import command, option
from orsched.cli.machines import say_machine
from orsched.cli.options import INSTANCE
from orsched.cli.output import ProgressPrinter, print_json, print_rows, printable, remark, say
from orsched.cli.policies import own_code
from orsched.common.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from orsched.planning.tuning import Tuning
    from orsched.planning.tuning.race import Trial
    from orsched.planning.tuning.space import Setting


@command(
    "tune",
    usual="search maximise runs slo_ttft slo_text arrivals output folder clients cost",
)
class TuneCommand(Fleets):
    """Find the setting of an engine that keeps limits best on the requests of INSTANCE.

    Many settings run on windows of the trace, the better ones on all of it. Printed are the best,
    those that cannot be told from it, the engine as shipped, the line that starts the engine, and
    a proven bound on every setting.

    Example: orsched tune requests.csv --clients 256 --cost h100-llama3-8b-sheet --slo-ttft 1
    --slo-tpot 0.05 --search max_num_batched_tokens=512,2048,8192
    """

    instance: str = INSTANCE
    policies: str = option(
        "Methods to choose from, separated by commas: vllm, gittins@predicted, module:Class.",
        default="vllm",
        metavar="NAMES",
    )
    search: tuple[str, ...] = option(
        "Values of a knob: clients (seats), workers (numbers or splits), a policy's parameter.",
        metavar="KNOB=A,B,...",
    )
    maximise: str = option(
        "The share of requests within their limits; such requests per second and GPU; or the rate "
        "of arrivals at which the share is --attainment.",
        choices=["attainment", "goodput", "rate"],
        default="attainment",
    )
    runs: int | None = option(
        "Whole traces to simulate at most (default: a tenth of the grid, at least 24).", metavar="N"
    )
    output: Path | None = option("Draw what each knob does (.png, .svg or .pdf).", "-o")

    def _run(self) -> int:
        from orsched.planning.tuning import tune
        from orsched.views.planning_charts import save_tuning

        self.note_milliseconds()
        names = [name.strip() for name in self.policies.split(",") if name.strip()]
        search = _read_search(self.search)
        check_paths({"output": self.output}, [self.instance], SUFFIXES["plot"])
        require_packages({"plot": self.output})
        with ProgressPrinter("loading") as progress:
            asked = self.asked(self.instance, progress)
            with own_code(names):
                found = tune(
                    policies=names, search=search, maximise=self.maximise, runs=self.runs, **asked
                )
        if asked["machines"] is None:
            say_machine(asked["instance"])
        _print(found, self.style)
        if self.output is not None:
            save_tuning(found, self.output)
            remark(f"plot written to {self.output}")
        return 0


def _read_search(texts: tuple[str, ...]) -> dict[str, list[Any]]:
    """Return the values of knobs; those that hold a comma are separated by semicolons."""
    found: dict[str, list[Any]] = {}
    for text in texts:
        name, equals, rest = text.partition("=")
        values = [each.strip() for each in rest.split(";" if ";" in rest else ",")]
        if not (name and equals) or "" in values or name in found:
            raise InputError(
                f"{name} is given twice" if name in found else f"{text!r} is not KNOB=A,B,...",
                field="--search",
                remedy="e.g. max_num_batched_tokens=512,2048",
            )
        found[name] = [_value(each) for each in values]
    return found


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _print(found: Tuning, style: str) -> None:
    from orsched.views.planning_charts import tuning_rows, tuning_sentence

    for note in found.notes:
        say(note, "note")
    for setting, why in list(found.failed.items())[:3]:
        say(f"{setting}: {why}")
    rows, flags = viewed(tuning_rows(found)), flag_lines(found.best.setting)
    if style == "json":
        print_json(document_of(found))
        return
    print_rows(rows, style)
    if style == "table":
        lines = [tuning_sentence(found), flags["vllm"], flags["sglang"]]
        if found.gain is not None and found.gain.low is not None:
            mean, low, high = found.gain.mean, found.gain.low, found.gain.high
            lines.insert(
                1, f"gain over the engine as shipped: {mean:.4g} ({low:.4g} to {high:.4g})"
            )
        if flags["without_flag"]:
            lines.append(f"without a flag: {', '.join(flags['without_flag'])}")
        click.echo("\n".join(map(printable, lines)))


def document_of(found: Tuning) -> dict[str, Any]:
    """Return all of an answer as plain JSON values."""
    from orsched.views.planning_charts import knob_effects

    reached = found.best.value if found.rate is None else found.rate["kept_per_s"]
    gap = None if not found.bound or reached is None else 1 - reached / found.bound
    names = ("runs", "budget", "grid", "ran", "failed", "termination", "notes")
    return {
        "objective": found.objective,
        "best": _plain(found.best),
        "default": found.default and _plain(found.default),
        "gain": found.gain and found.gain._asdict(),
        "rivals": [_plain(each) for each in found.rivals],
        "flags": flag_lines(found.best.setting),
        **({} if found.rate is None else {"rate": found.rate}),
        "bound": {"value": found.bound, "gap": gap, "certificate": found.certificate},
        "effects": knob_effects(found),
        **{name: getattr(found, name) for name in names},
    }


def _plain(trial: Trial) -> dict[str, Any]:
    settings = {"settings": dict(trial.setting.values)}
    return {**settings, **trial.ends, "interval": trial.kind, **trial.figures}


NAMES = ("start", "clients", "max_num_batched_tokens", "gpus", "long_prefill_token_threshold")
VLLM = (
    "vllm serve MODEL", "--max-num-seqs", "--max-num-batched-tokens", "--tensor-parallel-size",
    "--long-prefill-token-threshold",
)  # fmt: skip
SGLANG = (
    "python -m sglang.launch_server --model-path MODEL", "--max-running-requests",
    "--chunked-prefill-size", "--tp-size",
)  # fmt: skip
"""SGLang counts the tokens of prompts alone, so its line is close to a setting, not equal to it."""


def flag_lines(setting: Setting) -> dict[str, Any]:
    """Return a line for each engine, how many copies of it, and what has no flag in vLLM."""
    question, found = setting.question, dict[str, Any]()
    machine, policy = question.machines[0], question.policy
    values = {"clients": machine.worker.clients, **policy["parameters"]}
    gpus = {"gpus": machine.price} if machine.price > 1 and machine.price.denominator == 1 else {}
    for engine, flags in (("vllm", VLLM), ("sglang", SGLANG)):
        names = dict(zip(NAMES, flags, strict=False))
        said = {**values, **gpus}.items()
        words = [f"{names[name]} {value}" for name, value in said if name in names]
        found[engine] = " ".join((names["start"], *words))
    missing = [f"{name}={value}" for name, value in values.items() if name not in NAMES]
    other = [] if policy["name"] == "vllm" else [f"policy={policy['name']}"]
    return {**found, "copies": sum(setting.fleet), "without_flag": [*other, *missing]}
