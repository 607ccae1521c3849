"""What people bring: each file of the public cases is read, fitted to, or refused in its words."""

import json
import os
from pathlib import Path

import pytest

from orsched import simulate
from orsched.calibration import read_run
from orsched.cli.commands import run as command
from orsched.files.locate import holds_requests, load
from orsched.instances.readers import FORMATS, read
from orsched.instances.readers.bench_files import BENCHES, read_bench_times
from orsched.metrics.token_times import request_times
from tests.instances.test_readers import SAMPLES
from tests.refusals import refused

CASES = Path(os.environ.get("ORSCHED_DATA", "none")).resolve().parent / "cases"
FILES = {
    "aiperf_profile_export.jsonl": (39, ""),
    "fit_vllm_bench.json": (40, ""),
    "gateway_usage.jsonl": (40, "without the times of first token, last token"),
    "genai_perf_profile_export.json": ("holds text, not token counts", "holds text"),
    "gptq_config.json": ("a model's configuration", "a model's configuration"),
    "guidellm_benchmarks.json": (40, ""),
    "itl_cold72k.csv": (3, "first_token_s"),
    "itl_cold72k_cost.json": ("is 'orsched/cost'", "of no known format"),
    "kv_whole_thrash.csv": (40, "first_token_s"),
    "kv_whole_thrash_paged_worker.json": ("is a worker", "is a worker"),
    "llmperf_individual_responses.json": (40, "without the times of arrival"),
    "m4090.csv": (300, "first_token_s"),
    "moe_config.json": ("a model's configuration", "a model's configuration"),
    "openai_batch_out.jsonl": (5, "without the times of arrival, first token, last token"),
    "p3.csv": (3, "first_token_s"),
    "pd_memory_study.toml": ("orsched study", "orsched study"),
    "prefix_hot.jsonl": (600, "without the times of their tokens"),
    "priority_ints.csv": (61, "first_token_s"),
    "sglang_two_runs.jsonl": ("vllm-bench:2", "vllm-bench:2"),
    "three.csv": (3, "first_token_s"),
    "ts_column.csv": ('rename the column "ts" to "timestamp"', "rename"),
}
"""Requests that are read, or what a refusal says; then the same of a fit, "" where it reads."""


@pytest.mark.skipif(not CASES.is_dir(), reason="the public cases are not beside ORSCHED_DATA")
def test_each_public_case_is_read_or_refused_in_the_right_words():
    assert set(FILES) == {path.name for path in CASES.iterdir()}
    for name, (outcome, of_a_fit) in FILES.items():
        path = CASES / name
        if isinstance(outcome, int):
            assert len(load(path, clients=64).requests) == outcome, name
        else:
            refused(outcome, lambda path=path: load(path, clients=64))
        if of_a_fit:
            refused(of_a_fit, read_run, path)
        else:
            run = read_run(path)
            assert run.times.figures()["mean TTFT"] == pytest.approx(0.12, abs=0.003), name


TIMED = ["aiperf", "guidellm", "inference-perf", "otlp"]


@pytest.mark.parametrize("name", TIMED)
def test_the_times_of_tokens_are_those_of_the_file(name, tmp_path):
    """All samples are of one run, each in the words and the clock of its tool."""
    path = tmp_path / "run"
    path.write_text(SAMPLES[name])
    found = read_bench_times(path)
    assert found.requests.arrival_ns.tolist() == [0, 250_000_000]
    assert found.first_token_ns.tolist() == [187_500_000, 350_000_000]
    assert found.finish_ns.tolist() == [2_000_000_000, 650_000_000]
    assert read_run(path).times.last.tolist() == found.finish_ns.tolist()


def test_what_a_tool_sets_apart_is_left_out_and_what_failed_is_an_error(tmp_path):
    path = tmp_path / "run.jsonl"
    first, second = SAMPLES["aiperf"].splitlines()
    gone = {"metadata": {"request_start_ns": 1, "was_cancelled": True}, "metrics": {}}
    path.write_text("\n".join([first, json.dumps(gone), second]))
    requests, report = read(path)
    assert (len(requests), report.dropped) == (2, {"cancelled": 1})
    assert read_bench_times(path).first_token_ns.tolist()[1] - requests.arrival_ns[1] == 10**8
    gone = {"metadata": {"request_start_ns": 1759813207500000000}, "error": {"code": 500}}
    path.write_text("\n".join([first, json.dumps(gone), second]))
    wrong = refused("failed .1 of 3", read, path)
    assert (wrong.row, "drop_empty" in wrong.remedy) == (2, True)
    assert read(path, drop_empty=True).report.dropped == {"failed": 1}
    document = json.loads(SAMPLES["guidellm"])
    document["benchmarks"][0]["requests"]["errored"] = [{"prompt_tokens": 5}]
    path.write_text(json.dumps(document))
    assert read(path).report.dropped == {"errored": 1}


