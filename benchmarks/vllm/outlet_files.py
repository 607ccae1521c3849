"""The outlet's files, read by vLLM's own tools, and the result of its benchmark, read back.

python -m benchmarks.vllm.outlet_files PYTHON_WITH_VLLM
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import orsched
from orsched.runner.vllm_outlet import (
    in_order,
    priorities,
    read_request_times,
    write_batch,
    write_timed_trace,
)
from orsched.runner.vllm_outlet.bench_results import sent_order

COUNT = 40
ROOT = Path(__file__).resolve().parents[2]


def make_plan():
    """Return an instance with arrivals in half a second, and a plan of it."""
    rng = random.Random(1)
    half = COUNT // 2
    requests = orsched.Requests(
        [rng.randint(1, 200) for _ in range(COUNT)],
        [rng.randint(1, 40) for _ in range(COUNT)],
        arrival_ns=[0] * half + sorted(rng.randint(1, 500_000_000) for _ in range(COUNT - half)),
    )
    instance = orsched.Instance(
        requests, orsched.Worker(8), output_limit_tokens=40, first_token="decode"
    )
    return instance, orsched.solve(instance, method="sjf").schedule


def write_inputs(instance, schedule, folder):
    """Write the trace, and a batch file with priorities."""
    write_timed_trace(instance, schedule, folder / "trace.jsonl")
    lines = []
    for row in range(len(instance)):
        body = {"model": "none", "messages": [{"role": "user", "content": f"question {row}"}]}
        item = {"custom_id": str(row), "method": "POST", "url": "/v1/chat/completions"}
        lines.append(json.dumps({**item, "body": body}) + "\n")
    (folder / "in.jsonl").write_text("".join(lines))
    write_batch(instance, schedule, folder / "in.jsonl", folder / "batch.jsonl")


def faults(instance, schedule, notes, times):
    """Yield what is wrong."""
    ranks = priorities(instance, schedule)
    if notes["priorities"] != {str(row): ranks[row] for row in range(COUNT)}:
        yield "the batch has other priorities"
    if list(map(int, notes["priorities"])) != in_order(instance, schedule):
        yield "the batch has another order"
    requests, rows = instance.requests, sent_order(instance, schedule)
    expected = [
        (int(requests.prompt_tokens[row]), int(requests.output_tokens[row])) for row in rows
    ]
    asked = [tuple(each[:2]) for each in notes["asked"]]
    if sorted(asked) != sorted(expected):
        yield "the server was asked for other lengths"
    if not all(each[2] for each in notes["asked"]):
        yield "the client does not ignore the end of sequence"
    starts = [tuple(each[3]) for each in notes["asked"] if len(each[3]) == 8]
    if len(set(starts)) < len(starts):
        yield "two prompts begin alike"
    late = times.requests.arrival_ns - requests.arrival_ns
    if abs(late).max() > 10**9:
        yield "requests were not sent at the times of the trace"
    figures = times.figures()
    if figures["output_tokens"] != int(requests.output_tokens.sum()):
        yield "tokens are missing in the result"


def check(python):
    """Print what vLLM's tools made of the files; return the number of faults."""
    instance, schedule = make_plan()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_inputs(instance, schedule, folder)
        files = [str(folder / each) for each in ("trace.jsonl", "batch.jsonl", "result.json")]
        done = subprocess.run(
            [python, "-m", "benchmarks.vllm.outlet_bench", *files],
            capture_output=True, text=True, check=False, cwd=ROOT,
        )  # fmt: skip
        if done.returncode:
            print(f"vLLM's tools refuse the files: {done.stderr[-1500:]}")
            return 1
        notes = json.loads(done.stdout.splitlines()[-1])
        times = read_request_times(files[2]).in_rows_of(sent_order(instance, schedule))
    found = list(faults(instance, schedule, notes, times))
    compared = len(times.against_plan(instance, schedule))
    for fault in found:
        print(f"  WRONG: {fault}")
    lines, sent = len(notes["priorities"]), len(notes["asked"])
    print(
        f"vLLM's tools: {lines} lines of a batch, {sent} requests of a trace sent, "
        f"{compared} figures read back, {len(found)} faults"
    )
    return len(found)


if __name__ == "__main__":
    sys.exit(check(sys.argv[1]) > 0)
