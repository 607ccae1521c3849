"""What reuse of prefixes saves and costs on a torch worker, on this machine's CPU.

python -m benchmarks.speed.prefix_reuse [--model small] [--repeats N] [--tiny]
"""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import process_time_ns
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.speed.section import Options, Section, Target
from orsched import BlockMemory, Instance, Requests, Worker
from orsched.data.memory import PrefixCache
from orsched.data.prefixes import Prefixes
from orsched.runner.execution import run
from orsched.runner.worker.layout import Chunk
from orsched.runner.worker_pool import RunSettings

if TYPE_CHECKING:
    from orsched.runner.execution import RunResult

NAME = "prefix_reuse"
BLOCK = 16
SEED = 0


class Case(NamedTuple):
    """Requests that ask about documents, one document after the other.

    Attributes:
        requests, documents: how many.
        shared, own: tokens of a document, and of each question.
        output: tokens of each answer.
    """

    requests: int
    documents: int
    shared: int
    own: int
    output: int


LARGE = Case(24, 4, 384, 40, 8)
SMALL = Case(6, 2, 32, 8, 2)


def instance_of(case: Case, reuse: bool) -> Instance:
    """Return the requests, all at time 0, on a worker with or without a prefix cache."""
    documents = [request * case.documents // case.requests for request in range(case.requests)]
    shared = [case.shared] * case.requests
    requests = Requests(
        [case.shared + case.own] * case.requests,
        [case.output] * case.requests,
        prefixes=Prefixes.from_documents(documents, shared, BLOCK),
    )
    tokens = case.shared + case.own + case.output
    blocks = 2 * case.documents * -(-tokens // BLOCK)
    memory = BlockMemory(blocks, BLOCK, "paged", PrefixCache() if reuse else None)
    return Instance(requests, Worker(2, memory=memory), "prefill")


def main_figures(result: RunResult) -> dict[str, Any]:
    """Return what a run shows: hits, and times to first tokens."""
    work, requests = result.trace.work, result.instance.requests
    first = result.trace.request_times(result.instance)["first_token_ns"] - requests.arrival_ns
    return {
        "hit_rate": float(work.hit.sum() / requests.prompt_tokens.sum()),
        "ttft_mean_s": float(first.mean() / 1e9),
        "makespan_s": result.trace.makespan_ns / 1e9,
    }


def copies(model: str, case: Case, repeats: int) -> dict[str, Any]:
    """Return the CPU time of storing, of loading and of computing a document, in ms."""
    from orsched.runner.devices.settings import WorkerSettings
    from orsched.runner.worker.torch_worker import TorchWorker

    blocks = case.shared // BLOCK
    worker = TorchWorker(
        WorkerSettings(model, 1, case.shared, stored_blocks=blocks, block_tokens=BLOCK)
    )
    assert worker.store is not None
    places = [(block, block) for block in range(blocks)]
    chunk = Chunk(0, 0, [1] * case.shared, True, loads=places, saves=places)
    plain = chunk._replace(loads=(), saves=())
    calls = {
        "compute_ms": lambda: worker.prefill([plain]),
        "store_ms": lambda: worker.save([chunk]),
        "load_ms": lambda: worker.load([chunk]),
    }
    found: dict[str, Any] = {"store_mib": worker.store.bytes() / 2**20}
    for name, call in calls.items():
        times = []
        for _ in range(repeats + 2):
            begin = process_time_ns()
            call()
            times.append(process_time_ns() - begin)
        found[name] = median(times[2:]) / 1e6
    return found


def run_section(options: Options, model: str) -> Section:
    """Measure one model."""
    case = SMALL if options.tiny else LARGE
    section = Section(NAME, f"prefixes reused by a torch worker ({model}, float32, one thread)")
    section.notes = [
        f"{case.requests} requests on {case.documents} documents of {case.shared} tokens, "
        f"questions of {case.own}, answers of {case.output}, blocks of {BLOCK}; vllm's policy, "
        "all at time 0, two at a time.",
        "compute, store, load: CPU time of one document; a stored block takes as much memory "
        "beside the slots as in one.",
    ]
    if find_spec("torch") is None or find_spec("transformers") is None:
        section.notes.append("not measured: the extra orsched[runner] is not installed")
        return section
    settings = RunSettings(model=model, device="cpu", dtype="float32", threads=1)
    runs = {}
    for name, reuse in (("without", False), ("with", True)):
        result = runs[name] = run(instance_of(case, reuse), "vllm", settings, seed=SEED)
        if result.violations:
            raise AssertionError(result.violations)
        section.rows.append({"reuse": name, **main_figures(result)})
    section.rows[1] |= copies(model, case, options.repeats)
    same = [a == b for a, b in zip(runs["without"].tokens, runs["with"].tokens, strict=True)]
    section.targets = [
        Target("requests with the tokens of the run without", sum(same), len(same), "", True),
        Target(
            "TTFT with reuse over without",
            section.rows[1]["ttft_mean_s"] / section.rows[0]["ttft_mean_s"],
            1.0,
            "times",
        ),
    ]
    return section


def main(arguments: list[str]) -> int:
    """Measure, print, and say if a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--model", default="small")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tiny", action="store_true")
    chosen = parser.parse_args(arguments)
    options = Options(Path(), repeats=chosen.repeats, tiny=chosen.tiny)
    section = run_section(options, chosen.model)
    sys.stdout.write(section.text() + "\n")
    return 0 if all(target.passed for target in section.targets) else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
