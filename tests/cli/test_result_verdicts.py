"""Status, bound and gap of results: the same in every output, each gap beside its figure."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest

import orsched
from orsched import AffineCost, Instance, Requests, Worker
from orsched.files import load_schedule, save_schedule
from orsched.solving.checked_run import judged
from orsched.solving.objectives import objective_named
from orsched.solving.run_block import verdict_of
from orsched.views.html import write_report
from tests.in_order import in_order

ARRIVE = Instance(
    Requests([40, 30, 20, 10], [6, 9, 2, 12], arrival_ns=[0, 10**8, 2 * 10**8, 3 * 10**8]),
    Worker(2),
    first_token="decode",
)


BY_SEARCH = (
    "optimal among schedules without chunked prefills, mixed steps and evictions, "
    "by search without a certificate"
)


@pytest.fixture(scope="module")
def proven():
    """An optimum that a search alone proves: the certified bound is lower."""
    result = orsched.solve(orsched.load("gate"), "exact")
    assert result.status == "optimal"
    assert not result.certified
    assert result.bound_ns < result.makespan_ns
    return result


def test_a_proven_optimum_has_no_gap(proven, tmp_path):
    row = proven.to_row()
    assert proven.gap == row["gap"] == proven.figures["gap"] == 0
    assert proven.objective_bound == proven.objective_value == proven.makespan
    assert proven.bound == row["bound_s"] < row["objective_bound"]
    assert (row["status"], row["certified"], row["termination"]) == ("optimal", False, "finished")
    assert any("without a certificate" in note for note in row["notes"])
    assert "gap 0.00%, optimal" in repr(proven)
    assert BY_SEARCH in proven._repr_html_()
    frame = orsched.compare(orsched.load("gate"), ["fcfs", "exact"]).to_pandas()
    assert list(frame["status"]) == ["feasible", "optimal"]
    assert frame["gap"][1] == 0
    write_report(orsched.load("gate"), [proven.schedule], tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert f'data-field="status">{BY_SEARCH}<' in page
    assert re.search(r'data-field="gap" data-value="0.0" data-certified="0.0\d+">[^<]*0.00 %', page)


@pytest.mark.parametrize("style", ["table", "json", "csv"])
def test_the_command_prints_status_and_closed_gap(call, style):
    code, out, err = call("solve", "gate", "--method", "exact", "--format", style)
    assert code == 0, err
    if style == "table":
        assert re.search(r"  0\.31 +0\.31 +0\.00 % +optimal ", out)
        assert f"{BY_SEARCH.partition(', by')[0]}: exact" in out
        return
    row = json.loads(out) if style == "json" else next(csv.DictReader(io.StringIO(out)))
    assert float(row["gap"]) == 0
    assert (row["status"], str(row["certified"]), row["termination"]) == (
        "optimal", "False", "finished",
    )  # fmt: skip
    assert "without a certificate" in str(row["notes"])


@pytest.mark.parametrize(
    "objective", ["makespan", "jct_mean", "ttft_mean", "0.5*makespan+2*jct_mean"]
)
def test_one_gap_beside_its_figure_and_its_bound(objective):
    result = orsched.solve(ARRIVE, "fcfs", objective)
    row = result.to_row()
    value, bound = row["objective_value"], row["objective_bound"]
    assert row["objective"] == objective
    assert result.gap == row["gap"] == pytest.approx((value - bound) / bound)
    for text in (
        repr(result),
        repr(orsched.compare(ARRIVE, ["fcfs", "vllm"], objective=objective)),
    ):
        shown = re.search(r"([a-z*+.0-9_ JCTF]+?) [0-9.,]+ s \(bound [0-9.,]+ s, gap ", text)
        assert shown is not None
        assert objective == "makespan" or "makespan 1" not in shown[0].split("(")[0]
        assert len(re.findall("gap ", text)) == len(re.findall("bound ", text))
    if objective != "makespan":
        assert result.figures["gap"] is None


def test_a_proof_of_one_objective_says_nothing_of_another():
    instance = orsched.load("gate")
    short = orsched.solve(instance, "exact")
    other = judged(short, objective_named("jct_mean"))
    assert (short.status, other.status, other.certified) == ("optimal", "feasible", False)
    found = orsched.compare(instance, ["hybrid", "fcfs"], objective="jct_mean")
    assert {row["objective"] for row in found.to_rows()} == {"jct_mean"}


def test_the_verdict_survives_a_file_and_lies_are_no_verdict(proven, tmp_path):
    save_schedule(proven.schedule, tmp_path / "s.json")
    loaded = load_schedule(tmp_path / "s.json")
    assert verdict_of(loaded).words == BY_SEARCH
    for wrong in (None, 3, [], {}, {"status": "best"}, {"objective": 1, "status": "optimal"}):
        assert verdict_of(loaded.replace(run={**loaded.run, "verdict": wrong})) is None


@pytest.mark.parametrize(
    ("cost", "said"),
    [
        (AffineCost(), "the larger fixed part, once"),
        (
            in_order(orsched.BilinearCost, *[10**12] * 8),
            "their prefill and their round, one after the other",
        ),
    ],
)
def test_mixed_steps_that_the_model_does_not_state_are_named_an_assumption(cost, said):
    instance = ARRIVE.replace(workers=(Worker(2, cost),))
    result = orsched.solve(instance, "vllm")
    assert result.to_row()["mixed_steps"] > 0
    (note,) = [note for note in result.notes if "orsched assumes" in note]
    assert said in note
    assert not any("assumes" in note for note in orsched.solve(instance, "fcfs").notes)


def test_nanoseconds_are_not_printed_as_zero():
    tiny = Instance(
        Requests([2, 2], [1, 3]), Worker(1, in_order(AffineCost, 5, 1, 7, 1)), first_token="decode"
    )
    result = orsched.solve(tiny, "fcfs")
    texts = (repr(result), repr(result.schedule), result._repr_html_())
    assert not any(re.search(r"\b0\.0+ s", text) for text in texts)
    assert f"makespan {result.makespan:.9f} s" in repr(result)


WIDE = "gittins,gittins@predicted,gittins@clairvoyant,vllm"


@pytest.fixture
def arriving(call, tmp_path):
    path = tmp_path / "i.json"
    made = ("generate", "uniform", "--set", "requests=12", "--set", "clients=3", "-o", path)
    assert call(*made)[0] == 0
    return path, "--arrivals", "poisson:rate=5", "--predictions", "noise:sigma=0.5"


@pytest.mark.parametrize("more", [(), ("--slo-ttft", 0.5), ("--objective", "jct_mean")])
@pytest.mark.parametrize("wide", [60, 100])
def test_arrivals_hide_no_bound_and_rows_say_what_they_knew(
    call, arriving, more, wide, monkeypatch
):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(wide))
    code, out, err = call("compare", *arriving, "--methods", WIDE, *more)
    assert code == 0, err
    for name in ("bound s", "gap", "status", "information"):
        assert name in out
    first = out.split("\n\n")[0].splitlines()[2:6]
    assert [line.split("  ")[0].removesuffix(" *") for line in first] == WIDE.split(",")
    starred = [line.split()[0] for line in first if " * " in line]
    assert "gittins" in starred or "vllm" in starred
    assert "gittins@clairvoyant" in starred
    lines = [line for line in out.splitlines() if line.startswith("* ")]
    told = [re.search("with information ([a-z]+): ", line)[1] for line in lines]
    assert told == ["none", "predicted", "clairvoyant"]
    single = call("simulate", *arriving, "--policy", "vllm", *more[:2])[1]
    assert all(name in single for name in ("bound s", "gap"))


def test_a_comparison_names_the_best_of_each_class_of_information():
    found = orsched.compare(ARRIVE, ["fcfs", "vllm", "gittins@clairvoyant", "sjf@clairvoyant"])
    assert [row["method"] for row in found.to_rows()][2:] == [
        "gittins@clairvoyant", "sjf@clairvoyant",
    ]  # fmt: skip
    assert found["gittins@clairvoyant"] is found["gittins"]
    text = repr(found)
    assert text.count("(least mean JCT, information none)") == 1
    assert text.count("(least mean JCT, information clairvoyant)") == 1
    assert "  fcfs [none]: " in text


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (("--failures", "exponential:mtbf=0.5,mttr=0.1"), ["lost steps", "lost s", "restarts"]),
        (("--autoscale", "min=1,max=3,target=0.7,startup=0.1"), ["worker s", "starts"]),
    ],
)
def test_what_failures_and_autoscaling_cost_is_printed(call, arriving, options, shown):
    given = (*arriving, "--workers", 3, "--methods", "vllm,fcfs", *options)
    code, out, err = call("compare", *given)
    assert code == 0, err
    heads = re.split("  +", out.split("\n\n")[-1].splitlines()[0])
    assert {"busy", "worker s", *shown} <= set(heads)
    assert "utilization" not in heads  # of the slots, in the table above
    rows = json.loads(call("compare", *given, "--format", "json")[1])
    assert all(row["worker_s"] > 0 and row["restarts"] is not None for row in rows)
    code, out, err = call("compare", *given, "--columns", "method,preemptions,worker_s")
    assert code == 0, err
    assert re.split("  +", out.splitlines()[0]) == ["method", "restarts", "worker s"]
