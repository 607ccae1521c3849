"""The recipe on runs whose true constants are known: those of simulations."""

import json
from dataclasses import replace

import numpy as np
import pytest

from orsched import BlockMemory, Requests, calibration, load, simulate
from orsched.calibration import MODELS, MeasuredRun, Server, Times, fit_run, read_run, recipe
from orsched.calibration.profile_cost import ModelFacts, find_profile, profile_cost
from orsched.calibration.recipe import FactorOfTables, StepWork, TimesOfShape
from orsched.cli.commands import run as command
from orsched.files import load_fitted_cost
from tests.calibration.profile_samples import write
from tests.refusals import refused

SHAPE = MODELS["llama3-8b"]
SERVER = Server(16, token_budget=512)
TRUE = (1.3e6, 6.0e6)
FAMILY = TimesOfShape(SHAPE, SERVER.clients)


def requests(n=60, seed=4, gap_s=0.15):
    dice = np.random.default_rng(seed)
    prompts = dice.lognormal(5.5, 0.8, n).astype(int) + 1
    outputs = dice.lognormal(4.2, 0.6, n).astype(int) + 1
    return Requests(
        prompts, outputs, arrival_ns=np.cumsum(dice.exponential(gap_s * 1e9, n)).astype(int)
    )


def simulated(cost, server=SERVER, **options):
    """Return a run as if a server had taken exactly what the cost model says."""
    some = requests(**options)
    blank = Times(some.arrival_ns, some.arrival_ns, some.arrival_ns, some.output_tokens)
    times = MeasuredRun("true", some, blank, 0).simulate(cost, server)[2]
    return MeasuredRun("true", some, times, 0)


@pytest.mark.parametrize("weighting", ["seconds", "relative"])
def test_the_constants_of_a_shape_are_found_again(weighting):
    run = simulated(FAMILY.cost(TRUE), n=80, gap_s=0.02)
    found = fit_run(run, SERVER, SHAPE, weighting=weighting)
    values = [constant.value for constant in found.constants]
    assert values == pytest.approx([1.3, 6.0], rel=0.03)
    # Steps end on other sides of arrivals while the constants are wrong, so that single short
    # times may stay a step off.
    for rest in (False, True):
        errors = found.errors(rest=rest)
        means = ("makespan", "mean TPOT", "mean TTFT", "mean JCT")
        assert all(abs(errors[name]) < 0.02 for name in means)
    assert found.fitted == 40
    assert all(constant.determined for constant in found.constants)


def bench_result(run, **changes):
    """Return a run as vLLM's benchmark would save it."""
    times, some = run.times, run.requests
    gaps = [
        [(int(last - first) / 1e9) / (n - 1)] * (n - 1) if n > 1 else []
        for first, last, n in zip(times.first, times.last, some.output_tokens.tolist(), strict=True)
    ]
    return json.dumps({
        "total_input_tokens": int(some.prompt_tokens.sum()),
        "total_output_tokens": int(some.output_tokens.sum()),
        "input_lens": some.prompt_tokens.tolist(), "output_lens": some.output_tokens.tolist(),
        "start_times": [1000 + int(at) / 1e9 for at in some.arrival_ns],
        "ttfts": [int(span) / 1e9 for span in times.first - times.arrival], "itls": gaps,
        "errors": [""] * len(some), **changes,
    })  # fmt: skip


def test_a_result_of_vllm_s_benchmark_is_a_run(tmp_path, capsys):
    run = simulated(FAMILY.cost(TRUE))
    path = tmp_path / "bench.json"
    path.write_text(bench_result(run))
    found = read_run(path)
    shift = int(run.times.arrival.min())
    assert abs(found.times.first - (run.times.first - shift)).max() <= 10
    assert abs(found.times.last - (run.times.last - shift)).max() <= 1_000
    given = ["--model", "8b", "--clients", "16", "--token-budget", "512", "--format", "json"]
    assert command(["cost", "--fit", str(path), *given]) == 0
    assert json.loads(capsys.readouterr().out)["run"] == "bench.json"
    path.write_text(bench_result(run, errors=["", "reset"] + [""] * 58))
    refused("orsched vllm results FILE --drop-failed", read_run, path)


