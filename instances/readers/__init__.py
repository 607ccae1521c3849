"""Readers of foreign trace formats: Azure, BurstGPT, Mooncake, Vidur, vLLM and others."""

from orsched.instances.readers.detection import detect, read
from orsched.instances.readers.formats import FORMATS, format_names
from orsched.instances.readers.traces import ReadReport, Trace, spread_arrivals

__all__ = [
    "FORMATS",
    "ReadReport",
    "Trace",
    "detect",
    "format_names",
    "read",
    "spread_arrivals",
]
