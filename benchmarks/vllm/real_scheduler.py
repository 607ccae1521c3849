"""vLLM's own scheduler on workloads given as JSON lines on stdin; its record on stdout.

Runs in an environment with vLLM and no GPU: nothing is computed, every request yields the tokens
that it should.
"""

from __future__ import annotations

import json
import sys
import tempfile
import traceback
from pathlib import Path

import torch
from vllm import SamplingParams
from vllm.config import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig, VllmConfig
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

MODEL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
    "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 4,
    "num_hidden_layers": 1, "vocab_size": 1000, "max_position_embeddings": 200_000,
    "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": False,
    "torch_dtype": "float16", "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
PROMPT_TOKEN, YIELDED_TOKEN = 5, 7
SHARED_TOKEN, OWN_TOKEN = 10**6, 10**7
FURTHER_STEPS = 3


def configuration(case, model):
    """Return vLLM's settings of a case; one block of vLLM's is never given out."""
    length, blocks = case["max_len"], case["blocks"] + 1
    cache = CacheConfig(
        block_size=case["block_tokens"],
        enable_prefix_caching=sharing(case),
        num_gpu_blocks_override=blocks,
    )
    config = VllmConfig(
        model_config=ModelConfig(
            model=model, skip_tokenizer_init=True, dtype="float16", max_model_len=length
        ),
        scheduler_config=SchedulerConfig(
            max_num_batched_tokens=case["budget"],
            max_num_seqs=case["clients"],
            max_model_len=length,
            is_encoder_decoder=False,
            enable_chunked_prefill=case["chunked"],
            policy=case["policy"],
            long_prefill_token_threshold=case["threshold"],
            async_scheduling=case.get("async", False),
            scheduler_cls=case.get("scheduler_cls"),
            scheduler_reserve_full_isl=case["reserve"],
            **case.get("knobs", {}),
        ),
        cache_config=cache,
        device_config=DeviceConfig("cpu"),
        additional_config=case.get("additional_config", {}),
    )
    cache.num_gpu_blocks = blocks
    return config


def sharing(case):
    """Whether the case is for vLLM's prefix cache."""
    return "prefixes" in case


def cache_spec(size):
    """Return what a layer's cache holds: as little as can be."""
    return FullAttentionSpec(block_size=size, num_kv_heads=1, head_size=1, dtype=torch.float16)


def scheduler(case, model):
    """Build the scheduler of a case."""
    config, size = configuration(case, model), case["block_tokens"]
    groups = [KVCacheGroupSpec(["layer"], cache_spec(size))]
    return config.scheduler_config.get_scheduler_cls()(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(
            num_blocks=case["blocks"] + 1, kv_cache_tensors=[], kv_cache_groups=groups
        ),
        block_size=size,
        structured_output_manager=StructuredOutputManager(config),
        log_stats=False,
    )


def request(case, row, place):
    """Return a request; its arrival is its place in line, so that no two are equal."""
    prompt, output, _, priority = case["requests"][row]
    return Request(
        request_id=f"{row:06d}",
        prompt_token_ids=prompt_tokens(case, row, prompt),
        block_hasher=get_request_block_hasher(case["block_tokens"], sha256)
        if sharing(case)
        else None,
        sampling_params=SamplingParams(max_tokens=output, ignore_eos=True),
        pooling_params=None,
        arrival_time=float(place),
        priority=priority,
    )


def prompt_tokens(case, row, prompt):
    """Return tokens that are equal where the ids of the prefixes are, and nowhere else."""
    if not sharing(case):
        return [PROMPT_TOKEN] * prompt
    size, ids = case["block_tokens"], case["prefixes"][row]
    tokens = [SHARED_TOKEN + each for each in ids for _ in range(size)][:prompt]
    before = case["parents"][row] if "parents" in case else -1
    if before >= 0:  # the prompt goes on behind its parent's prompt and answer, if it holds both
        own, answer, *_ = case["requests"][before]
        if prompt >= own:
            tokens = prompt_tokens(case, before, own)
        if prompt >= own + answer:
            tokens += [own_token(before)] * answer
    return tokens + [own_token(row)] * (prompt - len(tokens))


