"""Whether requests fit onto a worker: known before anything is loaded or started."""

from __future__ import annotations

import gc
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.data.memory import BlockMemory
from orsched.data.schedule import INVALID
from orsched.metrics.timeline import Timeline
from orsched.runner.devices.device import open_device
from orsched.runner.devices.settings import require_torch
from orsched.runner.worker.layout import Chunk

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.runner.devices.device import Device
    from orsched.runner.devices.settings import WorkerSettings
    from orsched.runner.worker.language_model import Shape


COUNTER_BYTES = 8  # a token of a slot has its number beside its cache

MOST_SLOTS = 2**20

T = TypeVar("T")

_SIGNS = ("out of memory", "alloc_failed")
"""In messages of libraries that do not ask torch for memory."""


class Footprint(NamedTuple):
    """Bytes that a worker takes."""

    weights: int  # of the model
    token: int  # of a token in a slot: keys and values of all layers, and the token itself

    @classmethod
    def of(cls, weights: int, cache: int) -> Footprint:
        """Return the footprint by the bytes of the weights and of a token's keys and values."""
        return cls(weights, cache + COUNTER_BYTES)

    def slots(self, length: int, limit: int) -> int:
        """Return how many slots of ``length`` tokens fit beside the weights, by bytes alone."""
        return max(0, (limit - self.weights) // (self.token * (length + 1)))


class Found(NamedTuple):
    """The largest batch of a length."""

    length: int  # tokens of each slot
    predicted: int  # slots by bytes alone
    slots: int  # slots with which the largest steps ran


def cache_bytes(shape: Shape, number_bytes: int) -> int:
    """Return what a token takes in a worker's caches."""
    return 2 * shape.layers * shape.kv_heads * shape.head_dim * number_bytes


def footprint(worker: Any) -> Footprint:
    """Return the footprint of a torch worker."""
    numbers = list(worker.model.parameters())
    weights = sum(part.nbytes for part in numbers)
    return Footprint.of(weights, cache_bytes(worker.shape, numbers[0].itemsize))


def read_bytes(text: str, field: str = "memory") -> int:
    """Return a number of bytes: digits, with KiB, MiB or GiB after them if wanted."""
    units = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "": 1}
    unit = next(name for name in units if text.endswith(name))
    digits = text.removesuffix(unit).strip()
    if not (digits.isascii() and digits.isdigit() and 0 < len(digits) <= 18):
        raise InputError(f"{text!r} is not a number of bytes", field=field, remedy="as in 512MiB")
    return whole_number(int(digits) * units[unit], field, minimum=1)


