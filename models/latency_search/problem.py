"""An instance as the arrays of a search: requests, the workers' times and limits, the objective."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from orsched.common.errors import InputError
from orsched.common.units import MAX_TOKENS
from orsched.costs.step_lines import has_step_lines, step_lines
from orsched.metrics.objective_values import WeightedTimes, weighted_times

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orsched.data.instance import Instance
    from orsched.data.workers import Worker
    from orsched.solving.objectives import Objective


class Problem(NamedTuple):
    """What a search minimises and under which limits; the columns are those of ``decoding``.

    Attributes:
        whole, real: numbers of the requests; those of the plan are at first: no gate, no budget.
        times, limits: numbers of the workers.
        coefficients: of the objective.
        exact: whether ``times`` are the workers' own, and not ones that are near to them.
    """

    whole: NDArray[np.int64]
    real: NDArray[np.float64]
    times: NDArray[np.float64]
    limits: NDArray[np.int64]
    coefficients: WeightedTimes
    exact: bool


def problem_of(instance: Instance, objective: Objective, *, mixed: bool, chunks: bool) -> Problem:
    """Return the arrays for an instance; ``mixed`` and ``chunks`` say what steps may do."""
    requests, n = instance.requests, len(instance)
    prompts, rounds = requests.prompt_tokens, instance.rounds_needed
    memory = instance.workers[0].memory
    whole = np.zeros((n, 7), np.int64)
    whole[:, 0], whole[:, 1] = prompts, rounds
    if memory is not None:
        final = prompts + (rounds if memory.is_paged else requests.output_tokens)
        whole[:, 2] = -(-final // memory.block_tokens)
    whole[:, 3] = max(worker.clients for worker in instance.workers)
    whole[:, 4] = MAX_TOKENS
    whole[:, 5] = 0 if mixed else 1
    coefficients = weighted_times(instance, objective)
    real = np.zeros((n, 4))
    real[:, 0], real[:, 1], real[:, 2] = (
        requests.arrival_ns,
        coefficients.finish,
        coefficients.first,
    )
    means = float(prompts.mean()), float((prompts + rounds / 2).mean())
    times = np.array([step_lines(w.cost, *means, w.clients) for w in instance.workers])
    first = int(instance.first_token == "prefill")
    limits = np.array([_limits(worker, first, chunks) for worker in instance.workers], np.int64)
    exact = all(has_step_lines(worker.cost) for worker in instance.workers)
    return Problem(whole, real, times, limits, coefficients, exact)


def require_searchable(instance: Instance) -> None:
    """Raise ``InputError`` for workers that the search does not plan for."""
    instance.require_steady("latency_search")
    faults = (
        ("padding", any(worker.padding for worker in instance.workers)),
        ("prefix_cache", instance.caches_prefixes),
        ("role", any(worker.role != "both" for worker in instance.workers)),
        ("device", any(worker.device for worker in instance.workers)),
    )
    for field, found in faults:
        if found:
            raise InputError(
                f"latency_search does not know workers with {field.replace('_', ' ')}",
                field=field,
                remedy="leave it out, or choose a policy: gittins, vllm",
            )
    if len({worker.memory for worker in instance.workers}) > 1:
        raise InputError(
            "latency_search plans for workers with the same memory",
            field="memory",
            remedy="give all workers the same memory, or choose a policy: gittins, vllm",
        )


def _limits(worker: Worker, first: int, chunks: bool) -> list[int]:
    memory, cap = worker.memory, worker.prefill_limit
    blocks = 0 if memory is None else memory.blocks
    size = memory.block_tokens if memory is not None and memory.is_paged else 0
    return [worker.clients, MAX_TOKENS if cap is None else cap, int(chunks), blocks, size, first]
