"""Plots of studies: names, scales, limits, legends, and the points that no other one beats."""

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orsched.planning.study import plots as module
from orsched.planning.study import save_plots
from orsched.planning.study.plots import default_plots, pareto_front
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


@pytest.mark.parametrize("policies", [3, 7, 12])
@pytest.mark.parametrize("workers", [(1,), (1, 2, 3, 4, 5)])
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
