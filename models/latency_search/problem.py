"""An instance as the arrays of a search: requests, the workers' times and limits, the objective."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.costs import AffineCost, LinearCost, mixed_ns
from orsched.errors import InputError
from orsched.objective_values import WeightedTimes, weighted_times
from orsched.units import MAX_TOKENS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orsched.costs import CostModel
    from orsched.instance import Instance
    from orsched.objectives import Objective
    from orsched.workers import Worker

_FS_PER_NS = 1e6


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
    times = np.array([_times(worker.cost, *means, worker.clients) for worker in instance.workers])
    first = int(instance.first_token == "prefill")
    limits = np.array([_limits(worker, first, chunks) for worker in instance.workers], np.int64)
    exact = all(type(worker.cost) in (AffineCost, LinearCost) for worker in instance.workers)
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


def _times(cost: CostModel, prompt: float, context: float, clients: int) -> list[float]:
    """Return the eight times of a worker; for other cost models those of lines through a few."""
    if type(cost) is AffineCost:
        stage: list[float] = [cost.prefill_fixed_ns, cost.prefill_token_ns, 0.0]
        return [*stage, cost.round_fixed_ns, cost.round_client_ns, 0.0, 0.0, 0.0]
    if type(cost) is LinearCost:
        parts: list[Any] = [
            cost.stage_fixed_fs,
            cost.stage_token_fs,
            cost.attended_fs,
            cost.round_fixed_fs,
            cost.round_request_fs,
            cost.context_fs,
            cost.mixed_fixed_fs,
            cost.mixed_context_fs,
        ]
        return [part * cost.time_scale / _FS_PER_NS for part in parts]
    return _lines(cost, max(1, round(prompt)), max(1, round(context)), max(2, clients // 2))


def _lines(cost: CostModel, prompt: int, context: int, active: int) -> list[float]:
    """Return times from a stage of one prompt and of four, a round of one request and of many."""
    limit = cost.prefill_limit
    prompt = prompt if limit is None else max(1, min(prompt, limit // 4))
    one, four = cost.prefill_ns([prompt]), cost.prefill_ns([prompt] * 4)
    token = max(0.0, (four - one) / (3 * prompt))
    stage = max(0.0, one - token * prompt)
    few = cost.round_ns(1, context, context)
    many = cost.round_ns(active, active * context, context)
    request = max(0.0, (many - few) / (active - 1))
    round_ = max(1.0, few - request)
    both = mixed_ns(cost, [prompt], active, active * context, context)
    more = both - max(stage, round_) - token * prompt - request * active
    return [stage, token, 0.0, round_, request, 0.0, max(0.0, more), 0.0]
