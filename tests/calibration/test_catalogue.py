"""Machines by name: found, told apart, and said beside every result."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

import orsched
from benchmarks.machine_presets import SOURCES, made
from orsched import BlockMemory, Instance, Requests, Worker, calibration, machine, machines
from orsched.calibration import GPUS, MODELS, cost_words, machine_words, read_cost
from orsched.calibration.catalogue import MEASURED, PRESETS, error_words, measured
from orsched.calibration.gpus import fit_error
from orsched.costs import AffineCost, LevelsCost, RooflineCost, floor_faults
from orsched.files import load_fitted_cost, save_cost
from tests.in_order import in_order
from tests.refusals import refused


def test_every_machine_is_found_by_its_name_and_says_what_it_is():
    found = machines()
    assert calibration.machines is machines
    assert calibration.machine is machine
    assert len({each.name for each in found}) == len(found)
    for each in found:
        assert machine(each.name) == each
        assert each.kind in ("measured", "paper", "data sheet")
        assert (each.kind == "data sheet") is each.name.endswith("-sheet")
        assert each.source
        assert each.title
        json.dumps(each.to_dict())
        # what is left of 90 % beside the weights, in blocks, paged
        assert each.memory.allocation == "paged"
        assert each.memory.blocks == each.facts["kv_tokens"] // each.memory.block_tokens
    sizes = {each.memory.block_tokens for each in found if each.name.endswith("-sheet")}
    assert sizes == {16}
    assert machine("pang-llama65b-ascend").memory == BlockMemory(1024, 128, "paged")  # V-A
    assert all(each.source for each in (*GPUS.values(), *MODELS.values()))
    assert {each.kind for each in found} >= {"paper", "data sheet"}


def test_there_is_a_data_sheet_for_every_gpu_and_the_models_that_eight_of_it_hold():
    names = {each.name for each in machines()}
    assert {"h100-llama3-8b-sheet", "h100x2-llama3-70b-sheet", "l4-llama3-1b-sheet"} <= names
    for gpu in GPUS:
        assert any(name.startswith(gpu) for name in names)
    for each in machines()[-20:]:
        assert isinstance(each.cost, RooflineCost)
        assert floor_faults(each.cost, steps=20) == []


def test_short_names_and_more_gpus():
    assert machine("h100-8b-sheet") == machine("h100-llama3-8b-sheet")
    four = machine("h100x4-8b-sheet")
    assert four.name == "h100x4-llama3-8b-sheet"
    assert "4 x NVIDIA H100" in four.words
    assert four.cost.round_ns(1, 100, 100) < machine("h100-8b-sheet").cost.round_ns(1, 100, 100)
    assert machine("a100-pcie-8b-sheet").title.endswith("PCIe 80 GB")
    assert machine("a100-40gbx2-qwen2.5-32b-sheet").facts["gpus"] == 2
    refused("do not fit", machine, "l4x1-llama3-70b-sheet")


@pytest.mark.parametrize(("name", "hint"), [
    ("a100-llama3-8b", "did you mean a100-llama3-8b-sheet"),
    ("h100-8b", "did you mean h100-llama3-8b"), ("h100-lama3-8b-sheet", "h100-llama3-8b-sheet"),
    ("pang", "pang-llama65b-ascend"), ("nothing like it", "orsched info machines"),
    ("h100x0-8b-sheet", "h100"),
])  # fmt: skip
def test_an_unknown_name_names_those_like_it(name, hint):
    wrong = refused("", machine, name)
    assert (wrong.field, hint in str(wrong.remedy)) == ("cost", True)


def test_a_cost_is_read_from_a_name_or_a_file(tmp_path):
    path = tmp_path / "cost.json"
    save_cost(in_order(AffineCost, 1, 2, 3, 4), path)
    assert read_cost(path) == read_cost(str(path)) == read_cost("cost.json", tmp_path)
    assert read_cost("pang-llama65b-ascend") == AffineCost()
    refused("unknown machine", read_cost, "cost")
    refused(r"no\.json", read_cost, tmp_path / "no.json")
    refused("info machines", read_cost, "no.json", tmp_path)


def test_requests_take_a_machine_by_name(tmp_path):
    path = tmp_path / "requests.csv"
    path.write_text("prompt_tokens,output_tokens\n10,20\n30,40\n")
    instance = orsched.load(path, clients=4, cost="h100-llama3-8b-sheet")
    assert instance.worker.cost == machine("h100-llama3-8b-sheet").cost
    assert instance.worker.memory == BlockMemory(26_674, 16, "paged")
    assert "H100" in machine_words(instance)


@pytest.mark.parametrize(("facts", "found"), [
    ({}, None), ({"kv_tokens": 100}, BlockMemory(6, 16, "paged")),
    ({"kv_tokens": 100, "block_tokens": 25}, BlockMemory(4, 25, "paged")),
    ({"kv_tokens": 15}, "kv_tokens"), ({"kv_tokens": "many"}, "kv_tokens"),
    ({"kv_tokens": 100, "block_tokens": 0}, "block_tokens"),
])  # fmt: skip
def test_a_cost_model_file_may_state_its_memory(tmp_path, facts, found):
    path = tmp_path / "cost.json"
    save_cost(in_order(AffineCost, 1, 2, 3, 4), path, {"machine": facts})
    if isinstance(found, str):
        refused(rf"cost\.json.*fit\.machine\.{found}", calibration.read_machine, path)
        return
    assert calibration.read_machine(path) == (in_order(AffineCost, 1, 2, 3, 4), found)


def test_the_words_of_a_cost_model_name_its_machine():
    assert cost_words(AffineCost()) == "affine, LLaMA-65B on Ascend 910 (Pang et al.)"
    words = cost_words(machine("h100-8b-sheet").cost)
    of = f"data sheet; {fit_error(GPUS['h100'], experts=False)}"
    assert words == f"roofline, Llama 3.1 8B on NVIDIA H100 SXM 80 GB ({of})"
    assert cost_words(machine("l4-8b-sheet").cost).endswith("NVIDIA L4 (data sheet)")  # no fit
    instance = orsched.load("gsm8k-llama65b")
    rest = "200 clients, 1,024 blocks of 128 tokens (whole)"
    assert machine_words(instance) == f"{cost_words(AffineCost())}, {rest}"
    # one that nobody named is told by two times
    cost = in_order(AffineCost, 1_000_000, 1000, 2_000_000, 1000)
    assert cost_words(cost, 10) == "affine, 3 ms for 2,000 prompt tokens, 2.01 ms for a round of 10"
    levels = LevelsCost(levels=((100, 5_000_000),), round_fixed_ns=1_000_000)
    assert cost_words(levels) == "levels, 5 ms for 100 prompt tokens, 1 ms for a round"
    tiny = in_order(AffineCost, 0, 9, 5, 0)
    assert cost_words(tiny) == "affine, 0.018 ms for 2,000 prompt tokens, 5 ns for a round"


def test_equal_workers_are_counted_and_others_listed():
    one = Worker(1, AffineCost(), name="a")
    two = tuple(replace(one, name=name) for name in "abc")
    other = Worker(2, in_order(AffineCost, 1, 1, 1, 1), name="d")
    words = machine_words(Instance(Requests([1], [1]), (*two, other), first_token="decode"))
    pang = "affine, LLaMA-65B on Ascend 910 (Pang et al.), 1 client"
    assert words.startswith(f"3 x {pang}; affine, ")
    assert words.endswith(", 2 clients")


DATA = Path(os.environ.get("ORSCHED_DATA", "none"))


def test_every_preset_says_what_it_is_and_is_near_its_data_sheet():
    presets = [each for each in measured() if each.kind == MEASURED]
    assert {each.name for each in presets} == set(SOURCES)
    assert {path.stem for path in PRESETS.glob("*.json")} == set(SOURCES)
    for each in presets:
        assert {"device", "date", "software", "error"} <= set(each.facts)
        assert cost_words(each.cost) == each.words
        assert each.words.endswith(f"(measured; {each.facts['error']})")
        assert floor_faults(each.cost, steps=100) == []
        assert machine(each.name) is each
        own, sheet = each.cost, machine(f"{each.name}-sheet").cost  # neither is right
        for active in (1, 64, 200):
            load = (active, 300 * active, 300)
            assert own.round_ns(*load) == pytest.approx(sheet.round_ns(*load), rel=0.3)
        assert own.prefill_ns([2000]) == pytest.approx(sheet.prefill_ns([2000]), rel=0.3)


@pytest.mark.parametrize(("report", "words"), [
    ({"fit": {"errors": {"makespan": 0.013, "mean TPOT": -0.02}, "errors_not_fitted": {}}},
     "errors on the run fitted to: makespan +1.3 %, mean TPOT -2.0 %"),
    ({"fit": {"errors": {"makespan": 9}, "errors_not_fitted": {"mean TTFT": 0.05}}},
     "errors on requests not fitted to: mean TTFT +5.0 %"),
    ({"errors": {"all": {"mean": 0.063, "worst": 0.355}}},
     "held-out steps are missed by 6.3 % on average, 35.5 % at most"),
    ({}, ""), ({"fit": {}}, ""), ({"errors": {"all": "small"}}, ""), ({"errors": 3}, ""),
])  # fmt: skip
def test_the_error_of_a_fit_is_beside_its_machine(report, words, tmp_path):
    """A cost model that was read from a file with a report says how far off it was."""
    cost = RooflineCost.from_s(fixed=1e-3, weights=len(words) * 1e-4, token=1e-6, context=0,
                               attended=0)  # fmt: skip
    assert error_words(report) == words
    save_cost(cost, tmp_path / "cost.json", report or None)
    assert read_cost(tmp_path / "cost.json") == cost
    said = cost_words(cost)
    assert said.endswith(f"({words})" if words else "for a round")


@pytest.mark.skipif(not (DATA / "h100").is_dir(), reason="ORSCHED_DATA has no folder h100")
@pytest.mark.parametrize("name", SOURCES)
def test_the_file_is_what_the_command_makes(name):
    cost, report = made(DATA, SOURCES[name])
    assert load_fitted_cost(PRESETS / f"{name}.json") == (cost, report)
    assert all(abs(run["error"]) < 0.04 for run in report["runs"])


def test_a_machine_that_was_read_by_its_name_is_known_by_it():
    """Also with weights in a format that the list of machines leaves out."""
    assert "Llama 3.1 70B" in cost_words(read_cost("h200-llama3-70b-fp8-sheet"))
