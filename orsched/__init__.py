"""orsched: scheduling of LLM inference as an optimisation problem."""

from orsched._version import __version__

__all__ = ["__version__"]
