"""Tables, intervals and plots of studies, beside the public functions."""

import math
from xml.etree import ElementTree

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import orsched
from orsched.instances import with_arrivals
from orsched.instances.catalog import generate
from orsched.planning.study import over_seeds, paired, read_study, run, save_plots
from orsched.planning.study import plots as module
from orsched.planning.study.plots import default_plots, pareto_front
from orsched.planning.study.table import RUN, csv_text, independent, varying
from orsched.views.pictures import wants_log
from orsched.views.style import axis_name
from tests.planning.pictures import drawn, require_on_page
from tests.refusals import refusal

CHOICES = dict.fromkeys(
    ("cell", "instance", "arrivals", "predictions", "information", "error", "arrivals_rate")
) | {"status": "ok", "instance": "i"}


def rows_for(policies=("fcfs", "vllm", "gittins"), rates=(1, 2, 4), workers=(1,), seeds=3, **more):
    """A table of a study, made up: TTFT grows with the load, and with the place of the policy."""
    return [
        {
            **CHOICES, "workers": count, "arrivals": f"poisson:rate={rate}", "arrivals_rate": rate,
            "policy": policy, "seed": seed, "makespan_ns": 10**10 + seed,
            "jct_ns_mean": 10**9 * (rate + k + seed),
            "ttft_ns_p99": 10**8 * (rate**3 + 5 * k + seed),
            "tokens_per_s": 100.0 * rate - 10 * k, "slo_attainment": 1 / (rate + k),
            "slo_ttft_ns": 2 * 10**9, "slo_tpot_ns": None, **more,
        }
        for count in workers for rate in rates for k, policy in enumerate(policies)
        for seed in range(seeds)
    ]  # fmt: skip


@pytest.fixture
def figures(monkeypatch):
    return drawn(module, monkeypatch)


@pytest.mark.parametrize(("column", "words", "factor"), [
    ("ttft_p99_s", "TTFT p99 (s)", 1), ("ttft_ns_p99", "TTFT p99 (s)", 1e-9),
    ("jct_ns_mean", "JCT mean (s)", 1e-9), ("tpot_ns_max", "TPOT max (s)", 1e-9),
    ("makespan_ns", "makespan (s)", 1e-9), ("slo_attainment", "SLO attainment (%)", 100),
    ("gap", "gap to the bound (%)", 100), ("arrivals_rate", "arrivals (requests/s)", 1),
    ("instance_requests", "requests", 1), ("param_gate_factor", "gate factor", 1),
    ("bubble_ns_tail", "bubble tail (s)", 1e-9), ("run_solve_s", "run solve (s)", 1),
    ("restarts", "restarts", 1),
])  # fmt: skip
def test_axes_have_names_with_units(column, words, factor):
    found = axis_name(column)
    assert (found.words, found.factor) == (words, factor)


def test_which_side_of_an_axis_is_better_and_when_it_is_logarithmic():
    assert axis_name("ttft_ns_p99").better == axis_name("makespan_ns").better == -1
    assert axis_name("tokens_per_s").better == axis_name("slo_attainment").better == 1
    assert axis_name("restarts").better == axis_name("workers").better == 0
    assert wants_log([1, 31])
    assert not wants_log([1, 30])
    assert not wants_log([0, 31])
    assert not wants_log([])


points = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=12)


@given(points, st.sampled_from([1, -1]), st.sampled_from([1, -1]))
def test_the_front_has_the_points_that_none_beats(found, better_x, better_y):
    def beats(a, b):
        least = better_x * a[0] >= better_x * b[0] and better_y * a[1] >= better_y * b[1]
        return least and a != b

    expected = sorted({p for p in found if not any(beats(q, p) for q in found)})
    assert pareto_front(found, better_x, better_y) == expected


def test_what_is_drawn_by_default(tmp_path):
    assert [(p["y"], p.get("x")) for p in default_plots(rows_for())] == [
        ("ttft_ns_p99", None), ("jct_ns_mean", None), ("slo_attainment", None),
        ("ttft_ns_p99", "tokens_per_s"),
    ]  # fmt: skip
    at_once = rows_for(rates=(1,))
    for row in at_once:
        row |= {"arrivals": None, "arrivals_rate": None}
    assert [p["y"] for p in default_plots(at_once)] == ["makespan_ns", "jct_ns_mean"]
    over = [f"{y}-over-arrivals_rate" for y in ("ttft_ns_p99", "jct_ns_mean", "slo_attainment")]
    assert [path.name for path in save_plots(rows_for(), tmp_path)] == [
        f"{name}-by-policy.svg" for name in (*over, "ttft_ns_p99-against-tokens_per_s")
    ]


