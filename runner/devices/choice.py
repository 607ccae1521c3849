"""Which device a worker gets, and numbers of which type: for runs and for calibrations."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from orsched.common.errors import InputError, unavailable
from orsched.runner.worker.device_name import settled

if TYPE_CHECKING:
    from orsched.runner.devices.settings import WorkerSettings
    from orsched.runner.worker.torch_worker import TorchWorker


class Chosen(NamedTuple):
    """A device that torch has, a GPU with its index, and the type of weights and caches on it."""

    device: str
    dtype: str

    @property
    def on_gpu(self) -> bool:
        """Whether the device is a GPU."""
        return self.device.startswith("cuda")


def require_torch() -> None:
    """Raise ``MissingDependencyError`` where torch or transformers is missing."""
    try:
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as error:
        raise unavailable(
            error,
            "a torch worker needs torch and transformers: pip install 'orsched[runner]' "
            "(a run does without them on --worker virtual)",
        ) from None


def choose(device: str = "auto", dtype: str | None = None) -> Chosen:
    """Return a device by torch's name for it, or the one that ``auto`` stands for, settled.

    ``auto`` is a GPU where there is one. Without a type of numbers it is bfloat16 on a GPU, else
    float32.

    Raises:
        InputError: torch does not have the device.
        MissingDependencyError: torch or transformers is missing.
    """
    require_torch()
    import torch

    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    else:
        try:
            device = settled(device)
            torch.empty(1, device=device)
        except (RuntimeError, AssertionError) as error:
            raise InputError(
                f"torch cannot use {device!r}: {str(error).splitlines()[0]}",
                field="device",
                remedy="auto, cpu, cuda or cuda:1",
            ) from None
    usual = "bfloat16" if device.startswith("cuda") else "float32"
    return Chosen(settled(device), dtype or usual)


def built(settings: WorkerSettings, device: str | None = None) -> TorchWorker:
    """Return a worker of this process that is ready, on a device if another name is given."""
    import torch

    from orsched.runner.worker.graphs import Budget
    from orsched.runner.worker.torch_worker import TorchWorker

    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    where = device or settings.device
    arguments = (settings.model, settings.slots, settings.length, where)
    worker = TorchWorker(
        *arguments,
        settings.dtype,
        settings.seed,
        allow_pickle=settings.allow_pickle,
        stored_blocks=settings.stored_blocks,
        block_tokens=settings.block_tokens,
        budget=Budget(settings.graph_seconds, settings.graph_bytes),
    )
    worker.prepare()
    return worker
