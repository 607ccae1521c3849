"""Kernel tables as AIConfigurator publishes them: sums by hand, and what is refused where."""

import os
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from orsched.calibration import MODELS
from orsched.calibration.profile_cost import ModelFacts, find_profile, profile_cost
from orsched.calibration.published_tables import reduce_points
from orsched.cli.commands import run
from tests.refusals import refused

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

SHAPE = replace(
    MODELS["llama3-8b"], layers=3, hidden=64, heads=4, kv_heads=2, ffn=128, vocabulary=256,
    head_size=16,
)  # fmt: skip
FACTS = ModelFacts(3, hidden=64, shape=SHAPE)
SIZES = (32, 64, 128, 256)


def tables(folder, dtype="bfloat16", **changed):
    """Products take m n k nanoseconds, which is straight in logarithms."""
    folder.mkdir(exist_ok=True)
    gemm = [(dtype, m, n, k, m * n * k / 1e6) for m, n, k in product((1, 8, 64), SIZES, SIZES)]
    heads = (4, 2, 16, 0, "bfloat16")
    context = [(*heads, 1, isl, isl * isl / 1e6) for isl in (8, 64, 512)]
    context += [(*heads, 2, isl, 1.0) for isl in (8, 64)]
    rounds = [(*heads, b, step, b * (step + 1) / 1e6) for b, step in product((1, 8), (15, 255))]
    rounds += [(4, 2, 16, 128, "bfloat16", 1, 15, 9.0)]
    names = ["num_heads", "num_key_value_heads", "head_dim", "window_size", "kv_cache_dtype"]
    frames = {
        "gemm": pd.DataFrame(gemm, columns=["gemm_dtype", "m", "n", "k", "latency"]),
        "context_attention": pd.DataFrame(
            context, columns=[*names, "batch_size", "isl", "latency"]
        ),
        "generation_attention": pd.DataFrame(
            rounds, columns=[*names, "batch_size", "step", "latency"]
        ),
        "custom_allreduce": pd.DataFrame(
            [(2, 128, 0.005), (2, 128, 0.02), (2, 8192, 0.006)],
            columns=["num_gpus", "message_size", "latency"],
        ),
    } | changed
    for name, frame in frames.items():
        if frame is not None:
            frame.to_parquet(folder / f"h_{name}_perf.parquet")
    return folder


def cost(folder, tp=1, facts=FACTS):
    return profile_cost(find_profile(folder, tp), facts)


def test_a_step_runs_the_products_of_all_layers_and_attention(tmp_path):
    found = cost(tables(tmp_path))
    layer = 64 * (4 + 2 * 2) * 16 + 64 * 64 + 64 * 2 * 128 + 128 * 64
    for tokens in (1, 8, 64):
        assert found.dense.at(tokens) == pytest.approx(3 * tokens * layer, abs=2)
    assert found.per_sequence.at(8) == pytest.approx(8 * 64 * 256, abs=2)
    assert found.round_ns(8, 8 * 16, 16) == pytest.approx(
        3 * 8 * layer + 3 * 8 * 16 + 8 * 64 * 256, abs=6
    )
    # the fastest of two kernels; sizes between those of the grid are straight in logarithms
    odd = replace(SHAPE, ffn=100)
    between = cost(tmp_path, facts=replace(FACTS, shape=odd)).dense.at(8)
    assert between == pytest.approx(3 * 8 * (layer - 64 * 3 * 28), rel=1e-6)


def test_a_chunk_behind_cached_tokens_takes_what_both_take_more(tmp_path):
    found = cost(tables(tmp_path))
    assert found.prefill.at(64, 0) == 3 * 64 * 64
    line = (512 * 512 - 64 * 64) / (512 - 64)
    more = (64 * 64 + line * (256 + 64 - 64)) - (64 * 64 + line * (256 - 64))
    assert found.prefill.at(64, 256) == pytest.approx(3 * more, abs=3)


def test_several_gpus_divide_products_and_sum_over_the_link(tmp_path):
    """64 numbers of 2 bytes a token: 5 us for one; two a layer and one for the embedding."""
    heads = {"num_heads": 2, "num_key_value_heads": 1}
    tables(tmp_path)
    for name in ("context_attention", "generation_attention"):
        path = tmp_path / f"h_{name}_perf.parquet"
        pd.read_parquet(path).assign(**heads).to_parquet(path)
    found = cost(tmp_path, tp=2)
    half = 64 * (2 + 2) * 16 + 64 * 32 + 64 * 128 + 64 * 64
    assert found.dense.at(1) == pytest.approx(3 * half + 7 * 5000, abs=2)
    path = tmp_path / "h_custom_allreduce_perf.parquet"
    assert refused("has no times on 4 GPUs, but 2", reduce_points, path, 4).field == "num_gpus"


@pytest.mark.parametrize(("changed", "facts", "file", "field"), [
    ({"gemm": pd.DataFrame({"m": [1]})}, FACTS, "gemm", "n"),
    ({"gemm": pd.DataFrame([("bfloat16", 1, n, 64, -1.0) for n in SIZES],
                           columns=["gemm_dtype", "m", "n", "k", "latency"])},
     FACTS, "gemm", "latency"),
    ({}, replace(FACTS, shape=SHAPE.stored("fp8")), "gemm", "gemm_dtype"),
    ({}, replace(FACTS, shape=SHAPE.stored(kv="fp8")), "context_attention", "num_heads"),
    ({}, replace(FACTS, shape=replace(SHAPE, heads=8)), "context_attention", "num_heads"),
    ({}, ModelFacts(3, hidden=64), "gemm", "model"),
    ({}, replace(FACTS, shape=MODELS["deepseek-v3"]), "gemm", "model"),
    ({"generation_attention": None}, FACTS, "generation_attention", None),
])  # fmt: skip
def test_what_the_tables_lack_is_named(tmp_path, changed, facts, file, field):
    wrong = refused("", lambda: cost(tables(tmp_path, **changed), facts=facts))
    assert file in wrong.file
    assert wrong.field == field


def test_two_devices_in_a_folder_are_refused(tmp_path):
    tables(tmp_path)
    (tmp_path / "other_gemm_perf.parquet").write_bytes(b"x")
    refused("holds 2 tables", find_profile, tmp_path)


DATA = Path(os.environ.get("ORSCHED_DATA", "none")) / "aic"


@pytest.mark.skipif(not DATA.is_dir(), reason="ORSCHED_DATA has no folder aic")
def test_the_published_tables_are_near_the_data_sheet(capsys):
    """Of an H100: a step by its kernels is within a fifth of the one by shares of the peaks."""
    shape = MODELS["llama3-8b"]
    found = profile_cost(find_profile(DATA), ModelFacts(32, hidden=4096, shape=shape), 900_000)
    from orsched import machine

    sheet = machine("h100-llama3-8b-sheet").cost
    for active in (1, 64, 256):
        load = active, 500 * active, 500
        assert found.round_ns(*load) == pytest.approx(sheet.round_ns(*load), rel=0.2)
    command = ["cost", "--from-profile", str(DATA), "--model", "8b", "--format", "json"]
    assert run(command) == 0
    assert "small kernels" in capsys.readouterr().err