@pytest.mark.parametrize(("policies", "workers"), [(3, (1,)), (12, (1, 2, 3, 4, 5))])
def test_no_legend_and_no_name_is_cut_off(policies, workers, tmp_path, figures):
    names = [f"my_module:MyPolicy{k}@predicted" for k in range(policies)]
    save_plots(rows_for(names, workers=workers), tmp_path, suffix="png")
    assert len(figures) == 4
    for figure in figures:
        (legend,) = figure.legends
        words = [text.get_text() for text in legend.get_texts()]
        assert [word for word in words if word != "Pareto front"] == names
        shown = [ax for ax in figure.axes if ax.get_visible()]
        for item in (legend, *(ax.xaxis.label for ax in shown), *(ax.title for ax in shown)):
            if item is legend or item.get_text():
                require_on_page(item.get_window_extent(), figure)


def test_points_are_means_and_the_limit_is_a_line(tmp_path, figures):
    save_plots(rows_for(), tmp_path, [{"y": "ttft_ns_p99"}])
    (ax,) = figures[0].axes
    lines = {line.get_gid(): line for line in ax.lines}
    assert lines["line-1"].get_ydata().tolist() == pytest.approx([0.7, 1.4, 7.0])
    assert lines["line-1"].get_xdata().tolist() == [1, 2, 4]
    assert set(lines["limit"].get_ydata()) == {2.0}
    assert ax.get_ylabel() == "TTFT p99 (s)"
    assert ax.get_xlabel() == "arrivals (requests/s)"
    low, high = ax.get_ylim()
    assert low <= 0.2 < 8 < high
    assert {"band-0", "band-1", "band-2"} <= {c.get_gid() for c in ax.collections}


def test_an_interval_is_cut_to_what_can_be(tmp_path, figures):
    rows = rows_for()
    for row in rows:
        row["slo_attainment"] = [1.0, 1.0, 0.1][row["seed"]]
    save_plots(rows, tmp_path, [{"y": "slo_attainment"}])
    band = next(c for c in figures[0].axes[0].collections if c.get_gid() == "band-0")
    heights = band.get_paths()[0].vertices[:, 1]
    assert heights.max() == 100
    assert 0 <= heights.min() < 70


def test_results_against_each_other_have_a_front(tmp_path, figures):
    save_plots(rows_for(), tmp_path, [{"y": "ttft_ns_p99", "x": "tokens_per_s"}])
    (ax,) = figures[0].axes
    lines = {line.get_gid(): line for line in ax.lines}
    assert lines["line-0"].get_xdata().tolist() == [100, 200, 400]
    drawn = [tuple(p) for k in range(3) for p in lines[f"line-{k}"].get_xydata().tolist()]
    front = [tuple(p) for p in lines["front"].get_xydata().tolist()]
    assert front == pareto_front(drawn, 1, -1)
    words = [t.get_text() for t in ax.texts if t.get_gid() == "along"]
    assert set(words) <= {"1", "2", "4"}
    assert words
    assert "throughput (output tokens/s)" in ax.get_xlabel()


def test_a_policy_without_the_parameter_is_level_and_others_stand_side_by_side(tmp_path, figures):
    rows = [row | {"param_b": row["arrivals_rate"]} for row in rows_for(("a", "b"))]
    for row in rows:
        if row["policy"] == "a":
            row |= {"param_b": None}
        row |= {"arrivals": None, "arrivals_rate": None}
    save_plots(rows, tmp_path, [{"y": "makespan_ns", "x": "param_b"}])
    line = next(c for c in figures[0].axes[0].lines if c.get_gid() == "line-0")
    assert line.get_xdata() == [0, 1]
    assert len(set(line.get_ydata())) == 1
    rows = rows_for(rates=(1,))
    save_plots(rows, tmp_path, [{"y": "jct_ns_mean", "x": "instance"}])
    lines = [line for line in figures[1].axes[0].lines if str(line.get_gid()).startswith("line")]
    assert len({line.get_xdata()[0] for line in lines}) == 3


