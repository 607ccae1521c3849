"""Profiles as they are published: sums by hand, both layouts, and what is refused where."""

import json
from fractions import Fraction

import pytest

from orsched.calibration.profile_cost import ModelFacts, config_facts, find_profile, profile_cost
from orsched.calibration.profile_tables import _activated
from orsched.cli.commands import run
from orsched.files import load_fitted_cost
from tests.calibration import profile_samples
from tests.calibration.profile_samples import DENSE, HARDWARE, MOE, NEWER, PER_SEQUENCE, write
from tests.refusals import refused

LAYERS, ATTENTION = ModelFacts(3), profile_samples.ATTENTION


def cost(folder, model=LAYERS, tp=1, fixed_ns=0):
    return profile_cost(find_profile(folder, tp), model, fixed_ns)


def test_a_step_runs_the_kernels_of_all_layers(tmp_path):
    found = cost(write(tmp_path, per_sequence=PER_SEQUENCE), fixed_ns=7)
    # Three layers of 2 x 2 + 3 + 1 + 5 + 1 + 4, and 1 + 2 once a step; 8 more for each qkv_proj.
    assert found.dense.times_ns == (3 * 18_000 + 3000, 3 * 26_000 + 11_000)
    assert found.per_sequence.times_ns == (11_000, 19_000)
    assert found.prefill.times_ns == (15_000, 21_000, 36_000, 45_000)
    # One token, one request of context 16, one sequence.
    assert found.round_ns(1, 16, 16) == 7 + 57_000 + 9000 + 11_000
    # Eight tokens behind eight cached ones.
    assert found.prefill_ns([8], cached=[8]) == 7 + 85_000 + 45_000 + 11_000


def test_the_newer_columns_say_the_same_and_several_kernels_of_attention_add_up(tmp_path):
    assert cost(write(tmp_path, attention=NEWER)) == cost(write(tmp_path / "b"))
    lines = NEWER.splitlines()[1:]
    second = [line.replace("attention,", "indexer,") for line in lines[:-1]]
    both = cost(write(tmp_path, attention=NEWER + "\n".join(second)))
    alone = cost(write(tmp_path / "b"))
    assert both.prefill.times_ns == tuple(2 * time for time in alone.prefill.times_ns)
    # Beside 4 tokens only one kernel of the round was measured: the combination is left out.
    assert both.decode.axes == ((0,), (1, 2), (16,))
    assert both.decode.times_ns == tuple(2 * time for time in alone.decode.times_ns[:2])


def test_experts_by_tokens(tmp_path):
    kept = [line for line in DENSE.splitlines() if not line.startswith(("gate", "act", "down"))]
    dense = "\n".join([*kept, ""])
    folder = write(tmp_path, moe=MOE, dense=dense)
    plain = 3 * 8000 + 3000
    # One token activates 2 of 8 experts: 10 us. Nine activate 8 (1 - (3/4)^9) = 7.39932 on average:
    # 20 + 60 x 5.39932 / 6 = 73.9932 us.
    assert cost(folder).dense.times_ns == (plain + 30_000, 3 * 16_000 + 11_000 + 221_980)
    most = ModelFacts(3, activated=8)
    assert cost(folder, most).dense.times_ns == (plain + 30_000, 3 * 16_000 + 11_000 + 240_000)
    divided = ModelFacts(3, expert_parallel=2)
    assert cost(folder, divided).dense.times_ns[0] == plain + 15_000
    wrong = refused("no rows of ep 4, but 1, 2", cost, folder, ModelFacts(3, expert_parallel=4))
    assert (wrong.field, wrong.file[-7:]) == ("ep", "moe.csv")


def test_layers_without_experts_run_their_own_kernels(tmp_path):
    folder = write(tmp_path, moe=MOE)
    found = cost(folder, ModelFacts(3, dense_layers=1))
    assert found.dense.times_ns[0] == 3 * 8000 + 3000 + 10_000 + 2 * 10_000


def test_all_reduce_is_added_for_every_layer(tmp_path):
    folder = write(tmp_path, tp=2, hardware=HARDWARE)
    model = ModelFacts(3, hidden=8)
    alone = cost(write(tmp_path / "b", tp=1))
    # 16 bytes a token: 2.5 us for one and 10.5 us for nine; two a layer and one for the embedding.
    both = cost(folder, model, tp=2)
    times = zip(alone.dense.times_ns, both.dense.times_ns, strict=True)
    assert [b - a for a, b in times] == [7 * 2500, 7 * 10_500]
    wrong = refused("hidden size is not known", cost, folder, LAYERS, tp=2)
    assert wrong.file.endswith("hardware.yaml")
    assert "--hidden" in wrong.remedy
    own = write(tmp_path, tp=2, all_reduce="tokens,time_us\n1,1\n9,2\n")
    assert cost(own, LAYERS, tp=2).dense.times_ns[0] - alone.dense.times_ns[0] == 7000
    refused("no times of all-reduce on 2 GPUs", cost, write(tmp_path / "c", tp=2), LAYERS, tp=2)


