"""``orsched predict``: output lengths predicted from prompts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orsched.cli.artefacts import check_paths
from orsched.cli.declaring import Options, argument, command, option
from orsched.cli.options import INSTANCE, Printed
from orsched.cli.output import ProgressPrinter, print_rows, remark
from orsched.cli.request_options import load_instance
from orsched.common.errors import InputError
from orsched.common.scalars import require_suffix

if TYPE_CHECKING:
    from orsched.data.instance import Instance
    from orsched.prediction import LabelledPrompts, LengthPredictor

_DATA = argument(required=True)
_OUTPUT = option("The predictor's file (.json).", "-o", required=True)
_TOKENIZER = option(
    "A tokenizer.json, or its folder, that counts the tokens of replies (default: a rule).",
    type=click.Path(path_type=Path),
)
_EDGES = option(
    "Where classes of lengths end, in tokens (default: percentiles 25, 50, 75, 99).",
    metavar="A,B,...",
)
_KINDS = ("constant", "prompt_length", "lexical", "online")
_PROXIES = ("bert_ssjf", "distilbert_mico", "bert_ranker")
_HEADS = (
    "regression_l1", "regression_mse", "ordinal_l1", "ordinal_mse", "classes", "binary",
)  # fmt: skip


@click.group("predict")
def predict_group() -> None:
    """Predict output lengths from prompts: train a predictor, evaluate it, apply it.

    DATA are JSON lines, a JSON list or Parquet files: a row has 'prompt', 'conversation' or
    'instruction', and 'output_tokens' or 'output'.
    """


@command("train", "Fit a predictor on prompts and their replies.", group=predict_group)
class TrainCommand(Printed):
    """Fit a predictor on DATA, write it, and print its figures beside those of simpler ones.

    60 % of the conversations are fitted on, 20 % calibrate, and 20 % are evaluated on, which is
    what the table shows.

    Example: orsched predict train chat.jsonl -o predictor.json
    """

    data: tuple[Path, ...] = _DATA
    output: Path = _OUTPUT
    kind: str = option("What is fitted.", choices=_KINDS, default="lexical")
    trees: int = option("Trees for each quantile.", type=click.IntRange(1, 1000), default=40)
    tails: str = option(
        "Beyond the quantiles 0.05 and 0.95: straight lines, or Student's law, fitted.",
        choices=("lines", "log-t"),
        default="lines",
    )
    seed: int = option("Seed of the parts and of the fit.", default=0)
    tokenizer: Path | None = _TOKENIZER
    edges: str | None = _EDGES

    def _run(self) -> None:
        from orsched.prediction import save_predictor, train
        from orsched.prediction.data import joined
        from orsched.prediction.trees import scikit_learn

        kind, seed = self.kind, self.seed
        check_paths({"output": self.output}, self.data, (".json",))
        limits = _read_edges(self.edges)
        if kind not in _KINDS[:2]:
            scikit_learn()  # before any work
        with ProgressPrinter("training") as shown:
            rows = joined([_labelled(path, self.tokenizer, shown) for path in self.data])
            law = None if self.tails == "lines" else self.tails
            fitted = train(rows, kind, seed=seed, trees=self.trees, tails=law, progress=shown.say)
            save_predictor(fitted, self.output, seed=seed)
            shown.say("evaluating")
            test = rows.part("test", seed)
            simpler = [train(rows, name, seed=seed) for name in _KINDS[:2] if name != kind]
            found = [_row(model, test, limits) for model in (*simpler, fitted)] if len(test) else []
        remark(f"{kind} fitted on {len(rows):,} rows, written to {self.output}")
        print_rows(found, self.style)


@command("evaluate", "Say how good a predictor is on other data.", group=predict_group)
class EvaluateCommand(Printed):
    """Print a row of figures of the predictor MODEL for each file of DATA.

    A file that it was trained on needs --held-out; one from elsewhere shows how it does across.

    Example: orsched predict evaluate predictor.json chat.jsonl code.jsonl --held-out
    """

    model: Path = argument()
    data: tuple[Path, ...] = _DATA
    held_out: bool = option(
        "Only the conversations that training with the model's seed did not look at."
    )
    tokenizer: Path | None = _TOKENIZER
    edges: str | None = _EDGES

    def _run(self) -> None:
        from orsched.prediction.predictor_file import load_with_seed

        fitted, seed = load_with_seed(self.model)
        if self.held_out and seed is None:
            raise InputError(
                "does not say the seed of its parts",
                file=str(self.model),
                field="seed",
                remedy="leave --held-out away, or train it with orsched predict train",
            )
        limits = _read_edges(self.edges)
        found = []
        with ProgressPrinter("evaluating") as shown:
            for path in self.data:
                rows = _labelled(path, self.tokenizer, shown)
                shown.say(f"evaluating on {path.name}")
                kept = rows.part("test", seed or 0) if self.held_out else rows
                found.append(_row(fitted, kept, limits, path.name))
        print_rows(found, self.style)


@command("apply", "Add predicted lengths to an instance.", group=predict_group)
class ApplyCommand(Options):
    """Write INSTANCE to TARGET with the lengths that MODEL predicts for PROMPTS.

    Of each request a length, and the quantiles of its distribution.

    PROMPTS has one row a request, in their order, or, where both have an id, in any.

    Example: orsched predict apply predictor.json case.json prompts.jsonl predicted.json
    """

    model: Path = argument()
    instance: str = INSTANCE
    prompts: Path = argument()
    target: Path = argument("TARGET")
    point: str = option(
        "Predicted length beside the quantiles: median, mean, or a number between 0 and 1 for "
        "that quantile.",
        default="median",
    )

    def _run(self) -> None:
        from orsched.files import save_instance

        target = self.target
        check_paths({"TARGET": target}, [self.model, self.instance, self.prompts])
        require_suffix(target, (".json", ".parquet"), "TARGET")
        with ProgressPrinter("predicting"):
            instance = load_instance(self.instance)
            predicted = with_lengths(instance, self.model, self.prompts, self.point)
            save_instance(predicted, target)
        remark(f"{len(predicted)} requests with predicted lengths written to {target}")


@command("corpus", "Write prompts whose lengths follow a known law.", group=predict_group)
class CorpusCommand(Options):
    """Write a corpus of DOMAIN (chat, code or math) as JSON lines to TARGET.

    Example: orsched predict corpus chat chat.jsonl --rows 5000
    """

    domain: str = argument("DOMAIN")
    target: Path = argument("TARGET")
    rows: int = option("How many requests.", type=click.IntRange(1, 10_000_000), default=10_000)
    seed: int = option("Seed of the corpus.", default=0)

    def _run(self) -> None:
        from orsched.prediction import make_corpus
        from orsched.prediction.data import write_labelled_prompts

        require_suffix(self.target, (".jsonl",), "TARGET")
        with ProgressPrinter("writing"):
            write_labelled_prompts(make_corpus(self.domain, self.rows, self.seed), self.target)
        remark(f"{self.rows:,} prompts written to {self.target}")


@command(
    "proxy",
    "Train the papers' proxy models (needs torch).",
    usual="output kind head model tokenizer device checkpoint seed style",
    group=predict_group,
)
class ProxyCommand(Printed):
    """Train a proxy model on DATA, write it, and print its figures on conversations left out.

    The weights are written beside the file, as .safetensors. Nothing is downloaded, and no code of
    a folder is run.

    Example: orsched predict proxy chat.jsonl -o ssjf.json --checkpoint run.safetensors
    """

    data: tuple[Path, ...] = _DATA
    output: Path = _OUTPUT
    kind: str = option("Whose model.", choices=_PROXIES, default=_PROXIES[0])
    head: str | None = option("Head of bert_ssjf (default: regression_l1).", choices=_HEADS)
    model: str = option(
        "Folder of config.json and safetensors; or small or full, with random weights.",
        default="small",
    )
    tokenizer: Path | None = option(
        "A tokenizer.json, or its folder, for prompts and replies (default: the model's, a rule).",
        type=click.Path(path_type=Path),
    )
    device: str = option("auto, cpu, cuda, or as torch.", default="auto")
    checkpoint: Path | None = option("A file (.safetensors) to go on from after a kill.")
    batch: int | None = option("Rows a step (default: the paper's).", type=click.IntRange(1, 4096))
    seed: int = option("Seed of all that is drawn.", default=0)

    def _run(self) -> None:
        from orsched.prediction import evaluate, save_predictor, train_proxy
        from orsched.prediction.data import joined

        kind, output, seed = self.kind, self.output, self.seed
        check_paths({"output": output}, self.data, (".json",))
        if self.checkpoint is not None:
            require_suffix(self.checkpoint, (".safetensors",), "--checkpoint")
            if self.checkpoint == output.with_suffix(".safetensors"):
                raise InputError(
                    "is where the predictor's weights go",
                    field="--checkpoint",
                    remedy="name another",
                )
        with ProgressPrinter("training") as shown:
            rows = joined([_labelled(path, self.tokenizer, shown) for path in self.data])
            fitted = train_proxy(
                rows, kind, head=self.head, model=self.model, tokenizer=self.tokenizer, seed=seed,
                device=self.device, checkpoint=self.checkpoint, batch=self.batch,
                progress=shown.say,
            )  # fmt: skip
            save_predictor(fitted, output, seed=seed)
            shown.say("evaluating")
            test = rows.part("test", seed)
            figures = _without_nan(evaluate(fitted, test, latency=False)) if len(test) else {}
        remark(f"{kind} trained on {len(rows):,} rows, written to {output} and its .safetensors")
        row = {"kind": kind, "head": fitted.targets.head, **figures}
        print_rows([row] if figures else [], self.style)


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
    """Return the figures of a predictor as a row of a table."""
    from orsched.prediction import evaluate

    first = {"kind": model.kind} if source is None else {"source": source, "kind": model.kind}
    return {**first, **_without_nan(evaluate(model, data, edges=edges))}


def _without_nan(figures: dict[str, Any]) -> dict[str, Any]:
    """Return figures with None for NaN, as JSON has it."""
    return {name: None if value != value else value for name, value in figures.items()}


def _read_edges(text: str | None) -> list[float] | None:
    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(
            f"{text!r} are not lengths", field="--edges", remedy="for example 58,147,280,499"
        ) from None
