"""Machines by name: found, told apart, and said beside every result."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

import orsched
from benchmarks.machine_presets import SOURCES, made
from orsched.calibration import (
    GPUS,
    MODELS,
    cost_words,
    machine,
    machine_words,
    machines,
    read_cost,
    read_machine,
)
from orsched.calibration.catalogue import MEASURED, PRESETS, measured
from orsched.common.errors import InputError
from orsched.costs import AffineCost, LevelsCost, RooflineCost, floor_faults
from orsched.data.instance import Instance
from orsched.data.memory import BlockMemory
from orsched.data.requests import Requests
from orsched.data.workers import Worker
from orsched.files import load_fitted_cost, save_cost
from tests.in_order import in_order


def test_every_machine_is_found_by_its_name_and_says_what_it_is():
    found = machines()
    assert orsched.machines is machines
    assert orsched.machine is machine
    assert len({each.name for each in found}) == len(found)
    for each in found:
        assert machine(each.name) == each
        assert each.kind in ("measured", "paper", "data sheet")
        assert (each.kind == "data sheet") is each.name.endswith("-sheet")
        assert each.source
        assert each.title
        json.dumps(each.to_dict())
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


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("a100-llama3-8b", "did you mean a100-llama3-8b-sheet"),
        ("h100-8b", "did you mean h100-llama3-8b"),
        ("h100-lama3-8b-sheet", "h100-llama3-8b-sheet"),
        ("pang", "pang-llama65b-ascend"),
        ("nothing like it", "orsched info machines"),
        ("h100x0-8b-sheet", "h100"),
    ],
)
def test_an_unknown_name_names_those_like_it(name, hint):
    with pytest.raises(InputError) as caught:
        machine(name)
    assert caught.value.field == "cost"
    assert hint in str(caught.value.remedy)


def test_too_few_gpus_are_refused():
    with pytest.raises(InputError, match="do not fit"):
        machine("l4x1-llama3-70b-sheet")


def test_a_cost_is_read_from_a_name_or_a_file(tmp_path):
    path = tmp_path / "cost.json"
    save_cost(in_order(AffineCost, 1, 2, 3, 4), path)
    assert read_cost(path) == read_cost(str(path)) == read_cost("cost.json", tmp_path)
    assert read_cost("pang-llama65b-ascend") == AffineCost()
    with pytest.raises(InputError, match="there is no machine"):
        read_cost("cost")
    with pytest.raises(InputError, match=r"no\.json"):
        read_cost(tmp_path / "no.json")
    with pytest.raises(InputError, match="info machines"):
        read_cost("no.json", tmp_path)


def test_requests_take_a_machine_by_name(tmp_path):
    path = tmp_path / "requests.csv"
    path.write_text("prompt_tokens,output_tokens\n10,20\n30,40\n")
    instance = orsched.load(path, clients=4, cost="h100-llama3-8b-sheet")
    assert instance.worker.cost == machine("h100-llama3-8b-sheet").cost
    assert instance.worker.memory == BlockMemory(26_674, 16, "paged")
    assert "H100" in machine_words(instance)


def test_a_machine_knows_its_memory():
    """Of each GPU and model: what is left of 90 % beside the weights, in blocks, paged."""
    for found in machines():
        assert found.memory is not None
        assert found.memory.allocation == "paged"
        assert found.memory.blocks == found.facts["kv_tokens"] // found.memory.block_tokens
    sizes = {found.memory.block_tokens for found in machines() if found.name.endswith("-sheet")}
    assert sizes == {16}
    pang = machine("pang-llama65b-ascend").memory
    assert pang == BlockMemory(1024, 128, "paged")  # section V-A


@pytest.mark.parametrize(
    ("facts", "found"),
    [
        ({}, None),
        ({"kv_tokens": 100}, BlockMemory(6, 16, "paged")),
        ({"kv_tokens": 100, "block_tokens": 25}, BlockMemory(4, 25, "paged")),
        ({"kv_tokens": 15}, "kv_tokens"),
        ({"kv_tokens": "many"}, "kv_tokens"),
        ({"kv_tokens": 100, "block_tokens": 0}, "block_tokens"),
    ],
)
def test_a_cost_model_file_may_state_its_memory(tmp_path, facts, found):
    path = tmp_path / "cost.json"
    save_cost(in_order(AffineCost, 1, 2, 3, 4), path, {"machine": facts})
    if isinstance(found, str):
        with pytest.raises(InputError, match=rf"cost\.json.*fit\.machine\.{found}"):
            read_machine(path)
        return
    assert read_machine(path) == (in_order(AffineCost, 1, 2, 3, 4), found)


def test_the_words_of_a_cost_model_name_its_machine():
    assert cost_words(AffineCost()) == "affine, LLaMA-65B on Ascend 910 (Pang et al.)"
    words = cost_words(machine("h100-8b-sheet").cost)
    assert words == "roofline, Llama 3.1 8B on NVIDIA H100 SXM 80 GB (data sheet)"
    instance = orsched.load("gsm8k-llama65b")
    assert machine_words(instance) == (
        f"{cost_words(AffineCost())}, 200 clients, 1,024 blocks of 128 tokens (whole)"
    )


def test_a_cost_model_that_nobody_named_is_told_by_two_times():
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


def test_models_and_gpus_have_a_source():
    for each in (*GPUS.values(), *MODELS.values()):
        assert each.source


DATA = Path(os.environ.get("ORSCHED_DATA", "none"))


def test_every_preset_says_device_date_software_and_error():
    presets = [each for each in measured() if each.kind == MEASURED]
    assert {each.name for each in presets} == set(SOURCES)
    assert {path.stem for path in PRESETS.glob("*.json")} == set(SOURCES)
    for each in presets:
        assert {"device", "date", "software", "error"} <= set(each.facts)
        assert cost_words(each.cost) == each.words
        assert each.words.endswith("(measured)")
        assert floor_faults(each.cost, steps=100) == []
        assert machine(each.name) is each


def test_a_preset_is_near_its_data_sheet():
    """Neither is right, but a slip of a power of ten in one of them would show."""
    for name in SOURCES:
        own, sheet = machine(name).cost, machine(f"{name}-sheet").cost
        for active in (1, 64, 200):
            load = (active, 300 * active, 300)
            assert own.round_ns(*load) == pytest.approx(sheet.round_ns(*load), rel=0.3)
        assert own.prefill_ns([2000]) == pytest.approx(sheet.prefill_ns([2000]), rel=0.3)


@pytest.mark.skipif(not (DATA / "h100").is_dir(), reason="ORSCHED_DATA has no folder h100")
@pytest.mark.parametrize("name", SOURCES)
def test_the_file_is_what_the_command_makes(name):
    cost, report = made(DATA, SOURCES[name])
    assert load_fitted_cost(PRESETS / f"{name}.json") == (cost, report)
    assert all(abs(run["error"]) < 0.04 for run in report["runs"])
