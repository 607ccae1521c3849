"""Everything exported exists, is documented, and is exported once."""

import importlib
import inspect
import tomllib
from functools import partial
from pathlib import Path

import pytest

import orsched
from tests.refusals import refused

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]


def exported():
    for package in PACKAGES:
        for name in getattr(importlib.import_module(package), "__all__", ()):
            yield package, name


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_has_a_docstring(package):
    assert (importlib.import_module(package).__doc__ or "").strip()


@pytest.mark.parametrize(("package", "name"), list(exported()))
def test_every_exported_name_exists_and_is_documented_with_its_methods(package, name):
    thing = getattr(importlib.import_module(package), name)
    if inspect.isclass(thing) or inspect.isroutine(thing):
        doc = inspect.getdoc(thing) or ""
        # A dataclass without a docstring gets its signature as one.
        assert doc.strip(), f"{package}.{name} has no docstring"
        assert not doc.startswith(f"{name}("), f"{package}.{name} has no docstring"
    own = vars(thing).items() if inspect.isclass(thing) else ()
    for attribute, value in ((each, value) for each, value in own if not each.startswith("_")):
        if inspect.isroutine(value) or isinstance(value, (property, classmethod, staticmethod)):
            assert inspect.getdoc(getattr(thing, attribute)), f"{name}.{attribute}"


def test_no_submodule_takes_the_place_of_a_public_name():
    """A module named like a function replaces it when imported, unless it can be called itself."""
    for package in PACKAGES:
        importlib.import_module(package)
    for name in orsched.__all__:
        found = getattr(orsched, name)
        assert not inspect.ismodule(found) or callable(found), name
    for path in (ROOT / "orsched").iterdir():
        if path.stem in orsched.__all__:
            assert callable(importlib.import_module(f"orsched.{path.stem}")), path.name


MADE_BY_ORSCHED = {"View", "PredictedView", "ClairvoyantView", "Outcome", "Progress"}
"""Classes with columns or results in nanoseconds, whose objects no user makes from numbers."""


@pytest.mark.parametrize("package", ["orsched", "orsched.extending"])
def test_no_public_call_takes_bare_nanoseconds(package):
    """``SLO(5, 1)`` would be 5 ns and 1 ns: times are given by names that state their unit."""
    found = []
    for name in set(importlib.import_module(package).__all__) - MADE_BY_ORSCHED:
        thing = getattr(importlib.import_module(package), name)
        if not callable(thing) or (isinstance(thing, type) and issubclass(thing, Exception)):
            continue
        for each in inspect.signature(thing).parameters.values():
            units = {"ns", "fs"} & set(each.name.split("_"))
            if units and each.kind is each.POSITIONAL_OR_KEYWORD:
                found.append(f"{name}({each.name})")
    assert found == []


@pytest.mark.parametrize("call", [
    lambda: orsched.SLO(5, 1), lambda: orsched.AffineCost(10_000_000, 0, 0, 1_000_000),
    lambda: orsched.LevelsCost(((8, 10),), 5), lambda: orsched.Link(5, 1),
    lambda: orsched.Autoscaling(5), lambda: orsched.Requests([1], [1], [5]),
    lambda: orsched.StageFloor(5),
])  # fmt: skip
def test_times_need_their_names(call):
    refused("positional argument", call, kind=TypeError)


@pytest.mark.parametrize(("kind", "in_seconds", "in_ns"), [
    (orsched.AffineCost, {"prefill_fixed_s": 0.01}, {"prefill_fixed_ns": 10**7}),
    (orsched.LevelsCost, {"levels_s": [(8, 0.01)], "round_fixed_s": 0.02},
     {"levels": [(8, 10**7)], "round_fixed_ns": 2 * 10**7}),
    (orsched.Link, {"latency_s": 1e-5}, {"latency_ns": 10_000}),
    (orsched.SLO, {"ttft_s": 2, "tpot_s": 0.05}, {"ttft_ns": 2 * 10**9, "tpot_ns": 5 * 10**7}),
    (orsched.Autoscaling, {"startup_s": 40, "cooldown_s": 1},
     {"startup_ns": 40 * 10**9, "cooldown_ns": 10**9}),
    (partial(orsched.Requests, [1], [1]), {"arrival_s": [0.5], "deadline_s": [2]},
     {"arrival_ns": [5 * 10**8], "deadline_ns": [2 * 10**9]}),
])  # fmt: skip
def test_what_a_person_types_takes_seconds(kind, in_seconds, in_ns):
    assert kind(**in_seconds) == kind(**in_ns)


@pytest.mark.parametrize(("call", "field"), [
    (lambda: orsched.AffineCost(round_fixed_ns=5, round_fixed_s=1), "round_fixed_s"),
    (lambda: orsched.SLO(ttft_ns=5, ttft_s=1), "slo.ttft_s"),
    (lambda: orsched.LevelsCost(levels=[(8, 5)]), "round_fixed_ns"),
    (lambda: orsched.LevelsCost(levels=[(8, 5)], levels_s=[(8, 5)]), "levels_s"),
    (lambda: orsched.Autoscaling(), "startup_ns"),
    (lambda: orsched.Requests([1], [1], deadline_s=[1], deadline_ns=[5]), "deadline_s"),
])  # fmt: skip
def test_a_time_is_given_once(call, field):
    assert refused("", call, kind=orsched.InputError).field == field
