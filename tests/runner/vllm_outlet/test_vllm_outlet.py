"""Plans as priorities, files for vLLM's tools, its benchmark results (no vLLM needed)."""

import csv
import json

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import orsched
from orsched.cli.commands import cli
from orsched.files import save_instance, save_schedule
from orsched.heuristics.pang import FirstComeFirstServed
from orsched.instances.readers import read
from orsched.metrics.token_times import request_times
from orsched.runner import vllm_outlet
from orsched.runner.vllm_outlet import in_order, priorities, read_request_times, write_batch
from orsched.runner.vllm_outlet.bench_results import rank_correlation, sent_order
from orsched.simulator import simulate_policy
from tests.refusals import refused


def make(prompts=(30, 5, 17, 40), outputs=(4, 3, 2, 6), arrivals=None, clients=2, ids=None):
    """Return an instance and a plan of it that serves the shortest prompts first."""
    requests = orsched.Requests(prompts, outputs, arrival_ns=arrivals, ids=ids)
    instance = orsched.Instance(
        requests, orsched.Worker(clients), "decode", output_limit_tokens=100
    )
    return instance, orsched.solve(instance, method="sjf").schedule


@pytest.fixture
def plan():
    return make()


def objects(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_priorities_are_the_order_of_admission(plan):
    instance, schedule = plan
    ranks = priorities(instance, schedule)
    starts = request_times(instance, schedule)["prefill_start_ns"]
    assert sorted(ranks) == [0, 1, 2, 3]
    assert ranks != [0, 1, 2, 3]
    by_rank = sorted(range(4), key=ranks.__getitem__)
    assert by_rank == in_order(instance, schedule)
    assert list(starts[by_rank]) == sorted(starts)


ROW = st.tuples(st.integers(1, 50), st.integers(1, 20), st.integers(0, 10**9))


@given(st.lists(ROW, min_size=1, max_size=12))
def test_fcfs_has_the_order_of_arrival(rows):
    prompts, outputs, arrivals = zip(*rows, strict=True)
    requests = orsched.Requests(prompts, outputs, arrival_ns=arrivals)
    instance = orsched.Instance(requests, orsched.Worker(3), first_token="decode")
    schedule = simulate_policy(instance, FirstComeFirstServed()).schedule
    expected = sorted(range(len(rows)), key=lambda row: (arrivals[row], row))
    assert in_order(instance, schedule) == expected
    assert sent_order(instance, schedule) == expected


def test_an_evicted_request_counts_from_its_last_admission():
    requests = orsched.Requests([16] * 6, [40] * 6)
    worker = orsched.Worker(6, memory=orsched.BlockMemory(8, 16, "paged"))
    instance = orsched.Instance(requests, worker, "prefill", output_limit_tokens=40)
    schedule = orsched.solve(instance, method="vllm").schedule
    work, starts = schedule.work, schedule.steps.start_ns
    assert work.stay.max() > 0
    last = {}
    for request, stay, step in zip(work.request, work.stay, work.first_step, strict=True):
        last.setdefault((request, stay), starts[step])
    last = {request: start for (request, _), start in sorted(last.items())}
    order = in_order(instance, schedule)
    assert [last[row] for row in order] == sorted(last.values())
    assert len(set(last.values())) > 1


def test_requests_that_are_not_served_come_last(plan):
    instance, schedule = plan
    more = instance.requests.replace(
        prompt_tokens=[30, 5, 17, 40, 1], output_tokens=[4, 3, 2, 6, 1],
        arrival_ns=np.zeros(5, np.int64), service_class=np.ones(5, np.int64),
    )  # fmt: skip
    wider = instance.replace(requests=more)
    assert priorities(wider, schedule) == [*priorities(instance, schedule), 4]
    narrow = instance.replace(requests=orsched.Requests([3], [2]))
    refused("not one of this instance", priorities, narrow, schedule)


@pytest.mark.parametrize("suffix", [".csv", ".json", ".jsonl"])
def test_the_table_of_priorities(plan, suffix, tmp_path):
    instance, schedule = plan
    path = tmp_path / f"priorities{suffix}"
    vllm_outlet.write_priorities(instance, schedule, path)
    readers = {".csv": lambda path: [*csv.DictReader(path.read_text().splitlines())],
               ".json": lambda path: json.loads(path.read_text()), ".jsonl": objects}  # fmt: skip
    rows = readers[suffix](path)
    ranks = priorities(instance, schedule)
    assert [int(row["priority"]) for row in rows] == [0, 1, 2, 3]
    for row in rows:
        place = int(row["id"])
        assert int(row["priority"]) == ranks[place]
        assert int(row["prompt_tokens"]) == instance.requests.prompt_tokens[place]
        assert "max_tokens" not in row  # a limit of the trace's lengths would cut real answers
        assert float(row["arrival_s"]) == 0

    refused("not a suffix", vllm_outlet.write_priorities, *plan, tmp_path / "plan.parquet")
    refused(r"\.jsonl", vllm_outlet.write_timed_trace, *plan, tmp_path / "plan.json")


def test_a_timed_trace_has_all_prompts_and_no_shared_prefix(tmp_path):
    instance, schedule = make(arrivals=[5 * 10**8, 0, 5 * 10**8, 0])
    vllm_outlet.write_timed_trace(instance, schedule, tmp_path / "trace.jsonl")
    lines, rows = objects(tmp_path / "trace.jsonl"), sent_order(instance, schedule)
    assert [line["timestamp"] for line in lines] == [0, 0, 0.5, 0.5]
    prompts = instance.requests.prompt_tokens[rows].tolist()
    assert [line["input_length"] for line in lines] == prompts
    taken = [each for line in lines for each in line["hash_ids"]]
    assert len(taken) == len(set(taken))
    for line in lines:
        assert 0 <= len(line["hash_ids"]) * 16 - line["input_length"] < 16


def batch_line(name, **body):
    item = {"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": body}
    return json.dumps(item) + "\n"


def test_a_batch_file_gets_priorities_by_name(tmp_path):
    instance, schedule = make(ids=("a", "b", "c", "d"))
    given = "".join(batch_line(name, model="m", temperature=0.7) for name in "dbca")
    (tmp_path / "in.jsonl").write_text(given + "\n")
    how = write_batch(instance, schedule, tmp_path / "in.jsonl", tmp_path / "out.jsonl")
    lines, order = objects(tmp_path / "out.jsonl"), in_order(instance, schedule)
    assert how == "custom_id"
    assert [line["custom_id"] for line in lines] == ["abcd"[row] for row in order]
    assert [line["body"]["priority"] for line in lines] == [0, 1, 2, 3]
    assert all(line["body"]["temperature"] == 0.7 for line in lines)


def test_a_batch_file_with_other_names_is_taken_line_by_line(plan, tmp_path):
    given = "".join(batch_line(f"request-{row}", model="m") for row in range(4))
    (tmp_path / "in.jsonl").write_text(given)
    assert write_batch(*plan, tmp_path / "in.jsonl", tmp_path / "out.jsonl") == "line"
    names = [line["custom_id"] for line in objects(tmp_path / "out.jsonl")]
    assert names == [f"request-{row}" for row in in_order(*plan)]


@pytest.mark.parametrize(("text", "problem"), [
    (batch_line("0") * 4, "4 are named"), ("".join(map(batch_line, "0xyz")), "1 are named"),
    (batch_line("x"), "1 lines"), ("{}\n", "no text as custom_id"),
    ('{"custom_id": "0"}\n', "no object as body"), ("[]\n", "not a JSON object"),
    ("{\n", "not valid JSON"),
])  # fmt: skip
def test_batch_files_that_do_not_fit_are_refused(plan, text, problem, tmp_path):
    (tmp_path / "in.jsonl").write_text(text)
    refused(problem, write_batch, *plan, tmp_path / "in.jsonl", tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()


def result_of(instance, schedule, part=None, **changes):
    """Return what vLLM's benchmark would save had the server kept to a plan, or a part, exactly."""
    rows = sent_order(instance, part or schedule)
    times, requests = request_times(instance, schedule), instance.requests.take(rows)
    arrival_s, outputs = requests.arrival_ns / 1e9, requests.output_tokens
    first_s, finish_s = times["first_token_ns"][rows] / 1e9, times["finish_ns"][rows] / 1e9
    gaps = ((finish_s - first_s) / np.maximum(1, outputs - 1)).tolist()
    return {
        "duration": 1.0, "completed": len(rows),
        "total_input_tokens": int(requests.prompt_tokens.sum()),
        "total_output_tokens": int(outputs.sum()), "input_lens": requests.prompt_tokens.tolist(),
        "output_lens": outputs.tolist(), "ttfts": (first_s - arrival_s).tolist(),
        "itls": [[gap] * (n - 1) for gap, n in zip(gaps, outputs.tolist(), strict=True)],
        "latencies": (finish_s - arrival_s).tolist(), "start_times": (1000 + arrival_s).tolist(),
        "errors": [""] * len(rows), **changes,
    }  # fmt: skip


@pytest.fixture
def result(plan, tmp_path):
    path = tmp_path / "result.json"
    path.write_text(json.dumps(result_of(*plan)))
    return path


def test_a_run_that_kept_to_the_plan_has_no_errors(plan, result):
    instance, schedule = plan
    times = read_request_times(result).in_rows_of(sent_order(instance, schedule))
    assert times.requests.prompt_tokens.tolist() == instance.requests.prompt_tokens.tolist()
    expected = request_times(instance, schedule)
    assert abs(times.first_token_ns - expected["first_token_ns"]).max() <= 1
    assert abs(times.finish_ns - expected["finish_ns"]).max() <= 10
    rows = {row.figure: row for row in times.against_plan(instance, schedule)}
    assert rows["order"].measured == 1
    assert {"makespan", "mean ttft", "p99 tpot", "p50 jct", "tokens_per_s"} <= set(rows)
    assert all(abs(row.error) < 1e-6 for row in rows.values() if row.error is not None)
    assert times.figures()["itl_ns"]["max"] >= times.figures()["itl_ns"]["p50"] > 0
    # without latencies the gaps say when a request was done
    without = {name: column for name, column in result_of(*plan).items() if name != "latencies"}
    result.write_text(json.dumps(without))
    times = read_request_times(result).in_rows_of(sent_order(instance, schedule))
    assert abs(times.finish_ns - expected["finish_ns"]).max() <= 10


def test_failed_requests_are_refused_or_left_out(plan, result):
    values = result_of(*plan, errors=["", "connection reset", "", ""])
    result.write_text(json.dumps(values))
    refused("failed", read_request_times, result)
    times = read_request_times(result, drop_failed=True)
    assert len(times.requests) == 3
    assert times.requests.prompt_tokens.tolist() == [values["input_lens"][k] for k in (0, 2, 3)]
    refused("3 requests were measured, the plan has 4", times.against_plan, *plan)


@pytest.mark.parametrize("name", ["ttfts", "itls", "start_times", "latencies", "input_lens"])
def test_results_that_are_cut_are_refused(plan, result, name):
    values = result_of(*plan)
    for wrong in (values[name][:-1], 7):
        result.write_text(json.dumps({**values, name: wrong}))
        refused("", read_request_times, result)
    for wrong in ([1, 2, 3, 4], [["x"], [], [], []], [[-1], [], [], []]):  # no lists of times
        result.write_text(json.dumps({**values, "itls": wrong}))
        refused("itls", read_request_times, result)


def test_other_lengths_than_the_plan_has_are_refused(plan, result):
    instance, schedule = plan
    times = read_request_times(result).in_rows_of(sent_order(instance, schedule)[::-1])
    refused("were measured where the plan has", times.against_plan, instance, schedule)


def test_the_table_of_times_is_read_as_a_measured_run(result, tmp_path):
    times, path = read_request_times(result), tmp_path / "times.csv"
    times.write_csv(path)
    trace = read(path)
    assert trace.report.format == "measured"
    assert trace.requests.output_tokens.tolist() == times.requests.output_tokens.tolist()
    rows = [*csv.DictReader(path.read_text().splitlines())]
    assert [round(float(row["last_token_s"]) * 1e9) for row in rows] == times.finish_ns.tolist()


@given(st.permutations(range(9)))
def test_rank_correlation_is_that_of_pearson_on_ranks(order):
    found = rank_correlation(np.arange(9), np.array(order))
    assert found == pytest.approx(np.corrcoef(np.arange(9), order)[0, 1])
    assert rank_correlation(np.arange(1), np.arange(1)) is None


def invoke(*args):
    """Run the command group; return its result, errors raised."""
    return CliRunner().invoke(cli, ["vllm", *map(str, args)], catch_exceptions=False)


@pytest.fixture
def files(plan, result, tmp_path):
    save_instance(plan[0], tmp_path / "instance.json")
    save_schedule(plan[1], tmp_path / "plan.json")
    return tmp_path


@pytest.mark.parametrize(("kind", "suffix"), [("priorities", "csv"), ("trace", "jsonl")])
def test_the_command_exports(files, kind, suffix):
    target, named = files / f"out.{suffix}", (files / "instance.json", files / "plan.json")
    done = invoke("export", *named, "--as", kind, "-o", target)
    assert done.exit_code == 0
    assert "4 requests written" in done.output
    assert target.read_text().count("\n") == 4 + (suffix == "csv")


def test_the_command_exports_batches(files):
    (files / "in.jsonl").write_text("".join(batch_line(str(row)) for row in range(4)))
    args = ["export", files / "instance.json", files / "plan.json", "--as", "batch", "-o"]
    done = invoke(*args, files / "out.jsonl", "--batch", files / "in.jsonl")
    assert "matched by custom_id" in done.output
    refused("--batch", invoke, *args, files / "out.jsonl")
    given = files / "in.jsonl", "--batch", files / "in.jsonl"
    refused("would be overwritten", invoke, *args, *given)
    refused("would be overwritten", invoke, *args[:3], "-o", files / "instance.json")


def test_the_command_takes_requests_alone_with_their_worker(files, monkeypatch):
    monkeypatch.chdir(files)
    (files / "r.csv").write_text("prompt_tokens,output_tokens\n30,4\n5,3\n")
    worker = ["--clients", "2"]
    solved = CliRunner().invoke(cli, ["solve", "r.csv", *worker, "-o", "s.json", "--method=fcfs"])
    assert solved.exit_code == 0
    assert invoke("export", "r.csv", "s.json", "-o", "out.csv", *worker).exit_code == 0
    assert (files / "out.csv").read_text().startswith("id,arrival_s,prompt_tokens,output_tokens,")


def test_the_command_prints_times_with_their_unit_and_digits(files):
    text = invoke("results", files / "result.json").stdout
    rows = {line[:13].strip(): line[13:].split() for line in text.splitlines()}
    assert rows["output_tokens"] == ["tokens", "15"]
    unit, shown = rows["p50 tpot"]
    assert (unit, len(shown.lstrip("0."))) == ("s", 4)


def test_the_command_holds_results_against_the_plan(files):
    args = ["results", files / "result.json", "--format", "json"]
    figures = {row["figure"]: row["measured"] for row in json.loads(invoke(*args).stdout)}
    assert figures["output_tokens"] == 15
    both = ["--plan", files / "instance.json", files / "plan.json", "-o", files / "times.csv"]
    rows = json.loads(invoke(*args, *both).stdout)
    (makespan,) = (row["measured"] for row in rows if row["figure"] == "makespan")
    assert makespan == pytest.approx(figures["makespan"])
    assert (files / "times.csv").is_file()
