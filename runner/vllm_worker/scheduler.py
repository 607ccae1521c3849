"""vLLM's own scheduler, which takes into each pass the requests and tokens that it is asked for.

Both loops of vLLM's ``schedule`` ask one method, just before blocks are taken, by how many tokens a
request advances; 0 leaves it out of the pass. ``HOOKS`` are the methods that do so, the first one
that a version has serves. What a pass holds, and what its new requests find in the prefix cache, is
compared with what was asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orsched.common.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

HOOKS = ("_reserve_prefill_lookahead", "_mamba_block_aligned_split")
"""Methods of vLLM's scheduler; the second one is asked where ``need_...`` of its name is true."""

VERSIONS = ("0.32", "0.33")
"""Versions of vLLM whose scheduler has been driven."""

_SHOWN = 3  # requests that a message names


class PassDiffersError(Exception):
    """A forward pass would have held something else than what was asked for."""


def require_version(version: str) -> None:
    """Raise ``InputError`` for a version of vLLM whose scheduler has not been driven."""
    if ".".join(version.split(".")[:2]) not in VERSIONS:
        raise InputError(
            f"vLLM {version} is not supported: its scheduler is not a public interface",
            field="worker",
            remedy=f"install vLLM {' or '.join(VERSIONS)}, or use --worker torch",
        )


def driven(base: Any) -> Any:
    """Return vLLM's scheduler class ``base``, synchronous or not, as one that does as asked.

    Of the next pass, ``asked`` has the tokens by the id of the request, and ``hits`` those that a
    new request is to find in the prefix cache. ``yielded`` has, of each pass whose outputs were
    told, the tokens by request; those that left meanwhile are among them. Raises ``InputError``
    where the class has none of the ``HOOKS``.
    """
    hook = next((name for name in HOOKS if hasattr(base, name)), None)
    if hook is None:
        raise InputError(
            f"vLLM's scheduler has none of {', '.join(HOOKS)}",
            field="worker",
            remedy=f"install vLLM {' or '.join(VERSIONS)}, or use --worker torch",
        )

    class DrivenScheduler(base):  # type: ignore[misc]
        """Takes into a pass what it is asked for."""

        def __init__(self, *given: Any, **more: Any) -> None:
            super().__init__(*given, **more)
            self.asked: Mapping[str, int] = {}
            self.hits: Mapping[str, int] = {}
            self.yielded: list[dict[str, list[int]]] = []
            if hook == HOOKS[1]:
                self.need_mamba_block_aligned_split = True
            limit_hits(self)

        def schedule(self, *given: Any, **more: Any) -> Any:
            out = super().schedule(*given, **more)
            found = dict(out.num_scheduled_tokens)
            if found != dict(self.asked):
                raise PassDiffersError(differing(self.asked, found, free_blocks(self)))
            hits = {new.req_id: new.num_computed_tokens for new in out.scheduled_new_reqs}
            if hits != dict(self.hits):
                raise PassDiffersError(f"in the prefix cache, {differing(self.hits, hits)}")
            return out

        def update_from_output(self, passed: Any, output: Any) -> Any:
            if passed.num_scheduled_tokens:
                tokens = output.sampled_token_ids
                places = output.req_id_to_index.items()
                self.yielded.append({name: list(tokens[at]) for name, at in places if tokens})
            return super().update_from_output(passed, output)

    def tokens_of(scheduler: Any, request: Any, *numbers: int) -> int:
        new = numbers[1] if hook == HOOKS[0] else numbers[0]
        wanted: int = scheduler.asked.get(request.request_id, 0)
        return min(new, wanted)

    setattr(DrivenScheduler, hook, tokens_of)
    return DrivenScheduler


def limit_hits(scheduler: Any) -> None:
    """Let requests find no more in vLLM's prefix cache than ``hits`` says: it may hold more."""
    manager, size = scheduler.kv_cache_manager, scheduler.block_size
    look_up = manager.get_computed_blocks

    def limited(request: Any, *given: Any) -> Any:
        blocks, hit, *more = look_up(request, *given)
        most = scheduler.hits.get(request.request_id, 0)
        if hit <= most:
            return (blocks, hit, *more)
        kept = tuple(list(group)[: most // size] for group in blocks.blocks)
        return (manager.create_kv_cache_blocks(kept), most, *more)

    manager.get_computed_blocks = limited


def differing(asked: Mapping[str, int], found: Mapping[str, int], free: int | None = None) -> str:
    """Return in a sentence how a pass differs from what was asked, and how many blocks are free."""
    names = [name for name in {**asked, **found} if asked.get(name) != found.get(name)]
    said = [
        f"request {name}: {asked.get(name, 0)} asked, {found.get(name, 0)} scheduled"
        for name in names[:_SHOWN]
    ]
    more = [f"{len(names) - _SHOWN} more"] if len(names) > _SHOWN else []
    blocks = "" if free is None else f" ({free} blocks are free)"
    return f"vLLM's pass differs in tokens: {'; '.join(said + more)}{blocks}"


def free_blocks(scheduler: Any) -> int | None:
    """Return how many blocks vLLM has free, None where it does not say."""
    pool = getattr(getattr(scheduler, "kv_cache_manager", None), "block_pool", None)
    return None if pool is None else int(pool.get_num_free_blocks())
