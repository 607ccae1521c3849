"""The training loop: phases, early stopping, checkpoints; the same code on CPU and GPU."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.files.document import write_bytes
from orsched.files.text import locating, parse_json, read_bytes
from orsched.prediction.proxies.network import forward, loss_of, sample_loss
from orsched.prediction.proxies.token_rows import padded
from orsched.runner.worker.model_folder import blamed_on

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from orsched.prediction.proxies.network import Phase, Recipe

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]


_AGAIN = "remove the file to train from the start"


@dataclass
class Progress:
    """How far a training is; phase, epoch and step are those that come next."""

    phase: int = 0
    epoch: int = 0
    step: int = 0
    best: float | None = None  # lowest loss on held-out rows so far, None before the first
    since: int = 0  # epochs of this phase since then
    losses: list[float] = field(default_factory=list)  # on held-out rows, one an epoch
    shown: float = 0.0  # sum of the losses of this epoch's steps


@dataclass
class Snapshot:
    """A training as it stood: progress, tensors by name, and what it was a training of."""

    progress: Progress  # how far it was
    tensors: dict[str, Any]  # ``now.*`` network, ``best.*`` so far, ``adam.*`` optimiser
    run: str  # identifies rows, recipe and seed
    machine: str  # device and version of torch, on which equal bits depend


def write_checkpoint(path: str | os.PathLike[str], snapshot: Snapshot) -> None:
    """Write a checkpoint atomically; raises ``InputError`` where it cannot be written."""
    from safetensors.torch import save

    head = {"run": snapshot.run, "machine": snapshot.machine, **asdict(snapshot.progress)}
    tensors = {name: t.detach().cpu().contiguous() for name, t in snapshot.tensors.items()}
    write_bytes(path, save(tensors, {"orsched": json.dumps(head)}))


def read_checkpoint(path: str | os.PathLike[str], run: str) -> Snapshot:
    """Return a checkpoint of this run; ``InputError`` if it is damaged or of another."""
    from pathlib import Path

    from safetensors.torch import load

    raw = read_bytes(path)
    try:
        with blamed_on(Path(path), field="checkpoint"):
            tensors = load(raw)
    except InputError as error:
        raise InputError(
            "is not a checkpoint, or is damaged", file=error.file, field="checkpoint", remedy=_AGAIN
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
        raise InputError("is not a checkpoint of a training", field="checkpoint", remedy=_AGAIN)
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


EVALUATION_BATCH = 64


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of tokens, one a prompt, with what the head is to give for each of its samples."""

    tokens: Sequence[Ints]  # one row a prompt
    labels: Floats  # of all samples, those of the first prompt first
    samples: Ints | None = None  # how many each prompt has; None: one each

    def chosen(self, prompts: NDArray[Any]) -> NDArray[Any]:
        """Return the places of the prompts' samples in ``labels``, prompt by prompt."""
        if self.samples is None:
            return prompts
        ends = np.cumsum(self.samples)
        return np.concatenate([np.arange(ends[p] - self.samples[p], ends[p]) for p in prompts])


