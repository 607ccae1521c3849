"""The comparison on four workloads: its constants, and a short run of it on the real data."""

from __future__ import annotations

import csv
import os

import numpy as np
import pytest

from benchmarks.reproductions import four_workloads, four_workloads_runs
from benchmarks.reproductions import four_workloads_setting as setting
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
@pytest.mark.parametrize("name", setting.WORKLOADS)
def test_contexts_are_the_means_of_the_data(name):
    context, position = setting.means(setting.requests_of(name))
    assert context == pytest.approx(setting.WORKLOADS[name].context, rel=0.01)
    assert position == pytest.approx(setting.WORKLOADS[name].position, rel=0.01)


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
