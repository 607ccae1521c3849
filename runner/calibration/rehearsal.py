"""A short run of made-up requests: steps as they come in real runs, to fit and to judge by."""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from orsched.calibration.observed import observed
from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.costs import AffineCost
from orsched.data.instance import Instance
from orsched.data.requests import Requests
from orsched.data.step import Step, decode_rounds, prefill_stage
from orsched.data.workers import Worker
from orsched.heuristics.batch_builder import BatchBuilder
from orsched.runner.loop.live import execute_policy
from orsched.simulator.policy import Information, Policy, View

if TYPE_CHECKING:
    from orsched.calibration.observed import Observed
    from orsched.runner.devices.device import TorchDevice


class Rehearsal(Policy):
    """First come first served, but a prefill waits for a random number of free clients.

    So there are stages of all sizes. Numbers are drawn between 1 and a quarter of the clients, all
    powers of two as likely.
    """

    name = "rehearsal"
    information = Information.NONE

    def __init__(self, seed: int = 0) -> None:
        self.queue: deque[int] = deque()
        self.random = random.Random(seed)
        self.least = 1

    def on_arrival(self, view: View, request: int) -> None:
        """Append the request to the queue."""
        self.queue.append(request)

    def decide(self, view: View) -> Step | None:
        """Return a prefill stage once enough clients are free, else rounds until a finish."""
        if self.queue and (view.free_clients >= self.least or not view.running):
            stage = BatchBuilder(view).take(self.queue)
            if stage:
                most = max(1, view.worker.clients // 4)
                self.least = 2 ** self.random.randrange(most.bit_length())
                return prefill_stage(stage)
        return decode_rounds() if view.running else None


def made_up_requests(count: int, length: int, seed: int, like: Requests | None = None) -> Requests:
    """Return requests for a rehearsal.

    Args:
        count: how many.
        length: tokens that a slot holds; none is longer.
        seed: of the draws.
        like: requests whose pairs of lengths are drawn from, with replacement; without them
            prompts are uniform up to half of the length, and outputs up to what is left.

    Raises:
        InputError: none of ``like`` fits.
    """
    whole_number(length, "length", minimum=2)
    draw = np.random.default_rng(seed)
    if like is None:
        prompts = draw.integers(1, max(1, length // 2), count, endpoint=True)
        return Requests(prompts, draw.integers(1, length - prompts, endpoint=True))
    fitting = np.flatnonzero(like.prompt_tokens + like.output_tokens <= length)
    if len(fitting) == 0:
        raise InputError(
            f"no request fits into {length} tokens", field="length", remedy="give longer slots"
        )
    rows = fitting[draw.integers(0, len(fitting), count)]
    return Requests(like.prompt_tokens[rows], like.output_tokens[rows])


def rehearse(device: TorchDevice, requests: Requests, most_tokens: int, seed: int = 0) -> Observed:
    """Serve requests on a worker and return its steps.

    The time from the step before counts as part of a step: a plan knows no gaps.

    Args:
        device: the worker; nothing may be on it.
        requests: what to serve; arrivals do not matter.
        most_tokens: of a prefill stage; prompts over it are left out.
        seed: of the prompts, and of when to prefill.

    Raises:
        InputError: a request does not fit onto the worker.
    """
    total = requests.prompt_tokens + requests.output_tokens
    if int(total.max(initial=0)) > device.worker.slots.length:
        raise InputError(
            f"a request of {total.max()} tokens; a slot holds {device.worker.slots.length}",
            field="requests",
            remedy="leave the request out, or give longer slots",
        )
    kept = requests.prompt_tokens <= most_tokens
    instance = Instance(
        Requests(requests.prompt_tokens[kept], requests.output_tokens[kept]),
        (Worker(device.worker.slots.count, AffineCost(), most_tokens),),
        first_token="prefill",
    )
    policy, vocabulary = Rehearsal(seed), device.worker.shape.vocabulary
    done = execute_policy(instance, policy, device, seed, vocabulary)
    return observed(instance, done.schedule, gaps=True)
