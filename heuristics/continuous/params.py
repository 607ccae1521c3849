"""Parameters of the batching modes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.common.near_names import known_names
from orsched.common.units import MAX_TOKENS, seconds_to_ns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orsched.data.instance import Instance

POLICIES = ("fcfs", "priority")
PRIORITIES = ("arrival", "service_class", "length")
MODES = ("mixed", "decode_first", "prefill_first")


@dataclass(frozen=True)
class Ordering:
    """Which waiting request is next.

    Attributes:
        policy: ``fcfs`` or ``priority``.
        priority: what the smallest value of goes first under ``priority``: ``service_class`` (its
            place: interactive before batch, or the smallest priority of a file), ``length``
            (shortest first; needs information on lengths) or ``arrival``. Ties go by arrival, then
            row.
        aging_s: a wait of so many seconds counts as much as one level of the priority (a service
            class, a token); None: no aging, so that a request may wait for ever.
    """

    policy: str = "fcfs"
    priority: str = "service_class"
    aging_s: float | None = None

    def __post_init__(self) -> None:
        require_choice(self.policy, "policy", POLICIES)
        require_choice(self.priority, "priority", PRIORITIES)
        if self.aging_s is not None:
            seconds_to_ns(self.aging_s, "aging_s")

    @property
    def aging_ns(self) -> int | None:
        """The wait that counts as much as one level."""
        return None if self.aging_s is None else seconds_to_ns(self.aging_s, "aging_s")


@dataclass(frozen=True)
class ContinuousParams(Ordering):
    """Parameters of ``vllm``: those of vLLM under the names that they have there.

    The worker's clients are vLLM's ``max_num_seqs``; its paged memory has the KV blocks.

    Attributes:
        max_num_batched_tokens: the token budget, most tokens of a step: one for each request that
            decodes, and the prompt tokens.
        long_prefill_token_threshold: most prompt tokens of one request in a step; 0: no limit.
        chunked_prefill: whether a prompt may be split over steps.
        mode: ``mixed``: running requests in the order of admission, then waiting ones (vLLM V1);
            ``decode_first``: what decodes, then begun prefills, then waiting requests
            (Sarathi-Serve); ``prefill_first``: stages of whole prompts whenever some fit, else
            rounds (vLLM V0).
        reserve_full_prompt: admit a request only when its whole prefill fits into the free blocks,
            not its first chunk alone (vLLM: scheduler_reserve_full_isl).
        watermark_blocks: blocks that stay free at an admission beside running requests.
    """

    max_num_batched_tokens: int = 2048
    long_prefill_token_threshold: int = 0
    chunked_prefill: bool = True
    mode: str = "mixed"
    reserve_full_prompt: bool = True
    watermark_blocks: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice(self.mode, "mode", MODES)
        for name in ("chunked_prefill", "reserve_full_prompt"):
            if type(getattr(self, name)) is not bool:
                raise InputError("must be true or false", field=name)
        for name, least in (
            ("max_num_batched_tokens", 1),
            ("long_prefill_token_threshold", 0),
            ("watermark_blocks", 0),
        ):
            whole_number(getattr(self, name), name, minimum=least, maximum=MAX_TOKENS)

    @property
    def splits(self) -> bool:
        """Whether a prompt may be split over steps."""
        return self.chunked_prefill and self.mode != "prefill_first"

    @property
    def why_whole(self) -> str:
        """The setting for which prompts are not split."""
        return "mode=prefill_first" if self.mode == "prefill_first" else "chunked_prefill=false"

    def require_fit(self, instance: Instance, given: Mapping[str, Any]) -> None:
        """Refuse a prompt that no step can hold, at the parameter that was given."""
        prompts = instance.requests.prompt_tokens
        if self.splits or not len(prompts) or prompts.max() <= self.max_num_batched_tokens:
            return
        row = int(prompts.argmax())
        settings = (self.why_whole.partition("=")[0], "max_num_batched_tokens")
        raise InputError(
            f"{self.why_whole} does not split prompts, and request {instance.requests.id_of(row)} "
            f"(row {row}) has {prompts[row]:,} tokens, more than the "
            f"{self.max_num_batched_tokens:,} of a step",
            field=next((name for name in settings if name in given), settings[0]),
            remedy=f"raise max_num_batched_tokens to {prompts[row]}, or leave {settings[0]} out",
        )


@dataclass(frozen=True)
class VllmParams(ContinuousParams):
    """Parameters of ``vllm``, with how its engine runs.

    Attributes:
        async_scheduling: whether each step is planned while the one before runs (vLLM:
            async_scheduling): arrivals join, and what finished frees its place, a step later.
    """

    async_scheduling: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.async_scheduling) is not bool:
            raise InputError("must be true or false", field="async_scheduling")


@dataclass(frozen=True)
class StaticParams(Ordering):
    """Parameters of ``static``.

    Attributes:
        batch_size: most requests of a batch; None: the worker's clients.
    """

    batch_size: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch_size is not None:
            whole_number(self.batch_size, "batch_size", minimum=1, maximum=MAX_TOKENS)


@dataclass(frozen=True)
class DynamicParams(Ordering):
    """Parameters of ``dynamic``.

    Attributes:
        max_batch_size: most requests of a batch; None: the worker's clients.
        batch_wait_timeout_s: how long the oldest waiting request waits for the batch to fill.
    """

    max_batch_size: int | None = None
    batch_wait_timeout_s: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_batch_size is not None:
            whole_number(self.max_batch_size, "max_batch_size", minimum=1, maximum=MAX_TOKENS)
        seconds_to_ns(self.batch_wait_timeout_s, "batch_wait_timeout_s")


def require_choice(value: str, field: str, choices: tuple[str, ...]) -> None:
    """Raise ``InputError`` unless a value is one of the choices."""
    if value not in choices:
        remedy = known_names(value, choices, "one of: ")
        raise InputError(f"{value!r} is unknown", field=field, remedy=remedy)
