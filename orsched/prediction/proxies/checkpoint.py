"""Checkpoints of a training: one safetensors file, whole or not there, that a run goes on from."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.files.atomic import write_bytes
from orsched.files.text import locating, parse_json, read_bytes
from orsched.runner.worker.model_folder import blamed_on

if TYPE_CHECKING:
    import os

_AGAIN = "remove the file to train from the start"


@dataclass
class Progress:
    """How far a training is.

    Attributes:
        phase, epoch, step: what comes next.
        best: the lowest loss on held-out rows so far, None before the first.
        since: epochs of this phase since then.
        losses: on held-out rows, one an epoch.
        shown: sum of the losses of this epoch's steps.
    """

    phase: int = 0
    epoch: int = 0
    step: int = 0
    best: float | None = None
    since: int = 0
    losses: list[float] = field(default_factory=list)
    shown: float = 0.0


@dataclass
class Snapshot:
    """A training as it stood: progress, tensors by name, and what it was a training of.

    Attributes:
        progress: how far it was.
        tensors: ``now.*`` the network, ``best.*`` the best so far, ``adam.*`` of the optimiser.
        run: identifies rows, recipe and seed.
        machine: device and version of torch, on which equal bits depend.
    """

    progress: Progress
    tensors: dict[str, Any]
    run: str
    machine: str


def write_checkpoint(path: str | os.PathLike[str], snapshot: Snapshot) -> None:
    """Write a checkpoint atomically; raises ``InputError`` where it cannot be written."""
    from safetensors.torch import save

    head = {"run": snapshot.run, "machine": snapshot.machine, **asdict(snapshot.progress)}
    tensors = {name: t.detach().cpu().contiguous() for name, t in snapshot.tensors.items()}
    write_bytes(path, save(tensors, {"orsched": json.dumps(head)}))


def read_checkpoint(path: str | os.PathLike[str], run: str) -> Snapshot:
    """Return a checkpoint of this run.

    Raises:
        InputError: it is damaged, or of another run.
    """
    from pathlib import Path

    from safetensors.torch import load

    raw = read_bytes(path)
    try:
        with blamed_on(Path(path), field="checkpoint"):
            tensors = load(raw)
    except InputError as error:
        raise InputError(
            "is no checkpoint, or is damaged", file=error.file, field="checkpoint", remedy=_AGAIN
        ) from None
    with locating(path):
        values = _head(raw)
        if values.get("run") != run:
            raise InputError(
                "is of a training with other rows, seed or numbers",
                field="checkpoint",
                remedy=_AGAIN + ", or name another",
            )
        return Snapshot(_progress(values), tensors, run, str(values.get("machine")))


def _head(raw: bytes) -> dict[str, Any]:
    """Return the metadata; safetensors has checked that the length of the header fits."""
    try:
        size = int.from_bytes(raw[:8], "little")
        text = parse_json(raw[8 : 8 + size].decode())["__metadata__"]["orsched"]
        found = parse_json(text)
    except (KeyError, TypeError, UnicodeDecodeError):
        found = None
    if not isinstance(found, dict):
        raise InputError("is no checkpoint of a training", field="checkpoint", remedy=_AGAIN)
    return found


def _progress(values: dict[str, Any]) -> Progress:
    def number(name: str) -> float | None:
        value = values.get(name)
        fits = value is None or (type(value) in (int, float) and value - value == 0)
        if not fits:
            raise InputError("must be a number", field=name, remedy=_AGAIN)
        return None if value is None else float(value)

    counts = {
        name: whole_number(values.get(name), name, remedy=_AGAIN)
        for name in ("phase", "epoch", "step", "since")
    }
    losses = values.get("losses")
    if not isinstance(losses, list) or not all(type(x) in (int, float) for x in losses):
        raise InputError("must be numbers", field="losses", remedy=_AGAIN)
    return Progress(
        **counts, best=number("best"), losses=list(losses), shown=number("shown") or 0.0
    )
