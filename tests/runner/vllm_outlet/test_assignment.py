"""Orders worker by worker: from plans, as JSON lines, and what of it each engine gets."""

import csv
import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import orsched
from orsched.data.links import Link
from orsched.files import save_instance, save_schedule
from orsched.files.tables import read_objects
from orsched.metrics.token_times import request_times
from orsched.runner.vllm_outlet import Assignment, in_order, priorities, worker_names
from orsched.simulator import simulate_policy
from tests.refusals import place, refused
from tests.runner.loop.spec import build
from tests.runner.vllm_outlet.test_vllm_outlet import batch_line, invoke, objects, result_of

PROMPTS, OUTPUTS = (30, 5, 17, 40, 8, 21), (4, 3, 2, 6, 5, 1)


def fleet(prompts=PROMPTS, outputs=OUTPUTS, arrivals=None, names=("left", "right"), **more):
    """Return an instance on workers with two clients each; ids are letters."""
    ids = tuple("abcdefghijkl"[: len(prompts)])
    requests = orsched.Requests(prompts, outputs, arrival_ns=arrivals, ids=ids)
    workers = [orsched.Worker(2, name=name, **more) for name in names]
    return orsched.Instance(requests, workers, "prefill", output_limit_tokens=100)


def planned(instance):
    policy = build(instance, "vllm", {"dispatch": "least_work"})
    return simulate_policy(instance, policy).schedule


@pytest.fixture
def plan():
    instance = fleet()
    return instance, planned(instance)


def line(request, worker, rank):
    return json.dumps({"request": request, "worker": worker, "rank": rank}) + "\n"


LINES = [("a", "right", 0), ("b", "left", 0), ("c", "left", 1),
         ("d", "right", 1), ("e", "left", 2), ("f", "right", 2)]  # fmt: skip
GOOD = [line(*each) for each in LINES]


@pytest.fixture
def read(tmp_path):
    """Read an assignment of the fleet from a text."""

    def read_text(text):
        (tmp_path / "plan.jsonl").write_text(text)
        return Assignment.read(fleet(), tmp_path / "plan.jsonl")

    return read_text


ROW = st.tuples(st.integers(1, 50), st.integers(1, 20), st.integers(0, 10**9))


@given(st.lists(ROW, min_size=1, max_size=12), st.integers(1, 3))
def test_ranks_follow_the_admissions_of_each_worker(rows, count):
    instance = fleet(*zip(*rows, strict=True), names=[f"w{k}" for k in range(count)])
    schedule = planned(instance)
    found = Assignment.from_schedule(instance, schedule)
    starts = request_times(instance, schedule)["prefill_start_ns"]
    work, served = schedule.work, schedule.steps.worker
    for request, step in zip(work.request, work.first_step, strict=True):
        assert found.workers[request] == served[step]  # no request is evicted or moves
    for worker in range(count):
        mine = [row for row in in_order(instance, schedule) if found.workers[row] == worker]
        assert found.ranks[mine].tolist() == list(range(len(mine)))
        assert starts[mine].tolist() == sorted(starts[mine])
        assert in_order(instance, found.only(instance, f"w{worker}")) == mine


def test_an_evicted_request_counts_where_it_is_admitted_last():
    paged = orsched.BlockMemory(8, 16, "paged")
    requests = orsched.Requests([16] * 12, [40] * 12)
    workers = [orsched.Worker(6, memory=paged, name=name) for name in "ab"]
    instance = orsched.Instance(requests, workers, "prefill", output_limit_tokens=40)
    schedule = planned(instance)
    assert schedule.work.stay.max() > 0
    found = Assignment.from_schedule(instance, schedule)
    for worker, name in enumerate("ab"):
        kept = [row for row in in_order(instance, schedule) if found.workers[row] == worker]
        assert found.only(instance, name).order(instance) == kept


def test_a_file_is_the_assignment_again(plan, tmp_path):
    instance, schedule = plan
    found, path = Assignment.from_schedule(instance, schedule), tmp_path / "plan.jsonl"
    found.write(instance, path)
    names = [(each["worker"], each["rank"]) for each in objects(path)]
    assert names == sorted(names)
    assert {each["request"] for each in objects(path)} == set("abcdef")
    again = Assignment.read(instance, path)
    assert again.workers.tolist() == found.workers.tolist()
    assert again.ranks.tolist() == found.ranks.tolist()


def test_lines_in_any_order_ranks_with_gaps_and_further_fields_are_read(read):
    shuffled = "".join(reversed(GOOD)).replace('"rank": 2', '"rank": 4611686018427387904')
    found = read(shuffled.replace('"worker"', '"group": 7, "worker"') + "\n")
    assert found.workers.tolist() == [1, 0, 0, 1, 0, 1]
    assert found.ranks.tolist() == [0, 0, 1, 1, 2, 2]
    # one order over all: by rank, of one rank by row
    assert found.order(fleet()) == [0, 1, 2, 3, 4, 5]
    assert found.order(fleet(arrivals=[9, 0, 0, 0, 0, 0])) == [1, 0, 2, 3, 4, 5]


