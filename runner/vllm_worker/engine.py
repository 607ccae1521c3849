"""vLLM's engine in this process, taken step by step, and its scheduler that follows a plan."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orsched.common.errors import InputError, unavailable
from orsched.runner.devices.settings import AUTO
from orsched.runner.worker.language_model import PRESETS, preset_config

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orsched.runner.devices.settings import WorkerSettings


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


ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the scheduler is to be in this process
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
}
BLOCK_TOKENS = 32  # vLLM on a CPU wants multiples of it
_OWN = ("model", "scheduler_cls", "max_model_len", "max_num_seqs", "enable_prefix_caching")


class Engine:
    """An engine of vLLM whose passes hold what they are asked to hold.

    Where it ``is_async``, the pass that ``step`` begins is under way when it returns.

    Args:
        settings: of the worker; ``arguments`` are fields of vLLM's ``EngineArgs``.

    Raises:
        InputError: the version, the device or an argument is refused, by orsched or by vLLM.
        MissingDependencyError: vLLM is not installed.
    """

    def __init__(self, settings: WorkerSettings) -> None:
        self.version, self.platform = imported(), "cpu"
        from vllm import EngineArgs, LLMEngine
        from vllm.platforms import current_platform
        from vllm.v1.core.sched.async_scheduler import AsyncScheduler
        from vllm.v1.core.sched.scheduler import Scheduler

        self.platform = "cpu" if current_platform.is_cpu() else "cuda"
        _require_device(settings.device, self.platform)
        if settings.threads is not None:
            import torch

            torch.set_num_threads(settings.threads)
        given = dict(settings.arguments)
        for name in _OWN:
            if name in given:
                raise InputError(
                    f"{name} is set by orsched", field="--engine-arg", remedy="leave it out"
                )
        with tempfile.TemporaryDirectory() as folder:
            arguments = arguments_of(settings, self.platform, folder) | given
            self.is_async = bool(arguments["async_scheduling"])
            try:
                kind = driven(AsyncScheduler if self.is_async else Scheduler)
                config = EngineArgs(**arguments, scheduler_cls=kind).create_engine_config()
                # vLLM turns it off on a CPU, where it gains nothing; its loop is the same there
                config.scheduler_config.async_scheduling = self.is_async
                self.llm = LLMEngine.from_vllm_config(config, disable_log_stats=True)
            except (TypeError, ValueError) as error:
                text = " ".join(str(error).split())
                raise InputError(
                    f"vLLM refuses the worker: {text:.300}",
                    field="worker",
                    remedy="change --model, --length, --slots or --engine-arg",
                ) from None
        self.scheduler = self.llm.engine_core.engine_core.scheduler
        self.vocabulary = int(self.llm.model_config.get_vocab_size())
        self.length = settings.length
        self.number = 0

    def add(self, prompt: Sequence[int], slot: int) -> str:
        """Let a request wait for its first pass, and return vLLM's name, which says its slot."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        self.number += 1
        name, left = f"slot{slot}.{self.number}", max(1, self.length + 1 - len(prompt))
        wanted = SamplingParams(
            temperature=0.0, max_tokens=left, ignore_eos=True, detokenize=False,
            output_kind=RequestOutputKind.DELTA,
        )  # fmt: skip
        rendered = {"type": "token", "prompt_token_ids": list(prompt)}  # as vLLM's renderer does
        return str(self.llm.add_request(name, rendered, wanted) or name)

    def step(self, asked: Mapping[str, int], hits: Mapping[str, int]) -> list[dict[str, list[int]]]:
        """Begin a pass over tokens of requests; return what those yield that are over now.

        Where nothing is asked, no pass begins, and the one in flight ends. Raises
        ``PassDiffersError`` for a pass that would differ.
        """
        self.scheduler.asked, self.scheduler.hits = asked, hits
        self.llm.step()
        found: list[dict[str, list[int]]] = list(self.scheduler.yielded)
        self.scheduler.yielded.clear()
        return found

    def remove(self, names: Sequence[str]) -> None:
        """Take requests out of the engine, done or not."""
        self.llm.abort_request(list(names), internal=True)

    def forget_prefixes(self) -> None:
        """Empty the prefix cache: blocks of a pass that was not executed count as computed."""
        self.scheduler.kv_cache_manager.reset_prefix_cache()

    def close(self) -> None:
        """Give back the engine's memory."""
        self.llm.engine_core.shutdown()


def imported() -> str:
    """Import vLLM quietly and return its version; raises as ``Engine``."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    try:
        import vllm
    except ImportError as error:
        raise unavailable(error, "a vLLM worker needs vllm: pip install vllm") from None
    require_version(vllm.__version__)
    return str(vllm.__version__)


def arguments_of(settings: WorkerSettings, platform: str, folder: str) -> dict[str, Any]:
    """Return fields of ``EngineArgs``; a preset's configuration is written into a folder.

    There are blocks for all slots at their full length, and for the prefixes that are kept beside
    them: what requests take of the instance's memory is decided by orsched.
    """
    slots, length, stored = settings.slots, settings.length, settings.stored_blocks
    usual = settings.block_tokens if stored else BLOCK_TOKENS
    size = dict(settings.arguments).get("block_size", usual)
    dtype, on_cpu = settings.dtype, platform == "cpu"
    if dtype == AUTO and on_cpu:
        dtype = "float32"  # bfloat16 is slow there
    found: dict[str, Any] = {
        "model": settings.model,
        "dtype": dtype,
        "seed": settings.seed,
        "max_model_len": length + 1,
        "max_num_seqs": slots,
        "max_num_batched_tokens": slots + max(length, settings.step_tokens or slots * length),
        "block_size": size,
        "num_gpu_blocks_override": slots * -(-(length + 1) // size) + stored + 1,
        "enable_prefix_caching": stored > 0,
        "enable_chunked_prefill": True,
        "enforce_eager": on_cpu,  # compiling takes minutes there
        "scheduler_reserve_full_isl": False,
        "async_scheduling": not on_cpu,
        "skip_tokenizer_init": True,
        "disable_log_stats": True,
    }
    if on_cpu:  # enough to begin with: the number of blocks is given
        found["kv_cache_memory_bytes"] = 1 << 30
    if settings.model in PRESETS:
        config = preset_config(settings.model).to_dict()
        config["architectures"] = [ARCHITECTURES.get(config["model_type"], "LlamaForCausalLM")]
        (Path(folder) / "config.json").write_text(json.dumps(config))
        found |= {"model": folder, "load_format": "dummy"}
    elif not Path(settings.model).is_dir():
        preset_config(settings.model)  # raises: nothing is downloaded
    return found


ARCHITECTURES = {
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "gpt2": "GPT2LMHeadModel",
    "gpt_neo": "GPTNeoForCausalLM",
}


def _require_device(device: str, platform: str) -> None:
    if device in (AUTO, platform) or (platform == "cuda" and device == "cuda:0"):
        return
    raise InputError(
        f"this vLLM runs on {platform}",
        field="device",
        remedy=f"auto or {platform}; a GPU by its number with --workers-as process",
    )
