import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orsched import AffineCost, Instance, Worker, load_schedule, save_instance, save_schedule
from orsched.common.errors import InputError, MissingDependencyError
from orsched.data.memory import RULES, BlockMemory, PrefixCache
from orsched.data.requests import Prefixes, Requests
from orsched.data.schedule import OPTIONAL_WORK, Schedule, Steps, Work
from orsched.data.service_classes import DEFAULT_CLASSES, ServiceClass
from orsched.files import load_cost, load_fitted_cost, load_instance, save_cost
from orsched.files.native import default_suffix
from orsched.files.request_columns import read_requests_csv, write_requests_csv
from orsched.heuristics.pang import FirstComeFirstServed
from orsched.instances.catalog import load_named
from orsched.simulator import simulate_policy
from tests.decoding import decoding
from tests.in_order import in_order
from tests.refusals import refusal

SUFFIXES = (".json", ".parquet")
ONE = decoding([3], [2], Worker(2))
NO_STEPS = in_order(Steps, [], [], [], [], [])
NOTHING = Schedule("0" * 64, NO_STEPS, Work([], [], [], [], [], []), "m", "none")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NAMES = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8
)
TENANTS = NAMES.map(str.strip).filter(lambda name: name and not name.isdecimal())


def columns(n, low, high):
    return st.lists(st.integers(low, high), min_size=n, max_size=n)


def distributions(draw, n):
    """Quantiles of n requests, with their levels."""
    levels = draw(st.lists(st.floats(1e-9, 0.999999), min_size=1, max_size=4, unique=True))
    quantiles = [sorted(draw(columns(len(levels), 1, 2**31 - 1))) for _ in range(n)]
    return {"predicted_quantiles": quantiles, "quantile_levels": sorted(levels)}


CHAINS = ([], [0], [7], [0, 2**62], [0, 2**62, 3], [0, 5], [7, 2**61])
"""Paths of one tree."""


@st.composite
def requests(draw, prefixes=True):
    n = draw(st.integers(0, 6))
    optional = {
        "arrival_ns": columns(n, 0, 2**40),
        "predicted_tokens": columns(n, 1, 999),
        "service_class": columns(n, 0, 1),
        "ids": st.lists(NAMES, min_size=n, max_size=n, unique=True),
        "tenant": columns(n, 0, 2**31 - 1) | st.lists(TENANTS, min_size=n, max_size=n),
        "group": columns(n, 0, 2**31 - 1) | st.lists(TENANTS, min_size=n, max_size=n),
        "deadline_ns": columns(n, 0, 2**61),
        "weights": columns(n, 0, 10**6),
    }
    given_columns = {k: draw(s) for k, s in optional.items() if draw(st.booleans())}
    if draw(st.booleans()):
        given_columns |= distributions(draw, n)
    if prefixes and draw(st.booleans()):
        chains = [draw(st.sampled_from(CHAINS)) for _ in range(n)]
        offsets = np.cumsum([0, *map(len, chains)])
        ids = [number for chain in chains for number in chain]
        given_columns["prefixes"] = Prefixes(offsets, ids, draw(st.integers(1, 512)))
    shortest = 1500 if "prefixes" in given_columns else 1
    prompts = draw(columns(n, shortest, 2**31 - 1))
    return Requests(prompts, draw(columns(n, 1, 9999)), **given_columns)