OWN = '{"prompt_tokens": 1, "output_tokens": 2}\n'
FOREIGN = '{"timestamp": 1, "input_length": 3, "output_length": 2}\n'


@pytest.mark.parametrize("text", [OWN, FOREIGN])
def test_requests_without_the_times_of_tokens_are_no_run(tmp_path, text):
    (tmp_path / "some.jsonl").write_text(text)
    refused("requests without the times of their tokens", read_run, tmp_path / "some.jsonl")


def test_the_factor_of_a_profile_is_found_again(tmp_path):
    base = profile_cost(find_profile(write(tmp_path)), ModelFacts(32))
    run = simulated(FactorOfTables(base).cost([1.25]), gap_s=0.002)
    found = fit_run(run, SERVER, base)
    (factor,) = found.constants
    assert factor.value == pytest.approx(1.25, rel=1e-3)
    assert factor.standard_error < 1e-3
    assert found.error < 1e-3


def test_a_run_with_little_load_is_met_as_well():
    """Waits of a tenth of a second beside answers of many: from arrival, not from the first one."""
    run = simulated(FAMILY.cost(TRUE), n=80, gap_s=1.0)
    errors = fit_run(run, SERVER, SHAPE).errors(rest=True)
    assert run.times.figures()["mean TTFT"] < 0.2
    assert all(abs(errors[name]) < 0.03 for name in ("makespan", "mean TPOT", "mean TTFT"))


def test_noise_widens_the_intervals_and_they_hold_the_truth():
    exact = simulated(FAMILY.cost(TRUE))
    dice = np.random.default_rng(1)
    spans = exact.times.last - exact.times.first
    last = exact.times.first + (spans * (1 + 0.05 * dice.standard_normal(len(spans)))).astype(int)
    times = replace(exact.times, last=np.maximum(last, exact.times.first))
    noisy = fit_run(replace(exact, times=times), SERVER, SHAPE)
    plain = fit_run(exact, SERVER, SHAPE).constants
    for constant, true, sharp in zip(noisy.constants, (1.3, 6.0), plain, strict=True):
        assert constant.low <= true <= constant.high
        assert constant.standard_error > 3 * sharp.standard_error


def test_what_hangs_on_few_requests_has_no_interval():
    """The second constant counts in the spans of the last block of requests alone."""
    count, family = 40, TimesOfShape(SHAPE, 1)
    places = recipe.owners(count)
    design = np.stack([np.ones(len(places)), (places >= 36) * 1.0], axis=1)
    target = design @ np.array([2.0, 3.0])
    kept = np.ones(len(places), bool)
    best = recipe._Best([2.0, 3.0], 0.0, None, design, target, kept)
    constants = recipe._constants(best, family, count)
    assert [constant.determined for constant in constants] == [False, False]
    assert "not determined by these rows" in constants[1].text()
    design[::3, 1] = 1
    best = best._replace(design=design, target=design @ np.array([2.0, 3.0]))
    assert all(constant.determined for constant in recipe._constants(best, family, count))


def test_rows_are_what_the_cost_says_of_the_steps():
    """The linear form of a family equals its cost model, chunks behind a cache too."""
    cost = FAMILY.cost(TRUE)
    instance, schedule, _ = simulated(cost).simulate(cost, SERVER)
    works = recipe.step_works(instance, schedule)
    assert any(max(work.cached, default=0) > 0 for work in works)
    lengths = schedule.steps.end_ns - schedule.steps.start_ns
    for work, length in zip(works, lengths.tolist(), strict=True):
        assert float(np.dot(FAMILY.row(work), TRUE)) == pytest.approx(length, rel=0.02)
    step, family = StepWork([8], [8], 1, 2, 40), TimesOfShape(SHAPE, SERVER.clients)
    family.cost([2 * part for part in TRUE])
    doubled = np.dot(family.row(step), [2 * part for part in TRUE])
    family.cost(TRUE)
    assert doubled == pytest.approx(2 * np.dot(family.row(step), TRUE))


