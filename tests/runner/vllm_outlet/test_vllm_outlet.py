"""Plans as priorities, files for vLLM's tools, its benchmark results (no vLLM needed)."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import orsched
from orsched.cli.commands import cli
from orsched.common.errors import InputError
from orsched.files import save_instance, save_schedule
from orsched.heuristics.pang import FirstComeFirstServed
from orsched.instances.readers import read
from orsched.metrics.token_times import request_times
from orsched.runner.vllm_outlet import (
    in_order,
    priorities,
    read_request_times,
    write_batch,
    write_priorities,
    write_timed_trace,
)
from orsched.runner.vllm_outlet.bench_results import rank_correlation
from orsched.runner.vllm_outlet.export import sent_order
from orsched.simulator import simulate_policy


def make(prompts=(30, 5, 17, 40), outputs=(4, 3, 2, 6), arrivals=None, clients=2, ids=None):
    """Return an instance and a plan of it that serves the shortest prompts first."""
    requests = orsched.Requests(prompts, outputs, arrival_ns=arrivals, ids=ids)
    instance = orsched.Instance(
        requests, orsched.Worker(clients), output_limit_tokens=100, first_token="decode"
    )
    result = orsched.solve(instance, method="sjf")
    return instance, result.schedule


@pytest.fixture
def plan():
    return make()


def test_priorities_are_the_order_of_admission(plan):
    instance, schedule = plan
    ranks = priorities(instance, schedule)
    starts = request_times(instance, schedule)["prefill_start_ns"]
    assert sorted(ranks) == [0, 1, 2, 3]
    assert ranks != [0, 1, 2, 3]
    by_rank = sorted(range(4), key=ranks.__getitem__)
    assert by_rank == in_order(instance, schedule)
    assert list(starts[by_rank]) == sorted(starts)


@given(
    st.lists(
        st.tuples(st.integers(1, 50), st.integers(1, 20), st.integers(0, 10**9)),
        min_size=1,
        max_size=12,
    )
)
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
        prompt_tokens=[30, 5, 17, 40, 1],
        output_tokens=[4, 3, 2, 6, 1],
        arrival_ns=np.zeros(5, np.int64),
        service_class=np.ones(5, np.int64),
    )
    wider = orsched.Instance(more, instance.workers, output_limit_tokens=100, first_token="decode")
    assert priorities(wider, schedule) == [*priorities(instance, schedule), 4]


def test_a_schedule_of_more_requests_is_refused(plan):
    _, schedule = plan
    other = orsched.Instance(orsched.Requests([3], [2]), orsched.Worker(2), first_token="decode")
    with pytest.raises(InputError, match="not one of this instance"):
        priorities(other, schedule)


@pytest.mark.parametrize("suffix", [".csv", ".json", ".jsonl"])
def test_the_table_of_priorities(plan, suffix, tmp_path):
    instance, schedule = plan
    path = tmp_path / f"priorities{suffix}"
    write_priorities(instance, schedule, path)
    text = path.read_text()
    if suffix == ".csv":
        rows = list(csv.DictReader(text.splitlines()))
    elif suffix == ".json":
        rows = json.loads(text)
    else:
        rows = [json.loads(line) for line in text.splitlines()]
    ranks = priorities(instance, schedule)
    assert [int(row["priority"]) for row in rows] == [0, 1, 2, 3]
    for row in rows:
        place = int(row["id"])
        assert int(row["priority"]) == ranks[place]
        assert int(row["prompt_tokens"]) == instance.requests.prompt_tokens[place]
        assert "max_tokens" not in row  # a limit of the trace's lengths would cut real answers
        assert float(row["arrival_s"]) == 0


def test_a_suffix_that_is_none_of_the_formats_is_refused(plan, tmp_path):
    with pytest.raises(InputError, match="not a suffix"):
        write_priorities(*plan, tmp_path / "plan.parquet")
    with pytest.raises(InputError, match=r"\.jsonl"):
        write_timed_trace(*plan, tmp_path / "plan.json")


def test_a_timed_trace_has_all_prompts_and_no_shared_prefix(tmp_path):
    instance, schedule = make(arrivals=[5 * 10**8, 0, 5 * 10**8, 0])
    write_timed_trace(instance, schedule, tmp_path / "trace.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    rows = sent_order(instance, schedule)
    assert [line["timestamp"] for line in lines] == [0, 0, 0.5, 0.5]
    assert [line["input_length"] for line in lines] == [
        int(instance.requests.prompt_tokens[row]) for row in rows
    ]
    taken = [each for line in lines for each in line["hash_ids"]]
    assert len(taken) == len(set(taken))
    for line in lines:
        assert 0 <= len(line["hash_ids"]) * 16 - line["input_length"] < 16


def batch_line(name, **body):
    """Return a line of a batch file."""
    item = {"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": body}
    return json.dumps(item) + "\n"


def test_a_batch_file_gets_priorities_by_name(tmp_path):
    instance, schedule = make(ids=("a", "b", "c", "d"))
    given = "".join(batch_line(name, model="m", temperature=0.7) for name in "dbca")
    (tmp_path / "in.jsonl").write_text(given + "\n")
    how = write_batch(instance, schedule, tmp_path / "in.jsonl", tmp_path / "out.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert how == "custom_id"
    assert [line["custom_id"] for line in lines] == [
        "abcd"[row] for row in in_order(instance, schedule)
    ]
    assert [line["body"]["priority"] for line in lines] == [0, 1, 2, 3]
    assert all(line["body"]["temperature"] == 0.7 for line in lines)


def test_a_batch_file_with_other_names_is_taken_line_by_line(plan, tmp_path):
    given = "".join(batch_line(f"request-{row}", model="m") for row in range(4))
    (tmp_path / "in.jsonl").write_text(given)
    assert write_batch(*plan, tmp_path / "in.jsonl", tmp_path / "out.jsonl") == "line"
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [line["custom_id"] for line in lines] == [f"request-{row}" for row in in_order(*plan)]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (batch_line("0") * 4, "4 are named"),
        (batch_line("0") + batch_line("x") + batch_line("y") + batch_line("z"), "1 are named"),
        (batch_line("x"), "1 lines"),
        ("{}\n", "no text as custom_id"),
        ('{"custom_id": "0"}\n', "no object as body"),
        ("[]\n", "not a JSON object"),
        ("{\n", "not JSON"),
    ],
)
def test_batch_files_that_do_not_fit_are_refused(plan, text, problem, tmp_path):
    (tmp_path / "in.jsonl").write_text(text)
    with pytest.raises(InputError, match=problem):
        write_batch(*plan, tmp_path / "in.jsonl", tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()


def result_of(instance, schedule, **changes):
    """Return what vLLM's benchmark would save had the server kept to a plan exactly."""
    rows = sent_order(instance, schedule)
    times, requests = request_times(instance, schedule), instance.requests
    ttfts, itls = [], []
    for row in rows:
        arrival, first = int(requests.arrival_ns[row]), int(times["first_token_ns"][row])
        gap = (int(times["finish_ns"][row]) - first) / 1e9 / max(1, requests.output_tokens[row] - 1)
        ttfts.append((first - arrival) / 1e9)
        itls.append([gap] * (int(requests.output_tokens[row]) - 1))
    return {
        "duration": 1.0,
        "completed": len(rows),
        "total_input_tokens": int(requests.prompt_tokens.sum()),
        "total_output_tokens": int(requests.output_tokens.sum()),
        "input_lens": requests.prompt_tokens[rows].tolist(),
        "output_lens": requests.output_tokens[rows].tolist(),
        "ttfts": ttfts,
        "itls": itls,
        "latencies": [ttft + sum(gaps) for ttft, gaps in zip(ttfts, itls, strict=True)],
        "start_times": [1000 + int(requests.arrival_ns[row]) / 1e9 for row in rows],
        "errors": [""] * len(rows),
        **changes,
    }


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