MEMORIES = st.builds(
    BlockMemory, st.integers(1, 9999), st.integers(1, 128), st.sampled_from(["paged", "whole"])
)
WORKERS = st.builds(
    Worker,
    clients=st.integers(1, 500),
    cost=st.builds(in_order, st.just(AffineCost), *[st.integers(0, 10**6)] * 4),
    prefill_cap_tokens=st.none() | st.integers(10_000, 2**31 - 1),
    memory=st.none()
    | st.builds(
        BlockMemory, st.integers(1, 9999), st.integers(1, 128), st.sampled_from(["paged", "whole"])
    ),
    name=NAMES,
)
LIMITS = st.none() | st.integers(0, 2**61)
CLASS_NAMES = NAMES.filter(lambda name: name.isprintable() and name.strip())
CLASSES = st.lists(
    st.builds(ServiceClass, CLASS_NAMES, ttft_ns=LIMITS, tpot_ns=LIMITS, deadline_ns=LIMITS,
              bulk=st.none() | st.booleans()),
    min_size=2, max_size=4, unique_by=lambda kind: kind.name,
)  # fmt: skip
INSTANCES = st.builds(
    Instance, requests(), st.lists(WORKERS, min_size=1, max_size=3).map(tuple),
    first_token=st.sampled_from(["decode", "prefill"]),
    output_limit_tokens=st.none() | st.integers(9999, 2**31 - 1),
    name=TEXTS, description=TEXTS, source=TEXTS, licence=TEXTS,
    classes=st.just(DEFAULT_CLASSES) | CLASSES,
)  # fmt: skip
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | FLOATS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
BLOCKS = st.dictionaries(TEXTS, VALUES, max_size=3)

BOUNDS = st.fixed_dictionaries(
    {"name": TEXTS, "value_ns": st.integers(0, 2**62), "certificate": BLOCKS}
)


