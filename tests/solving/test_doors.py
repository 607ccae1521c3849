"""What public functions take: results wherever schedules are wanted, and frames for files."""

from __future__ import annotations

import pandas as pd
import pytest

import orsched
from orsched.models.mip import build
from orsched.runner.vllm_outlet import in_order

INSTANCE = orsched.load("gate")
RESULT = orsched.solve(INSTANCE, "fcfs")


def drawn(axes):
    """What a chart shows: the number of its artists on each pair of axes."""
    several = axes if isinstance(axes, (list, tuple)) else [axes]
    return [len(each.get_children()) for each in several]


DOORS = {
    "check": lambda given, _: orsched.check(INSTANCE, given),
    "gantt": lambda given, _: drawn(orsched.gantt(INSTANCE, given)),
    "in_order": lambda given, _: in_order(INSTANCE, given),
    "latency": lambda given, _: len(orsched.latency(INSTANCE, given)),
    "latency of two": lambda given, _: len(orsched.latency(INSTANCE, [given, given])),
    "save_gantt": lambda given, path: orsched.save_gantt(INSTANCE, given, path),
    "save_latency": lambda given, path: orsched.save_latency(INSTANCE, given, path),
    "save_schedule": lambda given, path: orsched.save_schedule(given, path.with_suffix(".json")),
    "save_timeline": lambda given, path: orsched.save_timeline(INSTANCE, given, path),
    "save_usage": lambda given, path: orsched.save_usage(INSTANCE, given, path),
    "solve": lambda given, _: (
        orsched.solve(INSTANCE, "hybrid", initial_schedule=given, seed=1).makespan_ns
    ),
    "summarise": lambda given, _: orsched.summarise(INSTANCE, given),
    "timeline_chart": lambda given, _: len(orsched.timeline_chart(INSTANCE, given)),
    "usage": lambda given, _: len(orsched.usage(INSTANCE, given)),
    "values_of": lambda given, _: list(build(INSTANCE, "window-mip").values_of(given).values()),
    "write_report": lambda given, path: orsched.write_report(INSTANCE, given, path),
}


@pytest.mark.parametrize("door", DOORS)
def test_a_result_is_taken_wherever_a_schedule_is_wanted(door, tmp_path):
    suffix = ".html" if door == "write_report" else ".svg"
    paths = [tmp_path / f"{name}{suffix}" for name in ("schedule", "result")]
    made = [
        DOORS[door](given, path)
        for given, path in zip((RESULT.schedule, RESULT), paths, strict=True)
    ]
    assert made[0] == made[1]
    written = [path.read_bytes() for path in sorted(tmp_path.iterdir())]
    assert len(written) in (0, 2)
    assert len(set(written)) <= 1


@pytest.mark.parametrize("door", DOORS)
def test_anything_else_is_refused_by_name(door, tmp_path):
    suffix = ".html" if door == "write_report" else ".svg"
    with pytest.raises(orsched.InputError, match="Instance is not a schedule"):
        DOORS[door](INSTANCE, tmp_path / f"x{suffix}")


FRAME = pd.DataFrame(
    {
        "context_tokens": [3, 4],
        "generated_tokens": [2, 1],
        "timestamp": pd.to_datetime(["2023-11-16 18:15:46.5", "2023-11-16 18:15:50.0"]),
        "model": ["a", "b"],
    }
)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (FRAME, "DataFrame is not an Instance (requests need a worker: orsched.load(frame, cli"),
        ("gate", "'gate' is not an Instance (orsched.load('gate') reads one)"),
        (INSTANCE.requests, "orsched.Instance(requests, orsched.Worker(64))"),
        (RESULT, "Result is not an Instance (give its instance: result.instance)"),
        (5, "int is not an Instance (load one: orsched.load(name))"),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize(
    "door",
    [
        orsched.solve, orsched.simulate, orsched.compare, orsched.bound, orsched.frontier,
        lambda given: orsched.gantt(given, RESULT), lambda given: orsched.usage(given, RESULT),
        lambda given: orsched.latency(given, RESULT), lambda given: orsched.check(given, RESULT),
        lambda given: orsched.timeline_chart(given, RESULT),
        lambda given: orsched.summarise(given, RESULT),
        lambda given: orsched.write_report(given, RESULT, "x.html"),
        lambda given: orsched.save_instance(given, "x.json"),
    ],
)  # fmt: skip
def test_what_is_no_instance_comes_with_the_call_that_makes_one(door, given, says):
    with pytest.raises(orsched.InputError) as caught:
        door(given)
    assert says in str(caught.value)


def test_a_frame_holds_what_a_csv_file_may(tmp_path):
    FRAME.to_csv(tmp_path / "requests.csv", index=False)
    of_frame = orsched.load(FRAME, clients=4)
    assert of_frame.requests == orsched.load(tmp_path / "requests.csv", clients=4).requests
    assert of_frame.requests.arrival_s.tolist() == [0, 3.5]
    assert orsched.Instance.from_pandas(FRAME, orsched.Worker(4)).requests == of_frame.requests
    assert orsched.Requests.from_pandas(FRAME) == of_frame.requests
    assert orsched.solve(of_frame, "fcfs").checked


def test_columns_of_a_frame_that_are_not_used_are_named(caplog):
    orsched.Requests.from_pandas(FRAME)
    assert "columns not used: model" in caplog.text


@pytest.mark.parametrize(
    ("frame", "field", "row"),
    [
        (FRAME.drop(columns="generated_tokens"), "output_tokens", None),
        (FRAME.assign(generated_tokens=[2, None]), "generated_tokens", 1),
        (FRAME.rename(columns={"timestamp": "ts"}), "ts", None),
        (FRAME.assign(priority=[1, 2]), "priority", None),
    ],
)
def test_a_wrong_frame_is_located(frame, field, row):
    with pytest.raises(orsched.InputError) as caught:
        orsched.Requests.from_pandas(frame)
    assert (caught.value.field, caught.value.row) == (field, row)


def test_priorities_of_a_frame_become_classes():
    found = orsched.load(FRAME.assign(priority=[7, 2]), clients=4)
    assert found.requests.service_class.tolist() == [1, 0]


@pytest.mark.parametrize("source", [[1], None, {}])
def test_what_names_no_source_is_refused(source):
    with pytest.raises(orsched.InputError, match="not a name, a path or a data frame"):
        orsched.load(source, clients=4)
