"""Columns, the best row, status, bound and gap of results: the same in every output."""

import csv
import io
import json
import re
from pathlib import Path

import pytest

import orsched
from orsched import AffineCost, Instance, Requests, Worker
from orsched.files import load_schedule, save_schedule
from orsched.solving.checked_run import judged
from orsched.solving.objectives import objective_named
from orsched.views.html import write_report
from orsched.views.pictures import verdict_of
from tests.in_order import in_order

ARRIVE = "gsm8k-llama65b --workers 8 --arrivals poisson:rate=1"
LATE = f"compare {ARRIVE} --methods fcfs,vllm"
FULL = "compare pang-100x20 --workers 1 --arrivals poisson:rate=50 --methods fcfs,online"


def head(out):
    return [word.strip() for word in out.splitlines()[0].split("  ") if word.strip()]


def width(out):
    return max(map(len, out.splitlines()))


def test_all_at_the_start_shows_makespan_and_gap_first(done):
    out = done("compare pang-100x20")
    assert head(out)[:6] == ["method", "information", "makespan s", "bound s", "gap", "status"]
    assert width(out) <= 100
    assert out.splitlines()[-2].startswith("* shortest with information none: fcfs (")
    assert out.splitlines()[-1].startswith("* shortest with information clairvoyant: hybrid (")
    assert sum(" * " in line for line in out.splitlines()[2:-2]) == 2
    assert "last arrival" not in out


def test_arrivals_show_latencies_first_and_nobody_is_called_shortest(done):
    out = done(FULL)
    assert head(out)[:4] == ["method", "information", "TTFT s", "TTFT p99 s"]
    assert head(out)[-4:] == ["makespan s", "bound s", "gap", "status"]
    assert "* least mean JCT: " in out
    assert out.splitlines()[-1] == "bound, gap and status are those of the makespan"
    assert "shortest" not in out
    assert "last arrival" not in out
    assert width(out) <= 100


def test_limits_show_attainment_first_and_mark_the_best(done, as_json):
    asked = f"{FULL},vllm --slo-ttft 2 --slo-tpot 0.2"
    out = done(asked)
    assert head(out)[:3] == ["method", "information", "SLO"]
    best = max(as_json(asked), key=lambda row: row["slo_attainment"])
    share = f"{best['slo_attainment']:.2%}".replace("%", " %")
    assert f"* best attainment: {best['method']} ({share}" in out
    assert width(out) <= 100


def test_a_makespan_that_the_arrivals_decide_is_said_to_be_theirs(done):
    last = done(LATE).partition("\n\n")[0].splitlines()[-1]
    assert last.startswith("the makespan is the last arrival's, at 1,")
    assert last.endswith("s: arrivals decide it, not the method")
    assert "the makespan is the last arrival's" in done(f"simulate {ARRIVE}")


def test_columns_and_sort_decide_in_every_format(done, as_json):
    asked = f"{LATE} --columns method,ttft_p99_s --sort"
    rows = as_json(f"{asked} -ttft_p99_s")
    assert [list(row) for row in rows] == [["method", "ttft_p99_s"]] * 2
    assert rows[0]["ttft_p99_s"] >= rows[1]["ttft_p99_s"]
    table = list(csv.DictReader(io.StringIO(done(f"{asked} -ttft_p99_s --format csv"))))
    assert [row["method"] for row in table] == [row["method"] for row in rows]
    assert list(table[0]) == ["method", "ttft_p99_s"]
    out = done(f"{asked} -ttft_p99_s")
    assert head(out) == ["method", "TTFT p99 s"]
    assert out.splitlines()[2].split()[0] == rows[0]["method"]
    assert as_json(f"{asked} ttft_p99_s") == rows[::-1]
    assert list(as_json("solve two-by-two --columns gap,method")) == ["gap", "method"]


@pytest.mark.parametrize("columns", [60, 80])
def test_a_table_is_no_wider_than_the_terminal(done, monkeypatch, columns):
    asked = f"{FULL} --slo-ttft 2"
    piped = done(asked)
    assert width(piped) > 80
    assert len(piped.splitlines()) < 8
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    out = done(asked)
    assert width(out) <= columns
    assert head(out)[:3] == head(piped)[:3]
    for name in ("makespan s", "bound s", "gap", "status"):  # in further parts, each with labels
        assert name in out
    assert out.count("fcfs ") == 1 + out.count("\n\n")


def test_means_over_seeds_are_those_of_all_figures(done, as_json):
    asked = "compare pang-case --seeds 0:2 --methods fcfs,hybrid"
    each = as_json(f"{asked} --each")
    for row in as_json(asked):
        mine = [e for e in each if e["method"] == row["method"]]
        for name in ("makespan_s", "ttft_p99_s", "jct_mean_s", "itl_max_s", "tokens_per_s"):
            assert row[name] == pytest.approx(sum(e[name] for e in mine) / 2, rel=1e-12)
        assert (row["slo_attainment"], row["seeds"]) == (None, 2)
    columns = ["method", "information", "seeds", "makespan s", "bound s", "gap", "status"]
    assert head(done(asked))[:7] == columns


def test_bounds_on_means_stand_beside_the_figures(done, as_json):
    assert "JCT bound s" in done(f"{FULL} --bounds mean_jct").splitlines()[0]
    for row in as_json(f"{FULL} --bounds mean_jct,mean_ttft"):
        assert 0 < row["jct_mean_bound_s"] <= row["jct_mean_s"]
        assert 0 < row["ttft_mean_bound_s"] <= row["ttft_mean_s"]