def test_kernels_are_said_to_run_otherwise(tmp_path):
    folder = write(tmp_path, dense=DENSE + "extra,1,100\nextra,9,100\n")
    assert "--kernel extra=N" in refused("'extra' is not known", cost, folder).remedy
    without = cost(folder, ModelFacts(3, times_a_step={"extra": 0}))
    assert without == cost(write(tmp_path / "b"))
    some = cost(folder, ModelFacts(3, times_a_step={"extra": 2, "layernorm": 3}))
    assert some.dense.times_ns[0] - without.dense.times_ns[0] == 200_000 - 3 * 2000
    unknown = ModelFacts(3, times_a_step={"extra": 0, "lm_head": 1})
    refused("no kernel 'lm_head'", cost, folder, unknown)


@pytest.mark.parametrize(("tables", "file", "row", "field", "said"), [
    ({"dense": DENSE + "qkv_proj,9,1\n"}, "dense.csv", 18, "layer", "first in row 7"),
    ({"dense": DENSE.replace("9,11", "nine,11")}, "dense.csv", 7, "tokens", "'nine'"),
    ({"dense": DENSE.replace("9,11", "9,-11")}, "dense.csv", 7, "time_us", "negative"),
    ({"dense": "layer,tokens\nx,1\n"}, "dense.csv", 1, "time_us", "time_us"),
    ({"attention": ATTENTION + "4,0,0,0,5\n"}, "attention.csv", 9, "prefill_chunk", "twice"),
    ({"attention": "a,b\n1,2\n"}, "attention.csv", 1, "prefill_chunk", "unknown column"),
    ({"attention": NEWER + "attention,8,3,0,0,1,1\n"}, "attention.csv", 10, "prefill_key",
     "8 tokens see 4 at least"),
    ({"attention": "\n".join(ATTENTION.splitlines()[:3])}, "attention.csv", None, "prefill",
     "no measurement"),
    ({"per_sequence": "layer,sequences,time_us\nlm_head,1,x\n"}, "per_sequence.csv", 2,
     "time_us", "'x"),
    ({"moe": MOE + "1,9,8,1\n"}, "moe.csv", 7, "activated_experts", "first in row 4"),
])  # fmt: skip
def test_wrong_tables_are_named(tmp_path, tables, file, row, field, said):
    folder = write(tmp_path, **tables)
    wrong = refused("", cost, folder)
    assert wrong.file.endswith(file)
    assert (wrong.row, wrong.field) == (row, field)
    assert said in wrong.problem


def test_the_folder_is_found_or_the_error_says_what_is_there(tmp_path):
    folder = write(tmp_path, tp=1, per_sequence=PER_SEQUENCE, skew="a\n1\n")
    write(tmp_path, tp=4)
    found = find_profile(folder)
    assert found.unused == ("skew.csv",)
    assert find_profile(tmp_path) == find_profile(folder / "tp1") == found
    for where, tp, said in (
        (folder, 2, "no tp2, but tp1, tp4"),
        (folder / "tp1", 4, "no tp4, but tp1"),
        (tmp_path / "GPU" / "owner" / "none", 1, "not a directory"),
    ):
        refused(said, find_profile, where, tp)
    (tmp_path / "empty").mkdir()
    refused("holds no profile", find_profile, tmp_path / "empty")
    odd = write(tmp_path / "empty", dense=None)
    (odd / "tp1" / "dense.csv").mkdir()
    refused("holds no profile", find_profile, odd)
    write(tmp_path / "GPU" / "owner")
    refused("holds 2 profiles", find_profile, tmp_path)
    (folder / "tp1" / "attention.csv").unlink()
    assert refused("is not there", find_profile, folder).file.endswith("attention.csv")