CSV = "id,arrival_s,prompt_tokens,output_tokens,queued_s,first_token_s,last_token_s\n"


def test_both_kinds_of_files_say_the_same(tmp_path):
    table, lines = tmp_path / "run.csv", tmp_path / "requests.jsonl"
    table.write_text(CSV + "0,0.0,10,4,0.5,0.7,0.9\n1,1.0,11,5,1.25,1.75,2.0\n")
    rows = [(1777000000.0, 10, 4, 90.5, 90.7, 90.9), (1777000001.0, 11, 5, 91.25, 91.75, 92.0)]
    names = ("arrival_time", "input_toks", "output_toks", "queued_ts", "first_token_ts",
             "last_token_ts")  # fmt: skip
    lines.write_text("".join(json.dumps(dict(zip(names, r, strict=True))) + "\n" for r in rows))
    first, second = read_run(table), read_run(lines)
    for run in (first, second):
        # The second request is queued 0.25 s after it is sent on the shared clock: the least.
        assert run.times.first.tolist() == [450_000_000, 1_500_000_000]
        assert run.times.last.tolist() == [650_000_000, 1_750_000_000]
    assert (first.requests, first.offset_ns) == (second.requests, -250_000_000)


@pytest.mark.parametrize(("text", "row", "field", "said"), [
    (CSV + "0,0.0,10,4,0.0,0.7,0.6\n", 2, "last_token_s", "before the first"),
    (CSV.replace(",queued_s", "") + "0,0,1,1,1,2\n1,9,1,1,8,10\n", 3, "first_token_s",
     "before the request arrives"),
    (CSV + "0,0.0,10,4,0.0,0.2,0.6\n1,0.1,10,4,0.9,0.5,0.6\n", 3, "first_token_s",
     "before the request is queued"),
    (CSV + "0,0.0,10,4,0.0,x,0.6\n", 2, "first_token_s", "'x'"),
    ("id,arrival_s,prompt_tokens,output_tokens\n0,0,1,1\n", 1, "first_token_s", "first_token"),
])  # fmt: skip
def test_wrong_runs_are_named(tmp_path, text, row, field, said):
    path = tmp_path / "run.csv"
    path.write_text(text)
    wrong = refused("", read_run, path)
    assert (wrong.row, wrong.field) == (row, field)
    assert wrong.file == str(path)
    assert said in wrong.problem


def written(run, path):
    times, some = run.times, run.requests
    rows = zip(times.arrival, some.prompt_tokens, some.output_tokens, times.first, times.last,
               strict=True)  # fmt: skip
    lines = [
        f"{i},{a / 1e9:.9f},{p},{o},{a / 1e9:.9f},{f / 1e9:.9f},{e / 1e9:.9f}\n"
        for i, (a, p, o, f, e) in enumerate(rows)
    ]
    path.write_text(CSV + "".join(lines))