class Training:
    """A training of a network on rows, which a checkpoint can carry on.

    What is drawn in a step depends on the seed and the step's place alone, so a training that is
    carried on ends with the same bits as one that was not interrupted, on the same device, number
    of threads and version of torch. GPUs may add gradients in another order each time.
    """

    def __init__(
        self,
        network: Any,
        recipe: Recipe,
        rows: Rows,
        held: Rows,
        *,
        pad: int,
        device: str,
        seed: int,
        weights: Floats | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        every: int = 500,
        say: Callable[[str], None] | None = None,
    ) -> None:
        """Keep what is trained; ``every`` steps, and after each epoch, it is checkpointed."""
        import torch

        self.network, self.recipe, self.rows, self.held = network.to(device), recipe, rows, held
        self.pad, self.device, self.seed = pad, device, seed
        self.weights = None if weights is None else self._tensor(weights)
        self.checkpoint, self.every, self.say = checkpoint, every, say or (lambda words: None)
        self.progress = Progress()
        self.best: dict[str, Any] = {}
        self.machine = f"{torch.device(device).type}, torch {torch.__version__}"
        self.run_name = _fingerprint(recipe, rows, held, seed, network)
        self._moments: dict[str, Any] = {}

    def run(self) -> list[float]:
        """Train; return the losses on held-out rows, one an epoch. The network is the best one.

        Raises ``InputError``: a checkpoint is damaged or of another run, or the loss is not finite.
        """
        if self.checkpoint is not None and os.path.exists(self.checkpoint):
            self._resume()
        with drawing(self.device):
            for place in range(self.progress.phase, len(self.recipe.phases)):
                self._phase(place, self.recipe.phases[place])
                self.network.load_state_dict(self.best)
                self.progress.phase, self.progress.epoch, self.progress.step = place + 1, 0, 0
                self.progress.since = 0
                self._moments = {}
                self._write(None)
        return self.progress.losses

    def _phase(self, place: int, phase: Phase) -> None:
        import torch

        for parameter in self.network["encoder"].parameters():
            parameter.requires_grad_(not phase.frozen)
        trained = [p for p in self.network.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=phase.rate)
        self._load_moments(optimizer, trained)
        steps = -(-len(self.rows.tokens) // self.recipe.batch)
        while self.progress.epoch < phase.epochs and self.progress.since < self.recipe.patience:
            self._epoch(place, phase, steps, optimizer)

    def _epoch(self, place: int, phase: Phase, steps: int, optimizer: Any) -> None:
        now = self.progress
        order = np.random.default_rng([self.seed, place, now.epoch]).permutation(
            len(self.rows.tokens)
        )
        while now.step < steps:
            done = now.epoch * steps + now.step
            rate = phase.rate * (1 - done / (phase.epochs * steps))
            first = now.step * self.recipe.batch
            drawn = [self.seed, place, now.epoch, now.step]
            now.shown += self._step(
                order[first : first + self.recipe.batch], phase, rate, drawn, optimizer
            )
            now.step += 1
            if now.step % self.every == 0 and now.step < steps:
                self._write(optimizer)
                self.say(f"{self._words(phase)}, step {now.step} of {steps}")
        self._close_epoch(phase, steps)
        self._write(optimizer)

    def _step(
        self, chosen: NDArray[Any], phase: Phase, rate: float, drawn: list[int], optimizer: Any
    ) -> float:
        import torch

        torch.manual_seed(int(np.random.SeedSequence(drawn).generate_state(1)[0]))
        self.network.train()
        if phase.frozen:
            self.network["encoder"].eval()
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        loss = self._loss(self.rows, chosen)
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    def _loss(self, rows: Rows, chosen: NDArray[Any]) -> Any:
        import torch

        numbers, mask = padded([rows.tokens[i] for i in chosen.tolist()], self.pad)
        outputs = forward(
            self.network,
            torch.from_numpy(numbers).to(self.device),
            torch.from_numpy(mask).to(self.device),
        )
        labels = self._tensor(rows.labels[rows.chosen(chosen)])
        if rows.samples is None:
            return loss_of(self.recipe.head, outputs, labels, self.weights)
        counts = rows.samples[chosen]
        repeats = torch.from_numpy(counts).to(self.device)
        shares = self._tensor(np.repeat(1 / counts, counts))
        outputs = outputs.repeat_interleave(repeats, dim=0)
        return sample_loss(self.recipe.head, outputs, labels, shares, self.weights)

    def _close_epoch(self, phase: Phase, steps: int) -> None:
        now = self.progress
        loss, mean = self._held_loss(), now.shown / steps
        if not np.isfinite([loss, mean]).all():
            raise InputError("the loss is not finite", field="phases", remedy="lower the rates")
        now.losses.append(loss)
        self.say(f"{self._words(phase)}: loss {mean:.4g}, held out {loss:.4g}")
        if now.best is None or loss < now.best:
            now.best, now.since = loss, 0
            self.best = {name: t.detach().clone() for name, t in self.network.state_dict().items()}
        else:
            now.since += 1
        now.epoch, now.step, now.shown = now.epoch + 1, 0, 0.0

    def _held_loss(self) -> float:
        import torch

        self.network.eval()
        count, total = len(self.held.tokens), 0.0
        with torch.no_grad():
            for first in range(0, count, EVALUATION_BATCH):
                chosen = np.arange(first, min(first + EVALUATION_BATCH, count))
                total += float(self._loss(self.held, chosen)) * len(chosen)
        return total / count

    def _words(self, phase: Phase) -> str:
        now = self.progress
        return f"phase {now.phase + 1}, epoch {now.epoch + 1} of {phase.epochs}"

    def _tensor(self, values: Floats) -> Any:
        import torch

        return torch.as_tensor(values, dtype=torch.float32, device=self.device)

    def _write(self, optimizer: Any) -> None:
        if self.checkpoint is None:
            return
        tensors = {f"now.{name}": t for name, t in self.network.state_dict().items()}
        tensors |= {f"best.{name}": t for name, t in self.best.items()}
        if optimizer is not None:
            for place, moments in optimizer.state_dict()["state"].items():
                tensors |= {f"adam.{place}.{name}": t for name, t in moments.items()}
        # Safetensors refuses tensors that share memory; the best is a copy, the rest is apart.
        snapshot = Snapshot(self.progress, tensors, self.run_name, self.machine)
        write_checkpoint(self.checkpoint, snapshot)

    def _resume(self) -> None:
        assert self.checkpoint is not None
        found = read_checkpoint(self.checkpoint, self.run_name)
        self.progress = found.progress
        parts: dict[str, dict[str, Any]] = {"now": {}, "best": {}, "adam": {}}
        for name, tensor in found.tensors.items():
            part, _, rest = name.partition(".")
            parts.setdefault(part, {})[rest] = tensor
        for part in ("now", "best"):
            if part == "now" or parts[part]:
                self._require_same(parts[part])
        self.network.load_state_dict(parts["now"])
        self.best = {name: tensor.to(self.device) for name, tensor in parts["best"].items()}
        if not self.best and (found.progress.epoch or found.progress.phase):
            raise self._damaged("has no best network")
        self._moments = parts["adam"]
        self.say(
            "carried on from the checkpoint"
            if found.machine == self.machine
            else f"carried on from a checkpoint of {found.machine}: the last bits may differ"
        )

    def _require_same(self, tensors: dict[str, Any]) -> None:
        wanted = {name: tuple(t.shape) for name, t in self.network.state_dict().items()}
        if {name: tuple(t.shape) for name, t in tensors.items()} != wanted:
            raise self._damaged("has tensors of another network")

    def _load_moments(self, optimizer: Any, trained: list[Any]) -> None:
        if not self._moments:
            return
        state: dict[int, dict[str, Any]] = {}
        for name, tensor in self._moments.items():
            place, _, moment = name.partition(".")
            if not place.isdecimal() or int(place) >= len(trained):
                raise self._damaged("has moments of another network")
            shape = () if moment == "step" else tuple(trained[int(place)].shape)
            if tuple(tensor.shape) != shape:
                raise self._damaged("has moments of another network")
            state.setdefault(int(place), {})[moment] = tensor
        names = {frozenset(moments) for moments in state.values()}
        if names != {frozenset(("step", "exp_avg", "exp_avg_sq"))} or len(state) != len(trained):
            raise self._damaged("lacks moments of the optimiser")
        optimizer.load_state_dict(
            {"state": state, "param_groups": optimizer.state_dict()["param_groups"]}
        )
        self._moments = {}

    def _damaged(self, problem: str) -> InputError:
        return InputError(
            problem,
            file=os.fspath(self.checkpoint or ""),
            field="checkpoint",
            remedy="remove the file to train from the start",
        )


@contextmanager
def drawing(device: str) -> Iterator[None]:
    """Leave the state of torch's random numbers outside the block as it was."""
    import torch

    chosen = torch.device(device)
    with torch.random.fork_rng([chosen.index] if chosen.type == "cuda" else []):
        yield


def _fingerprint(recipe: Recipe, rows: Rows, held: Rows, seed: int, network: Any) -> str:
    """Return what identifies a run: recipe, seed, rows, and the weights it starts from."""
    digest = hashlib.sha256(repr((asdict(recipe), seed)).encode())
    for part in (rows, held):
        digest.update(part.labels.tobytes())
        if part.samples is not None:
            digest.update(b"samples" + part.samples.tobytes())
        for row in part.tokens:
            digest.update(row.tobytes() + b"|")
    for name, tensor in network.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().numpy().tobytes())
    return digest.hexdigest()