def test_the_command_writes_a_cost_file_that_is_used(tmp_path, capsys):
    folder, path = write(tmp_path, per_sequence=PER_SEQUENCE), tmp_path / "cost.json"
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"num_hidden_layers": 3, "hidden_size": 8}))
    command = ["cost", "--from-profile", str(folder), "--fixed-us", "2.5", "-o", str(path)]
    assert run([*command, "--config", str(config)]) == 0
    out, err = capsys.readouterr()
    assert "profile of kernels" in out
    assert "filled in: 1 of 4 in decode" in err
    found, report = load_fitted_cost(path)
    assert found == cost(folder, LAYERS, fixed_ns=2500)
    assert report["machine"]["layers"] == 3
    requests = tmp_path / "requests.csv"
    requests.write_text("prompt_tokens,output_tokens\n10,20\n30,40\n")
    assert run(["simulate", str(requests), "--clients", "2", "--cost", str(path)]) == 0
    capsys.readouterr()
    assert run([*command[:3], "--layers", "3", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["cost"]["per_sequence"]["sequences"] == [1, 9]


@pytest.mark.parametrize(("options", "said"), [
    ("", "--layers"), ("--layers 0", "layers"), ("--layers 3 --gpu h100", "of a data sheet"),
    ("--layers 3 --fixed-us -1", "is not a time"), ("--model 9b", "not in the catalogue"),
    ("--layers 3 --kernel layernorm", "is not NAME=VALUE"),
    ("--layers 3 --kernel layernorm=\u00b2", "'--kernel': layernorm: '\u00b2'"),
    ("--layers 3 --kernel layernorm=1.5", "'--kernel'"),
    ("--layers 3 --kernel layernorm=1 --kernel layernorm=2", "given twice"),
    ("--layers 3 --kernel layernrm=1", "'--kernel'"),
    ("--layers 3 --model 8b --config CONFIG", "one of --model and --config"),
    ("--layers 3 --experts 3", "'--experts': the profile has no experts"),
    ("--layers 3 --ep 2", "'--ep': the profile has no experts"),
    ("--layers 3 --dense-layers 1", "'--dense-layers': the profile has no experts"),
    ("--layers 3 --hidden 0", "'--hidden'"),
    ("--layers 3 --length 77", "'--length': is of a data sheet"),
    ("--layers 3 -o cost.parquet", "ends in .json"),
])  # fmt: skip
def test_the_command_refuses(tmp_path, capsys, options, said):
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"num_hidden_layers": 2, "hidden_size": 8}))
    given = options.replace("CONFIG", str(config)).split()
    assert run(["cost", "--from-profile", str(write(tmp_path)), *given]) == 2
    assert said in capsys.readouterr().err


def test_layers_are_of_a_profile(capsys):
    assert run(["cost", "--gpu", "h100", "--model", "8b", "--layers", "3"]) == 2
    assert "--from-profile" in capsys.readouterr().err


@pytest.mark.parametrize(("fields", "dense"), [
    ({}, 0), ({"first_k_dense_replace": 1}, 1),
    ({"first_k_dense_replace": 1, "moe_layer_freq": 2}, 3),
    ({"decoder_sparse_step": 1, "mlp_only_layers": [0, 2]}, 2), ({"decoder_sparse_step": 2}, 2),
    ({"interleave_moe_layer_step": 4}, 3),
])  # fmt: skip
def test_a_config_of_any_family_has_layers_and_hidden_size(tmp_path, fields, dense):
    path = tmp_path / "config.json"
    shape = {"num_hidden_layers": 4, "hidden_size": 16}
    path.write_text(json.dumps({"text_config": shape | fields}))
    assert config_facts(tmp_path) == {"layers": 4, "hidden": 16, "dense_layers": dense}
    path.write_text("{}")
    refused("num_hidden_layers", config_facts, path)


@pytest.mark.parametrize(("wrong", "row", "field", "said"), [
    (HARDWARE.replace("us: 2.5\n      rep", "us: -2.5\n      rep"), 11, "us", "negative"),
    (HARDWARE.replace("us: 2.5\n      rep", "us: e\n      rep"), 11, "us", "'e'"),
    (HARDWARE.replace("bytes: 144", "bytes: 144.5"), 15, "bytes", "not a whole number"),
    (HARDWARE.replace("bytes: 144", "bytes: " + "9" * 5000), 15, "bytes", "64 bits"),
    (HARDWARE.replace("bytes: 144", "bytes: 16"), 16, "us", "twice, first in row 11"),
    (b"samples:\n\xff", 2, None, "UTF-8"),
])  # fmt: skip
def test_wrong_samples_are_named(tmp_path, wrong, row, field, said):
    folder = write(tmp_path, tp=2, hardware=HARDWARE)
    path = tmp_path / "GPU" / "hardware.yaml"
    path.write_bytes(wrong if isinstance(wrong, bytes) else wrong.encode())
    wrong = refused("", cost, folder, ModelFacts(3, hidden=8), tp=2)
    assert (wrong.row, wrong.field) == (row, field)
    assert said in wrong.problem
    assert wrong.file == str(path)


@pytest.mark.parametrize("time", ["nan", "inf", "", "1e300", "-3", "1_0"])
def test_wrong_times_are_shown_as_they_stand(tmp_path, time):
    folder = write(tmp_path, dense=DENSE.replace("qkv_proj,1,3", f"qkv_proj,1,{time}"))
    wrong = refused("", cost, folder)
    assert (wrong.row, wrong.field) == (6, "time_us")
    assert "microseconds" in wrong.remedy
    assert "e-3" not in wrong.problem
    dense = DENSE.replace("qkv_proj,9,11", "qkv_proj,9,1.1e1")  # an exponent makes a time
    assert cost(write(tmp_path, dense=dense)) == cost(write(tmp_path / "b"))


def test_experts_of_a_million_choices_take_no_time(tmp_path):
    """A power of that many digits is not computed; the average is the same to a millionth."""
    exact = Fraction(256 * (1 - Fraction(254, 256) ** 1000))
    assert abs(_activated(1000, 2, 256, None) - exact) < Fraction(1, 10**6)
    assert _activated(2**31 - 1, 2, 800_000_000, None) < 800_000_000
    assert _activated(2**31 - 1, 8, 256, None) == 256
