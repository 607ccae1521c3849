"""Instances whose first tokens come from decode rounds, in short."""

from orsched import Instance, Requests


def decoding(prompts, outputs, workers, **columns):
    """Return the instance of these requests on one or several workers."""
    return Instance(Requests(prompts, outputs, **columns), workers, first_token="decode")
