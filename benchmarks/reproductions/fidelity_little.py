"""The recipe where a server has little to do: runs that are simulated from other times."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.reproductions import fidelity_setting as setting
from orsched.calibration import MeasuredRun, Server, Times, fit_run

if TYPE_CHECKING:
    from orsched.data.requests import Requests

SERVER = Server(128, None, setting.BLOCK_TOKENS, setting.BUDGET)
STRETCH = (3, 8, 20)
"""Factors of the times between arrivals."""

HOST_NS = 600_000
NOISE_NS = 2_000_000
SEED = 1


def little_load(requests: Requests) -> list[dict[str, Any]]:
    """Fit a model's shape to runs that took the times of its profile, a host's and noise.

    No such run was measured: these say whether the recipe finds its way where none waits for a
    place, and times to the first token are a tenth of a second.
    """
    true = replace(setting.kernel_profile(), fixed_ns=HOST_NS)
    found = []
    for stretch in STRETCH:
        some = replace(requests, arrival_ns=requests.arrival_ns * stretch)
        arrival, tokens = some.arrival_ns, some.output_tokens
        run = MeasuredRun("simulated", some, Times(arrival, arrival, arrival, tokens), 0)
        times = run.simulate(true, SERVER)[2]
        dice = np.random.default_rng(SEED)
        first = times.first + dice.exponential(NOISE_NS, len(arrival)).astype(np.int64)
        last = times.last + dice.exponential(NOISE_NS, len(arrival)).astype(np.int64)
        last = np.maximum(first, last)
        fitted = fit_run(replace(run, times=Times(arrival, first, last, tokens)), SERVER,
                         setting.RTX_4090.shape)  # fmt: skip
        errors = fitted.errors(rest=True)
        row: dict[str, Any] = {"requests/s": f"{len(arrival) / (arrival[-1] / 1e9):.1f}"}
        row["mean TTFT"] = f"{fitted.measured['mean TTFT']:.3f} s"
        for name in ("makespan", "mean TPOT", "mean TTFT"):
            row[f"{name} %"] = f"{100 * errors[name]:+.1f}"
        found.append(row)
    return found
