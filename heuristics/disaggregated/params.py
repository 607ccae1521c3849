"""Parameters of ``disaggregated``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orsched.common.columns import whole_number
from orsched.common.scalars import require_bool
from orsched.common.units import MAX_TOKENS
from orsched.heuristics.continuous.params import MODES, ContinuousParams, require_choice

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orsched.data.instance import Instance

PLACES = ("requests", "memory")


@dataclass(frozen=True)
class DisaggregatedParams:
    """Parameters of ``disaggregated``; the first four are those of ``vllm``, on every worker.

    Attributes:
        max_num_batched_tokens: the token budget of a step.
        chunked_prefill: whether a prompt may be split over steps.
        mode: as in ``vllm``; it matters on workers that prefill and decode.
        watermark_blocks: blocks that stay free when a request joins others.
        decode_place: where a prefilled request goes: ``requests``: to the worker with the fewest
            for each client; ``memory``: to the one with the most free blocks.
        local_prompt_tokens: prompts of at most so many tokens are prefilled where they decode, if a
            worker of both roles is there (Dynamo: max_local_prefill_length).
        prefill_queue_tokens: the same for all prompts while each prefill worker has more prompt
            tokens to prefill than this (Dynamo: max_prefill_queue_size, in requests there;
            Splitwise: the queue from which on machines are mixed). None: never.
    """

    max_num_batched_tokens: int = 2048
    chunked_prefill: bool = True
    mode: str = "mixed"
    watermark_blocks: int = 0
    decode_place: str = "requests"
    local_prompt_tokens: int = 0
    prefill_queue_tokens: int | None = None

    def __post_init__(self) -> None:
        require_choice(self.mode, "mode", MODES)
        require_choice(self.decode_place, "decode_place", PLACES)
        require_bool(self.chunked_prefill, "chunked_prefill")
        for name, least in (
            ("max_num_batched_tokens", 1),
            ("watermark_blocks", 0),
            ("local_prompt_tokens", 0),
        ):
            whole_number(getattr(self, name), name, minimum=least, maximum=MAX_TOKENS)
        if self.prefill_queue_tokens is not None:
            whole_number(self.prefill_queue_tokens, "prefill_queue_tokens")

    def require_fit(self, instance: Instance, given: Mapping[str, Any]) -> None:
        """Refuse a prompt that no step can hold, at the parameter that was given."""
        self.of_worker.require_fit(instance, given)

    @property
    def of_worker(self) -> ContinuousParams:
        """The parameters of the batching on each worker."""
        return ContinuousParams(
            max_num_batched_tokens=self.max_num_batched_tokens,
            chunked_prefill=self.chunked_prefill,
            mode=self.mode,
            watermark_blocks=self.watermark_blocks,
        )