def test_what_is_no_choice_and_no_result_is_refused(tmp_path):
    rows = [row | {"gap": 0.1, "restarts": 1} for row in rows_for()]
    for plot in ({"y": "gap", "x": "gap"}, {"y": "jct_ns_mean", "x": "restarts"}):
        assert "not a column of choices" in str(refusal(save_plots, rows, tmp_path, [plot]))


def test_names_are_no_formulas_and_equal_rows_equal_bytes(tmp_path):
    rows = rows_for(("$a$", "b_", "^"))
    plots = [{"y": "jct_ns_mean"}]
    first, second = (save_plots(rows, tmp_path / name, plots)[0] for name in ("c", "d"))
    assert first.read_bytes() == second.read_bytes()
    words = {"".join(t.itertext()) for t in ElementTree.parse(first).iter()}
    assert {"$a$", "b_", "^"} <= words


GRID = {
    "instances": [{"generator": "uniform", "requests": 20, "clients": 2}],
    "arrivals": ["poisson:rate=1", "poisson:rate=4"],
    "seeds": "0:3",
    "policies": ["fcfs", {"name": "online", "parameters": {"gate": ["waited_time", "idle_cost"]}}],
    "bounds": ["makespan", "mean_jct"],
    "slo": {"ttft_s": 5},
}


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    return run(GRID, tmp_path_factory.mktemp("study"), jobs=2)


def test_a_row_says_what_solve_says(done):
    assert done.cells == done.ran == len(done.rows) == 2 * 3 * 3
    assert done.failed == []
    for row in done.rows[::4]:
        instance = generate("uniform", requests=20, clients=2, seed=row["seed"])
        instance = with_arrivals(instance, row["arrivals"], row["seed"])
        gate = {} if row["param_gate"] is None else {"gate": row["param_gate"]}
        slo = orsched.SLO(ttft_s=5)
        result = orsched.solve(instance, row["policy"], parameters=gate, seed=row["seed"], slo=slo)
        said = result.schedule.results
        assert row["makespan_ns"] == said["makespan_ns"]
        assert row["jct_ns_mean"] == said["jct_ns"]["mean"]
        assert row["slo_attained"] == said["slo"]["attained"]
        assert row["bound_ns"] <= said["bound_ns"] <= row["makespan_ns"]  # no search in studies
        assert row["jct_bound_ns"] <= row["jct_ns_mean"]
        assert row["requests"] == 20


def test_the_files_hold_the_rows(done):
    frame = pd.read_parquet(done.folder / "table.parquet")
    text = pd.read_csv(done.folder / "table.csv")
    assert list(frame.columns) == list(text.columns) == list(done.rows[0])
    assert frame["makespan_ns"].tolist() == [row["makespan_ns"] for row in done.rows]
    assert text["jct_ns_mean"].tolist() == frame["jct_ns_mean"].tolist()
    assert frame["makespan_ns"].dtype == "int64"
    assert sorted(frame.columns)[-1] > RUN
    assert len(done.to_pandas()) == len(frame)


def test_a_second_run_runs_nothing_and_a_longer_one_the_rest(done, tmp_path):
    again = run(GRID, done.folder, jobs=2)
    assert again.ran == 0
    assert csv_text(again.rows) == csv_text(done.rows)
    more = run({**GRID, "seeds": "0:4"}, done.folder, jobs=2)
    assert (more.cells, more.ran) == (24, 6)
    fresh = run({**GRID, "seeds": "0:4"}, tmp_path, jobs=1)
    assert csv_text(fresh.rows, run_columns=False) == csv_text(more.rows, run_columns=False)
    assert csv_text(fresh.rows) != csv_text(more.rows)  # wall-clock figures differ


def test_instances_may_be_objects(tmp_path):
    instance = generate("uniform", requests=9, clients=2, seed=4)
    seen = []
    done = run({"instances": [instance], "policies": ["fcfs"]}, tmp_path, callback=seen.append)
    assert done.rows[0]["makespan_ns"] == orsched.solve(instance, "fcfs").makespan_ns
    assert [state.finished for state in seen] == [0, 1]
    assert run({"instances": [instance], "policies": ["fcfs"]}, tmp_path).ran == 0


