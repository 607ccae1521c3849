"""Results and comparisons as people use them, and wherever schedules and frames are taken."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

import orsched
from orsched.checker.certificates import bound_violations
from orsched.common.errors import InputError
from orsched.models.bounds.bounds import bound, mean_bounds
from orsched.models.mip import build
from orsched.runner import vllm_outlet
from orsched.solving import objectives
from orsched.solving.objectives import OBJECTIVES, arrivals_decide, fitting_objective
from tests.decoding import decoding
from tests.in_order import in_order
from tests.metrics.any_schedule import any_schedule
from tests.refusals import place, refusal


@pytest.fixture(scope="module")
def both():
    instance = orsched.load("pang-100x20")
    return orsched.compare(
        instance, ["fcfs", "vllm"], arrivals="poisson:rate=8", slo=orsched.SLO(ttft_s=3)
    )


def test_the_best_by_each_objective_has_the_best_figure(both):
    for objective in OBJECTIVES.values():
        values = [objective.value(result) for result in both]
        if None in values:
            continue
        best = objective.value(both.best(objective.name))
        assert best == (max if objective.largest else min)(values)
        assert not any(objective.better(value, best) for value in values)
        assert both.best(objective.column) is both.best(objective)
    assert both.best() is both.best("slo_attainment")


def test_objectives_fit_limits_then_arrivals_then_the_makespan(both):
    start, arriving = orsched.load("pang-100x20"), both.instance
    rows = [{"slo_attainment": None, "makespan_s": 1.0}]
    judged = [{"slo_attainment": 0.5, "makespan_s": 1.0}]
    assert fitting_objective(start, rows).words == "shortest"
    assert fitting_objective(arriving, rows).words == "least mean JCT"
    for instance in (start, arriving):
        assert fitting_objective(instance, judged).words == "best attainment"
    # results of schedules say the same as rows
    assert fitting_objective(arriving, [r.schedule.results for r in both]).name == "slo_attainment"


def test_where_all_attain_the_limits_alike_the_objective_is_the_mean_jct():
    instance = orsched.load("pang-100x20")
    alike = orsched.compare(instance, ["fcfs", "vllm"], slo=orsched.SLO(ttft_s=1000))
    assert {result.slo_attainment for result in alike} == {1.0}
    assert alike.objective.name == "jct_mean"
    assert alike.best() is alike.best("jct_mean")
    assert "(least mean JCT)" in repr(alike)
    alone = orsched.compare(instance, "fcfs", slo=orsched.SLO(ttft_s=1000))
    assert alone.objective.name == "slo_attainment"


def test_a_missing_figure_is_never_better():
    attainment = OBJECTIVES["slo_attainment"]
    assert attainment.better(0.1, None)
    assert not attainment.better(None, 0.1)
    assert not attainment.better(None, None)
    assert attainment.best([{"slo_attainment": None}, {"slo_attainment": 0.2}]) == [1]
    assert attainment.best([{"slo_attainment": None}]) == []


def test_equals_are_told_apart_by_mean_jct():
    instance = orsched.load("two-by-two")
    found = orsched.compare(instance, ["hybrid", "offline"])
    assert found[0].makespan == found[1].makespan
    assert found.best().jct_mean_s == min(result.jct_mean_s for result in found)


def test_wrong_names_are_answered_with_the_near_ones(both):
    assert both["vllm"] is both[1]
    plain = orsched.compare(orsched.load("two-by-two"), ["fcfs"])
    for use, name, said in (
        (both.__getitem__, "vlm", r"'vlm' is not a method.*did you mean vllm\?"),
        (both.best, "jct_men", r"'jct_men' is not an objective.*did you mean jct_mean\?"),
        (plain.best, "slo_attainment", "no result has the figure slo_attainment.*give limits"),
        (both[0].plot, "gant", r"'gant' is not a picture.*did you mean gantt\?"),
        (both.plot, "gantt", "not a picture of several schedules"),
    ):
        with pytest.raises(InputError, match=said):
            use(name)
    assert objectives.objective_named("ttft_p99_s") is OBJECTIVES["ttft_p99"]


def test_a_method_that_failed_says_why_when_it_is_asked_for():
    instance = orsched.load("two-by-two")

    class Idle(orsched.Policy):
        name = "idle"

        def decide(self, view):
            return None

    found = orsched.compare(instance, ["fcfs", Idle])
    with pytest.raises(InputError, match="made no schedule"):
        found[found.failed[0].method]
    assert "failed" in repr(found)


def test_a_makespan_is_the_last_arrivals_if_at_most_a_twentieth_comes_after():
    instance = orsched.load("pang-100x20")
    arriving = instance.replace(requests=instance.requests.replace(arrival_ns=np.arange(100) * 10))
    last = 990
    edge = last * 20 // 19  # the largest makespan with 20 (m - last) <= m
    assert arrivals_decide(arriving, edge)
    assert 20 * (edge - last) <= edge < 20 * (edge + 1 - last)
    assert not arrivals_decide(arriving, edge + 1)
    assert not arrivals_decide(instance, 5)


def test_the_data_frame_has_a_row_a_request(both):
    result = both["fcfs"]
    frame = result.to_pandas()
    assert len(frame) == len(result.instance)
    assert frame["ttft_s"].mean() == pytest.approx(result.ttft_mean_s)
    assert frame["jct_s"].max() * 1e9 == pytest.approx(result.schedule.results["jct_ns"]["max"])
    assert frame["itl_max_s"].max() == result.itl_max_s
    assert (frame["finish_s"] >= frame["first_token_s"]).all()
    assert (frame["first_token_s"] >= frame["start_s"]).all()
    assert (frame["waiting_s"] >= 0).all()
    assert (frame["ttft_s"] <= 3).mean() == result.slo_attainment
    assert set(frame["worker"]) == {0}
    table = both.to_pandas()
    assert isinstance(table, pd.DataFrame)
    assert list(table["ttft_p99_s"]) == [each.ttft_p99_s for each in both]


def test_frames_name_ids_classes_and_tenants():
    names = {"ids": ("a", "b", "c"), "tenant": ["x", "y", "x"], "group": [7, 7, 8]}
    worker = orsched.Worker(2, in_order(orsched.AffineCost, 4, 1, 8, 1))
    instance = decoding([3, 4, 5], [2, 1, 3], worker, arrival_ns=[0, 10, 20], **names)
    instance = instance.with_classes("interactive:ttft=1", "batch")
    frame = orsched.solve(instance, "fcfs").to_pandas()
    assert list(frame["request"]) == ["a", "b", "c"]
    assert list(frame["tenant"]) == ["x", "y", "x"]
    assert list(frame["group"]) == [7, 7, 8]
    assert set(frame["class"]) <= {"interactive", "batch"}
    assert frame["tpot_s"].isna().tolist() == [False, True, False]
    assert frame["itl_max_s"].isna().tolist() == [False, True, False]


@pytest.mark.parametrize("kind", ["gantt", "usage", "latency", "timeline"])
def test_results_draw_themselves(both, kind):
    figure = both["fcfs"].plot(kind, title="a title")
    assert figure.axes
    if kind in ("latency", "timeline"):
        assert both.plot(kind).axes
    plt.close("all")


def test_texts_of_objects_are_short(both):
    objects = (both.instance, both.instance.requests, both[0].schedule, both[0], both)
    for each in objects:
        text = repr(each)
        assert len(text.splitlines()) <= 4
        assert max(map(len, text.splitlines())) < 200
        assert "array(" not in text
    assert "100 requests" in repr(both.instance)
    assert "(best attainment)" in repr(both)
    assert "fcfs" in repr(both[0])
    assert repr(orsched.Requests([], [])) == "Requests: none"
    assert repr(orsched.Comparison(())) == "Comparison(no results)"
    many = orsched.Comparison(both.results * 30, (), both.instance)
    assert "and 40 more" in repr(many)


def test_bounds_on_means_are_proven_and_below_the_means():
    for seed in range(12):
        instance, schedule = any_schedule(seed, requests=5)
        results = orsched.summarise(instance, schedule)
        found = mean_bounds(instance, schedule, ("mean_jct", "mean_ttft"), None)
        for objective, name in (("mean_jct", "jct_ns"), ("mean_ttft", "ttft_ns")):
            lower = found[objective]
            assert bound_violations(instance, lower, objective) == []
            assert lower["value_ns"] <= results[name]["mean"]


def test_bounds_on_means_are_those_of_bound_and_only_where_asked_for():
    instance = orsched.load("two-by-two")
    plain = orsched.solve(instance, "fcfs")
    assert plain.jct_mean_bound_s is plain.ttft_mean_bound_s is None
    asked = orsched.solve(instance, "fcfs", bounds=["mean_jct", "makespan"])
    assert asked.jct_mean_bound_s == bound(instance, "mean_jct").value_s
    assert asked.ttft_mean_bound_s is None
    with pytest.raises(InputError, match="no bound on 'jct' is available"):
        orsched.solve(instance, "fcfs", bounds=["jct"])


INSTANCE = orsched.load("gate")
RESULT = orsched.solve(INSTANCE, "fcfs")


def drawn(axes):
    """What a chart shows: the number of its artists on each pair of axes."""
    several = axes if isinstance(axes, (list, tuple)) else [axes]
    return [len(each.get_children()) for each in several]


DOORS = {
    "assignment": lambda given, _: vllm_outlet.Assignment.from_schedule(
        INSTANCE, given
    ).ranks.tolist(),
    "check": lambda given, _: orsched.check(INSTANCE, given),
    "gantt": lambda given, _: drawn(orsched.gantt(INSTANCE, given)),
    "in_order": lambda given, _: vllm_outlet.in_order(INSTANCE, given),
    "latency": lambda given, _: len(orsched.latency(INSTANCE, given)),
    "latency of two": lambda given, _: len(orsched.latency(INSTANCE, [given, given])),
    "save_gantt": lambda given, path: orsched.save_gantt(INSTANCE, given, path),
    "save_latency": lambda given, path: orsched.save_latency(INSTANCE, given, path),
    "save_schedule": lambda given, path: orsched.save_schedule(given, path.with_suffix(".json")),
    "save_timeline": lambda given, path: orsched.save_timeline(INSTANCE, given, path),
    "save_usage": lambda given, path: orsched.save_usage(INSTANCE, given, path),
    "solve": lambda given, _: orsched.solve(INSTANCE, initial_schedule=given, seed=1).makespan_ns,
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
    given = zip((RESULT.schedule, RESULT), paths, strict=True)
    made = [DOORS[door](each, path) for each, path in given]
    assert made[0] == made[1]
    written = [path.read_bytes() for path in sorted(tmp_path.iterdir())]
    assert len(written) in (0, 2)
    assert len(set(written)) <= 1


@pytest.mark.parametrize("door", DOORS)
def test_anything_else_is_refused_by_name(door, tmp_path):
    suffix = ".html" if door == "write_report" else ".svg"
    with pytest.raises(orsched.InputError, match="Instance is not a schedule"):
        DOORS[door](INSTANCE, tmp_path / f"x{suffix}")


TIMES = pd.to_datetime(["2023-11-16 18:15:46.5", "2023-11-16 18:15:50.0"])
FRAME = pd.DataFrame({"context_tokens": [3, 4], "generated_tokens": [2, 1], "timestamp": TIMES})
FRAME["model"] = ["a", "b"]


@pytest.mark.parametrize(("given", "says"), [
    (FRAME, "DataFrame is not an Instance (requests need a worker: orsched.load(frame, cli"),
    ("gate", "'gate' is not an Instance (orsched.load('gate') reads one)"),
    (INSTANCE.requests, "orsched.Instance(requests, orsched.Worker(64))"),
    (RESULT, "Result is not an Instance (give its instance: result.instance)"),
    (5, "int is not an Instance (load one: orsched.load(name))"),
], ids=lambda value: type(value).__name__)  # fmt: skip
@pytest.mark.parametrize("door", [
    orsched.solve, orsched.simulate, orsched.compare, orsched.bound,
    lambda given: orsched.gantt(given, RESULT), lambda given: orsched.usage(given, RESULT),
    lambda given: orsched.latency(given, RESULT), lambda given: orsched.check(given, RESULT),
    lambda given: orsched.timeline_chart(given, RESULT),
    lambda given: orsched.summarise(given, RESULT),
    lambda given: orsched.write_report(given, RESULT, "x.html"),
    lambda given: orsched.save_instance(given, "x.json"),
])  # fmt: skip
def test_what_is_no_instance_comes_with_the_call_that_makes_one(door, given, says):
    assert says in str(refusal(door, given))


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


@pytest.mark.parametrize(("frame", "field", "row"), [
    (FRAME.drop(columns="generated_tokens"), "output_tokens", None),
    (FRAME.assign(generated_tokens=[2, None]), "generated_tokens", 1),
    (FRAME.rename(columns={"timestamp": "ts"}), "ts", None),
    (FRAME.assign(priority=[1, 2]), "priority", None),
])  # fmt: skip
def test_a_wrong_frame_is_located(frame, field, row):
    assert place(refusal(orsched.Requests.from_pandas, frame)) == (row, field)


def test_priorities_of_a_frame_become_classes():
    found = orsched.load(FRAME.assign(priority=[7, 2]), clients=4)
    assert found.requests.service_class.tolist() == [1, 0]


@pytest.mark.parametrize("source", [[1], None, {}])
def test_what_names_no_source_is_refused(source):
    with pytest.raises(
        orsched.InputError, match=r"holds no requests|is not a record|unknown column"
    ):
        orsched.load(source, clients=4)
