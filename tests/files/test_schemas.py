import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from orsched import AffineCost, BlockMemory, Instance, Prefixes, Requests, Worker, files
from orsched.cli.commands import run
from orsched.common.registry import cost_model
from orsched.costs.roofline import MORE
from orsched.files import load_cost, load_instance, save_cost
from orsched.files.native import load_schedule, save_instance, save_schedule
from orsched.heuristics.pang import FirstComeFirstServed
from orsched.simulator import simulate_policy
from tests.decoding import decoding
from tests.in_order import in_order

KINDS = ("instance", "schedule", "trace", "cost", "packing")
PARAMETERS = {
    "affine": {},
    "levels": {"levels": [[10, 5], [20, 5], [2**40, 9]], "round_fixed_ns": 3},
    "bilinear": {
        **{f"{letter}{i}_fs": -i for letter in "pd" for i in (1, 2, 3)},
        **{"p4_fs": 10**6, "d4_fs": 10**6, "time_scale": 2},
    },
    "pooling": {
        **{"alpha_fs": 1, "beta_fs": -2, "c_fs": 3, "gamma_fs": 4, "delta_fs": 10**15},
        **{"lambda_ppm": -1, "time_scale": 1},
    },
    "profiled": {
        **{"fixed_ns": 7, "dense": {"tokens": [1, 9], "time_ns": [5, 6]}},
        "prefill": {"chunk": [4], "context": [0, 8], "time_ns": [[1, 2]]},
        "decode": {"beside": [0], "batch": [1, 2], "context": [3], "time_ns": [[[1], [2]]]},
        "per_sequence": {"sequences": [1, 8], "time_ns": [3, 4]},
        "time_scale": 1,
    },
    "roofline": {
        **{"fixed_fs": 1, "weights_fs": 10**15, "token_fs": 0, "context_fs": 4},
        **{"attended_fs": 2**62, "time_scale": 3, "row_fs": 5, "longest_fs": 6, "launch_fs": 7},
        **{"beside_request_fs": 8, "beside_context_fs": 9, "beside_launch_fs": 10},
    },
    "linear": {
        **{"stage_fixed_fs": 1, "stage_token_fs": 0, "attended_fs": 2**62, "round_fixed_fs": 4},
        **{"round_request_fs": 5, "context_fs": 6, "mixed_fixed_fs": 7, "mixed_context_fs": 8},
        "time_scale": 1,
    },
}


EXTREMES = Requests(
    [2**31 - 1], [1], arrival_ns=[2**61], predicted_tokens=[7], service_class=[0], ids=["ü"],
    prefixes=Prefixes([0, 2], [0, 2**62], 2**30),
)  # fmt: skip
EXTREME = Worker(1, in_order(AffineCost, 0, 0, 0, 0), memory=BlockMemory(2**31 - 1, 1, "whole"))


def model(name):
    return AffineCost() if name == "affine" else cost_model(name).from_dict(PARAMETERS[name])


@pytest.fixture(scope="module")
def schemas():
    folder = Path(files.__file__).parent / "schemas"  # of the wheel, where that is installed
    return {k: json.loads((folder / f"{k}.schema.json").read_text()) for k in KINDS}


def errors(schema, path):
    validator = Draft202012Validator(schema)
    return [e.message for e in validator.iter_errors(json.loads(path.read_text()))]


@pytest.mark.parametrize("kind", KINDS)
def test_the_schemas_are_valid_and_closed(schemas, kind):
    schema = schemas[kind]
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$id"] == f"urn:orsched:schema:{kind}:1"
    assert schema["properties"]["format"]["const"] == f"orsched/{kind}"
    assert kind == "cost" or schema["additionalProperties"] is False


def test_schemas_of_schedules_and_traces_and_of_workers_and_costs_agree(schemas):
    schedule, trace = dict(schemas["schedule"]), dict(schemas["trace"])
    for schema in (schedule, trace):
        for name in ("$id", "title", "description"):
            del schema[name]
        schema["properties"] = dict(schema["properties"])
        del schema["properties"]["format"], schema["properties"]["run"]
    assert trace.pop("required") == [*schedule.pop("required"), "run"]
    assert trace == schedule
    header = {"format", "version", "fit"}
    for name in PARAMETERS:
        flat, nested = schemas["cost"]["$defs"][name], schemas["instance"]["$defs"][name]
        assert set(flat["properties"]) - header == set(nested["properties"])
        assert [r for r in flat["required"] if r not in header] == nested["required"]
        for key, value in nested["properties"].items():
            assert flat["properties"][key] == value