def test_means_over_seeds_are_those_of_the_rows(done):
    rows = done.rows
    groups = over_seeds(rows, "jct_ns_mean")
    assert len(groups) == 6
    names = varying(rows)
    assert set(names) == {"arrivals", "policy", "arrivals_rate", "param_gate"}
    assert independent(rows, names) == ["arrivals", "policy", "param_gate"]
    for choice, interval in groups:
        chosen = [row for row in rows if tuple(row[name] for name in names) == choice]
        values = [row["jct_ns_mean"] for row in chosen]
        assert interval.size == 3
        assert interval.mean == pytest.approx(sum(values) / 3)
        assert interval.low <= interval.mean <= interval.high
        half = 4.302652729911275 * pd.Series(values).std() / math.sqrt(3)
        assert interval.high - interval.mean == pytest.approx(half)


def test_pairs_are_compared_on_equal_workloads(done):
    same = paired(done.rows, "jct_ns_mean", "fcfs", "fcfs")
    assert [group.interval[1:] for group in same] == [(0.0, 0.0, 0.0)] * 2
    frame = done.to_pandas()
    for choice, interval in paired(done.rows, "jct_ns_mean", "online", "fcfs"):
        part = frame[frame["arrivals"] == choice[0]]
        means = part.groupby(["policy", "seed"])["jct_ns_mean"].mean()
        expected = (means["online"] / means["fcfs"] - 1).mean()
        assert interval.mean == pytest.approx(expected)
    assert "unknown policy 'lifo'" in str(refusal(paired, done.rows, "jct_ns_mean", "lifo", "fcfs"))


def test_columns_without_numbers_and_choices_that_are_no_columns_are_refused(done):
    for name in ("makespan", "policy", "status"):
        assert "column" in str(refusal(over_seeds, done.rows, name))
    for name in ("polcy", None, 3):
        assert "has no column" in str(refusal(over_seeds, done.rows, "makespan_ns", [name]))
    assert "did you mean policy" in str(refusal(over_seeds, done.rows, "makespan_ns", ["polcy"]))


def test_plots_of_a_study_and_what_they_cannot_show(done, tmp_path):
    assert len(save_plots(done.rows, tmp_path / "a")) == 4
    plots = [{"y": "slo_attainment", "x": "policy", "by": "arrivals"}]
    (chosen,) = save_plots(done.rows, tmp_path, plots, "png")
    assert chosen.read_bytes().startswith(b"\x89PNG")
    for plot in ({"y": "nothing"}, {"y": "gap", "x": "gap"}, {"y": "gap", "by": "bound_name"}):
        refusal(save_plots, done.rows, tmp_path, [plot])
    error = refusal(save_plots, done.rows, tmp_path, suffix="jpg")
    assert "'jpg' is none of svg, png, pdf" in str(error)
    assert "nothing to plot" in str(refusal(save_plots, [], tmp_path))


def test_a_policy_has_a_line_for_each_choice_of_its_parameters(tmp_path):
    study = {
        "instances": [{"generator": "uniform", "requests": [4, 8], "clients": 2}],
        "policies": ["fcfs", {"name": "online", "parameters": {"gate_factor": [0.5, 2]}}],
    }
    made = run(study, tmp_path, jobs=1)
    drawn = save_plots(made.rows, tmp_path, [{"y": "gap", "x": "instance_requests"}])
    text = drawn[0].read_text()
    for label in ("fcfs", "online gate_factor=0.5", "online gate_factor=2"):
        assert f">{label}</text>" in text
    assert text.count('<g id="axes_') == 1, "one panel holds all of them"
    apart = save_plots(made.rows, tmp_path, [{"y": "gap", "x": "param_gate_factor"}])
    assert apart[0].read_text().count('<g id="axes_') == 2, "one for each number of requests"


def test_arguments_of_run_are_checked(tmp_path):
    small = {"instances": ["two-by-two"], "policies": ["fcfs"]}
    for options in ({"jobs": 0}, {"cluster": "slurm"}, {"ray_address": "auto"}):
        refusal(run, small, tmp_path, **options)
    for limit in (0, "3", True):
        refusal(run, small, tmp_path, cell_time_limit=limit)
    (tmp_path / "file").write_text("")
    assert "cannot be used" in str(refusal(run, small, tmp_path / "file"))
    assert read_study(read_study(small)) == read_study(small)