def test_without_latencies_the_gaps_say_when_a_request_was_done(plan, result):
    values = json.loads(result.read_text())
    with_them = read_request_times(result)
    del values["latencies"]
    result.write_text(json.dumps(values))
    assert abs(read_request_times(result).finish_ns - with_them.finish_ns).max() <= 10


def test_failed_requests_are_refused_or_left_out(plan, result):
    values = result_of(*plan, errors=["", "connection reset", "", ""])
    result.write_text(json.dumps(values))
    with pytest.raises(InputError, match="failed"):
        read_request_times(result)
    times = read_request_times(result, drop_failed=True)
    assert len(times.requests) == 3
    assert times.requests.prompt_tokens.tolist() == [values["input_lens"][k] for k in (0, 2, 3)]
    with pytest.raises(InputError, match="3 requests were measured, the plan has 4"):
        times.against_plan(*plan)


@pytest.mark.parametrize("name", ["ttfts", "itls", "start_times", "latencies", "input_lens"])
def test_results_that_are_cut_are_refused(plan, result, name):
    values = result_of(*plan)
    result.write_text(json.dumps({**values, name: values[name][:-1]}))
    with pytest.raises(InputError):
        read_request_times(result)
    result.write_text(json.dumps({**values, name: 7}))
    with pytest.raises(InputError):
        read_request_times(result)


def test_gaps_must_be_lists_of_times(plan, result):
    for wrong in ([1, 2, 3, 4], [["x"], [], [], []], [[-1], [], [], []]):
        result.write_text(json.dumps(result_of(*plan, itls=wrong)))
        with pytest.raises(InputError, match="itls"):
            read_request_times(result)


def test_other_lengths_than_the_plan_has_are_refused(plan, result):
    instance, schedule = plan
    times = read_request_times(result).in_rows_of(sent_order(instance, schedule)[::-1])
    with pytest.raises(InputError, match="were measured where the plan has"):
        times.against_plan(instance, schedule)


def test_the_table_of_times_is_read_as_a_measured_run(result, tmp_path):
    times = read_request_times(result)
    times.write_csv(tmp_path / "times.csv")
    trace = read(tmp_path / "times.csv")
    assert trace.report.format == "measured"
    assert trace.requests.output_tokens.tolist() == times.requests.output_tokens.tolist()
    with (tmp_path / "times.csv").open() as stream:
        rows = list(csv.DictReader(stream))
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
    target = files / f"out.{suffix}"
    done = invoke(
        "export", files / "instance.json", files / "plan.json", "--as", kind, "-o", target
    )
    assert done.exit_code == 0
    assert "4 requests written" in done.output
    assert target.read_text().count("\n") == 4 + (suffix == "csv")


def test_the_command_exports_batches(files):
    (files / "in.jsonl").write_text("".join(batch_line(str(row)) for row in range(4)))
    args = ["export", files / "instance.json", files / "plan.json", "--as", "batch", "-o"]
    done = invoke(*args, files / "out.jsonl", "--batch", files / "in.jsonl")
    assert "matched by custom_id" in done.output
    with pytest.raises(InputError, match="--batch"):
        invoke(*args, files / "out.jsonl")
    with pytest.raises(InputError, match="would be overwritten"):
        invoke(*args, files / "in.jsonl", "--batch", files / "in.jsonl")
    with pytest.raises(InputError, match="would be overwritten"):
        invoke(*args[:3], "-o", files / "instance.json")


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
    assert next(row for row in rows if row["figure"] == "makespan")["measured"] == pytest.approx(
        figures["makespan"]
    )
    assert (files / "times.csv").is_file()
