"""vLLM's engine, driven by orsched or by its own scheduler, and a record of its forward passes."""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import replace
from time import perf_counter_ns, thread_time_ns

import numpy as np

from orsched.checker import check
from orsched.data.schedule import DECODE
from orsched.heuristics.continuous.async_scheduling import engine_steps
from orsched.runner.devices.device import warm_up
from orsched.runner.devices.settings import WorkerSettings
from orsched.runner.loop.live import execute_policy
from orsched.runner.loop.resume import Prompts
from orsched.runner.policy_source import policy_source
from orsched.runner.vllm_worker.device import VllmDevice
from orsched.runner.vllm_worker.engine import arguments_of, imported


class Record:
    """What vLLM's scheduler puts into passes, and the time in which its model executes them.

    ``clock``: CPU time of this thread where vLLM computes on the CPU, else the wall's.
    """

    def __init__(self, llm):
        from vllm.platforms import current_platform

        self.clock = thread_time_ns if current_platform.is_cpu() else perf_counter_ns
        core = llm.engine_core.engine_core
        self.scheduler, self.executor = core.scheduler, core.model_executor
        self.schedule = self.scheduler.schedule
        self.scheduler.schedule = self.scheduled
        for name in ("execute_model", "sample_tokens"):
            setattr(self.executor, name, self.timed(getattr(self.executor, name)))
        self.clear()

    def clear(self):
        """Forget the passes so far."""
        self.passes, self.model_ns = [], 0

    def scheduled(self, *given, **more):
        """Schedule a pass and keep what it holds."""
        out = self.schedule(*given, **more)
        if out.num_scheduled_tokens:
            self.passes.append(dict(out.num_scheduled_tokens))
        return out

    def timed(self, call):
        """Return a method whose time is counted."""

        def count(*given, **more):
            start = self.clock()
            try:
                return call(*given, **more)
            finally:
                self.model_ns += self.clock() - start

        return count


class Done:
    """A run: passes (request -> tokens) as vLLM had them, tokens, and where the time went."""

    def __init__(self, record, rows, tokens, taken_ns):
        self.passes = [{rows[name]: n for name, n in each.items()} for each in record.passes]
        self.tokens, self.taken_ns = tokens, taken_ns
        self.model_share = record.model_ns / taken_ns


class Driven:
    """vLLM driven by orsched: one engine for several runs."""

    def __init__(self, settings):
        self.device = VllmDevice(settings)
        warm_up(self.device, settings.slots, settings.length, [8, settings.length // 2])
        self.record, self.add = Record(self.device.engine.llm), self.device.engine.add
        self.device.engine.add = self.added

    def added(self, prompt, slot):
        """Note which request enters: its prompt is that of no other."""
        name = self.add(prompt, slot)
        fits = (row for row, each in enumerate(self.prompts) if prompt[: len(each)] == each)
        self.rows[name] = next(fits)
        return name

    def run(self, instance, method, **parameters):
        """Run a method; return the run, its schedule, and the schedule that was planned."""
        source = policy_source(instance, method, parameters=parameters or None, seed=0)
        vocabulary = self.device.vocabulary
        prompts = Prompts(instance, 0, vocabulary)
        self.prompts, self.rows = [prompts.of(row) for row in range(len(instance))], {}
        if instance.caches_prefixes:
            self.device.engine.forget_prefixes()
        self.record.clear()
        start = self.record.clock()
        done = execute_policy(instance, source.policy, self.device, 0, vocabulary)
        taken_ns = self.record.clock() - start
        assert not done.stopped, done.stopped
        faults = check(instance, done.schedule, times="measured")
        run = Done(self.record, self.rows, done.tokens, taken_ns)
        return run, done.schedule, source.plan, len(faults)

    def close(self):
        """End the engine."""
        self.device.close()


class Stock:
    """vLLM with its own scheduler, with the sizes of a driven engine."""

    def __init__(self, settings, budget):
        imported()
        import torch
        from vllm import EngineArgs, LLMEngine
        from vllm.platforms import current_platform

        platform = "cpu" if current_platform.is_cpu() else "cuda"
        with tempfile.TemporaryDirectory() as folder:
            torch.set_num_threads(settings.threads or torch.get_num_threads())
            given = arguments_of(settings, platform, folder) | dict(settings.arguments)
            given |= {"max_num_batched_tokens": budget, "scheduler_reserve_full_isl": True}
            config = EngineArgs(**given).create_engine_config()
            config.scheduler_config.async_scheduling = bool(given["async_scheduling"])
            self.llm = LLMEngine.from_vllm_config(config, disable_log_stats=True)
        self.record = Record(self.llm)
        self.vocabulary = self.llm.model_config.get_vocab_size()

    def run(self, instance):
        """Serve all requests, as vLLM decides."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        prompts, rows = Prompts(instance, 0, self.vocabulary), {}
        for row, output in enumerate(instance.requests.output_tokens.tolist()):
            wanted = SamplingParams(
                temperature=0.0, max_tokens=output, ignore_eos=True, detokenize=False,
                output_kind=RequestOutputKind.DELTA,
            )  # fmt: skip
            rendered = {"type": "token", "prompt_token_ids": prompts.of(row)}
            rows[self.llm.add_request(str(row), rendered, wanted)] = row
        tokens = [[] for _ in range(len(instance))]
        self.record.clear()
        start = self.record.clock()
        while self.llm.has_unfinished_requests():
            for out in self.llm.step():
                tokens[int(out.request_id)] += out.outputs[0].token_ids
        return Done(self.record, rows, tokens, self.record.clock() - start)

    def close(self):
        """End the engine."""
        self.llm.engine_core.shutdown()


def settings_of(instance, model, threads=None, **arguments):
    """Return what a worker of an instance is."""
    requests, memory = instance.requests, instance.worker.memory
    cached = memory is not None and memory.prefix_cache is not None
    return WorkerSettings(
        model=model, slots=instance.worker.clients, device="auto", dtype="auto", worker="vllm",
        threads=threads, length=int((requests.prompt_tokens + requests.output_tokens).max()),
        stored_blocks=memory.blocks if cached else 0,
        block_tokens=memory.block_tokens if cached else 1,
        arguments=tuple(arguments.items()),
    )  # fmt: skip


def passes_of(instance, schedule):
    """Return the passes of a schedule: request -> tokens, those of requests that are held too.

    Where the first token comes from a round, the round processes the last token of the prompt.
    """
    work = schedule.work
    served = replace(work, phase=np.minimum(work.phase, DECODE))
    found = [dict(step.tokens) for step in engine_steps(schedule.replace(work=served))]
    if instance.first_token == "prefill":
        return found
    left = instance.requests.prompt_tokens.tolist()
    for each in found:
        for row, tokens in list(each.items()):
            left[row] -= tokens
            if left[row] == 0:
                each[row] -= 1
    return [{row: tokens for row, tokens in each.items() if tokens} for each in found]


def equal(some, others):
    """Return how many passes are equal at their places, and of how many."""
    pairs = zip(some, others, strict=False)
    return sum(a == b for a, b in pairs), max(len(some), len(others))


@contextlib.contextmanager
def open_engine(kind, *given, **more):
    """Yield an engine, and end it."""
    engine = kind(*given, **more)
    try:
        yield engine
    finally:
        engine.close()
