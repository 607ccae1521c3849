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
    enforce_eager: bool
    scheduler_reserve_full_isl: bool
    async_scheduling: bool
    skip_tokenizer_init: bool
    disable_log_stats: bool
    scheduler_cls: type
    kv_cache_memory_bytes: int
    load_format: str = "auto"

    def create_engine_config(self):
        model = json.loads((Path(self.model) / "config.json").read_text())
        if self.max_model_len > model["max_position_embeddings"]:
            raise ValueError("max_model_len is larger than\nthe derived one")
        scheduler = SimpleNamespace(async_scheduling=False)  # as on a CPU
        return SimpleNamespace(args=self, model=model, scheduler_config=scheduler)


class Blocks:
    """Free blocks by their number; of the prefix cache, which never forgets, the contents."""

    def __init__(self, args, running):
        self.args, self.running, self.known = args, running, set()
        self.block_pool = SimpleNamespace(get_num_free_blocks=self.free)

    def free(self):
        return self.args.num_gpu_blocks_override - 1 - sum(r.blocks for r in self.running)

    def allocate(self, request, end):
        size = self.args.block_size
        if -(-end // size) - request.blocks > self.free():
            return False
        request.blocks = -(-end // size)
        if self.args.enable_prefix_caching:
            self.known |= {tuple(request.tokens[:k]) for k in range(size, end + 1, size)}
        return True

    def get_computed_blocks(self, request):
        size, found = self.args.block_size, 0
        while found + size < len(request.tokens):
            if tuple(request.tokens[: found + size]) not in self.known:
                break
            found += size
        return self.create_kv_cache_blocks((list(range(found // size)),)), found, 0

    def create_kv_cache_blocks(self, blocks):
        return SimpleNamespace(blocks=blocks)

    def reset_prefix_cache(self):
        self.known.clear()


class Scheduler:
    """Takes requests as vLLM does: those that run first, then those that wait, in their order."""

    def __init__(self, args):
        self.args, self.block_size = args, args.block_size
        self.cache_config = SimpleNamespace(enable_prefix_caching=args.enable_prefix_caching)
        self.running, self.waiting = [], deque()
        self.kv_cache_manager = Blocks(args, self.running)

    def _reserve_prefill_lookahead(self, request, num_computed_tokens, num_new_tokens):
        return num_new_tokens

    def schedule(self, throttle_prefills=False):
        budget, found, entered = self.args.max_num_batched_tokens, {}, []
        allocate = self.kv_cache_manager.allocate
        for request in self.running:
            new = min(len(request.tokens) - request.computed, budget)
            new = self._reserve_prefill_lookahead(request, request.computed, new)
            if new and allocate(request, request.computed + new):  # vLLM would preempt: differs too
                found[request.request_id], budget = new, budget - new
        while self.waiting and len(self.running) < self.args.max_num_seqs:
            request = self.waiting[0]
            _, hit, _ = self.kv_cache_manager.get_computed_blocks(request)
            new = min(len(request.tokens) - hit, budget)
            new = self._reserve_prefill_lookahead(request, hit, new)
            if not new or not allocate(request, hit + new):
                break
            self.running.append(self.waiting.popleft())
            request.computed = hit
            entered.append(SimpleNamespace(req_id=request.request_id, num_computed_tokens=hit))
            found[request.request_id], budget = new, budget - new
        for request in self.running:
            request.computed += found.get(request.request_id, 0)
        return SimpleNamespace(num_scheduled_tokens=found, scheduled_new_reqs=entered)

    def update_from_output(self, passed, output):
        assert set(output.req_id_to_index) == set(passed.num_scheduled_tokens)


class AsyncScheduler(Scheduler):
    """The same: that outputs come a pass later is up to the engine."""


class LLMEngine:
    @classmethod
    def from_vllm_config(cls, config, disable_log_stats):
        assert os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
        engine, args = cls(), config.args
        engine.depth = 1 + config.scheduler_config.async_scheduling
        assert issubclass(args.scheduler_cls, AsyncScheduler) == (engine.depth > 1)
        engine.vocabulary, engine.queue = config.model["vocab_size"], deque()
        engine.model_config = SimpleNamespace(get_vocab_size=lambda: engine.vocabulary)
        engine.scheduler = args.scheduler_cls(args)
        core = SimpleNamespace(scheduler=engine.scheduler)
        engine.engine_core = SimpleNamespace(engine_core=core, shutdown=lambda: None)
        return engine

    def add_request(self, request_id, prompt, params):
        assert prompt["type"] == "token"
        tokens, internal = list(prompt["prompt_token_ids"]), f"{request_id}-0f"
        room = self.scheduler.args.max_model_len - len(tokens)
        assert params.ignore_eos
        assert 0 < params.max_tokens <= room
        one = SimpleNamespace(request_id=internal, tokens=tokens, computed=0, blocks=0)
        self.scheduler.waiting.append(one)
        return internal

    def abort_request(self, request_ids, internal=False):
        assert internal
        for some in (self.scheduler.running, self.scheduler.waiting):
            for one in [one for one in some if one.request_id in request_ids]:
                some.remove(one)

    def step(self):
        if self.scheduler.running or self.scheduler.waiting:
            passed = self.scheduler.schedule()
            self.queue.append((passed, self._execute(passed.num_scheduled_tokens)))
            if len(self.queue) < self.depth:
                return
        if self.queue:
            self.scheduler.update_from_output(*self.queue.popleft())

    def _execute(self, passed):
        sampled = []
        for one in (one for one in self.scheduler.running if one.request_id in passed):
            done = one.computed == len(one.tokens)
            if done:
                one.tokens.append(next_token(one.tokens, self.vocabulary))
            sampled.append(one.tokens[-1:] if done else [])
        names = [one.request_id for one in self.scheduler.running if one.request_id in passed]
        places = {name: place for place, name in enumerate(names)}
        return SimpleNamespace(req_id_to_index=places, sampled_token_ids=sampled)


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
_module("v1.core.sched.async_scheduler", AsyncScheduler=AsyncScheduler)