def largest(fits: Callable[[int], bool], guess: int, most: int = MOST_SLOTS) -> int:
    """Return the largest number up to ``most`` that fits, or 0; tried near a guess first.

    What fits with some slots is taken to fit with fewer. Above 100 slots the answer may be too
    small by one percent.
    """
    low, high, step = 0, most + 1, max(1, guess // 16)
    trial = min(max(1, guess), most)
    while high - low > max(1, low // 100):
        if fits(trial):
            low = trial
            trial = low + step if high > most else (low + high) // 2
        else:
            high = trial
            trial = high - step if low == 0 else (low + high) // 2
        step *= 2
        trial = min(max(trial, low + 1), high - 1)
    return low


def memory_profile(
    lengths: Sequence[int],  # tokens of a slot
    predict: Callable[[int], int],  # length -> slots by bytes alone
    fits: Callable[[int, int], bool],  # (slots, length) -> the largest steps of such a worker run
    most: int = MOST_SLOTS,  # slots that are enough
    report: Callable[[str], None] | None = None,  # told what is tried
) -> list[Found]:
    """Return the largest batch for each length."""
    found = []
    for length in lengths:
        whole_number(length, "length", minimum=1)

        def trial(slots: int, length: int = length) -> bool:
            if report is not None:
                report(f"{slots} slots of {length} tokens")
            return fits(slots, length)

        predicted = predict(length)
        slots = largest(trial, predicted, most)
        if slots == 0:
            raise InputError(
                f"no slot of {length} tokens fits into memory",
                field="length",
                remedy="give more memory, or shorter slots",
            )
        found.append(Found(length, predicted, slots))
    return found


def block_memory(found: Sequence[Found], block_tokens: int = 16) -> BlockMemory:
    """Return the memory model of a worker: as many tokens as at the length that holds fewest."""
    tokens = min(item.slots * item.length for item in found)
    blocks = tokens // block_tokens
    if blocks == 0:
        raise InputError(
            f"{tokens} tokens are less than a block",
            field="block_tokens",
            remedy="give shorter blocks, or more memory",
        )
    return BlockMemory(blocks, block_tokens, "whole")


def fits_on(
    settings: WorkerSettings, most_tokens: int, bytes_of: Footprint, limit: int | None = None
) -> Callable[[int, int], bool]:
    """Return a test of (slots, length): the largest steps of such a worker run without a crash.

    On a GPU the worker is built, prefills ``most_tokens`` at once and runs a round over full slots;
    running out of memory is an answer. ``limit`` is how many bytes weights and caches may take, on
    a CPU, where running out would stop the machine: a worker that needs more is not built.
    """
    import torch

    on_gpu = torch.device(settings.device).type == "cuda"

    def fits(slots: int, length: int) -> bool:
        if limit is not None and bytes_of.slots(length, limit) < slots:
            return False
        wanted = replace(settings, slots=slots, length=length, graph_sizes=0)
        ran = within_memory(lambda: largest_steps(open_device(wanted), most_tokens))
        gc.collect()  # what failed is let go of by now: the error that held it is gone
        if on_gpu:
            torch.cuda.empty_cache()
        return ran is not None

    return fits


def within_memory(action: Callable[[], T]) -> T | None:
    """Return what an action returns, or None if it ran out of a GPU's memory."""
    import torch

    try:
        return action()
    except RuntimeError as error:
        lines = str(error).lower()
        if isinstance(error, torch.OutOfMemoryError) or any(sign in lines for sign in _SIGNS):
            return None
        raise


def largest_steps(device: Device, most_tokens: int) -> int:
    """Prefill a full stage, run a round over full slots, and free them; return their number."""
    chunks: list[Chunk] = []
    left = most_tokens
    while len(chunks) < device.slots and left > 0:
        prompt = [0] * min(device.length, left)
        chunks.append(Chunk(len(chunks), 0, prompt, True, whole=prompt))
        left -= len(prompt)
    device.begin(chunks, [], 1, 0)
    device.end()
    if device.pretend([device.length - 1] * device.slots):
        device.begin([], list(range(device.slots)), 1, 0)
        device.end()
    for slot in range(device.slots):
        device.release(slot, 0)
    return device.slots


_SPARE = 0.1  # share of the free memory that is left to everything but weights and caches


class Size(NamedTuple):
    """What a model takes."""

    positions: int  # tokens of the longest request that it can hold
    vocabulary: int  # its tokens are below this
    weight_bytes: int  # of its weights
    token_bytes: int  # of one token in a cache


def model_config(name: str) -> Any:
    """Return the configuration of a preset, or of a model in a folder."""
    require_torch()
    from orsched.runner.worker.language_model import model_config as read

    return read(name)


def model_shape(name: str) -> Shape:
    """Return the shape of a preset, or of a model in a folder."""
    config = model_config(name)
    from orsched.runner.worker.language_model import shape_of

    return shape_of(config)


@cache
def size_of(name: str, dtype: str, allow_pickle: bool = False) -> Size:
    """Return what a model takes, without loading it; raises ``InputError`` without weights."""
    from orsched.runner.worker.language_model import PRESETS, model_on_paper, shape_of
    from orsched.runner.worker.model_folder import weight_files

    model_config(name)  # says if there is none
    if name not in PRESETS:
        weight_files(Path(name), allow_pickle)
    model = model_on_paper(name, dtype)
    weights = sum(parameter.nbytes for parameter in model.parameters())
    shape = shape_of(model.config)
    token = cache_bytes(shape, model.dtype.itemsize)
    return Size(shape.positions, shape.vocabulary, weights, token)


def free_bytes(device: str) -> int | None:
    """Return the free memory of a device, or None where it is unknown."""
    import torch

    if torch.device(device).type == "cuda":
        free: int = torch.cuda.mem_get_info(device)[0]
        return free
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")]
    return found[0] if found else None


def slots_needed(instance: Instance, plan: Schedule, follows: bool) -> int:
    """Return the slots that a worker needs: those that a plan uses, or all that a policy may."""
    if follows and len(plan.work):
        return int(plan.work.client.max()) + 1
    return max(worker.clients for worker in instance.workers)


def length_needed(instance: Instance, plan: Schedule, follows: bool) -> int:
    """Return the tokens that a slot must hold: those of the longest request.

    A static batch holds requests beyond their last token: as far as the plan says, and, where a
    policy may do otherwise, as far as the longest request that it may be held for.
    """
    requests = instance.requests
    if len(requests) == 0:
        return 1
    longest = int((requests.prompt_tokens + requests.output_tokens).max())
    held = plan.work.phase == INVALID
    if not held.any():
        return longest
    if not follows:
        return int(requests.prompt_tokens.max() + 2 * requests.output_tokens.max())
    line = Timeline(instance, plan)
    return max(longest, int((line.cached + line.row_rounds)[held].max()) + 1)


def require_slots(slots: int, least: int) -> None:
    """Raise ``InputError`` unless there are enough slots."""
    if slots < least:
        raise InputError(
            f"{least} clients are in use, but the device has {slots} slots",
            field="slots",
            remedy=f"at least {least}, or a worker with fewer clients in the instance",
        )


def require_room(
    size: Size, slots: int, length: int, device: str, workers: int = 1, stored_tokens: int = 0
) -> None:
    """Raise ``InputError`` unless the model has the positions and the device the memory.

    ``workers`` share the device; each keeps ``stored_tokens`` of prefixes beside its slots.
    """
    if length > size.positions:
        raise InputError(
            f"requests of {length:,} tokens; the model has {size.positions:,} positions",
            field="length",
            remedy="leave the longest requests out, or take a model with more positions",
        )
    free = free_bytes(device)
    if free is None:
        return
    usable = int((1 - _SPARE) * free) // workers
    fixed = size.weight_bytes + stored_tokens * size.token_bytes
    needed = fixed + slots * length * size.token_bytes
    if needed <= usable:
        return
    fit = (usable - fixed) // (length * size.token_bytes)
    raise InputError(
        f"a worker with {slots} slots of {length:,} tokens needs {_gib(needed)} GiB, "
        f"{_gib(usable)} GiB are free on {device}",
        field="slots",
        remedy=f"{fit} slots fit: give the instance's worker that many clients, or leave the "
        "longest requests out"
        if fit > 0
        else "the weights alone do not fit: take a smaller model, or a shorter dtype"
        if not stored_tokens
        else "weights and stored prefixes do not fit: a smaller model, or fewer memory blocks",
    )


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f}"