@st.composite
def schedules(draw):
    n, m = draw(st.integers(1, 4)), draw(st.integers(0, 5))
    steps = ((0, 3), (0, 1), (0, 2**62 - 1), (0, 2**62 - 1), (1, 2**62 - 1))
    work = ((0, 2**31), (0, 99), (0, 1), (0, n - 1), (0, n - 1), (1, 9))
    return Schedule(
        instance_sha256=draw(st.text("0123456789abcdef", min_size=64, max_size=64)),
        steps=in_order(Steps, *(draw(columns(n, low, high)) for low, high in steps)),
        work=Work(
            *(draw(columns(m, low, high)) for low, high in work),
            **{name: draw(columns(m, 0, 9)) for name in OPTIONAL_WORK if draw(st.booleans())},
        ),
        method=draw(TEXTS),
        information=draw(st.sampled_from(["none", "predicted", "clairvoyant"])),
        instance_name=draw(TEXTS),
        seed=draw(st.integers(0, 2**62)),
        parameters=draw(BLOCKS),
        results=draw(BLOCKS),
        bound=draw(st.none() | BOUNDS),
        eviction=draw(st.none() | st.fixed_dictionaries({"rule": st.sampled_from(RULES)})),
        run=draw(BLOCKS | st.fixed_dictionaries({"device": NAMES, "clock": NAMES, "x": VALUES})),
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("files")


def same_bytes_twice(value, save, load, path):
    """Save, load and save again: the object and the bytes must be the same."""
    save(value, path)
    first = path.read_bytes()
    back = load(path)
    save(back, path)
    assert path.read_bytes() == first
    return back


@pytest.mark.parametrize("suffix", SUFFIXES)
@given(instance=INSTANCES)
def test_instances_round_trip(folder, suffix, instance):
    path = folder / f"instance{suffix}"
    back = same_bytes_twice(instance, save_instance, load_instance, path)
    assert (back, back.sha256) == (instance, instance.sha256)


@pytest.mark.parametrize("suffix", SUFFIXES)
@given(rule=st.sampled_from(RULES), table=requests())
def test_prefix_caches_round_trip(folder, suffix, rule, table):
    size = 16 if table.prefixes is None else table.prefixes.block_tokens
    worker = Worker(2, memory=BlockMemory(9, size, "paged", PrefixCache(rule)))
    instance = Instance(table, worker, first_token="decode")
    back = same_bytes_twice(instance, save_instance, load_instance, folder / f"cached{suffix}")
    assert (back, back.sha256) == (instance, instance.sha256)


@pytest.mark.parametrize("suffix", SUFFIXES)
@given(schedule=schedules())
def test_schedules_and_traces_round_trip(folder, suffix, schedule):
    path = folder / f"schedule{suffix}"
    back = same_bytes_twice(schedule, save_schedule, load_schedule, path)
    assert back == schedule
    assert back.is_measured is schedule.is_measured


@given(table=requests(prefixes=False))
def test_requests_round_trip_as_csv(folder, table):
    back = same_bytes_twice(table, write_requests_csv, read_requests_csv, folder / "r.csv")
    assert back == table


@given(
    cost=st.builds(in_order, st.just(AffineCost), *[st.integers(0, 2**61)] * 4),
    fit=st.none() | BLOCKS,
)
def test_cost_models_round_trip(folder, cost, fit):
    path = folder / "cost.json"
    save_cost(cost, path, fit)
    assert load_fitted_cost(path) == (cost, fit)
    assert load_cost(path) == cost
    first = path.read_bytes()
    save_cost(*load_fitted_cost(path)[:1], path, load_fitted_cost(path)[1])
    assert path.read_bytes() == first


def test_order_of_names_in_a_block_does_not_change_the_bytes(tmp_path):
    first = NOTHING.replace(parameters={"b": {"y": 1, "x": 2}, "a": 1})
    other = first.replace(parameters={"a": 1, "b": {"x": 2, "y": 1}})
    assert first == other
    for suffix in SUFFIXES:
        save_schedule(first, tmp_path / f"1{suffix}")
        save_schedule(other, tmp_path / f"2{suffix}")
        assert (tmp_path / f"1{suffix}").read_bytes() == (tmp_path / f"2{suffix}").read_bytes()


def test_json_and_parquet_hold_the_same(tmp_path):
    instance = decoding([3, 4], [2, 5], Worker(2), arrival_ns=[0, 7], ids=["a", "b"])
    schedule = simulate_policy(instance, FirstComeFirstServed()).schedule
    save_instance(instance, tmp_path / "i.parquet")
    save_instance(load_instance(tmp_path / "i.parquet"), tmp_path / "i.json")
    assert load_instance(tmp_path / "i.json") == instance
    save_schedule(schedule, tmp_path / "s.parquet")
    save_schedule(load_schedule(tmp_path / "s.parquet"), tmp_path / "s.json")
    assert load_schedule(tmp_path / "s.json") == schedule


def test_a_column_is_a_line_so_that_differences_are_readable_and_none_is_left_out(tmp_path):
    instance = decoding([3, 4], [2, 5], Worker(2))
    save_instance(instance, tmp_path / "a.json")
    other = instance.replace(requests=instance.requests.replace(prompt_tokens=[3, 9]))
    save_instance(other, tmp_path / "b.json")
    a, b = ((tmp_path / name).read_text().splitlines() for name in ("a.json", "b.json"))
    changed = [(x, y) for x, y in zip(a, b, strict=True) if x != y]
    assert changed == [('  "prompt_tokens": [3,4],', '  "prompt_tokens": [3,9],')]
    save_instance(ONE, tmp_path / "a.json")
    written = json.loads((tmp_path / "a.json").read_text())["requests"]
    assert list(written) == ["prompt_tokens", "output_tokens", "arrival_ns", "service_class"]


def test_a_byte_order_mark_and_other_layouts_are_read(tmp_path):
    save_instance(ONE, tmp_path / "a.json")
    document = json.loads((tmp_path / "a.json").read_text())
    text = json.dumps(dict(reversed(document.items())), indent=4).replace("\n", "\r\n")
    (tmp_path / "b.json").write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert load_instance(tmp_path / "b.json") == ONE


def test_optional_fields_have_the_defaults_of_the_classes(tmp_path):
    document = {
        "format": "orsched/instance",
        "version": 1,
        "first_token": "decode",
        "workers": [{"clients": 2, "cost": {"model": "affine", **AffineCost().to_dict()}}],
        "requests": {"prompt_tokens": [3], "output_tokens": [2]},
    }
    (tmp_path / "a.json").write_text(json.dumps(document))
    assert load_instance(tmp_path / "a.json") == ONE


@pytest.mark.parametrize(("block", "field"), [
    ({"results": {"gap": float("nan")}}, "results.gap"),
    ({"results": {"a": [1.0, float("inf")]}}, "results.a[1]"),
    ({"parameters": {"x": np.int64(3)}}, "parameters.x"),
    ({"parameters": {"x": {1: 2}}}, "parameters.x"), ({"run": {"when": object()}}, "run.when"),
    ({"run": {"device": 5, "clock": "c"}}, "run.device"),
    ({"bound": {"name": "b", "value_ns": 1.5, "certificate": {}}}, "bound.value_ns"),
    ({"bound": {"name": "b"}}, "bound.value_ns"), ({"method": "\ud800"}, None),
    ({"parameters": {"x": "\ud800"}}, None),
])  # fmt: skip
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_a_file_cannot_hold_is_refused_and_the_old_file_stays(tmp_path, suffix, block, field):
    path = tmp_path / f"s{suffix}"
    save_schedule(NOTHING, path)
    before = path.read_bytes()
    error = refusal(save_schedule, NOTHING.replace(**block), path)
    assert (error.file, error.field) == (str(path), field)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("name", ["a.txt", "a", "a.csv", "a.json.gz"])
def test_unknown_suffixes_are_refused_before_writing(tmp_path, name):
    assert "names no native format" in str(refusal(save_instance, ONE, tmp_path / name))
    with pytest.raises(InputError, match=r"\.json"):
        save_cost(AffineCost(), tmp_path / "a.parquet")
    assert list(tmp_path.iterdir()) == []


def test_csv_files_are_pointed_to_their_reader(tmp_path):
    assert "read_requests_csv" in str(refusal(load_instance, tmp_path / "a.csv"))
    with pytest.raises(InputError, match="CSV holds no prefixes"):
        write_requests_csv(Requests([1], [1], prefixes=Prefixes([0, 1], [5], 16)), tmp_path / "a")


@pytest.mark.parametrize("reader", [load_instance, load_schedule, load_cost, read_requests_csv])
def test_paths_that_cannot_be_read(tmp_path, reader, monkeypatch):
    for path, problem in [
        (tmp_path / "missing.json", "does not exist"),
        (tmp_path, "is a folder"),
        ("/dev/zero", "is a device"),
        ("a\0b", "no such file name"),
        (tmp_path / ("x" * 300), "cannot be read"),
    ]:
        error = refusal(reader, path)
        assert (bool(error.file), bool(error.remedy), problem in str(error)) == (True, True, True)

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    assert "may not be read" in str(refusal(reader, "a.json"))


def test_parquet_is_recommended_above_100_000_requests():
    assert [default_suffix(n) for n in (0, 100_000, 100_001)] == [".json", ".json", ".parquet"]


def test_without_pyarrow_large_files_are_json_and_it_says_so(monkeypatch, caplog, tmp_path):
    monkeypatch.setattr("orsched.files.native.find_spec", lambda name: None)
    assert default_suffix(100_000) == ".json"
    assert caplog.text == ""
    assert default_suffix(100_001) == ".json"
    assert "100001 requests are written as JSON" in caplog.text
    assert "orsched[parquet]" in caplog.text
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingDependencyError, match=r"orsched\[parquet\]"):
        save_instance(load_named("two-by-two"), tmp_path / "x.parquet")
    assert list(tmp_path.iterdir()) == []


def test_the_package_needs_numpy_and_the_standard_library_only():
    code = (
        "import sys, orsched.files; "
        "print([m for m in ('pandas', 'pyarrow', 'scipy', 'matplotlib') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
