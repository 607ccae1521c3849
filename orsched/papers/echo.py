"""Echo (Wang et al., arXiv 2504.03651): bulk work beside a day of interactive requests.

The setting comes first, then the figures.
"""

from __future__ import annotations

from functools import cache
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.checker import check
from orsched.common.units import NS_PER_S
from orsched.costs import LinearCost
from orsched.data.instance import Instance
from orsched.data.memory import BlockMemory, PrefixCache
from orsched.data.prefixes import Prefixes
from orsched.data.requests import BATCH, INTERACTIVE, Requests
from orsched.data.service_classes import ServiceClass
from orsched.data.workers import Worker
from orsched.heuristics.echo import MemoryForecast
from orsched.instances.streams import stream
from orsched.instances.synthetic import lognormal_tokens
from orsched.metrics.timeline import Timeline
from orsched.metrics.token_times import token_times
from orsched.papers.reruns import Rerun, pick, setting
from orsched.simulator import simulate_policy
from orsched.solving.method_choice import choose

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from orsched.data.step import Step
    from orsched.papers.reruns import Row, Values
    from orsched.simulator.policy import View

    Tokens = NDArray[np.int64]
    Column = NDArray[np.int64]


SETTING = setting("echo")


def machine(attention: bool = False) -> LinearCost:
    """Return the time of steps; with ``attention`` prompt tokens take time for what they attend."""
    times = SETTING["attending_machine" if attention else "machine"]
    return LinearCost(**{f"{name}_fs": round(1_000_000 * ns) for name, ns in times.items()})


def sharegpt(name: str, count: int, seed: int) -> tuple[Tokens, Tokens]:
    """Return prompt and answer tokens of chats: two log-normals of the shape of ShareGPT's."""
    prompts, answers = SETTING["chat_prompts"], SETTING["chat_answers"]
    return (lognormal_tokens(f"echo/{name}/prompts", seed, count, *prompts),
            lognormal_tokens(f"echo/{name}/answers", seed, count, *answers))  # fmt: skip


def arrivals_ns(seed: int, day_s: float) -> Tokens:
    """Return the arrivals of a day: a Poisson process whose rate follows the hours, with bursts."""
    minutes = np.arange(1_440)
    hours = (minutes + 0.5) / 60
    rates, bursts = SETTING["rates"], SETTING["bursts"]
    curve = np.interp(hours, np.arange(-1, 26) + 0.5, (rates[-1], *rates, *rates[:2]))
    noise = stream("echo/bursts", seed).standard_normal(1_440)
    expected = curve / max(rates) * SETTING["peak_rate"] * np.exp(bursts * noise - bursts**2 / 2)
    width = day_s / 1_440
    generator = stream("echo/arrivals", seed)
    counts = generator.poisson(expected * width)
    begins = np.repeat(minutes * width, counts)
    times = begins + generator.random(len(begins)) * width
    found: Tokens = np.sort(np.rint(times * NS_PER_S)).astype(np.int64)
    return found


def _documents(
    of: dict[str, Any], requests: int, seed: int
) -> tuple[Tokens, Tokens, Tokens, Tokens]:
    """Return prompts, answers, documents and shared tokens of a bulk workload, in random order.

    The requests on a document are spread as a Poisson number whose mean is drawn from a gamma law;
    where that is wider than the law asked for, all documents have as many.
    """
    generator = stream("echo/documents", seed)
    of_one, spread = of["of_one"]
    count = max(1, round(requests / of_one))
    beyond = max(0.0, spread**2 - of_one) / of_one**2
    if beyond:
        weight = generator.gamma(1 / beyond, size=count)
        document = generator.choice(count, requests, p=weight / weight.sum())
    else:
        document = generator.permutation(np.arange(requests) % count)
    prompt, spread = of["prompt"]
    sigma = float(np.sqrt(np.log(1 + (spread / prompt) ** 2)))
    shared, own = prompt * of["shared"], prompt * (1 - of["shared"])
    length = lognormal_tokens("echo/lengths", seed, count, shared, sigma, 64, 100_000)
    rest = lognormal_tokens("echo/own", seed, requests, own, 0.3, 8, 20_000)
    answers = lognormal_tokens("echo/answers", seed, requests, *of["answer"])
    return length[document] + rest, answers, document, length[document]


