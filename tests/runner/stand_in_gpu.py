"""A stand-in for a GPU on the CPU: torch's device functions, as strict as on a real one."""

from contextlib import contextmanager
from time import perf_counter
from typing import NamedTuple

import torch
from torch.overrides import TorchFunctionMode

FREE = 64 << 30


def indexed(device):
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


def _moved(value):
    is_name = isinstance(value, str) and value.startswith("cuda")
    if is_name or (isinstance(value, torch.device) and value.type == "cuda"):
        indexed(value)
        return torch.device("cpu")
    return value


class Event:
    def __init__(self, enable_timing):
        self.at = 0.0

    def record(self):
        self.at = perf_counter()

    def query(self):
        return True

    def synchronize(self):
        """Nothing to wait for."""

    def elapsed_time(self, other):
        return (other.at - self.at) * 1e3


class Streams:
    """Streams and graphs in name only: what a capture asks of torch.cuda is written down."""

    def __init__(self, monkeypatch):
        self.log: list[tuple] = []
        self.now, self.fails, pools = "main", False, iter("abc")
        for name, value in {
            "Stream": lambda device=0: (_moved(device), Stream(self, "side"))[1],
            "current_stream": lambda device=0: (_moved(device), Stream(self, self.now))[1],
            "stream": self.stream, "graph": self.graph, "CUDAGraph": lambda: Graph(self),
            "graph_pool_handle": lambda: next(pools),
        }.items():  # fmt: skip
            monkeypatch.setattr(torch.cuda, name, value)

    @contextmanager
    def stream(self, which):
        before, self.now = self.now, which.name
        try:
            yield
        finally:
            self.now = before

    @contextmanager
    def graph(self, which, pool, stream, capture_error_mode):
        self.now = stream.name
        self.log.append(("capture", pool, stream.name, capture_error_mode))
        if self.fails:
            raise RuntimeError("not permitted")
        yield
        self.now = "main"


class Stream(NamedTuple):
    of: Streams
    name: str

    def wait_stream(self, other):
        self.of.log.append((self.name, "waits for", other.name))


class Graph(NamedTuple):
    of: Streams

    def replay(self):
        self.of.log.append(("replay", self.of.now))


@contextmanager
def one_gpu(monkeypatch):
    """Let torch have one GPU, whose functions want an index."""
    asked: list[str] = []

    def strict(name, value):
        def function(device=0):
            asked.append(name)
            indexed(device)
            return value

        return function

    here, _ = torch.cuda, Streams(monkeypatch)
    for name, value in {
        "set_device": None, "synchronize": None, "get_device_name": "stand-in",
        "mem_get_info": (FREE, FREE), "max_memory_allocated": 12345, "memory_reserved": 0,
        "get_device_capability": (9, 0),
    }.items():  # fmt: skip
        monkeypatch.setattr(here, name, strict(name, value))
    for name, value in {
        "is_available": lambda: True, "device_count": lambda: 1, "current_device": lambda: 0,
        "Event": Event, "empty_cache": lambda: None,
    }.items():  # fmt: skip
        monkeypatch.setattr(here, name, value)
    monkeypatch.setattr(torch.random, "fork_rng", _fork_rng)
    with OnCpu():
        yield asked


@contextmanager
def _fork_rng(devices):
    for device in devices:
        indexed(device)
    state = torch.get_rng_state()
    yield
    torch.set_rng_state(state)