def test_without_ids_requests_are_named_by_their_row_as_text_or_number(tmp_path):
    instance = orsched.Instance(orsched.Requests([3, 4], [1, 1]), orsched.Worker(1))
    (tmp_path / "plan.jsonl").write_text(line(1, "worker-0", 0) + line("0", "worker-0", 1))
    assert Assignment.read(instance, tmp_path / "plan.jsonl").ranks.tolist() == [1, 0]


@pytest.mark.parametrize(("number", "text", "where", "said"), [
    (2, line("x", "left", 0), (2, "request"), "'x' is not a request .*known: a, b, c, d, e, f"),
    (2, line(None, "left", 0), (2, "request"), "None is not a request"),
    (2, line(["b"], "left", 0), (2, "request"), r"\['b'\] is not a request"),
    (2, line("b", "lift", 0), (2, "worker"), "'lift' is not a worker .*did you mean left"),
    (2, line("b", 1, 0), (2, "worker"), "1 is not a worker .*known: left, right"),
    (2, line("b", "left", -1), (2, "rank"), "-1 is below 0"),
    (2, line("b", "left", 2**70), (2, "rank"), "71 bits"),
    (2, line("b", "left", 2**63 - 1), (2, "rank"), "above"),
    (2, line("b", "left", 0.5), (2, "rank"), "0.5 is not a whole number"),
    (2, line("b", "left", "0"), (2, "rank"), "'0' is not a whole number"),
    (2, line("b", "left", True), (2, "rank"), "True is not a whole number"),
    (2, line("b", "left", float("nan")), (2, None), "NaN is not a JSON number"),
    (2, '{"request": "b", "worker": "left"}\n', (2, "rank"), "the value is missing"),
    (2, '{"request": "b", "rank": 1e999}\n', (2, None), "too large"),
    (2, '{"request": "b", "rank": ' + "9" * 5000 + "}\n", (2, None), "5000 digits"),
    (2, "b,left,0\n", (2, None), "not valid JSON"),
    (2, '["b", "left", 0]\n', (2, None), "not a JSON object"),
    (2, "[" * 100_000 + "\n", (2, None), "nested too deeply"),
    (2, "", (None, "request"), "1 of 6 have no line, 'b' first"),
    (3, line("b", "left", 1), (3, "request"), "'b' is also in row 2"),
    (3, line("c", "left", 0), (3, "rank"), "rank 0 appears twice"),
])  # fmt: skip
def test_files_of_others_are_refused_with_their_row(read, number, text, where, said):
    lines = [*GOOD[: number - 1], text, *GOOD[number:]]
    error = refused(said, read, "".join(lines))
    assert place(error) == where
    assert error.file.endswith("plan.jsonl")
    assert error.remedy


def test_files_that_are_no_text_are_refused(read, tmp_path):
    for raw, said in ((b"", "empty"), (b"PAR1" + bytes(9), "Parquet"), (b"\xff\xff{}", "UTF-8")):
        (tmp_path / "raw.jsonl").write_bytes(raw)
        refused(said, Assignment.read, fleet(), tmp_path / "raw.jsonl")
    refused("does not exist", Assignment.read, fleet(), tmp_path / "missing.jsonl")


def test_what_is_of_another_instance_is_refused(plan, tmp_path):
    instance, schedule = plan
    found = Assignment.from_schedule(instance, schedule)
    fewer = fleet(PROMPTS[:2], OUTPUTS[:2])
    one = fleet(names=["left"])
    for other in (fewer, one):
        refused("not one of this instance", found.order, other)
        refused("not one of this instance", found.write, other, tmp_path / "plan.jsonl")
        refused("not one of this instance", Assignment.from_schedule, other, schedule)
    refused(r"\.jsonl", found.write, instance, tmp_path / "plan.json")
    refused("'up' is not a worker", found.only, instance, "up")
    refused("rank 1 appears twice", Assignment, [0, 1, 0], [1, 1, 1])
    refused("expected", Assignment, [0, 1, 0], [1, 1])
    more = fleet((*PROMPTS, 1), (*OUTPUTS, 1))
    refused("no worker admits request g", Assignment.from_schedule, more, schedule)


def test_the_result_of_one_engine_is_held_against_its_part_of_the_plan(files, plan):
    named = ("--plan", files / "case.json", files / "plan.json")
    instance, schedule = plan
    for name in ("left", "right"):
        mine = Assignment.from_schedule(*plan).only(instance, name)
        result = files / f"{name}.json"
        result.write_text(json.dumps(result_of(instance, schedule, mine)))
        args = ["results", result, "--format", "json"]
        rows = {row["figure"]: row for row in
                json.loads(invoke(*args, *named, "--worker", name).stdout)}  # fmt: skip
        assert all(abs(row["error"] or 0) < 1e-6 for row in rows.values())
        ends = request_times(instance, schedule)["finish_ns"][mine.order(instance)]
        assert rows["makespan"]["plan"] == pytest.approx(max(ends) / 1e9)
        refused("were measured, the plan has 6", invoke, *args, *named)
        refused("give --plan", invoke, *args, "--worker", name)
        refused("--worker", invoke, *args, *named, "--worker", "up")


