"""The comparisons on four and on six workloads: constants, choices, and a short run of each."""

import csv
import json
import os

import numpy as np
import pytest

from benchmarks.figures import number
from benchmarks.reproductions import (
    four_workloads,
    four_workloads_runs,
    six_workloads,
    six_workloads_settings,
)
from benchmarks.reproductions import four_workloads_setting as setting
from benchmarks.reproductions.six_workloads_choice import Choice
from benchmarks.reproductions.six_workloads_report import PAIRS, Report
from benchmarks.reproductions.six_workloads_runs import Case, Latencies, Runs, key
from benchmarks.reproductions.six_workloads_settings import FAMILIES, OURS, PAGE, scheduler, spec
from orsched.instances.datasets import VARIABLE, data_directory

VIDUR = "vidur_linear_ops_a100_llama2_70b.csv"
FILES = [*(each.file for each in setting.WORKLOADS.values()), VIDUR]


def _has_data():
    if not os.environ.get(VARIABLE):
        return False
    folder = data_directory()
    return all((folder / name).is_file() for name in FILES)


needs_data = pytest.mark.skipif(not _has_data(), reason=f"{VARIABLE} does not name the data sets")


def test_the_cache_is_what_the_weights_leave():
    assert setting.TOKEN_BYTES == 327_680
    left = 4 * 80 * 2**30 * 0.9 - 2 * setting.PARAMETERS
    assert 0 <= left - setting.CACHE_TOKENS * setting.TOKEN_BYTES < setting.TOKEN_BYTES


@needs_data
def test_times_are_those_of_the_table():
    """80 layers without the embedding, at tensor parallelism 4."""
    with (data_directory() / VIDUR).open(encoding="utf-8") as file:
        rows = [r for r in csv.DictReader(file) if r["tensor_parallel"] == "4"]
    tokens = np.array([float(r["num_tokens"]) for r in rows])
    names = [name for name in rows[0] if name.endswith("_ms") and name != "emb_ms"]
    times = np.array([sum(float(r[name]) for name in names) for r in rows]) * setting.LAYERS / 1e3
    at = dict(zip(tokens.tolist(), times.tolist(), strict=True))
    assert at[1] == pytest.approx(setting.FIXED_S, rel=0.01)
    assert (at[256] - at[1]) / 255 == pytest.approx(setting.DECODE_S, rel=0.01)
    above = times - setting.FIXED_S
    slope = float((above * tokens).sum() / (tokens * tokens).sum())
    assert slope == pytest.approx(setting.PREFILL_S, rel=0.01)


@needs_data
@pytest.mark.parametrize("name", setting.ALL)
def test_contexts_are_the_means_of_the_data(name):
    workload, requests = setting.ALL[name], setting.requests_of(name)
    assert setting.means(requests) == pytest.approx((workload.context, workload.position), rel=0.01)
    if name in setting.UNSEEN:
        assert requests.output_tokens.max() <= workload.limit


@needs_data
@pytest.mark.parametrize("name", ["Azure conv", "Azure code", "Mooncake"])
def test_windows_of_ten_seeds_do_not_overlap(name):
    rows = np.concatenate([setting._rows(name, s, setting.WORKLOADS[name].requests)
                           for s in range(10)])  # fmt: skip
    assert len(set(rows.tolist())) == len(rows)


@needs_data
def test_a_quick_run_has_our_policy_ahead_on_the_bursty_workload(capsys):
    """A tenth of the requests, three seeds: what is small at full size is not looked at."""
    cells = four_workloads.run_all(["Azure code"], (0.7, None), range(3), short=10)
    for _, ours, others in four_workloads.groups():
        for other in others:
            found = four_workloads.change(cells["Azure code", 0.7], ours, other, "mean_s")
            assert found.mean < 0, other
    for found in cells.values():
        for each in found:
            assert len(each.figures) == len(four_workloads_runs.schedulers())
            assert min(f.mean_s for f in each.figures.values()) >= each.jct_bound_s
            assert min(f.makespan_s for f in each.figures.values()) >= each.makespan_bound_s
    report = four_workloads.Report()
    report.tables(cells)
    report.summary(cells)
    report.saturation(cells)
    report.claims(cells)
    printed = capsys.readouterr().out
    assert printed.count("| Azure code |") == 4  # both classes of information, both tables
    assert "p99 at most 5% above any" in printed


