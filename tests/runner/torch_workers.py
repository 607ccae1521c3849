"""Torch workers by the arguments of their settings."""

from __future__ import annotations

from typing import Any

from orsched.runner.devices.settings import WorkerSettings
from orsched.runner.worker.torch_worker import TorchWorker


def torch_worker(*given: Any, graphs: Any = None, **settings: Any) -> TorchWorker:
    """Return a worker; the arguments are those of ``WorkerSettings``."""
    return TorchWorker(WorkerSettings(*given, **settings), graphs)
