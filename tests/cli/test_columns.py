"""Columns, the best row, status, bound and gap of results: the same in every output."""

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

ARRIVE = ("gsm8k-llama65b", "--methods", "fcfs,vllm", "--workers", 8, "--arrivals")
LATE = (*ARRIVE, "poisson:rate=1")
FULL = ("pang-100x20", "--workers", 1, "--arrivals", "poisson:rate=50")


def head(out):
    return out.splitlines()[0].split("  ")[0:1] + [
        word.strip() for word in out.splitlines()[0].split("  ")[1:] if word.strip()
    ]


def test_all_at_the_start_shows_makespan_and_gap_first(call):
    code, out, _ = call("compare pang-100x20")
    assert code == 0
    assert head(out)[:6] == ["method", "information", "makespan s", "bound s", "gap", "status"]
    assert max(map(len, out.splitlines())) <= 100
    assert out.splitlines()[-2].startswith("* shortest with information none: fcfs (")
    assert out.splitlines()[-1].startswith("* shortest with information clairvoyant: hybrid (")
    assert sum(" * " in line for line in out.splitlines()[2:-2]) == 2
    assert "last arrival" not in out


def test_arrivals_show_latencies_first_and_nobody_is_called_shortest(call):
    code, out, _ = call("compare", *FULL, "--methods", "fcfs,online")
    assert code == 0
    assert head(out)[:4] == ["method", "information", "TTFT s", "TTFT p99"]
    assert head(out)[-4:] == ["makespan s", "bound s", "gap", "status"]
    assert "* least mean JCT: " in out
    assert out.splitlines()[-1] == "bound, gap and status are those of the makespan"
    assert "shortest" not in out
    assert max(map(len, out.splitlines())) <= 100


def test_limits_show_attainment_first_and_mark_the_best(call):
    limits = ("--slo-ttft", 2, "--slo-tpot", 0.2)
    code, out, _ = call("compare", *FULL, "--methods", "fcfs,online,vllm", *limits)
    assert code == 0
    assert head(out)[:3] == ["method", "information", "SLO"]
    rows = json.loads(
        call("compare", *FULL, "--methods", "fcfs,online,vllm", *limits, "--format", "json")[1]
    )
    best = max(rows, key=lambda row: row["slo_attainment"])
    assert (
        f"* best attainment: {best['method']} ({best['slo_attainment']:.2%}".replace("%", " %")
        in out
    )
    assert max(map(len, out.splitlines())) <= 100


def test_where_all_attain_the_limits_alike_the_mean_jct_decides(call):
    code, out, _ = call("compare", *FULL, "--methods", "fcfs,online", "--slo-ttft", 1000)
    assert code == 0
    assert head(out)[2] == "SLO"
    assert out.count("100.00 %") == 2
    assert out.splitlines()[-2].startswith("* least mean JCT: ")


def test_a_makespan_that_the_arrivals_decide_is_said_to_be_theirs(call):
    code, out, _ = call("compare", *LATE)
    assert code == 0
    last = out.splitlines()[-1]
    assert last.startswith("the makespan is the last arrival's, at 1,")
    assert last.endswith("s: arrivals decide it, not the method")
    assert "last arrival" not in call("compare", *FULL, "--methods", "fcfs,online")[1]
    one = call("simulate", *LATE[:1], *LATE[3:])[1]
    assert "the makespan is the last arrival's" in one


def test_columns_and_sort_decide_in_every_format(call):
    options = ("--columns", "method,ttft_p99_s", "--sort", "-ttft_p99_s")
    rows = json.loads(call("compare", *LATE, *options, "--format", "json")[1])
    assert [list(row) for row in rows] == [["method", "ttft_p99_s"]] * 2
    assert rows[0]["ttft_p99_s"] >= rows[1]["ttft_p99_s"]
    table = list(
        csv.DictReader(io.StringIO(call("compare", *LATE, *options, "--format", "csv")[1]))
    )
    assert [row["method"] for row in table] == [row["method"] for row in rows]
    assert list(table[0]) == ["method", "ttft_p99_s"]
    out = call("compare", *LATE, *options)[1]
    assert head(out) == ["method", "TTFT p99"]
    assert out.splitlines()[2].split()[0] == rows[0]["method"]
    upwards = (*options[:3], "ttft_p99_s")
    again = json.loads(call("compare", *LATE, *upwards, "--format", "json")[1])
    assert again == rows[::-1]
    single = ("solve", "two-by-two", "--columns", "gap,method", "--format", "json")
    assert list(json.loads(call(*single)[1])) == ["gap", "method"]


@pytest.mark.parametrize("command", ["compare", "solve", "simulate"])
def test_an_unknown_column_is_answered_with_the_one_that_was_meant(call, refused, command):
    for option in ("--columns", "--sort"):
        refused(
            f"field '{option}': there is no column 'ttft_p9_s' (did you mean ttft_p99_s?",
            f"{command} two-by-two {option} ttft_p9_s",
        )
    assert call(command, "two-by-two", "--columns", ",")[0] == 2


IDLE = """
from orsched import Policy

class Idle(Policy):
    name = "idle"

    def decide(self, view):
        return None
"""


