"""Steps' times as lines: constants that a search adds up, exact for two models, near for others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orsched.costs.affine import AffineCost
from orsched.costs.linear import LinearCost
from orsched.costs.protocol import mixed_ns

if TYPE_CHECKING:
    from orsched.costs.protocol import CostModel

_FS_PER_NS = 1e6


def has_step_lines(cost: CostModel) -> bool:
    """Return whether ``step_lines`` are the model's own times, and not ones near to them."""
    return type(cost) in (AffineCost, LinearCost)


def step_lines(cost: CostModel, prompt: float, context: float, clients: int) -> list[float]:
    """Return the eight times of a model's lines, in nanoseconds; of others those near to it.

    They are of a stage: fixed, a token, a token pair that is attended; of a round: fixed, a
    request, a token of context; of a mixed step beyond both: fixed, a token of context.

    Args:
        cost: any cost model; one without lines of its own gets those through a few steps.
        prompt, context: tokens around which these steps are.
        clients: of the worker; half of them take part in the larger round.
    """
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
