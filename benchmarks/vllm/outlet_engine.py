"""vLLM's engine core with our scheduler class; an executor that makes tokens up, no GPU.

python -m benchmarks.vllm.outlet_engine, in an environment with vLLM, with orsched on the path.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from concurrent.futures import Future
from pathlib import Path

from vllm.v1.engine.core import EngineCore
from vllm.v1.executor.abstract import Executor
from vllm.v1.outputs import ModelRunnerOutput

from benchmarks.vllm.outlet_scheduler import request
from benchmarks.vllm.real_scheduler import MODEL, YIELDED_TOKEN, cache_spec, configuration

COUNT, ABORTED = 60, 5
CASE = {
    "policy": "priority", "async": True, "budget": 256, "clients": 8, "blocks": 60,
    "block_tokens": 16, "max_len": 400, "chunked": True, "threshold": 0, "reserve": True,
    "scheduler_cls": "orsched.runner.vllm_outlet.OrderedScheduler",
    "additional_config": {"orsched": {"order": "sjf"}},
}  # fmt: skip


def done(value):
    """Return a future that has its value."""
    future = Future()
    future.set_result(value)
    return future


class MadeUp(Executor):
    """Workers without a model: each request yields a token when its prefill is complete."""

    def _init_executor(self):
        self.requests = {}

    def collective_rpc(self, method, *args, **kwargs):
        """Refuse what is not expected."""
        raise NotImplementedError(method)

    def check_health(self):
        """Be well."""

    def get_kv_cache_specs(self):
        """Return one layer."""
        return [{"layer": cache_spec(CASE["block_tokens"])}]

    def get_supported_kv_cache_layouts(self):
        """Take any."""
        return [["NHD", "HND"]]

    def set_kv_cache_layout(self, *args):
        """Take it."""

    def determine_available_memory(self):
        """Return enough: the number of blocks is given."""
        return [2**30]

    def initialize_from_config(self, configs):
        """Have no cache."""

    def compile_or_warm_up_model(self):
        """Have no model."""

    def execute_model(self, out, non_block=False):
        """Make up the result of a step."""
        names = list(out.num_scheduled_tokens)
        sampled = [
            [] if self.requests[name].is_prefill_chunk else [YIELDED_TOKEN] for name in names
        ]
        places = {name: place for place, name in enumerate(names)}
        self.result = ModelRunnerOutput(
            req_ids=names, req_id_to_index=places, sampled_token_ids=sampled
        )
        return done(None if names else self.result)

    def sample_tokens(self, grammar, non_block=False):
        """Return the result."""
        return done(self.result)


def run(model):
    """Return what became of requests that come in two bursts, some aborted."""
    core = EngineCore(configuration(CASE, model), MadeUp, log_stats=False)
    core.model_executor.requests = core.scheduler.requests
    rng = random.Random(3)
    rows = [
        {"prompt": rng.randint(1, 120), "output": rng.randint(1, 200), "arrival": 0}
        for _ in range(COUNT)
    ]
    tokens, order = dict.fromkeys(map(str, range(COUNT)), 0), []
    for step in range(100_000):
        if step in (0, 40):
            for row in range(COUNT)[step > 0 :: 2]:
                values = {**rows[row], "predicted": 1, "priority": 0}
                core.add_request(request(row, values, row, 1.0))
        if step == 60:
            last = [each.request_id for each in core.scheduler.waiting][-ABORTED:]
            core.abort_requests(last)
        outputs, _ = core.step_fn()
        for each in (e for eco in (outputs or {}).values() for e in eco.outputs):
            tokens[each.request_id] += len(each.new_token_ids)
            if each.finish_reason is not None:
                order.append(each.request_id)
        if step > 60 and not core.scheduler.has_requests() and not core.batch_queue:
            break
    registry, complete = core.scheduler.request_registry, set(order) - set(last)
    return {
        "class": type(core.scheduler).__name__,
        "ahead": core.batch_queue_size,
        "complete": len(complete),
        "aborted": len(last),
        "right": sum(tokens[name] == rows[int(name)]["output"] for name in complete),
        "left": len(registry.known) + len(registry.keys) + len(core.scheduler.waiting),
    }


def main():
    """Print what happened; exit 1 if anything is wrong."""
    with tempfile.TemporaryDirectory() as model:
        (Path(model) / "config.json").write_text(json.dumps(MODEL))
        found = run(model)
    expected = {
        "class": "OrderedScheduler", "ahead": 2, "complete": COUNT - ABORTED, "aborted": ABORTED,
        "right": COUNT - ABORTED, "left": 0,
    }  # fmt: skip
    print(f"vLLM's engine core: {found}" + ("" if found == expected else "  WRONG"))
    sys.exit(found != expected)


if __name__ == "__main__":
    main()
