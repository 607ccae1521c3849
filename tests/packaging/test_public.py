"""Everything exported exists and is documented once; one version, and the files of a project."""

import importlib
import inspect
import re
import subprocess
import tomllib
from functools import partial
from importlib import metadata, resources
from pathlib import Path

import pytest

import orsched
from tests.packaging.floors import floors
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


MADE_BY_ORSCHED = {
    "View", "PredictedView", "ClairvoyantView", "Outcome", "Progress", "Batches", "RequestSlack",
    "Sensitivity",
}  # fmt: skip
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


def test_the_version_is_the_same_everywhere_and_the_package_says_that_it_is_typed(repo_root):
    assert resources.files("orsched").joinpath("py.typed").is_file()
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+|rc\d+)?", orsched.__version__)
    assert metadata.version("orsched") == orsched.__version__
    citation = (repo_root / "CITATION.cff").read_text()
    assert re.search(r"^version: (.*)$", citation, re.M)[1] == orsched.__version__


@pytest.fixture(scope="module")
def project(repo_root):
    return tomllib.loads((repo_root / "pyproject.toml").read_text())["project"]


def test_licence_files_are_there_and_named(repo_root, project):
    assert project["license"] == "Apache-2.0"
    for name in project["license-files"]:
        assert (repo_root / name).is_file()
    licence = (repo_root / "LICENSE").read_text()
    assert "Apache License" in licence
    assert "Version 2.0, January 2004" in licence
    assert "END OF TERMS AND CONDITIONS" in licence


def test_every_dependency_is_pinned_for_the_makefile(repo_root, project):
    lines = (repo_root / "constraints.txt").read_text().splitlines()
    pins = {line.split("==")[0].lower() for line in lines if line and not line.startswith("#")}
    extras = project["optional-dependencies"]
    pinned = ("fast", "parquet", "runner", "test", "lint", "docs")
    for requirement in sum((extras[name] for name in pinned), project["dependencies"]):
        assert re.split(r"[<>=\[]", requirement)[0].lower() in pins, requirement


def test_the_files_of_make_test_floor_are_there(repo_root):
    text = (repo_root / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    (named,) = re.findall(r"^FLOOR_TESTS := (.*)$", text, flags=re.MULTILINE)
    assert [each for each in named.split() if not (repo_root / each).exists()] == []


def test_every_requirement_states_an_oldest_version_for_make_test_floor(project):
    found = dict(line.split("==") for line in floors(project))
    assert {"numpy", "pyscipopt", "numba", "pytest"} <= set(found)
    assert found["matplotlib"] == "3.10"  # the first with get_figure(root=), which charts call
    assert found["pyscipopt"] == "5.5"  # the first whose LP takes a time limit
    bare = {"dependencies": ["numpy"], "optional-dependencies": {}}
    refused("states no oldest version", floors, bare, kind=ValueError)


def test_nothing_committed_is_large(repo_root):
    """Pictures and traces belong elsewhere: a checkout stays small."""
    if not (repo_root / ".git").exists():
        pytest.skip("not a git checkout")
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=repo_root, capture_output=True, text=True, check=True
    ).stdout
    files = [repo_root / name for name in listing.split("\0") if name]
    assert repo_root / "pyproject.toml" in files
    large = [f for f in files if f.is_file() and f.stat().st_size > 2_000_000]
    assert large == []
