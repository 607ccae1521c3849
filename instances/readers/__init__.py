"""Readers of foreign trace formats: Azure, BurstGPT, Mooncake, Vidur, vLLM and others."""

from orsched.instances.readers.detection import detect
from orsched.instances.readers.formats import FORMATS, format_names
from orsched.instances.readers.reading import read
from orsched.instances.readers.report import ReadReport, Trace
from orsched.instances.readers.spread import spread_arrivals

__all__ = [
    "FORMATS",
    "ReadReport",
    "Trace",
    "detect",
    "format_names",
    "read",
    "spread_arrivals",
]
