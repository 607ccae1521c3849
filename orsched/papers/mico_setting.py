"""The setting of MICO's experiments, and one run in it with its KV caches.

Constants are in ``mico.toml``.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.checker import check
from orsched.costs import AffineCost
from orsched.data.instance import Instance
from orsched.data.requests import Requests
from orsched.data.schedule import DECODE, INVALID, MIXED, PREFILL
from orsched.data.workers import Worker
from orsched.heuristics.mico import ABLATION
from orsched.heuristics.mico.mico import MICO
from orsched.instances.datasets import data_directory
from orsched.instances.readers import read
from orsched.instances.streams import stream
from orsched.instances.synthetic import lognormal_tokens
from orsched.papers.entries import setting
from orsched.simulator import simulate_policy
from orsched.simulator.policy import Information

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from orsched.data.schedule import Schedule

    Ints = NDArray[np.int64]

SETTING = setting("mico")


class InsertionCost(AffineCost):
    """An insertion as in section 3.4: every request of the batch is padded to the new prompt."""

    model = "insertion"

    def mixed_ns(
        self, prompts: Sequence[int], active: int, context_sum: int = 0, context_max: int = 0
    ) -> int:
        """Duration of an iteration with new prompts: one fixed part, and all padded tokens."""
        padded = max(prompts) * (len(prompts) + active)
        return self.prefill_fixed_ns + self.prefill_token_ns * padded


def cloud(model: Mapping[str, Any], batch_size: int) -> Worker:
    """Return a cloud; memory never binds (4.1.2: the A6000 suffices)."""
    fixed, token = model["iteration_ns"], model["token_ns"]
    cost = InsertionCost(
        prefill_fixed_ns=fixed, prefill_token_ns=token, round_fixed_ns=fixed, round_client_ns=0
    )
    return Worker(batch_size, cost, padding=True)


def lengths(source: str, count: int, seed: int) -> tuple[Ints, Ints]:
    """Return prompt and answer tokens before the cut; Alpaca's are not at hand.

    ``law``: two log-normals of the shape of ShareGPT's; ``sharegpt``: its pairs, drawn with
    replacement from the data that ``ORSCHED_DATA`` names.
    """
    if source == "sharegpt":
        pairs = read(data_directory() / "sharegpt_10k_llama2_tokens.csv").requests
        rows = stream("mico/rows", seed).integers(0, len(pairs), count)
        return pairs.prompt_tokens[rows], pairs.output_tokens[rows]
    prompts = lognormal_tokens("mico/prompts", seed, count, *SETTING["prompts"])
    return prompts, lognormal_tokens("mico/outputs", seed, count, *SETTING["answers"])


def predictions(outputs: Ints, limit: int, accuracy: float, seed: int) -> Ints:
    """Return the middle of the right class with the given probability, else of a neighbour."""
    buckets = SETTING["buckets"]
    true = np.minimum(outputs * buckets // limit, buckets - 1)
    wrong = stream("mico/wrong", seed).random(len(outputs)) >= accuracy
    up = stream("mico/up", seed).random(len(outputs)) < 0.5
    side = np.where(true == 0, 1, np.where(true == buckets - 1, -1, np.where(up, 1, -1)))
    found: Ints = (2 * (true + side * wrong) + 1) * limit // (2 * buckets)
    return found


def instance(job: Mapping[str, Any]) -> Instance:
    """Return queries that are all available at time 0, in random order (paper)."""
    model, seed = SETTING["models"][job["model"]], job["seed"]
    prompts, outputs = lengths(job["lengths"], job["queries"], seed)
    limit = model["limit"]
    prompts = np.minimum(prompts, round(limit * SETTING["most_prompt"]))
    outputs = np.minimum(outputs, limit - prompts)
    told = predictions(outputs, limit, job["accuracy"], seed)
    return Instance(
        Requests(prompts, outputs, predicted_tokens=told),
        (cloud(model, job["batch"]),) * job["clouds"],
        first_token="prefill",
        output_limit_tokens=limit,
        name="mico",
    )


def scheduled(job: Mapping[str, Any]) -> tuple[Instance, Schedule]:
    """Return the instance of a run and its schedule, which the checker has passed."""
    problem, variant = instance(job), ABLATION[job["variant"]]
    values = {**variant, "backoff": bool(job["backoff"]), "order": job["order"]}
    blind = variant["distribution"] == "quantity"
    information = Information.NONE if blind else Information.PREDICTED
    policy, _ = MICO.build(problem, information, values, job["seed"])
    schedule = simulate_policy(problem, policy).schedule
    wrong = check(problem, schedule, limit=1)
    if wrong:
        raise AssertionError(f"the checker rejects the schedule: {wrong[0]}")
    return problem, schedule


def ends_by_cloud(schedule: Schedule, clouds: int) -> list[Ints]:
    """Return by cloud the sorted times of the last valid token of its queries."""
    steps, work = schedule.steps, schedule.work
    valid = work.phase != INVALID
    request, last = work.request[valid], work.last_step[valid]
    ends, owner = np.zeros((2, int(request.max()) + 1), np.int64)
    np.maximum.at(ends, request, steps.end_ns[last])
    owner[request] = steps.worker[last]
    return [np.sort(ends[owner == k]) for k in range(clouds)]


def cache_lengths(
    problem: Instance, schedule: Schedule
) -> tuple[dict[str, list[int]], dict[str, int]]:
    """Return KV lengths summed over iterations, by cloud, in two layouts; and the peaks:
    ``literal`` as section 3.4 has it, ``engine`` as long as the longest cache present."""
    clouds = range(len(problem.workers))
    runs = {
        rule: [list(kv_lengths(schedule, k, literal=rule == "literal")) for k in clouds]
        for rule in ("literal", "engine")
    }
    sums = {rule: [summed(each) for each in found] for rule, found in runs.items()}
    peaks = {rule: max(first + rounds - 1 for each in found for first, rounds in each)
             for rule, found in runs.items()}  # fmt: skip
    return sums, peaks


def summed(runs: Sequence[tuple[int, int]]) -> int:
    """Return the sum of the KV lengths over all iterations."""
    return sum(rounds * first + rounds * (rounds - 1) // 2 for first, rounds in runs)


def kv_lengths(schedule: Schedule, worker: int, literal: bool) -> Iterator[tuple[int, int]]:
    """Yield (KV length after the first round, rounds) of each step of a padding worker. Each
    position has the part of the cache that begins where its request does; what lies before all of
    them is released. ``literal``: an insertion lengthens the cache by the whole new prompt."""
    steps, work = schedule.steps, schedule.work
    joins, leaves = defaultdict(list), defaultdict(list)
    last: dict[int, int] = {}
    for i in range(len(work.request)):
        request = int(work.request[i])
        if work.phase[i] == PREFILL:
            joins[int(work.first_step[i])].append((request, int(work.tokens[i])))
        assert work.phase[i] in (PREFILL, DECODE, INVALID)
        last[request] = max(last.get(request, 0), int(work.last_step[i]))
    for request, step in last.items():
        leaves[step].append(request)
    length = 0
    begins: dict[int, int] = {}
    for step in np.flatnonzero(steps.worker == worker).tolist():
        phase, rounds, new = int(steps.phase[step]), int(steps.rounds[step]), joins[step]
        grown = max((tokens for _, tokens in new), default=1) if literal or phase == PREFILL else 1
        if phase == MIXED or not new:
            length += grown
        begins |= {request: length - tokens for request, tokens in new}
        yield length - min(begins.values()), rounds
        length += rounds - 1
        for request in leaves[step]:
            del begins[request]