def test_one_of_several_runs_is_chosen(tmp_path, capsys):
    path = tmp_path / "two.jsonl"
    one = json.loads(SAMPLES["vllm-bench"]) | {"request_rate": 4, "max_concurrency": 16}
    two = one | {"input_lens": [10, 21], "max_concurrency": None}
    path.write_text(f"{json.dumps(one)}\n{json.dumps(two)}\n")
    wrong = refused("holds 2 runs", read, path)
    assert "vllm-bench:1 (rate 4), vllm-bench:2 (rate 4)" in wrong.remedy
    assert read(path, "vllm-bench:2").requests.prompt_tokens.tolist() == [10, 21]
    report = read(path, "vllm-bench:1").report
    assert report.concurrency == 16
    assert "at most 16 requests at once" in report.notes[0]
    assert "not before its time" in report.notes[0]
    assert load(path, clients=8, format="vllm-bench:1").concurrency == 16
    assert load(path, clients=8, format="vllm-bench:2").concurrency is None
    refused("holds 2 runs", read, path, "vllm-bench:3")
    refused("holds 2 runs", read, path, "vllm-bench:x")
    given = ["cost", "--fit", str(path), "--model", "8b", "--clients", "4"]
    assert command([*given, "--from", "vllm-bench:2"]) == 2
    assert "'ttfts'" in capsys.readouterr().err


@pytest.mark.parametrize("most", ["0", "-5", "true", "1.5", "1e40", '"4"'])
def test_a_wrong_number_in_flight_is_named(most, tmp_path):
    path = tmp_path / "bench.json"
    text = json.dumps(json.loads(SAMPLES["vllm-bench"]) | {"max_concurrency": 987654})
    path.write_text(text.replace("987654", most))
    assert refused("bench.json, field 'max_concurrency'", read, path).field == "max_concurrency"


@pytest.mark.parametrize("time", ["1e9999999", "-1e9999999", "1e99", "-3"])
def test_a_time_with_a_unit_that_is_no_time_is_named(time, tmp_path):
    path = tmp_path / "profile_export.jsonl"
    text = SAMPLES["aiperf"]
    document = json.loads(text.partition("\n")[0])
    document["metrics"]["time_to_first_token"] = {"value": 987654, "unit": "ms"}
    path.write_text(json.dumps(document).replace("987654", time))
    refused("too large for a time|is negative", read_bench_times, path)


def test_gaps_that_end_after_all_times_are_named(tmp_path):
    """Ten gaps of 2**60 ns wrap in 64 bits."""
    path = tmp_path / "bench.json"
    one = json.loads(SAMPLES["vllm-bench"]) | {"ttfts": [0.1, 0.1], "itls": [[0.1], [1.2e9] * 10]}
    path.write_text(json.dumps(one))
    found = refused("gaps of the request end after 2\\*\\*61 ns", read_bench_times, path)
    assert (found.row, found.field) == (1, "itls")


@pytest.mark.parametrize("rate", ['"inf"', "Infinity"])
def test_a_benchmark_of_a_closed_loop_is_one(rate, tmp_path):
    """Its times of sending followed from the server; here they follow from the simulated one."""
    path = tmp_path / "bench.json"
    one = json.loads(SAMPLES["vllm-bench"]) | {"request_rate": 7, "max_concurrency": 1}
    text = json.dumps(one | {"ttfts": [0.1, 0.1], "itls": [[0.1] * 3, [0.1] * 2]})
    path.write_text(text.replace(": 7", f": {rate}"))
    instance = load(path, clients=8)
    assert (instance.requests.arrival_ns.tolist(), instance.concurrency) == ([0, 0], 1)
    result = simulate(instance, "vllm")
    ends = request_times(instance, result.schedule)["finish_ns"]
    starts = result.schedule.steps.start_ns[result.schedule.work.first_step]
    assert starts[result.schedule.work.request == 1].min() >= ends[0]
    assert read_bench_times(path).requests.arrival_ns.tolist() == [0, 250_000_000]


def test_what_is_of_no_known_format_hears_of_the_three_nearest(tmp_path):
    path = tmp_path / "odd.csv"
    path.write_text("TIMESTAMP,colour,taste,smell\n1,2,3,4\n")
    wrong = refused("of no known format", read, path)
    near = wrong.remedy.partition("nearest: ")[2].split("; ")
    assert near[0] == "azure (lacks ContextTokens, GeneratedTokens)"
    assert [each.partition(" (lacks ")[0] in FORMATS for each in near] == [True] * 3
    path = tmp_path / "odd.json"
    path.write_text('{"colour": 1, "service_kind": 3}')
    assert holds_requests(path)
    refused("genai-perf", lambda: load(path, clients=1))
    path.write_text('[{"colour": 1}]')
    refused("of no known format", lambda: load(path, clients=1))


def test_each_description_names_what_a_request_needs():
    for name, bench in BENCHES.items():
        assert bench.fields, name
        assert bool(bench.prompt) == bool(bench.output) == (name != "genai-perf")