def own_token(row):
    """Return a token of a request alone."""
    return OWN_TOKEN + row


def yielded_tokens(case):
    """Return row -> the token that its request yields: with a prefix cache one of its own."""
    return own_token if sharing(case) else lambda row: YIELDED_TOKEN


def iterate(engine, yields):
    """Do one step; return request -> tokens, the preempted requests, and request -> tokens hit."""
    planned, result = plan(engine, yields)
    result()
    return planned


def plan(engine, yields):
    """Schedule a step; return what ``iterate`` does, and what lets the engine have its result."""
    out = engine.schedule()
    names = list(out.num_scheduled_tokens)
    states = [engine.requests[name] for name in names]
    cached = out.scheduled_cached_reqs
    hits = [[int(new.req_id), new.num_computed_tokens] for new in out.scheduled_new_reqs]
    hits += [
        [int(name), count]
        for name, count in zip(cached.req_ids, cached.num_computed_tokens, strict=True)
        if name in cached.resumed_req_ids
    ]
    sampled = [
        [yields(int(state.request_id))] if state.num_computed_tokens >= state.num_tokens else []
        for state in states
    ]
    places = {name: place for place, name in enumerate(names)}
    result = ModelRunnerOutput(req_ids=names, req_id_to_index=places, sampled_token_ids=sampled)
    tokens = [[int(name), count] for name, count in out.num_scheduled_tokens.items()]
    lost = sorted(int(name) for name in (out.preempted_req_ids or ()))
    return (tokens, lost, hits), lambda: engine.update_from_output(out, result)


def record(case, model):
    """Let requests arrive at the starts of our steps; return the iterations."""
    if case.get("async"):
        return record_ahead(case, model)
    engine, rows = scheduler(case, model), case["requests"]
    waiting = sorted(range(len(rows)), key=lambda row: (rows[row][2], row))
    yields = yielded_tokens(case)
    iterations = []
    for start in [*case["starts"], *[2**62] * FURTHER_STEPS]:
        while waiting and rows[waiting[0]][2] <= start:
            row = waiting.pop(0)
            engine.add_request(request(case, row, len(rows) - len(waiting)))
        while True:
            iterations.append(iterate(engine, yields))
            tokens, preempted, _ = iterations[-1]
            if tokens or not preempted:
                break
        if not engine.has_unfinished_requests() and not waiting:
            break
    return iterations


def record_ahead(case, model):
    """Do the same where each step is scheduled before the result of the one before it is there."""
    engine, rows = scheduler(case, model), case["requests"]
    waiting = sorted(range(len(rows)), key=lambda row: (rows[row][2], row))
    yields, iterations, ahead = yielded_tokens(case), [], None
    for start in [*case["starts"], *[2**62] * FURTHER_STEPS]:
        while waiting and rows[waiting[0]][2] <= start:
            row = waiting.pop(0)
            engine.add_request(request(case, row, len(rows) - len(waiting)))
        while ahead is None:  # nothing is in flight: all results are there
            planned, result = plan(engine, yields)
            iterations.append(planned)
            if planned[0]:
                ahead = result
            else:
                result()
                if not planned[1]:
                    break
        if ahead is None:
            continue
        planned, result = plan(engine, yields)
        iterations.append(planned)
        ahead()
        ahead = result
        if not planned[0]:
            result()
            ahead = None
        if not engine.has_unfinished_requests() and not waiting:
            break
    return iterations


def main():
    """Answer each line by a line."""
    init_none_hash(sha256)
    with tempfile.TemporaryDirectory() as model:
        (Path(model) / "config.json").write_text(json.dumps(MODEL))
        for line in sys.stdin:
            case = json.loads(line)
            try:
                answer = {"id": case["id"], "record": record(case, model)}
            except Exception:  # one case that vLLM refuses must not end the others
                answer = {"id": case["id"], "error": traceback.format_exc()[-600:]}
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