@cache
def instance(
    workload: str, seed: int, day_s: float, bulk_share: float = 1.0, attention: bool = False
) -> Instance:
    """Return bulk requests that are all available at time 0 and a day's interactive requests.

    ``bulk_share`` cuts the number of bulk requests of a workload.
    """
    of = SETTING["workloads"][workload]
    count = round(of["requests"] * bulk_share)
    if workload == "sharegpt":
        prompts, answers = sharegpt("bulk", count, seed)
        document, shared = np.full(count, -1), np.zeros(count, np.int64)
    else:
        prompts, answers, document, shared = _documents(of, count, seed)
    times = arrivals_ns(seed, day_s)
    chats, replies = sharegpt("online", len(times), seed)
    none, size = np.zeros(len(times), np.int64), SETTING["block_tokens"]
    requests = Requests(
        np.concatenate([prompts, chats]),
        np.concatenate([answers, replies]),
        arrival_ns=np.concatenate([np.zeros(len(prompts), np.int64), times]),
        service_class=np.repeat([BATCH, INTERACTIVE], [len(prompts), len(times)]),
        prefixes=Prefixes.from_documents(
            np.concatenate([document, none - 1]), np.concatenate([shared, none]), size
        ),
    )
    limits = ServiceClass("interactive", SETTING["ttft_s"], SETTING["tpot_s"])
    memory = BlockMemory(SETTING["blocks"], size, "paged", PrefixCache())
    worker = Worker(SETTING["clients"], machine(attention), memory=memory, name="a100-40gb")
    return Instance(
        requests, (worker,), first_token="prefill", name=f"echo-{workload}",
        classes=(limits, ServiceClass("batch")),
    )  # fmt: skip


SAMPLES = 2_000
"""About so many times a day what runs is looked at."""

WINDOWS = {"15_minutes": 1 / 96, "hour": 1 / 24}
"""Pasts that the memory forecast looks at, as shares of the day (7.4 and 5.3)."""

SHARES = (1, *range(5, 100, 5), 99)


