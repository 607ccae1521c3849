"""Torch workers by the arguments of their settings."""

from orsched.runner.devices.settings import WorkerSettings
from orsched.runner.worker.torch_worker import TorchWorker


def torch_worker(*given, graphs=None, **settings):
    return TorchWorker(WorkerSettings(*given, **settings), graphs)