def test_the_command_fits_and_says_how_firm_it_is(tmp_path, capsys):
    path, out = tmp_path / "run.csv", tmp_path / "cost.json"
    written(simulated(FAMILY.cost(TRUE)), path)
    options = ["cost", "--fit", str(path), "--model", "8b", "--token-budget", "512"]
    assert command([*options, "--clients", "16", "-o", str(out)]) == 0
    said = capsys.readouterr().err
    assert "ms a GB read 1." in said
    assert "requests not fitted to: makespan" in said
    cost, report = load_fitted_cost(out)
    assert cost == fit_run(read_run(path), SERVER, SHAPE).cost
    assert report["fit"]["constants"]["ms a TFLOP"]["interval_95"][0] < 6.01
    assert command([*options, "--clients", "16", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["fit"]["fitted_requests"] == 30
    profile = ["--from-profile", str(write(tmp_path)), "--layers", "32", "--clients", "16"]
    assert command(["cost", "--fit", str(path), *profile]) == 0
    assert "factor of the profile's times" in capsys.readouterr().err


def test_a_simulation_after_the_fit_has_the_memory_of_the_fit(tmp_path):
    """A cache that binds: paged in both, without a word about memory in the second command."""
    server = Server(16, token_budget=512, memory_blocks=150)
    path, out = tmp_path / "run.csv", tmp_path / "cost.json"
    written(simulated(FAMILY.cost(TRUE), server, gap_s=0.02), path)
    options = ["--model", "8b", "--token-budget", "512", "--clients", "16"]
    fit = ["cost", "--fit", str(path), *options, "--memory-blocks", "150", "-o", str(out)]
    assert command(fit) == 0
    report = load_fitted_cost(out)[1]
    again = load(path, clients=16, cost=out)
    assert again.worker.memory == BlockMemory(150, 16, "paged")
    vllm = simulate(again, "vllm", parameters={"max_num_batched_tokens": 512})
    assert vllm.makespan == pytest.approx(report["fit"]["simulated_s"]["makespan"], rel=1e-3)
    free = load(path, clients=16, cost=out, memory_blocks="unlimited")
    assert free.worker.memory is None
    vllm = simulate(free, "vllm", parameters={"max_num_batched_tokens": 512})
    assert vllm.makespan < 0.9 * report["fit"]["simulated_s"]["makespan"]


def test_settings_are_read_where_they_are_recorded(tmp_path, capsys):
    path, meta = tmp_path / "run.csv", tmp_path / "meta.json"
    written(simulated(FAMILY.cost(TRUE)), path)
    assert calibration.recorded_settings(path) == {}
    engine = {"max_num_seqs": 16, "max_num_batched_tokens": 512, "data_parallel_size": 1}
    cache = {"num_gpu_blocks": 5001, "block_size": 16, "num_cpu_blocks": None}
    meta.write_text(json.dumps({"engine_kwargs": engine, "kv_cache": cache}))
    expected = {"clients": 16, "token_budget": 512, "memory_blocks": 5000, "block_tokens": 16}
    assert calibration.recorded_settings(path) == expected
    assert command(["cost", "--fit", str(path), "--model", "8b", "--memory-blocks", "4000"]) == 0
    said = capsys.readouterr().err
    assert "settings from meta.json: clients 16, token_budget 512, block_tokens 16" in said
    meta.write_text(json.dumps({"engine_kwargs": {"data_parallel_size": 2}}))
    assert refused("2 engines", calibration.recorded_settings, path).file == str(meta)
    meta.write_text(json.dumps({"engine_kwargs": {"max_num_seqs": 0}}))
    refused("max_num_seqs", calibration.recorded_settings, path)


@pytest.mark.parametrize(("options", "said"), [
    (["--model", "8b"], "--clients"), (["--model", "8b", "--clients", "0"], "--clients"),
    (["--model", "8b", "--clients", "4", "--fit-requests", "5"], "--fit-requests"),
    (["--clients", "4"], "--config"),
    (["--model", "8b", "--clients", "4", "--layers", "3"], "--from-profile"),
    (["--model", "8b", "--clients", "99999999999"], "'--clients': 99999999999 is above"),
    (["--model", "8b", "--clients", "4", "-o", "cost.parquet"], ".json"),
    (["--model", "8b", "--clients", "4", "--length", "7"], "'--length'"),
])  # fmt: skip
def test_the_command_refuses(tmp_path, capsys, options, said):
    path = tmp_path / "run.csv"
    written(simulated(FAMILY.cost(TRUE)), path)
    assert command(["cost", "--fit", str(path), *options]) == 2
    assert said in capsys.readouterr().err


def test_half_of_a_run_is_twenty_requests_at_least(tmp_path, capsys):
    """A short run is said to be short, and not an option that nobody gave."""
    run = simulated(FAMILY.cost(TRUE))
    assert fit_run(run, SERVER, SHAPE).fitted == len(run.requests) // 2 >= 20
    path = tmp_path / "run.csv"
    path.write_text(CSV + "".join(f"{i},0,10,4,0,0.2,0.6\n" for i in range(19)))
    assert command(["cost", "--fit", str(path), "--model", "8b", "--clients", "4"]) == 2
    assert "run.csv: has 19 requests" in capsys.readouterr().err
