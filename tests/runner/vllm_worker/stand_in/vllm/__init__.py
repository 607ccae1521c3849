"""A stand-in for vLLM with the calls that a worker makes: its scheduler's two loops, a formula."""

import json
import os
import sys
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace

__version__ = "0.33.0"


@dataclass
class EngineArgs:
    model: str
    dtype: str
    seed: int
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int
    num_gpu_blocks_override: int
    enable_prefix_caching: bool
    enable_chunked_prefill: bool
    scheduler_reserve_full_isl: bool
    async_scheduling: bool
    skip_tokenizer_init: bool
    disable_log_stats: bool
    scheduler_cls: type
    load_format: str = "auto"


class Scheduler:
    """Takes requests as vLLM does: those that run first, then those that wait, in their order."""

    def __init__(self, args):
        self.args, self.requests = args, {}
        self.running, self.waiting = [], deque()
        pool = SimpleNamespace(get_num_free_blocks=self.free)
        self.kv_cache_manager = SimpleNamespace(block_pool=pool)

    def free(self):
        return self.args.num_gpu_blocks_override - 1 - sum(r.blocks for r in self.running)

    def _reserve_prefill_lookahead(self, request, num_computed_tokens, num_new_tokens):
        return num_new_tokens

    def _allocated(self, request, new):
        blocks = -(-(request.computed + new) // self.args.block_size)
        if blocks - request.blocks > self.free():
            return False
        request.blocks = blocks
        return True

    def schedule(self, throttle_prefills=False):
        budget, found = self.args.max_num_batched_tokens, {}
        for request in self.running:
            new = min(len(request.tokens) - request.computed, budget)
            new = self._reserve_prefill_lookahead(request, request.computed, new)
            if new and self._allocated(request, new):  # vLLM would preempt: other tokens as well
                found[request.request_id], budget = new, budget - new
        while self.waiting and len(self.running) < self.args.max_num_seqs:
            request = self.waiting[0]
            new = min(len(request.tokens), budget)
            new = self._reserve_prefill_lookahead(request, 0, new)
            if not new or not self._allocated(request, new):
                break
            self.running.append(self.waiting.popleft())
            found[request.request_id], budget = new, budget - new
        for request in self.running:
            request.computed += found.get(request.request_id, 0)
        return SimpleNamespace(num_scheduled_tokens=found)


class LLMEngine:
    @classmethod
    def from_engine_args(cls, args):
        assert os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
        config = json.loads((Path(args.model) / "config.json").read_text())
        if args.max_model_len > config["max_position_embeddings"]:
            raise ValueError("max_model_len is larger than\nthe derived one")
        engine = cls()
        engine.model_config = SimpleNamespace(get_vocab_size=lambda: config["vocab_size"])
        engine.scheduler = args.scheduler_cls(args)
        core = SimpleNamespace(scheduler=engine.scheduler)
        engine.engine_core = SimpleNamespace(engine_core=core, shutdown=lambda: None)
        return engine

    def add_request(self, request_id, prompt, params):
        tokens, internal = list(prompt["prompt_token_ids"]), f"{request_id}-0f"
        room = self.scheduler.args.max_model_len - len(tokens)
        assert params.ignore_eos
        assert 0 < params.max_tokens <= room
        one = SimpleNamespace(request_id=internal, name=request_id, tokens=tokens)
        one.computed = one.blocks = 0
        self.scheduler.waiting.append(one)
        return internal

    def abort_request(self, request_ids, internal=False):
        assert internal
        for some in (self.scheduler.running, self.scheduler.waiting):
            for one in [one for one in some if one.request_id in request_ids]:
                some.remove(one)

    def step(self):
        passed = self.scheduler.schedule().num_scheduled_tokens
        found = []
        for one in self.scheduler.running:
            if one.request_id in passed and one.computed == len(one.tokens):
                one.tokens.append(next_token(one.tokens, self.model_config.get_vocab_size()))
                outputs = [SimpleNamespace(token_ids=one.tokens[-1:])]
                found.append(SimpleNamespace(request_id=one.name, outputs=outputs))
        return found


def next_token(tokens, vocabulary=512):
    """Return what the stand-in's model yields."""
    return (7 * sum(tokens) + len(tokens)) % vocabulary


def SamplingParams(**given):  # as vLLM's class
    return SimpleNamespace(**given)


def _module(name, **members):
    sys.modules[f"{__name__}.{name}"] = module = ModuleType(f"{__name__}.{name}")
    vars(module).update(members)


_module("platforms", current_platform=SimpleNamespace(is_cpu=lambda: True))
_module("sampling_params", RequestOutputKind=SimpleNamespace(DELTA=1))
for _name in ("v1", "v1.core", "v1.core.sched"):
    _module(_name, __path__=[])
_module("v1.core.sched.scheduler", Scheduler=Scheduler)
