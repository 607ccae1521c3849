"""``orsched predict proxy``: the papers' proxy models on transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from orsched.cli.artefacts import check_paths
from orsched.cli.options import FORMAT, with_options
from orsched.cli.output import print_rows, remark
from orsched.cli.progress import ProgressPrinter
from orsched.common.scalars import require_suffix

_FILE = click.Path(dir_okay=False, path_type=Path)
_KINDS = ("bert_ssjf", "distilbert_mico", "bert_ranker")
_HEADS = (
    "regression_l1", "regression_mse", "ordinal_l1", "ordinal_mse", "classes", "binary",
)  # fmt: skip


@click.command("proxy", short_help="Train the papers' proxy models (needs torch).")
@click.argument("data", type=_FILE, nargs=-1, required=True)
@click.option("-o", "--output", type=_FILE, required=True, help="The predictor's file (.json).")
@click.option(
    "--kind", type=click.Choice(_KINDS), default=_KINDS[0], show_default=True, help="Whose model."
)
@click.option(
    "--head", type=click.Choice(_HEADS), help="Head of bert_ssjf (default: regression_l1)."
)
@click.option(
    "--model",
    default="small",
    show_default=True,
    help="Folder of config.json and safetensors; or small or full, with random weights.",
)
@click.option(
    "--tokenizer",
    type=click.Path(path_type=Path),
    help="A tokenizer.json, or its folder, for prompts and replies (default: the model's, a rule).",
)
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, or as torch.")
@click.option("--checkpoint", type=_FILE, help="A file (.safetensors) to go on from after a kill.")
@click.option("--batch", type=click.IntRange(1, 4096), help="Rows a step (default: the paper's).")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of all that is drawn.")
@with_options(FORMAT)
def proxy_command(
    data: tuple[Path, ...],
    output: Path,
    kind: str,
    head: str | None,
    model: str,
    tokenizer: Path | None,
    device: str,
    checkpoint: Path | None,
    batch: int | None,
    seed: int,
    style: str,
) -> None:
    """Train a proxy model on DATA, write it, and print its figures on conversations left out.

    The weights are written beside the file, as .safetensors. Nothing is downloaded, and no code of
    a folder is run.

    Example: orsched predict proxy chat.jsonl -o ssjf.json --checkpoint run.safetensors
    """
    from orsched.prediction import (
        evaluate,
        read_labelled_prompts,
        save_predictor,
        train_proxy,
    )
    from orsched.prediction.data import joined

    require_suffix(output, (".json",), "--output")
    check_paths({"output": output}, [str(path) for path in data])
    if checkpoint is not None:
        require_suffix(checkpoint, (".safetensors",), "--checkpoint")
    _require_apart(output, checkpoint)
    with ProgressPrinter("training") as shown:
        rows = joined(
            [read_labelled_prompts(p, tokenizer=tokenizer, progress=shown.say) for p in data]
        )
        fitted = train_proxy(
            rows, kind, head=head, model=model, tokenizer=tokenizer, seed=seed, device=device,
            checkpoint=checkpoint, batch=batch, progress=shown.say,
        )  # fmt: skip
        save_predictor(fitted, output, seed=seed)
        shown.say("evaluating")
        test = rows.part("test", seed)
        figures: dict[str, Any] = {} if len(test) == 0 else evaluate(fitted, test, latency=False)
    remark(f"{kind} trained on {len(rows):,} rows, written to {output} and its .safetensors")
    shown_row = {name: None if value != value else value for name, value in figures.items()}
    print_rows([{"kind": kind, "head": fitted.targets.head, **shown_row}] if figures else [], style)


def _require_apart(output: Path, checkpoint: Path | None) -> None:
    from orsched.common.errors import InputError

    if checkpoint is not None and checkpoint == output.with_suffix(".safetensors"):
        raise InputError(
            "is where the predictor's weights go", field="--checkpoint", remedy="name another"
        )
