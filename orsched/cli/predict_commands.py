"""``orsched predict train|evaluate|apply|corpus``: output lengths predicted from prompts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orsched.cli.artefacts import check_paths
from orsched.cli.options import FORMAT, INSTANCE, load_instance, with_options
from orsched.cli.output import print_rows, remark
from orsched.cli.predict_proxy_command import proxy_command
from orsched.cli.progress import ProgressPrinter
from orsched.common.errors import InputError
from orsched.common.scalars import require_suffix

if TYPE_CHECKING:
    from orsched.data.instance import Instance
    from orsched.prediction import LabelledPrompts, LengthPredictor

_FILE = click.Path(dir_okay=False, path_type=Path)
_DATA = click.argument("data", type=_FILE, nargs=-1, required=True)
_MODEL = click.argument("model", type=_FILE)
_TOKENIZER = click.option(
    "--tokenizer",
    type=click.Path(path_type=Path),
    help="A tokenizer.json, or its folder, that counts the tokens of replies (default: a rule).",
)
_EDGES = click.option(
    "--edges",
    metavar="A,B,...",
    help="Where classes of lengths end, in tokens (default: percentiles 25, 50, 75, 99).",
)
_SEED = click.option(
    "--seed", type=int, default=0, show_default=True, help="Seed of the parts and of the fit."
)
_KINDS = ("constant", "prompt_length", "lexical", "online")


@click.group("predict", short_help="Predict output lengths from prompts.")
def predict_group() -> None:
    """Predict output lengths from prompts: train a predictor, evaluate it, apply it.

    DATA are JSON lines, a JSON list or Parquet files: a row has 'prompt', 'conversation' or
    'instruction', and 'output_tokens' or 'output'.
    """


predict_group.add_command(proxy_command)


@predict_group.command("train", short_help="Fit a predictor on prompts and their replies.")
@_DATA
@click.option("-o", "--output", type=_FILE, required=True, help="The predictor's file (.json).")
@click.option(
    "--kind",
    type=click.Choice(_KINDS),
    default="lexical",
    show_default=True,
    help="What is fitted.",
)
@click.option(
    "--trees",
    type=click.IntRange(1, 1000),
    default=40,
    show_default=True,
    help="Trees for each quantile.",
)
@click.option(
    "--tails",
    type=click.Choice(("lines", "log-t")),
    default="lines",
    show_default=True,
    help="Beyond the quantiles 0.05 and 0.95: straight lines, or Student's law, fitted.",
)
@with_options(_SEED, _TOKENIZER, _EDGES, FORMAT)
def train_command(
    data: tuple[Path, ...],
    output: Path,
    kind: str,
    trees: int,
    tails: str,
    seed: int,
    tokenizer: Path | None,
    edges: str | None,
    style: str,
) -> None:
    """Fit a predictor on DATA, write it, and print its figures beside those of simpler ones.

    60 % of the conversations are fitted on, 20 % calibrate, and 20 % are evaluated on, which is
    what the table shows.

    Example: orsched predict train chat.jsonl -o predictor.json
    """
    from orsched.prediction import save_predictor, train
    from orsched.prediction.boosting import scikit_learn
    from orsched.prediction.data import joined

    _require_target(output, data)
    limits = _read_edges(edges)
    if kind not in _KINDS[:2]:
        scikit_learn()  # before any work
    with ProgressPrinter("training") as shown:
        rows = joined([_labelled(path, tokenizer, shown) for path in data])
        law = None if tails == "lines" else tails
        fitted = train(rows, kind, seed=seed, trees=trees, tails=law, progress=shown.say)
        save_predictor(fitted, output, seed=seed)
        shown.say("evaluating")
        test = rows.part("test", seed)
        simpler = [train(rows, name, seed=seed) for name in _KINDS[:2] if name != kind]
        found = [_row(model, test, limits) for model in (*simpler, fitted)] if len(test) else []
    remark(f"{kind} fitted on {len(rows):,} rows, written to {output}")
    print_rows(found, style)


@predict_group.command("evaluate", short_help="Say how good a predictor is on other data.")
@_MODEL
@_DATA
@click.option(
    "--held-out",
    is_flag=True,
    help="Only the conversations that training with the model's seed did not look at.",
)
@with_options(_TOKENIZER, _EDGES, FORMAT)
def evaluate_command(
    model: Path,
    data: tuple[Path, ...],
    held_out: bool,
    tokenizer: Path | None,
    edges: str | None,
    style: str,
) -> None:
    """Print a row of figures of the predictor MODEL for each file of DATA.

    A file that it was trained on needs --held-out; one from elsewhere shows how it does across.

    Example: orsched predict evaluate predictor.json chat.jsonl code.jsonl --held-out
    """
    from orsched.prediction.predictor_file import load_with_seed

    fitted, seed = load_with_seed(model)
    if held_out and seed is None:
        raise InputError(
            "does not say the seed of its parts",
            file=str(model),
            field="seed",
            remedy="leave --held-out away, or train it with orsched predict train",
        )
    limits = _read_edges(edges)
    found = []
    with ProgressPrinter("evaluating") as shown:
        for path in data:
            rows = _labelled(path, tokenizer, shown)
            shown.say(f"evaluating on {path.name}")
            kept = rows.part("test", seed or 0) if held_out else rows
            found.append(_row(fitted, kept, limits, path.name))
    print_rows(found, style)


@predict_group.command("apply", short_help="Add predicted lengths to an instance.")
@_MODEL
@INSTANCE
@click.argument("prompts", type=_FILE)
@click.argument("target", type=_FILE, metavar="TARGET")
@click.option(
    "--point",
    default="median",
    show_default=True,
    help="Predicted length beside the quantiles: median, mean, or a number between 0 and 1 for "
    "that quantile.",
)
def apply_command(model: Path, instance: str, prompts: Path, target: Path, point: str) -> None:
    """Write INSTANCE to TARGET with the lengths that MODEL predicts for PROMPTS.

    Of each request a length, and the quantiles of its distribution.

    PROMPTS has one row a request, in their order, or, where both have an id, in any.

    Example: orsched predict apply predictor.json case.json prompts.jsonl predicted.json
    """
    from orsched.files import save_instance

    check_paths({"TARGET": target}, [model, instance, prompts])
    require_suffix(target, (".json", ".parquet"), "TARGET")
    with ProgressPrinter("predicting"):
        predicted = with_lengths(load_instance(instance), model, prompts, point)
        save_instance(predicted, target)
    remark(f"{len(predicted)} requests with predicted lengths written to {target}")


@predict_group.command("corpus", short_help="Write prompts whose lengths follow a known law.")
@click.argument("domain", metavar="DOMAIN")
@click.argument("target", type=_FILE, metavar="TARGET")
@click.option(
    "--rows",
    type=click.IntRange(1, 10_000_000),
    default=10_000,
    show_default=True,
    help="How many requests.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the corpus.")
def corpus_command(domain: str, target: Path, rows: int, seed: int) -> None:
    """Write a corpus of DOMAIN (chat, code or math) as JSON lines to TARGET.

    Example: orsched predict corpus chat chat.jsonl --rows 5000
    """
    from orsched.prediction import make_corpus
    from orsched.prediction.corpus import write_labelled_prompts

    require_suffix(target, (".jsonl",), "TARGET")
    with ProgressPrinter("writing"):
        write_labelled_prompts(make_corpus(domain, rows, seed), target)
    remark(f"{rows:,} prompts written to {target}")


def with_lengths(instance: Instance, model: Path, prompts: Path, point: str = "median") -> Instance:
    """Return an instance with the lengths that a predictor's file gives for a file of prompts."""
    from orsched.prediction import load_predictor, predict_instance, read_prompts
    from orsched.prediction.distribution import POINTS, read_point

    if point not in POINTS:
        read_point(point)
    fitted = load_predictor(model)
    asked, ids = read_prompts(prompts)
    try:
        predicted: Instance = predict_instance(instance, fitted, asked, ids=ids, point=point)
        return predicted
    except InputError as error:
        raise error.located(file=str(prompts)) from None


def _labelled(path: Path, tokenizer: Path | None, shown: ProgressPrinter) -> LabelledPrompts:
    from orsched.prediction import read_labelled_prompts

    shown.say(f"reading {path.name}")
    return read_labelled_prompts(path, tokenizer=tokenizer, progress=shown.say)


def _row(
    model: LengthPredictor,
    data: LabelledPrompts,
    edges: list[float] | None,
    source: str | None = None,
) -> dict[str, Any]:
    """Return the figures of a predictor as a row of a table; NaN is None, as JSON has it."""
    from orsched.prediction import evaluate

    found = {
        name: None if value != value else value
        for name, value in evaluate(model, data, edges=edges).items()
    }
    first = {"kind": model.kind} if source is None else {"source": source, "kind": model.kind}
    return {**first, **found}


def _read_edges(text: str | None) -> list[float] | None:
    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(
            f"{text!r} are no lengths", field="--edges", remedy="for example 58,147,280,499"
        ) from None


def _require_target(output: Path, inputs: tuple[Path, ...]) -> None:
    """Raise ``InputError`` before any work for a file that must not or cannot be written."""
    require_suffix(output, (".json",), "--output")
    check_paths({"output": output}, [str(path) for path in inputs])
