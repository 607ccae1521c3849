"""One version everywhere, the marker of typed packages, and the files a project needs."""

import re
import subprocess
import tomllib
from importlib import metadata, resources

import pytest

import orsched
from tests.packaging.floors import floors
from tests.refusals import refused


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