def test_one_limit_alone_leaves_the_other_null(done, as_json):
    row = as_json("simulate two-by-two --slo-ttft 0.1 -o s.json")
    slo = json.loads(Path("s.json").read_text())["results"]["slo"]
    assert (slo["ttft_ns"], slo["tpot_ns"]) == (100_000_000, None)
    assert row["slo_attainment"] == slo["attainment"]
    assert row["goodput_per_s"] == slo["goodput_per_s"]
    done("check two-by-two s.json")


ARRIVING = Instance(
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
def test_the_command_prints_status_and_closed_gap(done, style):
    out = done("solve gate --method exact --format", style)
    if style == "table":
        assert re.search(r"  0\.31 +0\.31 +0\.00 % +optimal ", out)
        assert f"{BY_SEARCH.partition(', by')[0]}: exact" in out
        return
    row = json.loads(out) if style == "json" else next(csv.DictReader(io.StringIO(out)))
    assert float(row["gap"]) == 0
    found = (row["status"], str(row["certified"]), row["termination"])
    assert found == ("optimal", "False", "finished")
    assert "without a certificate" in str(row["notes"])


@pytest.mark.parametrize(
    "objective", ["makespan", "jct_mean", "ttft_mean", "0.5*makespan+2*jct_mean"]
)
def test_one_gap_beside_its_figure_and_its_bound(objective):
    result = orsched.solve(ARRIVING, "fcfs", objective)
    row = result.to_row()
    value, bound = row["objective_value"], row["objective_bound"]
    assert row["objective"] == objective
    assert result.gap == row["gap"] == pytest.approx((value - bound) / bound)
    assert objective == "makespan" or result.figures["gap"] is None
    compared = orsched.compare(ARRIVING, ["fcfs", "vllm"], objective=objective)
    for text in (repr(result), repr(compared)):
        shown = re.search(r"([a-z*+.0-9_ JCTF]+?) [0-9.,]+ s \(bound [0-9.,]+ s, gap ", text)
        assert shown is not None
        assert objective == "makespan" or "makespan 1" not in shown[0].split("(")[0]
        assert len(re.findall("gap ", text)) == len(re.findall("bound ", text))


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


BILINEAR = in_order(orsched.BilinearCost, *[10**12] * 8)


@pytest.mark.parametrize(("cost", "said"), [
    (AffineCost(), "the larger fixed part, once"),
    (BILINEAR, "their prefill and their round, one after the other"),
])  # fmt: skip
def test_mixed_steps_that_the_model_does_not_state_are_named_an_assumption(cost, said):
    instance = ARRIVING.replace(workers=(Worker(2, cost),))
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
def arriving(done):
    done("generate uniform --set requests=12 --set clients=3 -o i.json")
    return "i.json --arrivals poisson:rate=5 --predictions noise:sigma=0.5"


@pytest.mark.parametrize("more", ["", "--slo-ttft 0.5", "--objective jct_mean"])
@pytest.mark.parametrize("wide", [60, 100])
def test_arrivals_hide_no_bound_and_rows_say_what_they_knew(
    done, arriving, more, wide, monkeypatch
):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(wide))
    out = done(f"compare {arriving} --methods {WIDE} {more}")
    for name in ("bound s", "gap", "status", "information"):
        assert name in out
    first = out.split("\n\n")[0].splitlines()[2:6]
    assert [line.split("  ")[0].removesuffix(" *") for line in first] == WIDE.split(",")
    starred = [line.split()[0] for line in first if " * " in line]
    assert "gittins" in starred or "vllm" in starred
    assert "gittins@clairvoyant" in starred
    told = re.findall(r"^\* .*with information ([a-z]+): ", out, re.MULTILINE)
    assert told == ["none", "predicted", "clairvoyant"]
    single = done(f"simulate {arriving} --policy vllm {more}")
    assert all(name in single for name in ("bound s", "gap"))


def test_a_comparison_names_the_best_of_each_class_of_information():
    names = ["fcfs", "vllm", "gittins@clairvoyant", "sjf@clairvoyant"]
    found = orsched.compare(ARRIVING, names)
    assert [row["method"] for row in found.to_rows()][2:] == names[2:]
    assert found["gittins@clairvoyant"] is found["gittins"]
    text = repr(found)
    assert text.count("(least mean JCT, information none)") == 1
    assert text.count("(least mean JCT, information clairvoyant)") == 1
    assert "  fcfs [none]: " in text


@pytest.mark.parametrize(("option", "shown"), [
    ("--failures exponential:mtbf=0.5,mttr=0.1", ["lost steps", "lost s", "restarts"]),
    ("--autoscale min=1,max=3,target=0.7,startup=0.1", ["worker s", "starts"]),
])  # fmt: skip
def test_what_failures_and_autoscaling_cost_is_printed(done, as_json, arriving, option, shown):
    given = f"compare {arriving} --workers 3 --methods vllm,fcfs {option}"
    heads = re.split("  +", done(given).split("\n\n")[-2].splitlines()[0])
    assert {"busy", "worker s", *shown} <= set(heads)
    assert "utilization" not in heads  # of the slots, in the table above
    assert all(row["worker_s"] > 0 and row["restarts"] is not None for row in as_json(given))
    out = done(f"{given} --columns method,preemptions,worker_s")
    assert head(out) == ["method", "restarts", "worker s"]
