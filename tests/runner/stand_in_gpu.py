"""A stand-in for a GPU on the CPU: torch's device functions, as strict as on a real one."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

if TYPE_CHECKING:
    import pytest

FREE = 64 << 30


def indexed(device: Any) -> int:
    """Return a GPU's index; a GPU without one is refused, as torch.cuda.set_device does."""
    if isinstance(device, int):
        return device
    index = torch.device(device).index
    if index is None:
        raise ValueError(f"Expected a torch.device with a specified index, but got:{device}")
    return index


class OnCpu(TorchFunctionMode):
    """Sends what goes to ``cuda:0`` to the CPU, and refuses what goes to ``cuda``."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func is torch.device:
            return func(*args, **kwargs)
        if getattr(func, "__name__", "") == "pin_memory":
            return args[0]
        if "device" in kwargs:
            kwargs["device"] = _moved(kwargs["device"])
        args = tuple(_moved(each) for each in args)
        return func(*args, **kwargs)


def _moved(value: Any) -> Any:
    is_name = isinstance(value, str) and value.startswith("cuda")
    if is_name or (isinstance(value, torch.device) and value.type == "cuda"):
        indexed(value)
        return torch.device("cpu")
    return value


class Event:
    """An event on the host's clock."""

    def __init__(self, enable_timing: bool) -> None:
        self.at = 0.0

    def record(self) -> None:
        self.at = perf_counter()

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def elapsed_time(self, other: Event) -> float:
        return (other.at - self.at) * 1e3


class Stream:
    """A stream, in name only."""

    def __init__(self, device: Any = 0) -> None:
        indexed(device)

    def wait_stream(self, other: Stream) -> None:
        """All run in order anyway."""


class Graph:
    """A graph, in name only."""

    def replay(self) -> None:
        """Do nothing."""


@contextmanager
def one_gpu(monkeypatch: pytest.MonkeyPatch):
    """Let torch have one GPU, whose functions want an index."""
    asked: list[str] = []

    def strict(name: str, value: Any) -> Any:
        def function(device: Any = 0) -> Any:
            asked.append(name)
            indexed(device)
            return value

        return function

    here = torch.cuda
    for name, value in {
        "set_device": None,
        "synchronize": None,
        "get_device_name": "stand-in",
        "mem_get_info": (FREE, FREE),
        "max_memory_allocated": 12345,
        "memory_reserved": 0,
        "get_device_capability": (9, 0),
    }.items():
        monkeypatch.setattr(here, name, strict(name, value))
    for name, value in {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "Event": Event,
        "Stream": Stream,
        "current_stream": Stream,
        "stream": lambda stream: nullcontext(),
        "graph": lambda *_, **__: nullcontext(),
        "CUDAGraph": Graph,
        "graph_pool_handle": lambda: (0, 0),
        "empty_cache": lambda: None,
    }.items():
        monkeypatch.setattr(here, name, value)
    monkeypatch.setattr(torch.random, "fork_rng", _fork_rng)
    with OnCpu():
        yield asked


@contextmanager
def _fork_rng(devices: list[Any]):
    for device in devices:
        indexed(device)
    state = torch.get_rng_state()
    yield
    torch.set_rng_state(state)
