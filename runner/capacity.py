"""Whether requests fit onto a worker: known before anything is loaded or started."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.common.errors import InputError
from orsched.data.schedule import INVALID
from orsched.metrics.timeline import Timeline
from orsched.runner.devices.choice import require_torch

if TYPE_CHECKING:
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule

_SPARE = 0.1
"""Share of the free memory that is left to everything but weights and caches."""


class Size(NamedTuple):
    """What a model takes.

    Attributes:
        positions: tokens of the longest request that it can hold.
        vocabulary: its tokens are below this.
        weight_bytes: of its weights.
        token_bytes: of one token in a cache.
    """

    positions: int
    vocabulary: int
    weight_bytes: int
    token_bytes: int


def model_config(name: str) -> Any:
    """Return the configuration of a preset, or of a model in a folder.

    Raises:
        InputError: there is neither, or its configuration is wrong or not supported.
        MissingDependencyError: torch or transformers is missing.
    """
    require_torch()
    from orsched.runner.worker.language_model import model_config as read

    return read(name)


@cache
def size_of(name: str, dtype: str, allow_pickle: bool = False) -> Size:
    """Return what a model takes, without loading it; raises ``InputError`` without weights."""
    import torch
    from transformers import AutoModelForCausalLM

    from orsched.runner.worker.config_json import blamed_on
    from orsched.runner.worker.language_model import shape_of
    from orsched.runner.worker.presets import PRESETS
    from orsched.runner.worker.weights import weight_files

    config = model_config(name)
    if name not in PRESETS:
        weight_files(Path(name), allow_pickle)
    numbers = getattr(torch, dtype)
    with torch.device("meta"), blamed_on(Path(name), "model"):
        model = AutoModelForCausalLM.from_config(config, dtype=numbers, trust_remote_code=False)
    weights = sum(parameter.nbytes for parameter in model.parameters())
    shape = shape_of(config)
    token = 2 * shape.layers * shape.kv_heads * shape.head_dim * numbers.itemsize
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
            f"{least} clients are in use, there are {slots} slots",
            field="slots",
            remedy=f"at least {least}, or a worker with fewer clients in the instance",
        )


def require_room(
    size: Size, slots: int, length: int, device: str, workers: int = 1, stored_tokens: int = 0
) -> None:
    """Raise ``InputError`` unless the model has the positions and the device the memory.

    Args:
        size: of the model.
        slots, length: of each worker.
        device: as torch names it.
        workers: so many share the device.
        stored_tokens: tokens of prefixes that each keeps beside its slots.
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
