"""vLLM's own and our scheduler classes on workloads given as JSON lines; answers on stdout.

Runs in an environment with vLLM and no GPU, with orsched on the path: nothing is computed, every
request yields the tokens that it should.
"""

from __future__ import annotations

import json
import sys
import tempfile
import traceback
from collections import deque
from pathlib import Path

from vllm import SamplingParams
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request

from benchmarks.vllm.real_scheduler import MODEL, PROMPT_TOKEN, YIELDED_TOKEN, scheduler

TICK_S = 1e-6
"""Time from one arrival to the next of those that come before one step."""


def request(row, values, place, step_s):
    """Return a request; what an order may know comes with it as a client would send it."""
    known = {"predicted_tokens": values["predicted"], "output_tokens": values["output"]}
    return Request(
        request_id=str(row),
        prompt_token_ids=[PROMPT_TOKEN] * values["prompt"],
        sampling_params=SamplingParams(
            max_tokens=values["output"], ignore_eos=True, extra_args=known
        ),
        pooling_params=None,
        arrival_time=values["arrival"] * step_s + place * TICK_S,
        priority=values["priority"],
    )


class Engine:
    """The scheduler in the loop of vLLM's engine: with ``ahead``, one step ahead of the outputs."""

    def __init__(self, case, model):
        self.core = scheduler(case, model)
        self.ahead = case["async"]
        self.reference = case["reference"]
        self.pending = deque()
        self.step = self.misplaced = self.admitted = self.preemptions = 0
        self.stages = self.mixed = 0  # passes with prompts, and those of them with a round as well
        self.finish = {}

    def iterate(self):
        """Schedule a step and take the output of the oldest that is not back."""
        expected = self.in_line()
        before = len(expected)
        decoding = {each.request_id for each in self.core.running if not each.is_prefill_chunk}
        out = self.core.schedule()
        prefilled = set(out.num_scheduled_tokens) - decoding
        self.stages += bool(prefilled)
        self.mixed += 0 < len(prefilled) < len(out.num_scheduled_tokens)
        waited = set(expected)
        entered = [each.request_id for each in self.core.running if each.request_id in waited]
        self.admitted += len(entered)
        self.misplaced += sum(
            a != b for a, b in zip(entered, expected[: len(entered)], strict=True)
        )
        assert before >= len(entered)
        self.preemptions += len(out.preempted_req_ids or ())
        self.pending.append((self.step, out, self.result(out)))
        self.step += 1
        most = self.ahead if out.num_scheduled_tokens else 0
        while len(self.pending) > most:
            self.take()

    def in_line(self):
        """Return who waits in the order in which they should be admitted."""
        waiting = [
            each
            for each in self.core.waiting
            if not (each.num_stale_output_tokens and not each.drop_stale_output)
        ]
        names = [each.request_id for each in waiting]
        if self.reference is not None:
            names.sort(key=lambda name: self.reference[int(name)])
        return names

    def result(self, out):
        """Return what the model would: a token for each request that is not in its prefill."""
        names = list(out.num_scheduled_tokens)
        states = [self.core.requests[name] for name in names]
        sampled = [[] if state.is_prefill_chunk else [YIELDED_TOKEN] for state in states]
        places = {name: place for place, name in enumerate(names)}
        return ModelRunnerOutput(req_ids=names, req_id_to_index=places, sampled_token_ids=sampled)

    def take(self):
        """Tell the scheduler of the oldest output."""
        step, out, result = self.pending.popleft()
        answers = self.core.update_from_output(out, result)
        for outputs in answers.values():
            for each in outputs.outputs:
                if each.finish_reason is not None:
                    assert each.request_id not in self.finish
                    self.finish[each.request_id] = step + 1


def answer(case, model):
    """Run a case to its end."""
    engine, rows = Engine(case, model), case["requests"]
    waiting = deque(sorted(range(len(rows)), key=lambda row: (rows[row]["arrival"], row)))
    place = 0
    while waiting or engine.core.has_unfinished_requests() or engine.pending:
        while waiting and rows[waiting[0]]["arrival"] <= engine.step:
            row = waiting.popleft()
            engine.core.add_request(request(row, rows[row], place, case["step_s"]))
            place += 1
        engine.iterate()
    registry = getattr(engine.core, "request_registry", None)
    return {
        "id": case["id"],
        "class": type(engine.core).__name__,
        "steps": max(engine.finish.values()),
        "finish": [engine.finish[str(row)] for row in range(len(rows))],
        "admitted": engine.admitted,
        "misplaced": engine.misplaced,
        "preemptions": engine.preemptions,
        "stages": engine.stages,
        "mixed": engine.mixed,
        "left_in_registry": 0 if registry is None else len(registry.known) + len(registry.keys),
    }


def main():
    """Answer each line by a line."""
    with tempfile.TemporaryDirectory() as model:
        (Path(model) / "config.json").write_text(json.dumps(MODEL))
        for line in sys.stdin:
            case = json.loads(line)
            try:
                found = answer(case, model)
            except Exception:  # one case that vLLM refuses must not end the others
                found = {"id": case["id"], "error": traceback.format_exc()[-900:]}
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