class Sampler:
    """Looks at the worker now and then: interactive and bulk requests on it, memory blocks of the
    interactive ones and blocks that any request holds."""

    def __init__(self, problem: Instance, day_s: float) -> None:
        self.bulk: list[bool] = problem.bulk.tolist()
        self.day_ns = round(day_s * NS_PER_S)
        self.next_ns = 0
        self.times_ns: list[int] = []
        self.samples: list[tuple[int, int, int, int]] = []

    def __call__(self, view: View, step: Step) -> None:
        """Look at the worker before a step."""
        if not self.next_ns <= view.now_ns <= self.day_ns:
            return
        self.next_ns = view.now_ns + self.day_ns // SAMPLES
        memory = view.worker.memory
        assert memory is not None
        online = [each for each in view.running if not self.bulk[each]]
        held = sum(-(-view.cached(each) // memory.block_tokens) for each in online)
        used = memory.blocks - (view.blocks_unused or 0)
        self.times_ns.append(view.now_ns)
        self.samples.append((len(online), len(view.running) - len(online), held, used))


def _jobs(settings: Mapping[str, Any]) -> list[Row]:
    given = {name: settings[name] for name in ("day_s", "bulk_share", "attention")}
    return [
        {"workload": workload, "policy": policy, "seed": seed, **given}
        for seed in range(settings["seeds"])
        for workload in settings["workloads"]
        for policy in settings["policies"]
    ]


def _problem(job: Mapping[str, Any]) -> Instance:
    attention = bool(job["attention"])
    return instance(job["workload"], job["seed"], job["day_s"], job["bulk_share"], attention)


def _run(job: Row) -> Row:
    """Return what a policy yields up to the end of the day; lists are by hour or by share.

    ``bulk`` is the proven bound on bulk tokens at an attainment of 90 %, not a policy.
    """
    problem, day_s = _problem(job), job["day_s"]
    if job["policy"] == "bound":
        from orsched.models.bounds.bulk_bound import bulk_bound

        return {
            "bulk_tokens_per_s": bulk_bound(problem, 0.9, day_s, measure="in_time").value / day_s
        }
    chosen = choose(job["policy"])
    method: Any = chosen.method
    hour = {"window_s": day_s / 24} if method.name == "echo" else {}
    given = {**hour, **chosen.parameters}
    policy, _ = method.build(problem, chosen.information, given, job["seed"])
    sampler = Sampler(problem, day_s)
    schedule = simulate_policy(problem, policy, sampler).schedule
    wrong = check(problem, schedule, limit=1)
    if wrong:
        raise AssertionError(f"the checker rejects the schedule: {wrong[0]}")
    line = Timeline(problem, schedule)
    hits = schedule.work.hit
    found = np.zeros(len(line.row), np.int64) if hits is None else hits[line.row]
    return {
        **_tokens(problem, line, day_s), **_by_hour(sampler, day_s),
        **_hit_rates(problem, line, found, day_s), "all_done_s": schedule.makespan_ns / NS_PER_S,
    }  # fmt: skip


def _tokens(problem: Instance, line: Timeline, day_s: float) -> Row:
    """Return bulk tokens, requests answered, shares in time, and latencies by share of requests.
    Each bulk token yielded counts with its part of the prompt, as in ``bulk_bound``."""
    n, requests, bulk = len(problem), problem.requests, problem.bulk
    ttft, tpot = (
        np.array([getattr(each, name) or 0 for each in problem.classes])[requests.service_class]
        for name in ("ttft_ns", "tpot_ns")
    )
    yielded, late, last = (np.zeros(n, np.int64) for _ in range(3))
    first = np.full(n, 2**62)
    due = requests.arrival_ns + ttft
    for request, index, time in token_times(line, np.ones(n, bool)):
        yielded += np.bincount(request[time <= day_s * NS_PER_S], minlength=n)
        np.minimum.at(first, request, time)
        np.maximum.at(last, request, time)
        behind = (time > due[request] + index * tpot[request]) & ~bulk[request]
        late += np.bincount(request[behind], minlength=n)
    outputs, people = requests.output_tokens, ~bulk
    done = (requests.prompt_tokens + outputs) * yielded / outputs
    waits = ((first - requests.arrival_ns)[people] / 1e6, (last - first)[people] / 1e6)
    paces = waits[1] / np.maximum(outputs[people] - 1, 1)
    return {
        "bulk_tokens_per_s": float(done[bulk].sum()) / day_s,
        "answered": int((yielded == outputs)[bulk].sum()),
        "attainment_%": 100 * float((late[people] == 0).mean()),
        "tokens_in_time_%": 100 * (1 - int(late[people].sum()) / int(outputs[people].sum())),
        "ttft_ms": np.percentile(waits[0], SHARES).tolist(),
        "tpot_ms": np.percentile(paces, SHARES).tolist(),
    }


def _by_hour(sampler: Sampler, day_s: float) -> Row:
    """Return means of what was seen in each hour, and how often the forecast was enough."""
    times, seen = np.array(sampler.times_ns), np.array(sampler.samples, float)
    hours = np.minimum(times * 24 // sampler.day_ns, 23)
    columns = {"interactive": seen[:, 0], "bulk": seen[:, 1], "interactive_blocks": seen[:, 2],
               "running_interactive_%": 100 * seen[:, 2] / SETTING["blocks"],
               "running_bulk_%": 100 * (seen[:, 3] - seen[:, 2]) / SETTING["blocks"],
               "free_%": 100 * (1 - seen[:, 3] / SETTING["blocks"])}  # fmt: skip
    found: Row = {"correlation": float(np.corrcoef(seen[:, :2].T)[0, 1])}
    found["half_of_memory_busy_%"] = 100 * float((seen[:, 3] > SETTING["blocks"] / 2).mean())
    for name, share in WINDOWS.items():
        forecast, told = MemoryForecast(day_s * share, 2.0), []
        for now, held in zip(times.tolist(), seen[:, 2].astype(int).tolist(), strict=True):
            told.append(forecast.blocks(now))
            forecast.see(now, held)
        columns[f"forecast_{name}_blocks"] = np.array(told, float)
        found[f"covered_{name}_%"] = 100 * float((np.array(told) >= seen[:, 2]).mean())
    count = np.maximum(np.bincount(hours, minlength=24), 1)
    return found | {name: (np.bincount(hours, column, minlength=24) / count).tolist()
                    for name, column in columns.items()}  # fmt: skip


def _hit_rates(problem: Instance, line: Timeline, hits: Column, day_s: float) -> Row:
    """Return the share of bulk prompt tokens found in the cache, over the day and by hour."""
    hours = line.end_ns[line.first] * 24 // round(day_s * NS_PER_S)
    rows = np.flatnonzero(line.is_prefill & problem.bulk[line.request] & (hours < 24))
    hit, computed = (
        np.bincount(hours[rows], column[rows], minlength=24) for column in (hits, line.tokens)
    )
    rates = 100 * hit / np.maximum(hit + computed, 1)
    whole = 100 * float(hit.sum() / max(hit.sum() + computed.sum(), 1))
    return {"hit_rate_%": whole, "hits_%": rates.tolist()}


def _whole_days(done: Sequence[tuple[Row, Row]], settings: Mapping[str, Any]) -> list[Row]:
    """Return a row for each workload and policy, means over seeds, beside the first policy."""
    rows: list[Row] = []
    for job, figures in _mean_runs(done):
        at = {name: job[name] for name in ("workload", "policy")}
        scalars = {name: x for name, x in figures.items() if not isinstance(x, list)}
        base = next((r for r in rows if r["workload"] == job["workload"]), scalars)
        times = scalars["bulk_tokens_per_s"] / base["bulk_tokens_per_s"]
        rows.append(at | {"throughput_x": times} | scalars)
    return rows


def _mean_runs(done: Sequence[tuple[Row, Row]]) -> list[tuple[Row, Row]]:
    """Return each workload and policy with its figures, means over seeds."""
    runs: dict[tuple[str, str], list[tuple[Row, Row]]] = {}
    for job, figures in done:
        runs.setdefault((job["workload"], job["policy"]), []).append((job, figures))
    return [
        (own[0][0], {name: np.mean([figures[name] for _, figures in own], axis=0).tolist()
                     for name in own[0][1]})
        for own in runs.values()
    ]  # fmt: skip


def _hours(done: Sequence[tuple[Row, Row]], settings: Mapping[str, Any]) -> list[Row]:
    """Return a row for each policy and hour; figures of the day are in all of its rows."""
    return _unrolled(done, ("ttft_ms", "tpot_ms"), "hour", range(24))


def _distributions(done: Sequence[tuple[Row, Row]], settings: Mapping[str, Any]) -> list[Row]:
    """Return a row for each policy and share of the requests that are at least as fast."""
    own = ("ttft_ms", "tpot_ms")
    hourly = [name for name, x in done[0][1].items() if isinstance(x, list) and name not in own]
    return _unrolled(done, hourly, "share_%", SHARES)


def _unrolled(
    done: Sequence[tuple[Row, Row]], without: Sequence[str], place: str, at: Sequence[int]
) -> list[Row]:
    return [
        {"policy": job["policy"], place: name}
        | {key: x[k] if isinstance(x, list) else x for key, x in figures.items()
           if key not in without}
        for job, figures in _mean_runs(done) for k, name in enumerate(at)
    ]  # fmt: skip


def _values(rows: list[Row]) -> Values:
    """Return the figures of each policy's day; of several workloads, with the workload before."""
    found: Values = {}
    several = len({row.get("workload") for row in rows}) > 1
    for row in rows:
        of = f"{row['workload']}_" if several else ""
        skipped = ("workload", "policy", "hour", "share_%")
        for name, value in row.items():
            if name not in skipped:
                found.setdefault(f"{of}{row['policy']}_{name}", value)
    if "hour" in rows[0]:
        for policy in {row["policy"] for row in rows}:
            for hours, word in (((4, 5), "night"), ((12, 13), "peak")):
                own = [row for row in pick(rows, policy=policy) if row["hour"] in hours]
                for name in ("interactive", "bulk", "hits_%"):
                    found[f"{policy}_{word}_{name}"] = fmean(row[name] for row in own)
            fall = found[f"{policy}_night_hits_%"] - found[f"{policy}_peak_hits_%"]
            found[f"{policy}_fall_at_peak_points"] = fall
    if "share_%" in rows[0]:
        for row in pick(rows, **{"share_%": 50}):
            found[f"{row['policy']}_median_ttft_ms"] = row["ttft_ms"]
    gains = {k: v for k, v in found.items() if k.endswith("_throughput_x")}
    ours = [name for name in gains if name.endswith("_echo_throughput_x")]
    for name in ours:
        without = gains.get(name.replace("_echo_", "_echo-bs-e-s_"))
        if without:
            found[name.replace("echo_throughput", "manager")] = gains[name] / without
    return found | ({"most_echo_x": max(gains[name] for name in ours)} if ours else {})


def _shapes(job: Row) -> Row:
    problem = instance(job["workload"], job["seed"], job["day_s"])
    bulk, prefixes = problem.bulk, problem.requests.prefixes
    assert prefixes is not None
    tokens = problem.requests.prompt_tokens[bulk]
    shared = int(prefixes.counts[bulk].sum()) * prefixes.block_tokens
    return {"mean_prompt": float(tokens.mean()), "shared_%": 100 * shared / int(tokens.sum())}


def _shape_values(rows: list[Row]) -> Values:
    return {f"{row['workload']}_{name}": row[name] for row in rows for name in row
            if name != "workload"}  # fmt: skip


def _trace(job: Row) -> Row:
    """Return arrivals by hour, and how uneven they are from minute to minute of the peak."""
    times, day_ns = arrivals_ns(job["seed"], job["day_s"]), round(job["day_s"] * NS_PER_S)
    minutes = np.bincount(times * 1440 // day_ns, minlength=1440)
    peak = minutes[12 * 60 : 14 * 60]
    return {"requests": minutes.reshape(24, 60).sum(axis=1).tolist(),
            "dispersion_at_peak": float(peak.var() / peak.mean())}  # fmt: skip


def _trace_rows(done: Sequence[tuple[Row, Row]], settings: Mapping[str, Any]) -> list[Row]:
    mean = np.mean([figures["requests"] for _, figures in done], axis=0)
    uneven = fmean(figures["dispersion_at_peak"] for _, figures in done)
    return [{"hour": hour, "requests": float(x), "dispersion_at_peak": uneven}
            for hour, x in enumerate(mean)]  # fmt: skip


def _trace_values(rows: list[Row]) -> Values:
    by_hour = [row["requests"] for row in rows]
    ratio = (by_hour[12] + by_hour[13]) / (by_hour[4] + by_hour[5])
    return {"peak_over_night": ratio, "dispersion_at_peak": rows[0]["dispersion_at_peak"]}


def _each(*names: str) -> Any:
    """Return jobs of each seed, and of each workload where ``workloads`` is a setting."""
    return lambda settings: [
        {"seed": seed} | {name: settings[name] for name in names} | each
        for each in [{"workload": w} for w in settings.get("workloads", ())] or [{}]
        for seed in range(settings["seeds"])
    ]


SHOWN = {"days": _whole_days, "hours": _hours, "distributions": _distributions}
"""Rows by what a figure shows of the same runs."""

RERUNS = {
    "runs": Rerun(_jobs, _run, _values, lambda done, given: SHOWN[given["show"]](done, given)),
    "shapes": Rerun(_each("day_s"), _shapes, _shape_values),
    "trace": Rerun(_each("day_s"), _trace, _trace_values, _trace_rows),
}
