"""``orsched run`` on a virtual worker, from a schedule and from policies."""

from __future__ import annotations

import csv
import json
import sys

import pytest

import orsched
from orsched.cli.commands import run
from orsched.files import load_schedule, save_instance, save_schedule
from tests.cli.test_simulate import MINE


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    (tmp_path / "my_run_policy.py").write_text(MINE)
    plan = orsched.solve(orsched.load("with-arrivals"), "fcfs").schedule
    save_schedule(plan, tmp_path / "plan.json")
    yield tmp_path
    sys.modules.pop("my_run_policy", None)


@pytest.fixture
def execute(folder, capsys):
    """Run the command; return exit code, output, and last line on stderr."""

    def invoke(*arguments):
        code = run(["run", *map(str, arguments)])
        out, err = capsys.readouterr()
        return code, out, (err.splitlines() or [""])[-1]

    return invoke


def test_a_schedule_is_followed_and_its_trace_is_a_schedule(execute, folder, refused):
    code, out, _ = execute(
        "plan.json", "--worker", "virtual", "-o", "run.json", "--gantt", "a.svg", "--report",
        "a.html", "--usage", "a.png", "--trace", "t.json", "--records", "r.csv", "--errors",
        "e.csv", "--format", "json",
    )  # fmt: skip
    assert code == 0
    row = json.loads(out)
    assert row["plan_error"] == 0
    assert row["checked"] is True
    assert row["plan_against_run"]["stages_as_planned"] == row["plan_against_run"]["stages"]
    trace, plan = load_schedule(folder / "run.json"), load_schedule(folder / "plan.json")
    assert trace.is_measured
    assert trace.steps == plan.steps
    with (folder / "e.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == row["plan_against_run"]["stages"]
    assert sum(int(r["took_ns"]) for r in rows) <= trace.makespan_ns
    assert "Plan against run" in (folder / "a.html").read_text(encoding="utf-8")
    for name in ("a.svg", "a.png", "t.json", "r.csv"):
        assert (folder / name).stat().st_size > 100
    assert run(["check", "with-arrivals", "run.json", "--times", "measured"]) == 0
    assert run(["report", "with-arrivals", "plan.json", "run.json", "--gantt", "b.svg"]) == 0
    assert (folder / "b.svg").read_bytes() == (folder / "a.svg").read_bytes()
    refused("a plan and its run", "report with-arrivals plan.json plan.json --gantt c.svg")


def test_the_table_says_what_was_wrong(execute):
    code, out, _ = execute("pang-100x20", "--policy", "hybrid", "--worker", "virtual")
    assert code == 0
    assert "The run took 69.518 s, planned were 69.518 s (+0.00 %)." in out.splitlines()
    assert "decode   active" in out
    code, out, _ = execute("with-arrivals", "--worker", "virtual", "--format", "csv")
    assert code == 0
    assert out.splitlines()[0].startswith("method,information,device")


def test_own_policies_decide_live(execute, folder):
    code, out, _ = execute(
        "two-by-two", "--policy", "my_run_policy:Mine", "--param", "most=2", "--worker", "virtual",
        "--format", "json", "-o", "run.parquet",
    )  # fmt: skip
    assert code == 0
    assert json.loads(out)["method"] == "mine"
    assert load_schedule(folder / "run.parquet").parameters == {"most": 2}
    assert execute("run.parquet", "--worker", "virtual")[0] == 0


def test_the_instance_of_a_schedule_may_be_a_file(execute, folder):
    own = orsched.load("two-by-two").replace(name="own")
    save_instance(own, folder / "own.json")
    save_schedule(orsched.solve(own, "fcfs").schedule, folder / "own-plan.json")
    code, _, err = execute("own-plan.json", "--worker", "virtual")
    assert code == 2
    assert "--instance" in err
    assert execute("own-plan.json", "--instance", "own.json", "--worker", "virtual")[0] == 0
    code, _, err = execute("own-plan.json", "--instance", "one-request", "--worker", "virtual")
    assert code == 2
    assert "another instance" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["two-by-two", "--policy", "fcsf"], "did you mean fcfs"),
        (["two-by-two", "--policy", "hybrid", "--param", "gait=1"], "gait"),
        (["two-by-two", "--slots", "1"], "at least 2"),
        (["two-by-two", "--length", "1"], "longest request"),
        (["two-by-two", "--slots", "0"], "slots"),
        (["plan.json", "--policy", "fcfs"], "is a schedule"),
        (["plan.json", "--param", "a=1"], "is a schedule"),
        (["two-by-two", "--instance", "two-by-two"], "is an instance"),
        (["two-by-two", "-o", "run.txt"], "suffix"),
        (["two-by-two", "--resume", "plan.json"], "was not stopped"),
        (["plan.json", "-o", "plan.json"], "would be overwritten"),
        (["nowhere.json"], "no such file"),
        (["two-by-two", "--end-of-sequence", "2", "-o", "run.json"], "--instance-output"),
        (["two-by-two", "--end-of-sequence", "2"], "yields no tokens"),
        (["two-by-two", "--peaks"], "torch worker"),
    ],
)
def test_what_is_wrong_is_refused(execute, arguments, said):
    code, out, err = execute(*arguments, "--worker", "virtual")
    assert (code, out) == (2, "")
    assert said in err


