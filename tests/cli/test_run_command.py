"""``orsched run`` on a virtual worker, from a schedule and from policies."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

import orsched
from orsched.files import load_schedule, save_cost, save_instance, save_schedule
from orsched.runner import execution
from orsched.runner.devices.clock import CPU_TIME
from orsched.runner.speed import Speed
from tests.runner.loop.spec import merged
from tests.runner.loop.test_stops import stopping

NAMED = "a prompt of 12 tokens and 4 rounds"


@pytest.fixture(autouse=True)
def plan(own):
    """Put a plan into the folder."""
    save_schedule(orsched.solve(orsched.load("with-arrivals"), "fcfs").schedule, "plan.json")


@pytest.fixture
def execute(call):
    """Run on a virtual worker; return exit code, output, and last line on stderr."""

    def invoke(line):
        code, out, err = call(f"run {line} --worker virtual")
        return code, out, (err.splitlines() or [""])[-1]

    return invoke


def test_a_schedule_is_followed_and_its_trace_is_a_schedule(execute, done, refused):
    code, out, _ = execute(
        "plan.json -o run.json --gantt a.svg --report a.html --usage a.png --trace t.json "
        "--records r.csv --errors e.csv --format json"
    )
    assert code == 0
    row = json.loads(out)
    assert (row["plan_error"], row["checked"]) == (0, True)
    assert row["plan_against_run"]["stages_as_planned"] == row["plan_against_run"]["stages"]
    trace, plan = load_schedule("run.json"), load_schedule("plan.json")
    assert trace.is_measured
    assert trace.steps == plan.steps
    rows = list(csv.DictReader(io.StringIO(Path("e.csv").read_text())))
    assert len(rows) == row["plan_against_run"]["stages"]
    assert sum(int(r["took_ns"]) for r in rows) <= trace.makespan_ns
    assert "Plan against run" in Path("a.html").read_text(encoding="utf-8")
    for name in ("a.svg", "a.png", "t.json", "r.csv"):
        assert Path(name).stat().st_size > 100
    done("check with-arrivals run.json --times measured")
    done("report with-arrivals plan.json run.json --gantt b.svg")
    assert Path("b.svg").read_bytes() == Path("a.svg").read_bytes()
    refused("a plan and its run", "report with-arrivals plan.json plan.json --gantt c.svg")


def test_the_table_says_what_was_wrong(execute):
    code, out, _ = execute("pang-100x20 --policy hybrid")
    assert code == 0
    assert "The run took 69.518 s, planned were 69.518 s (+0.00 %)." in out.splitlines()
    assert "decode   active" in out
    code, out, _ = execute("with-arrivals --format csv")
    assert code == 0
    assert out.splitlines()[0].startswith("method,information,device")


ENGINE = f"{Path(__file__).resolve().parents[2] / 'examples' / 'own_engine.py'}:FormulaEngine"


def test_the_drift_of_the_machine_is_told_apart_from_the_error_of_the_model(call, refused):
    cost, speed = orsched.load("with-arrivals").worker.cost, Speed((5,), NAMED, 10**12)
    save_cost(cost, "cost.json", {"speed": speed.to_dict()})
    line = f"run with-arrivals --policy vllm --worker {ENGINE} --calibration cost.json --length 24"
    code, out, _ = call(f"{line} -o run.json")
    assert code == 0
    run = load_schedule("run.json").run
    assert run["clock"] == CPU_TIME
    assert run["speed"]["reference"] == NAMED
    assert 0 < run["speed"]["drift"] < 0.1  # a look took less than 100 s
    assert (run["slots"], run["length"]) == (2, 24)  # the slot of the looks is none of the run's
    drift, used = "Drift of the machine since its calibration", "Times are CPU time of the worker"
    assert drift in out
    assert used in out
    save_cost(cost, "other.json", {"speed": Speed((5,), "a round", 5).to_dict()})
    refused("looked at by a round", line.replace("cost.json", "other.json"))
    save_cost(cost, "none.json", None)
    refused("holds no speed", line.replace("cost.json", "none.json"))
    refused("real worker in this process", line.replace(ENGINE, "virtual"))


def test_own_policies_decide_live(execute):
    code, out, _ = execute(
        "two-by-two --policy own:Mine --param most=2 --format json -o run.parquet"
    )
    assert (code, json.loads(out)["method"]) == (0, "mine")
    assert load_schedule("run.parquet").parameters == {"most": 2}
    assert execute("run.parquet")[0] == 0


def test_the_instance_of_a_schedule_may_be_a_file(execute):
    own = orsched.load("two-by-two").replace(name="own")
    save_instance(own, "own.json")
    save_schedule(orsched.solve(own, "fcfs").schedule, "own-plan.json")
    assert execute("own-plan.json --instance own.json")[0] == 0
    for line, said in (
        ("own-plan.json", "--instance"),
        ("own-plan.json --instance one-request", "another instance"),
    ):
        code, _, err = execute(line)
        assert (code, said in err) == (2, True)


def test_a_schedule_of_several_workers_is_followed_on_each(execute):
    one = orsched.load("pang-100x20")
    fleet = one.replace(workers=[replace(one.worker, name=name) for name in "abc"], name="own")
    plan = orsched.solve(fleet, "vllm", parameters={"dispatch": "least_work"}).schedule
    assert set(plan.steps.worker.tolist()) == {0, 1, 2}
    save_instance(fleet, "fleet.json")
    save_schedule(plan, "fleet-plan.json")
    code, out, _ = execute("fleet-plan.json --instance fleet.json --format json -o run.json")
    row, trace = json.loads(out), load_schedule("run.json")
    assert (code, row["plan_error"], row["checked"]) == (0, 0, True)
    assert row["plan_against_run"]["stages_as_planned"] == row["plan_against_run"]["stages"]
    assert merged(trace) == merged(plan)


@pytest.mark.parametrize("change", ["work", "bound"])
def test_a_schedule_that_is_not_valid_is_not_run(execute, change):
    text = json.loads(Path("plan.json").read_text())
    if change == "work":
        text["work"]["client"][-1] += 50
    else:
        text["bound"]["value_ns"] += 1
    Path("plan.json").write_text(json.dumps(text))
    code, out, err = execute("plan.json -o run.json")
    assert (code, out, "the schedule is not valid" in err) == (1, "", True)
    assert not Path("run.json").exists()


@pytest.mark.parametrize(("change", "said"), [
    ({"unfinished": []}, "'run.unfinished': must be an object"),
    ({"unfinished": {"0": 5}}, "'run.unfinished.0': must be a list of tokens"),
    ({"unfinished": {"0": ["a"]}}, "'run.unfinished.0': must be a list of tokens"),
    ({"events": {}}, "'run.events': must be a list"),
    ({"events": [7]}, "'run.events': must be a list"),
    ({"events": [{"what": "lost"}]}, "'run.events': must be a list"),
    ({"seed": []}, "'run.seed'"),
    ({"plan": 3}, "followed no schedule"),
])  # fmt: skip
def test_a_trace_with_other_notes_is_not_resumed(execute, change, said):
    code, _, err = execute(f"{_partial(run=change)} --resume part.json")
    assert (code, said in err) == (2, True), err


@pytest.mark.parametrize(("field", "value"), [("request", 9), ("first_step", 99), ("client", -1)])
def test_a_trace_that_is_not_valid_is_not_resumed(execute, field, value):
    code, _, err = execute(f"{_partial(work={field: value})} --resume part.json")
    assert code == 2, err


def _partial(run=None, work=None):
    """Write part of a run, with changes, and return the instance's or the plan's name."""
    plan = load_schedule("plan.json")
    keep = plan.work.last_step < 2
    trace = plan.replace(
        steps=type(plan.steps)(**{n: c[:2] for n, c in vars(plan.steps).items()}),
        work=type(plan.work)(**{n: c[keep] for n, c in vars(plan.work).items()}),
        results={},
        bound=None,
        run={"device": "virtual", "clock": "model", "complete": False},
    )
    save_schedule(trace, "part.json")
    document = json.loads(Path("part.json").read_text())
    document["run"] |= run or {}
    for name, value in (work or {}).items():
        document["work"][name][0] = value
    Path("part.json").write_text(json.dumps(document))
    return "plan.json" if run and "plan" in run else "with-arrivals"


def test_a_part_of_a_run_is_resumed(execute):
    source = _partial(run={"unfinished": {}, "events": []})
    assert execute(f"{source} --resume part.json")[0] == 0


def test_an_interrupted_run_leaves_a_trace_that_can_be_resumed(execute, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(execution, "_observer", lambda say, planned, reference: stopping(59))
        code, _, err = execute(
            "pang-100x20 --policy vllm --param max_num_batched_tokens=300 -o part.json"
        )
    assert (code, "interrupted" in err) == (130, True)
    part = load_schedule("part.json")
    assert part.is_partial
    instance = orsched.load("pang-100x20")
    assert orsched.check(instance, part, times="measured") == []
    code, out, _ = execute("pang-100x20 --resume part.json -o whole.json --format json")
    assert (code, json.loads(out)["method"]) == (0, "vllm")
    whole = load_schedule("whole.json")
    assert not whole.is_partial
    assert whole.parameters == part.parameters
    assert whole.parameters["max_num_batched_tokens"] == 300
    assert orsched.check(instance, whole, times="measured") == []
    assert whole.steps.start_ns[: len(part.steps)].tolist() == part.steps.start_ns.tolist()
    assert [event["what"] for event in whole.run["events"]][-1] == "resumed"


def test_an_interrupted_schedule_is_resumed_with_the_schedule(execute, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(execution, "_observer", lambda say, planned, reference: stopping(1))
        assert execute("plan.json -o part.json")[0] == 130
    assert execute("plan.json --resume part.json -o whole.json")[0] == 0
    whole, instance = load_schedule("whole.json"), orsched.load("with-arrivals")
    assert orsched.check(instance, whole, times="measured") == []
    assert not whole.is_partial
    save_schedule(orsched.solve(instance, "gittins").schedule, "other.json")
    for source, said in (
        ("other.json", "followed another schedule"),
        ("part.json", "another"),
        ("plan.json --policy fcfs", "is a schedule"),
    ):
        code, _, err = execute(f"{source} --resume part.json")
        assert (code, said in err) == (2, True)
    assert execute("with-arrivals --resume part.json")[0] == 0