@needs_data
@pytest.mark.parametrize("name", setting.WORKLOADS)
def test_both_costs_take_the_same_time_for_all_prompts_of_the_data_together(name):
    """Contexts move time from short prompts to long ones; chunks and whole prompts cost alike."""
    workload, prompts = setting.WORKLOADS[name], setting.requests_of(name).prompt_tokens.tolist()
    means, contexts = workload.cost("means"), workload.cost("contexts")
    fixed = means.prefill_fixed_ns
    whole = sum(contexts.prefill_ns([prompt]) - fixed for prompt in prompts)
    assert whole == pytest.approx(sum(means.prefill_ns([p]) - fixed for p in prompts), rel=0.01)
    longest = max(prompts)
    cuts = [min(2048, longest - at) for at in range(0, longest, 2048)]
    before = [sum(cuts[:place]) for place in range(len(cuts))]
    chunks = [contexts.prefill_ns([c], [k]) for c, k in zip(cuts, before, strict=True)]
    taken = contexts.prefill_ns([longest]) + (len(cuts) - 1) * fixed
    assert sum(chunks) == pytest.approx(taken, abs=len(cuts))


CASES = [Case("arXiv", 0.9, seed, "means", 1) for seed in range(4)]


def told(figures):
    """A choice over runs that are made up: figures by setting, 10 each where nothing is said."""
    runs = Runs()
    every = [each for family in FAMILIES.values() for each in family.settings]
    for each in [*every, OURS, scheduler("gittins", "predicted")]:
        for case in CASES:
            values = figures.get(spec(each), {})
            values = values(case.seed) if callable(values) else values
            runs.found[key(case, each)] = Latencies(*[10.0] * 7)._replace(**values)
    return Choice(runs, CASES, CASES[:2])


def test_settings_differ_and_have_every_dispatcher_in_their_name():
    for family in FAMILIES.values():
        assert len({spec(each) for each in family.settings}) == len(family.settings)
        assert {each.information for each in family.settings} == {family.information}
    assert len(FAMILIES["vllm"].settings) == 35
    assert PAGE in FAMILIES["vllm"].settings
    for each in (*FAMILIES["vllm"].settings, *FAMILIES["vllm, shortest first"].settings):
        assert "dispatch=" in spec(each)


def test_the_least_on_the_first_seeds_is_chosen_whatever_the_others_say():
    low, late = (spec(each) for each in FAMILIES["vllm"].settings[3:5])
    figures = {
        low: lambda seed: {"mean_s": 5.0 if seed < 2 else 99.0},
        late: lambda seed: {"mean_s": 6.0 if seed < 2 else 1.0, "p99_s": 2.0},
    }
    found = told(figures)
    assert spec(found.chosen["vllm, tuned"].scheduler) == low
    assert spec(found.chosen["vllm, tuned for p99"].scheduler) == late
    assert found.values("vllm, tuned", "mean_s") == [5.0, 5.0, 99.0, 99.0]
    assert found.change("vllm, tuned", "gittins", "mean_s").mean == pytest.approx(420)
    assert found.change("vllm, tuned", "gittins", "mean_s", 2).mean == pytest.approx(890)