@pytest.mark.parametrize("change", ["work", "bound"])
def test_a_schedule_that_is_not_valid_is_not_run(execute, folder, change):
    text = json.loads((folder / "plan.json").read_text())
    if change == "work":
        text["work"]["client"][-1] += 50
    else:
        text["bound"]["value_ns"] += 1
    (folder / "plan.json").write_text(json.dumps(text))
    code, out, err = execute("plan.json", "--worker", "virtual", "-o", "run.json")
    assert (code, out) == (1, "")
    assert "the schedule is not valid" in err
    assert not (folder / "run.json").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"unfinished": []}, "'run.unfinished': must be an object"),
        ({"unfinished": {"0": 5}}, "'run.unfinished.0': must be a list of tokens"),
        ({"unfinished": {"0": ["a"]}}, "'run.unfinished.0': must be a list of tokens"),
        ({"events": {}}, "'run.events': must be a list"),
        ({"events": [7]}, "'run.events': must be a list"),
        ({"events": [{"what": "lost"}]}, "'run.events': must be a list"),
        ({"seed": []}, "'run.seed'"),
        ({"plan": 3}, "followed no schedule"),
    ],
)
def test_a_trace_with_other_notes_is_not_resumed(execute, folder, change, said):
    source = _partial(folder, run=change)
    code, _, err = execute(source, "--worker", "virtual", "--resume", "part.json")
    assert (code, said in err) == (2, True), err


@pytest.mark.parametrize(("field", "value"), [("request", 9), ("first_step", 99), ("client", -1)])
def test_a_trace_that_is_not_valid_is_not_resumed(execute, folder, field, value):
    source = _partial(folder, work={field: value})
    code, _, err = execute(source, "--worker", "virtual", "--resume", "part.json")
    assert code == 2, err


def _partial(folder, run=None, work=None):
    """Write part of a run, with changes, and return the instance's or the plan's name."""
    instance, plan = orsched.load("with-arrivals"), load_schedule(folder / "plan.json")
    keep = plan.work.last_step < 2
    trace = plan.replace(
        steps=type(plan.steps)(**{n: c[:2] for n, c in vars(plan.steps).items()}),
        work=type(plan.work)(**{n: c[keep] for n, c in vars(plan.work).items()}),
        results={},
        bound=None,
        run={"device": "virtual", "clock": "model", "complete": False},
    )
    assert trace.instance_sha256 == instance.sha256
    save_schedule(trace, folder / "part.json")
    document = json.loads((folder / "part.json").read_text())
    document["run"] |= run or {}
    for name, value in (work or {}).items():
        document["work"][name][0] = value
    (folder / "part.json").write_text(json.dumps(document))
    return "plan.json" if run and "plan" in run else "with-arrivals"


def test_a_part_of_a_run_is_resumed(execute, folder):
    source = _partial(folder, run={"unfinished": {}, "events": []})
    assert execute(source, "--worker", "virtual", "--resume", "part.json")[0] == 0


def test_an_interrupted_run_leaves_a_trace_that_can_be_resumed(execute, folder, monkeypatch):
    from orsched.runner import execution

    def interrupting(say, planned):
        steps = 0

        def observe(view, step):
            nonlocal steps
            steps += 1
            if steps == 60:
                raise KeyboardInterrupt

        return observe

    monkeypatch.setattr(execution, "_observer", interrupting)
    code, _, err = execute(
        "pang-100x20", "--worker", "virtual", "--policy", "vllm", "--param",
        "max_num_batched_tokens=300", "-o", "part.json",
    )  # fmt: skip
    assert code == 130
    assert "interrupted" in err
    part = load_schedule(folder / "part.json")
    assert part.is_partial
    instance = orsched.load("pang-100x20")
    assert orsched.check(instance, part, times="measured") == []
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    code, out, _ = execute(
        "pang-100x20", "--worker", "virtual", "--resume", "part.json", "-o", "whole.json",
        "--format", "json",
    )  # fmt: skip
    assert code == 0
    assert json.loads(out)["method"] == "vllm"
    whole = load_schedule(folder / "whole.json")
    assert not whole.is_partial
    assert whole.parameters == part.parameters
    assert whole.parameters["max_num_batched_tokens"] == 300
    assert orsched.check(instance, whole, times="measured") == []
    assert whole.steps.start_ns[: len(part.steps)].tolist() == part.steps.start_ns.tolist()
    assert [event["what"] for event in whole.run["events"]][-1] == "resumed"


def test_an_interrupted_schedule_is_resumed_with_the_schedule(execute, folder, monkeypatch):
    from orsched.runner import execution
    from tests.runner.loop.test_stops import stopping

    monkeypatch.setattr(execution, "_observer", lambda say, planned: stopping(1))
    assert execute("plan.json", "--worker", "virtual", "-o", "part.json")[0] == 130
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    resume = ("--worker", "virtual", "--resume", "part.json")
    assert execute("plan.json", *resume, "-o", "whole.json")[0] == 0
    whole = load_schedule(folder / "whole.json")
    instance = orsched.load("with-arrivals")
    assert orsched.check(instance, whole, times="measured") == []
    assert not whole.is_partial
    save_schedule(orsched.solve(instance, "gittins").schedule, folder / "other.json")
    for source, said in (("other.json", "followed another schedule"), ("part.json", "another")):
        code, _, err = execute(source, *resume)
        assert (code, said in err) == (2, True)
    code, _, err = execute("plan.json", *resume, "--policy", "fcfs")
    assert (code, "is a schedule" in err) == (2, True)
    assert execute("with-arrivals", *resume)[0] == 0