@pytest.mark.parametrize("name", PARAMETERS)
def test_every_cost_model_round_trips_and_fits_both_schemas(schemas, tmp_path, name):
    cost = model(name)
    save_cost(cost, tmp_path / "cost.json", {"rows": 3, "error": 0.5})
    assert load_cost(tmp_path / "cost.json") == cost
    assert errors(schemas["cost"], tmp_path / "cost.json") == []
    written = json.loads((tmp_path / "cost.json").read_text())
    others = ("format", "version", "model", "fit")
    assert list(cost.to_dict()) == [key for key in written if key not in others]
    instance = decoding([1], [1], Worker(1, cost=cost))
    save_instance(instance, tmp_path / "instance.json")
    assert load_instance(tmp_path / "instance.json") == instance
    assert errors(schemas["instance"], tmp_path / "instance.json") == []


@pytest.mark.parametrize("name", PARAMETERS)
def test_schema_and_reader_reject_the_same_parameters(schemas, tmp_path, name):
    """Each parameter left out, of a wrong type and out of range, and one that is unknown."""
    parameters = model(name).to_dict()
    optional = {"time_scale", "per_sequence", *MORE}
    broken = [{**parameters, "unknown": 1}]
    for key, value in parameters.items():
        if key not in optional:
            broken.append({k: v for k, v in parameters.items() if k != key})
        wrong = [None, "1", 1.5, True, 2**62 + 1, -(2**62) - 1, {}]
        if key == "levels":
            wrong += [[], [[1]], [[0, 1]], [[1, -1]], [[1, 2, 3]], [["1", 2]]]
        broken += [{**parameters, key: item} for item in wrong if item != value]
    validator = Draft202012Validator(schemas["cost"])
    path = tmp_path / "cost.json"
    for values in broken:
        document = {"format": "orsched/cost", "version": 1, "model": name, **values}
        path.write_text(json.dumps(document))
        with pytest.raises(ValueError, match=r"cost\.json"):
            load_cost(path)
        assert not validator.is_valid(document), document


@pytest.mark.parametrize("instance", [
    decoding([], [], Worker(1)),
    decoding([3, 4], [2, 1], (Worker(2, prefill_cap_tokens=9), Worker(1, name="b"))),
    Instance(EXTREMES, EXTREME, "prefill", output_limit_tokens=2**31 - 1, name=""),
], ids=["empty", "two workers", "extremes"])  # fmt: skip
def test_what_is_saved_fits_the_schema(schemas, tmp_path, instance):
    path = tmp_path / "instance.json"
    save_instance(instance, path)
    assert errors(schemas["instance"], path) == []
    assert load_instance(path) == instance


def test_saved_schedules_and_traces_fit_their_schemas(schemas, tmp_path):
    instance = decoding([3, 4], [2, 5], Worker(2))
    schedule = simulate_policy(instance, FirstComeFirstServed()).schedule
    bound = {"name": "volume", "value_ns": 1, "certificate": {"stages": 1}}
    schedule = schedule.replace(bound=bound, results={"gap": 0.5, "slo": None})
    trace = schedule.replace(run={"device": "cpu", "clock": "perf_counter_ns"})
    for kind, value in (("schedule", schedule), ("trace", trace)):
        path = tmp_path / f"{kind}.json"
        save_schedule(value, path)
        assert errors(schemas[kind], path) == []
        assert load_schedule(path) == value
    assert errors(schemas["schedule"], tmp_path / "trace.json") != []
    assert errors(schemas["trace"], tmp_path / "schedule.json") != []


def test_a_written_packing_fits_and_checks(schemas, tmp_path, capsys):
    sizes, path = tmp_path / "sizes.csv", tmp_path / "packing.json"
    sizes.write_text("name,size\na,7\nb,5\nc,4\nd,4\ne,3\n")
    given = ["pack", str(sizes), "--column", "size", "--clients", "2", "-o", str(path)]
    assert run(given) == 0
    document, validator = json.loads(path.read_text()), Draft202012Validator(schemas["packing"])
    assert document["column"] == "size"
    assert list(validator.iter_errors(document)) == []
    assert run(["check", str(sizes), str(path)]) == 0
    assert not validator.is_valid({**document, "clients": 0})
    assert not validator.is_valid({**document, "more": 0})
    capsys.readouterr()
