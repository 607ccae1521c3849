"""Reading of studies: the grid, its order, its keys, and everything that is refused."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orsched.files import save_instance
from orsched.instances.catalog import generate, load_named
from orsched.planning.study.axes import grid
from orsched.planning.study.cell import build_instance, execute
from orsched.planning.study.plan import read_study
from tests.refusals import refusal

SMALL = {"instances": ["two-by-two"], "policies": ["fcfs"]}


def test_the_grid_is_the_product_in_order_the_policies_fastest():
    gates = {"name": "online", "parameters": {"gate": ["waited_time", "idle_cost"]}}
    study = {
        "instances": ["two-by-two", {"generator": "uniform", "requests": [3, 4], "clients": 2}],
        "arrivals": ["poisson:rate=2", {"law": "gamma", "rate": [1, 2], "cv": 3}],
        "workers": [1, 2],
        "seeds": "3:6",
        "policies": ["fcfs", gates],
    }
    cells = read_study(study).cells()
    assert len(cells) == 3 * 3 * 2 * 3 * 3
    assert [c.policy.label for c in cells[:3]] == ["fcfs", "online", "online"]
    assert [c.content["seed"] for c in cells[:9:3]] == [3, 4, 5]
    assert len({c.key for c in cells}) == len(cells)
    assert len({c.problem for c in cells}) == len(cells) // 3


def test_equal_cells_stand_once():
    study = read_study({**SMALL, "policies": ["fcfs", "fcfs"], "seeds": [1, 1, 2]})
    assert len(study.cells()) == 2
    twice = read_study({**SMALL, "arrivals": ["poisson:rate=2", "poisson:rate=2.0"]})
    assert len(twice.cells()) == 1


def test_keys_follow_the_content_and_nothing_else(tmp_path):
    instance = generate("uniform", requests=5, clients=2)
    save_instance(instance, tmp_path / "a.json")
    save_instance(instance, tmp_path / "b.json")

    def keys(**changes):
        return [c.key for c in read_study({**SMALL, **changes}, str(tmp_path)).cells()]

    assert keys(instances="a.json") == keys(instances="b.json") == keys(instances=[instance])
    assert keys(name="x") == keys(name="y") == keys(plots=[{"y": "makespan_ns"}])
    kinds = [
        keys(), keys(instances="a.json"), keys(seeds=1), keys(arrivals="at_once"),
        keys(workers=1), keys(predictions="oracle"),
        keys(predictions=[{"law": "noise", "sigma": [0.1, 0.2]}]), keys(bounds=[]),
        keys(slo={"ttft_s": 1}), keys(iterations=1), keys(policies="online"),
        keys(policies="online@none"), keys(policies="online+gate=waited_time"),
        keys(instances=[{"name": "two-by-two", "sample": 3}]),
    ]  # fmt: skip
    assert len({key for found in kinds for key in found}) == len(kinds) + 1


def test_a_policy_whose_source_changes_runs_anew(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    source = tmp_path / "my_changing_policy.py"
    keys = []
    for text in ("x = 1\n", "x = 2\n", "x = 1\n"):
        source.write_text(text)
        keys.append(read_study({**SMALL, "policies": "my_changing_policy:P"}).cells()[0].key)
    assert keys[0] == keys[2] != keys[1]


def test_the_instance_of_a_cell_is_sampled_then_served_then_arrives():
    worker = {"clients": 3, "cost": load_named("two-by-two").worker.to_dict()["cost"]}
    axes = {"arrivals": ["gamma:rate=2,cv=2"], "predictions": "oracle", "seeds": [1, 2]}
    instances = [{"name": "two-by-two", "sample": 30}]
    study = read_study({**SMALL, **axes, "instances": instances, "workers": [[worker]]})
    one, two = (build_instance(cell.content, None) for cell in study.cells())
    assert len(one) == len(two) == 30
    assert one.worker.clients == 3
    assert one.requests.arrival_ns.min() > 0
    assert (one.requests.predicted_tokens == one.requests.output_tokens).all()
    assert (one.requests.arrival_ns != two.requests.arrival_ns).any()
    assert (one.requests.output_tokens != two.requests.output_tokens).any()
    assert build_instance(study.cells()[0].content, None) == one


def test_a_generator_may_have_a_seed_of_its_own():
    table = {"generator": "uniform", "requests": 5, "clients": 2, "seed": 7}
    study = read_study({**SMALL, "instances": [table], "seeds": [1, 2]})
    made = {build_instance(cell.content, None).sha256 for cell in study.cells()}
    assert made == {generate("uniform", requests=5, clients=2, seed=7).sha256}


VALUES = st.lists(st.integers(), min_size=1, max_size=3, unique=True)


@given(st.dictionaries(st.sampled_from("abcd"), VALUES))
def test_grids_hold_every_combination_once(axes):
    found = list(grid(axes))
    size = 1
    for values in axes.values():
        size *= len(values)
    assert len(found) == size
    assert all(set(values) == set(axes) for values in found)
    for name, values in axes.items():
        assert {combination[name] for combination in found} == set(values)


REFUSED = [
    ({"polices": ["fcfs"]}, "polices", "did you mean policies"),
    ({"instances": []}, "instances", "nothing to run"),
    ({"instances": ["nowhere"]}, "instances", "nowhere"),
    ({"instances": ["nowhere.json"]}, "instances", "does not exist"),
    ({"instances": [7]}, "instances", "neither a name nor a table"),
    ({"instances": ["a\0b"]}, "instances.name", "is not a name"),
    ({"instances": [{"generator": "unifrom"}]}, "instances.generator", "unknown generator"),
    ({"instances": [{"generator": "uniform", "clients": 2}]}, "instances.requests", "needs it"),
    ({"instances": [{"generator": "uniform", "request": 2}]}, "instances.request", "mean requests"),
    ({"instances": [{"name": "two-by-two", "sample": 0}]}, "instances.sample", "below 1"),
    ({"instances": [{"name": "two-by-two", "generator": "uniform"}]}, "instances", "say which"),
    ({"policies": []}, "policies", "nothing to run"),
    ({"policies": ["fcsf"]}, "policies.name", "did you mean fcfs"),
    ({"policies": [7]}, "policies", "neither a name nor a table"),
    ({"policies": ["vllm+chunks=1"]}, "policies.parameters", "unknown parameter 'chunks'"),
    ({"policies": ["vllm+mode=all"]}, "policies.parameters.mode", "'all' is unknown"),
    ({"policies": ["fcfs+dispatch=best"]}, "policies.parameters.dispatch", "'best' is unknown"),
    ({"policies": ["mico+dispatch=best"]}, "policies.parameters.dispatch", "chooses workers"),
    ({"policies": ["online+order=up"]}, "policies.parameters.order", "'up' is unknown"),
    ({"parameters": {"steal": 3}}, "parameters.steal", "true or false"),
    ({"policies": ["nowhere_at_all:P"]}, "policies.name", "no module"),
    ({"policies": [{"nam": "fcfs"}]}, "policies.nam", "did you mean name"),
    ({"policies": ["hybrid@none"]}, "policies.information", "does not run"),
    ({"policies": [{"name": "online", "parameters": {"gate": []}}]}, "gate", "no value"),
    ({"policies": [{"name": "online+x=1", "parameters": {"x": 1}}]}, "policies", "say it once"),
    ({"seeds": "5"}, "seeds", "A:B"), ({"seeds": "5:5"}, "seeds", "A:B"),
    ({"seeds": "0:" + "9" * 5000}, "seeds", "A:B"), ({"seeds": []}, "seeds", "no seed"),
    ({"seeds": [-1]}, "seeds", "below 0"),
    ({"seeds": "0:100000000"}, "seeds", "ORSCHED_MAX_CELLS=100000000"),
    ({"seeds": "\u0661:\u0663"}, "seeds", "A:B"),
    ({"arrivals": ["poison:rate=1"]}, "arrivals", "unknown law"),
    ({"arrivals": [{"law": "poisson", "rate": [1, 0]}]}, "arrivals.rate", "not a number above"),
    ({"workers": [0]}, "workers", "below 1"), ({"workers": [{"clients": 2}]}, None, "cost"),
    ({"predictions": ["magic"]}, "predictor", "unknown predictor"),
    ({"predictions": [{"law": "noise", "sigma": [-1]}]}, "sigma", "negative"),
    ({"bounds": ["jct"]}, "bounds", "no bound"),
    ({"slo": {"ttft": 1}}, "slo.ttft", "did you mean ttft_s"),
    ({"slo": {"ttft_s": -1}}, "slo.ttft_s", "negative"),
    ({"plots": [{"x": "seed"}]}, "plots.y", "missing"),
    ({"plots": [{"y": 3}]}, "plots.y", "name of a column"),
    ({"iterations": 0}, "iterations", "below 1"), ({"name": ""}, "name", "text"),
    ({"parameters": {"gate": float("nan")}}, "gate", "finite"),
]  # fmt: skip


def test_a_package_around_a_policy_is_not_imported_when_a_study_is_read(tmp_path, monkeypatch):
    (tmp_path / "failing_parent").mkdir()
    (tmp_path / "failing_parent" / "__init__.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    given = {**SMALL, "policies": ["failing_parent.inner:Mine"]}
    error = refusal(read_study, given)
    assert (error.field, "no module" in str(error)) == ("policies.name", True)
    (tmp_path / "failing_parent" / "inner.py").write_text("")
    study = read_study(given)
    assert "ZeroDivisionError" in execute(study.cells()[0].task())["error"]


@pytest.mark.parametrize(("changes", "field", "problem"), REFUSED)
def test_what_is_wrong_is_named_before_anything_runs(changes, field, problem):
    error = refusal(read_study, {**SMALL, **changes})
    assert problem in str(error)
    assert field is None or error.field == field


TENS = {name: list(range(10)) for name in "abcdefgh"}
LONG = {"generator": "uniform", "clients": [2] * 9_999, "requests": [5] * 9_999}


@pytest.mark.parametrize(("changes", "problem"), [
    ({"policies": [{"name": "vllm", "parameters": TENS}]}, "100,000,000 cells are more than"),
    ({"policies": [{"name": "vlm", "parameters": TENS}]}, "did you mean vllm"),
    ({"policies": [{"name": "vllm", "parameters": {**TENS, "h": 1}}]}, " 10,000,000 cells"),
    ({"instances": [LONG]}, "99,980,001 cells are more than"),
    ({"arrivals": [{"law": "gamma", "rate": [1] * 9_999, "cv": [1] * 9_999}]}, "more than the"),
    ({"predictions": [{"law": "noise", "sigma": [0] * 9_999, "a": [1] * 9_999}]}, "more than"),
])  # fmt: skip
def test_grids_are_counted_before_they_are_made(changes, problem):
    tracemalloc.start()
    try:
        error = refusal(read_study, {**SMALL, **changes})
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert problem in str(error)
    assert most < 20_000_000


def test_the_limit_of_cells_can_be_raised_and_missing_axes_are_named(monkeypatch):
    monkeypatch.setenv("ORSCHED_MAX_CELLS", "5")
    assert "set ORSCHED_MAX_CELLS=6" in str(refusal(read_study, {**SMALL, "seeds": "0:6"}))
    monkeypatch.setenv("ORSCHED_MAX_CELLS", "6")
    assert len(read_study({**SMALL, "seeds": "0:6"}).seeds) == 6
    monkeypatch.setenv("ORSCHED_MAX_CELLS", "many")
    assert "'many' is not a whole number" in str(refusal(read_study, SMALL))
    for key in SMALL:
        assert "say what to run" in str(refusal(read_study, {key: SMALL[key]}))


@pytest.mark.parametrize("text", ["x =", "instances = [", "a = 1\na = 2\n", ""])
def test_what_is_no_toml_is_named_with_the_file(tmp_path, text):
    path = tmp_path / "s.toml"
    path.write_text(text)
    assert refusal(read_study, path).file == str(path)