def test_the_limited_mode_has_no_more_ttft_than_it_may():
    quick, slow, best = (
        f"gittins+max_num_batched_tokens=1024+ttft_s={x:g}"
        for x in six_workloads_settings.LIMITS_S[:3]
    )
    free = {spec(each): {"ttft_p99_s": 99.0} for each in FAMILIES["gittins, TTFT"].settings}
    found = told(free | {quick: {"mean_s": 8.0, "ttft_p99_s": 10.0}, slow: {"ttft_p99_s": 9.0},
                         best: {"mean_s": 7.0, "ttft_p99_s": 10.1}})  # fmt: skip
    assert spec(found.chosen["gittins, TTFT of vllm, tuned"].scheduler) == quick
    found = told(free | {best: {"mean_s": 7.0, "ttft_p99_s": 10.1}})
    assert spec(found.chosen["gittins, TTFT of vllm, 2,048"].scheduler) == best


def test_statements_say_where_they_hold(capsys):
    mine = {"mean_s": 8.0, "ttft_p99_s": 12.0}
    found = told({"gittins": lambda seed: mine | {"mean_s": 8.0 + seed / 10}})
    report = Report(found.runs, [found])
    report.differences()
    report.claims()
    printed = capsys.readouterr().out
    assert "HOLDS  gittins has less mean JCT than vllm, tuned on all (seeds 0 to 3)" in printed
    assert "FAILS  gittins, tuned has less mean JCT than vllm, tuned" in printed
    assert "FAILS  gittins has at most 1.1 times the TTFT p99 of vllm, tuned: 1.2" in printed
    assert "| arXiv | gittins | vllm, tuned | −18.5 ±2.1 |" in printed


def test_runs_are_made_once_and_kept(tmp_path, monkeypatch):
    made = []

    def piece(job):
        made.append(job)
        return [(key(job[0], each), Latencies(*range(7))) for each in job[1]]

    monkeypatch.setattr("benchmarks.reproductions.six_workloads_runs.piece", piece)
    file = tmp_path / "runs"
    wanted = [(case, each) for case in CASES for each in (OURS, PAGE)]
    Runs(file).need("some", wanted[:3])
    again = Runs(file)
    again.need("all", wanted)
    assert [len(job[1]) for job in made] == [2, 1, 1, 2, 2]
    assert len({json.loads(line)[0] for line in file.read_text().splitlines()}) == len(wanted)
    assert again.of(CASES[3], PAGE) == Latencies(*range(7))


@needs_data
@pytest.mark.full
def test_a_quick_run_prints_every_part(capsys, monkeypatch):
    few = {
        name: each._replace(
            settings=tuple(dict.fromkeys(each.settings[-11::5] + (PAGE,) * (PAGE in each.settings)))
        )
        for name, each in FAMILIES.items()
    }
    monkeypatch.setattr("benchmarks.reproductions.six_workloads_choice.FAMILIES", few)
    monkeypatch.setattr("benchmarks.reproductions.six_workloads.FAMILIES", few)
    assert six_workloads.main(["--quick", "--workload", "Azure code"]) == 0
    printed = capsys.readouterr().out
    for text in ("statements", "attainment %", "gittins, predicted"):
        assert text in printed
    assert np.char.count(printed, "| Azure code |") == 11 + len(PAIRS)


def test_what_the_readme_says_is_on_the_page(repo_root):
    page = (repo_root / "docs" / "results-six-workloads.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines()
            if "| gittins | vllm, tuned |" in line][: len(setting.ALL)]  # fmt: skip
    less = {row[0]: -number(row[3]) for row in rows}
    first, last = (sorted(less[name] for name in setting.WORKLOADS)[place] for place in (0, -1))
    fifth, sixth = less["ServeGen R1"], less["arXiv"]
    assert first > 0
    assert round(fifth) == 0
    assert sixth < 0
    words = " ".join((repo_root / "README.md").read_text().split())
    change = (
        f"`gittins` has {first:.0f} to {last:.0f} % less mean job completion time than tuned vLLM"
    )
    assert f"On four of six workloads, {change}" in words
    assert f"It is equal on the fifth and {-sixth:.0f} % worse on the sixth" in words
    assert f"up to {max(number(row[7]) for row in rows)} times as late" in words