def test_workers_that_share_a_name_have_one_by_their_place():
    assert worker_names(fleet()) == ("left", "right")
    assert worker_names(fleet(names=("a", "b", "a"))) == ("worker-0", "worker-1", "worker-2")


def test_workers_with_roles_are_refused(tmp_path):
    one = fleet()
    roles = [
        replace(w, role=role) for w, role in zip(one.workers, ("prefill", "decode"), strict=True)
    ]
    apart = one.replace(workers=roles, link=Link(ns_per_token=5))
    refused("two workers", worker_names, apart)
    refused("two workers", Assignment.read, apart, tmp_path / "plan.jsonl")


def test_requests_of_other_workers_are_last_by_priority(plan):
    instance, _ = plan
    found = Assignment([0, 1, 0, 1, 0, 1], [3, 0, 1, 1, 2, 2])
    assert priorities(instance, found.only(instance, "left")) == [2, 6, 0, 6, 1, 6]


@pytest.fixture
def files(plan, tmp_path):
    save_instance(plan[0], tmp_path / "case.json")
    save_schedule(plan[1], tmp_path / "plan.json")
    (tmp_path / "in.jsonl").write_text("".join(batch_line(name) for name in "fedcba"))
    assert invoke("export", tmp_path / "case.json", tmp_path / "plan.json", "--as", "assignment",
                  "-o", tmp_path / "plan.jsonl").exit_code == 0  # fmt: skip
    return tmp_path


def exported(files, source, kind, *more):
    """Return the rows of an exported file, and what the command says."""
    target = files / ("out.csv" if kind == "priorities" else "out.jsonl")
    batch = ("--batch", files / "in.jsonl") if kind == "batch" else ()
    done = invoke("export", files / "case.json", files / source, "--as", kind, "-o", target,
                  *batch, *more)  # fmt: skip
    if kind == "priorities":
        return list(csv.DictReader(target.read_text().splitlines())), done.stderr
    return [item for _, item in read_objects(target)], done.stderr


@pytest.mark.parametrize("kind", ["priorities", "batch", "trace", "assignment"])
def test_each_engine_gets_its_own_file_from_a_plan_or_from_its_assignment(files, kind):
    mine = {name: [each["request"] for each in objects(files / "plan.jsonl")
                   if each["worker"] == name] for name in ("left", "right")}  # fmt: skip
    assert all(mine.values())
    lengths = dict(zip("abcdef", zip(PROMPTS, OUTPUTS, strict=True), strict=True))
    for name, requests in mine.items():
        rows, said = exported(files, "plan.jsonl", kind, "--worker", name)
        assert (rows, said) == exported(files, "plan.json", kind, "--worker", name)
        assert f"{len(requests)} requests written" in said
        assert "--worker" not in said
        if kind == "trace":
            found = [(row["input_length"], row["output_length"]) for row in rows]
            assert found == [lengths[each] for each in requests]
            continue
        key = {"priorities": "id", "batch": "custom_id", "assignment": "request"}[kind]
        assert [row[key] for row in rows] == requests
        ranks = [row["body"] if kind == "batch" else row for row in rows]
        rank = "rank" if kind == "assignment" else "priority"
        assert [int(row[rank]) for row in ranks] == list(range(len(requests)))
    rows, said = exported(files, "plan.jsonl", kind)
    assert len(rows) == 6
    assert ("each engine needs its own file (--worker)" in said) == (kind != "assignment")


def test_the_command_refuses_what_it_does_not_know(files):
    given = "export", files / "case.json", files / "plan.jsonl", "-o", files / "out.jsonl"
    assert refused("did you mean left", invoke, *given, "--worker", "lift").field == "--worker"
    refused("would be overwritten", invoke, *given[:3], "-o", files / "plan.jsonl")
    refused(r"\.jsonl", invoke, *given[:3], "--as", "assignment", "-o", files / "out.csv")
    (files / "plan.jsonl").write_text("".join(GOOD[:5]))
    refused("1 of 6 have no line, 'f' first", invoke, *given)
    assert not (files / "out.jsonl").exists()


@pytest.mark.full
def test_the_example_of_the_page_runs(repo_root, tmp_path, monkeypatch):
    page = (repo_root / "docs" / "vllm.md").read_text()
    (code,) = re.findall(r"^```python\n(import orsched\n.*?)^```", page, re.S | re.M)
    (tmp_path / "examples").symlink_to(repo_root / "examples")
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    ids = [
        row["id"]
        for name in ("worker-0", "worker-1")
        for row in csv.DictReader((tmp_path / f"{name}.csv").read_text().splitlines())
    ]
    assert sorted(map(int, ids)) == list(range(500))
    assert len(objects(tmp_path / "plan.jsonl")) == 500
