"""Shipped instances, generators and readers of foreign trace formats.

``with_arrivals`` gives an instance other arrival times, ``sampled`` draws requests from one, and
``draw_sources`` makes one from a mix of sources, ``predict`` gives it predicted lengths.
"""

if __name__ != "orsched.instances":
    raise ImportError("use 'import orsched.instances', not 'import instances'")

from orsched.common.lazy_names import lazy_names

_HOME = {
    "orsched.instances.sources": ("draw_sources", "load_mix"),
    "orsched.instances.predictions": ("predict",),
    "orsched.instances.arrivals": ("read_arrivals", "sampled", "with_arrivals"),
}

__all__ = ["draw_sources", "load_mix", "predict", "read_arrivals", "sampled", "with_arrivals"]
__getattr__ = lazy_names("orsched.instances", _HOME)
