"""vLLM's own scheduler driven by orsched, without a model: each pass beside what is asked.

Runs in an environment with vLLM and no GPU, with orsched on the path: nothing is computed, every
request yields the same token again and again. Exit 1 where a pass differs.

python -m benchmarks.vllm.driven_scheduler [--workloads 10]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import deque
from pathlib import Path

import vllm
from vllm import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

from benchmarks.vllm.driven_engine import equal, passes_of, settings_of
from benchmarks.vllm.real_scheduler import MODEL, YIELDED_TOKEN, scheduler
from benchmarks.vllm.workloads import prefix_workload, workload
from orsched.checker import check
from orsched.runner.loop.live import execute_policy
from orsched.runner.policy_source import policy_source
from orsched.runner.vllm_worker import device as vllm_device
from orsched.runner.vllm_worker.engine import driven

POLICIES = ("fcfs", "gittins", "vllm")


class Alone:
    """In place of vLLM's engine: its scheduler, and tokens that are made up."""

    version, platform, vocabulary = vllm.__version__, "none", MODEL["vocab_size"]
    model = ""

    def __init__(self, settings):
        self.is_async = dict(settings.arguments)["async_scheduling"]
        slots, length, stored = settings.slots, settings.length, settings.stored_blocks
        self.size = settings.block_tokens if stored else 16
        case = {
            "max_len": length + 1, "blocks": slots * -(-(length + 1) // self.size) + stored,
            "block_tokens": self.size, "budget": slots * (length + 1), "clients": slots,
            "chunked": True, "policy": "fcfs", "threshold": 0, "reserve": False,
            "async": self.is_async, **({"prefixes": []} if stored else {}),
            "scheduler_cls": driven(AsyncScheduler if self.is_async else Scheduler),
        }  # fmt: skip
        self.scheduler, self.number, self.queue = scheduler(case, self.model), 0, deque()
        self.hasher = get_request_block_hasher(self.size, sha256) if stored else None
        self.length, self.passes = length, []

    def add(self, prompt, slot):
        """Queue a request."""
        self.number += 1
        left = max(1, self.length + 1 - len(prompt))
        made = Request(
            request_id=f"slot{slot}.{self.number}", prompt_token_ids=list(prompt),
            sampling_params=SamplingParams(max_tokens=left, ignore_eos=True), pooling_params=None,
            arrival_time=float(self.number), block_hasher=self.hasher,
        )  # fmt: skip
        self.scheduler.add_request(made)
        return made.request_id

    def step(self, asked, hits):
        """Schedule a pass; its result is there at once, or a pass later."""
        core = self.scheduler
        core.asked, core.hits = asked, hits
        if core.has_requests():
            out = core.schedule()
            names = list(out.num_scheduled_tokens)
            if names:
                self.passes.append(dict(out.num_scheduled_tokens))
            sampled = [
                [] if core.requests[name].is_prefill_chunk else [YIELDED_TOKEN] for name in names
            ]
            places = {name: place for place, name in enumerate(names)}
            self.queue.append((out, ModelRunnerOutput(
                req_ids=names, req_id_to_index=places, sampled_token_ids=sampled
            )))  # fmt: skip
            if len(self.queue) < 1 + self.is_async:
                return []
        if self.queue:
            core.update_from_output(*self.queue.popleft())
        found = list(core.yielded)
        core.yielded.clear()
        return found

    def remove(self, names):
        """Take requests out."""
        self.scheduler.finish_requests(names, RequestStatus.FINISHED_ABORTED)

    def forget_prefixes(self):
        """Empty the prefix cache."""
        self.scheduler.kv_cache_manager.reset_prefix_cache()

    def close(self):
        """There is nothing to end."""


def run(seed, policy, ahead, shared):
    """Return equal passes, of how many, evictions' rows and faults of a run."""
    instance, _ = (prefix_workload if shared else workload)(seed)
    settings = settings_of(instance, "tiny", async_scheduling=ahead)
    device = vllm_device.VllmDevice(settings)
    device.engine.passes.clear()
    source = policy_source(instance, policy, seed=0)
    done = execute_policy(instance, source.policy, device, 0, device.vocabulary)
    assert not done.stopped, done.stopped
    faults = check(instance, done.schedule, times="measured")
    sizes = [sorted(each.values()) for each in device.engine.passes]
    traced = [sorted(each.values()) for each in passes_of(instance, done.schedule)]
    same, count = equal(sizes, traced)
    return same, count, int(done.schedule.work.hit.sum()), len(faults)


def main():
    """Print a line for each run that differs, and their sum."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", type=int, default=10)
    count = parser.parse_args().workloads
    vllm_device.Engine = Alone
    init_none_hash(sha256)
    good, runs, passes, hits = 0, 0, 0, 0
    with tempfile.TemporaryDirectory() as Alone.model:
        (Path(Alone.model) / "config.json").write_text(json.dumps(MODEL))
        for seed in range(count):
            for policy in POLICIES:
                given = (seed, policy, seed % 2 > 0, seed % 3 == 0)
                same, of, hit, faults = run(*given)
                good += same == of and not faults
                runs, passes, hits = runs + 1, passes + of, hits + hit
                if same < of or faults:
                    print(f"driven {given}: {same} of {of} passes, {faults} faults")
    print(
        f"{good} of {runs} runs of vLLM {vllm.__version__}'s scheduler as asked, "
        f"{passes:,} passes, {hits:,} tokens hit"
    )
    sys.exit(good < runs)


if __name__ == "__main__":
    main()