def test_methods_that_fail_come_last_whichever_way_rows_are_sorted(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(IDLE)
    methods = ("compare", "two-by-two", "--methods", "fcfs,own.py:Idle,hybrid")
    for sort in ("makespan_s", "-makespan_s"):
        found = call(*methods, "--columns", "method,error", "--sort", sort, "--format", "json")
        rows = json.loads(found[1])
        assert rows[-1]["method"] == "own.py:Idle"
        assert rows[-1]["error"]
    out = call(*methods)[1]
    failed = next(line for line in out.splitlines() if line.startswith("own.py:Idle"))
    assert "nothing to do" in failed or "it waits" in failed


@pytest.mark.parametrize("columns", [60, 80])
def test_a_table_is_no_wider_than_the_terminal(call, monkeypatch, columns):
    asked = ("compare", *FULL, "--methods", "fcfs,online", "--slo-ttft", 2)
    piped = call(*asked)[1]
    assert max(map(len, piped.splitlines())) > 80
    assert len(piped.splitlines()) < 7
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    out = call(*asked)[1]
    assert max(map(len, out.splitlines())) <= columns
    assert head(out)[:3] == head(piped)[:3]
    for name in ("makespan s", "bound s", "gap", "status"):  # in further parts, each with labels
        assert name in out
    assert out.count("fcfs") == 1 + out.count("\n\n")


def test_violations_have_columns_too(call, tmp_path):
    path = tmp_path / "s.json"
    call("solve two-by-two -o", path)
    document = json.loads(path.read_text())
    document["results"]["makespan_ns"] += 1
    path.write_text(json.dumps(document))
    options = ("--columns", "kind,field", "--format", "json")
    code, out, _ = call("check two-by-two", path, *options)
    assert code == 1
    assert {"kind": "result", "field": "results.makespan_ns"} in json.loads(out)
    assert "kind" in call("check two-by-two", path, *options[:2])[1].splitlines()[0]


def test_means_over_seeds_are_those_of_all_figures(call):
    options = ("compare", "pang-case", "--seeds", "0:2", "--methods", "fcfs,hybrid")
    each = json.loads(call(*options, "--each", "--format", "json")[1])
    means = json.loads(call(*options, "--format", "json")[1])
    for row in means:
        mine = [e for e in each if e["method"] == row["method"]]
        for name in ("ttft_p99_s", "jct_mean_s", "itl_max_s", "tokens_per_s"):
            assert row[name] == pytest.approx(sum(e[name] for e in mine) / 2, rel=1e-12)
        assert row["slo_attainment"] is None
    out = call(*options)[1]
    columns = ["method", "information", "seeds", "makespan s", "bound s", "gap", "status"]
    assert head(out)[:7] == columns


def test_bounds_on_means_stand_beside_the_figures(call, refused):
    code, out, _ = call("compare", *FULL, "--methods", "fcfs,online", "--bounds", "mean_jct")
    assert code == 0
    assert "JCT bound" in out.splitlines()[0]
    names = ("--bounds", "mean_jct,mean_ttft", "--format", "json")
    for row in json.loads(call("compare", *FULL, "--methods", "fcfs,online", *names)[1]):
        assert 0 < row["jct_mean_bound_s"] <= row["jct_mean_s"]
        assert 0 < row["ttft_mean_bound_s"] <= row["ttft_mean_s"]
    refused(
        "field '--bounds': there is no bound on 'mean_tpot' (did you mean mean_ttft?",
        "solve two-by-two --bounds mean_tpot",
    )
    code, _, err = call("compare none.csv --bounds jct")
    assert "field '--bounds': there is no bound on 'jct'" in err  # before anything is loaded


def test_one_limit_alone_leaves_the_other_null(call, tmp_path):
    path = tmp_path / "s.json"
    code, out, _ = call("simulate two-by-two --slo-ttft", 0.1, "--format", "json", "-o", path)
    assert code == 0
    slo = json.loads(path.read_text())["results"]["slo"]
    assert (slo["ttft_ns"], slo["tpot_ns"]) == (100_000_000, None)
    row = json.loads(out)
    assert row["slo_attainment"] == slo["attainment"]
    assert row["goodput_per_s"] == slo["goodput_per_s"]
    assert call("check two-by-two", path)[0] == 0


RESULT_VERDICTS_ARRIVE = Instance(
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
    code, out, err = call("solve gate --method exact --format", style)
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
    result = orsched.solve(RESULT_VERDICTS_ARRIVE, "fcfs", objective)
    row = result.to_row()
    value, bound = row["objective_value"], row["objective_bound"]
    assert row["objective"] == objective
    assert result.gap == row["gap"] == pytest.approx((value - bound) / bound)
    for text in (
        repr(result),
        repr(orsched.compare(RESULT_VERDICTS_ARRIVE, ["fcfs", "vllm"], objective=objective)),
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
    instance = RESULT_VERDICTS_ARRIVE.replace(workers=(Worker(2, cost),))
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
    found = orsched.compare(
        RESULT_VERDICTS_ARRIVE, ["fcfs", "vllm", "gittins@clairvoyant", "sjf@clairvoyant"]
    )
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
