"""Shipped instances, generators and readers of foreign trace formats.

``with_arrivals`` gives an instance other arrival times, ``sampled`` draws requests from one, and
``draw_sources`` makes one from a mix of sources, ``predict`` gives it predicted lengths.
"""

if __name__ != "orsched.instances":
    raise ImportError("use 'import orsched.instances', not 'import instances'")

from importlib import import_module
from typing import Any

_HOME = {
    "draw_sources": "orsched.instances.sources",
    "load_mix": "orsched.instances.sources",
    "predict": "orsched.instances.predictions",
    "read_arrivals": "orsched.instances.arrivals",
    "sampled": "orsched.instances.arrivals",
    "with_arrivals": "orsched.instances.arrivals",
}

__all__ = ["draw_sources", "load_mix", "predict", "read_arrivals", "sampled", "with_arrivals"]


def __getattr__(name: str) -> Any:
    """Import a public function from its module at first use (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module 'orsched.instances' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
