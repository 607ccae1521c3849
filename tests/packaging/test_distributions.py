"""The sdist and the wheel built from it hold what they must, and nothing under a wrong name."""

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile

import pytest

FOLDERS = ("models", "heuristics", "instances", "runner")
BUILD = """
import sys
from setuptools import build_meta
print(getattr(build_meta, "build_" + sys.argv[1])(sys.argv[2]))
"""


def build(kind, source, target):
    """Build without isolation and without the network; return the archive."""
    target.mkdir()
    return target / python("-c", BUILD, kind, str(target), cwd=source).splitlines()[-1]


def python(*args, cwd):
    command = [sys.executable, *args]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def source(repo_root, tmp_path_factory):
    """A copy of what git knows, links included."""
    if not (repo_root / ".git").exists():
        pytest.skip("not a git checkout")
    root = tmp_path_factory.mktemp("source")
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=repo_root, capture_output=True, text=True, check=True
    ).stdout
    for name in filter(None, listing.split("\0")):
        if not (repo_root / name).exists():
            continue
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(repo_root / name, root / name, follow_symlinks=False)
    return root


@pytest.fixture(scope="module")
def sdist(source, tmp_path_factory):
    return build("sdist", source, tmp_path_factory.mktemp("out") / "sdist")


@pytest.fixture(scope="module")
def unpacked(sdist, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (root,) = folder.iterdir()
    return root


@pytest.fixture(scope="module")
def wheel(unpacked, tmp_path_factory):
    """The wheel built from the sdist, as an index would."""
    return build("wheel", unpacked, tmp_path_factory.mktemp("out") / "wheel")


def expected_files(source):
    """Paths in a wheel of every Python and data file of the packages."""
    project = tomllib.loads((source / "pyproject.toml").read_text())
    names = set()
    for folder in ("orsched", *FOLDERS):
        prefix = folder if folder == "orsched" else f"orsched/{folder}"
        for path in (source / folder).rglob("*"):
            relative = path.relative_to(source / folder)
            if path.is_dir() or (folder == "orsched" and relative.parts[0] in FOLDERS):
                continue
            if "__pycache__" not in relative.parts:
                names.add(f"{prefix}/{relative.as_posix()}")
    library = re.compile(r"orsched/instances/library/(?!best/toy/).*\.gz")
    names = {name for name in names if not library.fullmatch(name)}
    assert len(names) > len(project["tool"]["setuptools"]["packages"])
    return names


def test_the_wheel_holds_the_packages_and_nothing_else(wheel, source):
    with zipfile.ZipFile(wheel) as archive:
        names = {n for n in archive.namelist() if ".dist-info/" not in n}
    assert names == expected_files(source)
    assert "orsched/py.typed" in names


def test_the_wheel_carries_licence_notice_and_entry_point(wheel):
    with zipfile.ZipFile(wheel) as archive:
        info = {n.partition(".dist-info/")[2]: n for n in archive.namelist() if ".dist-info/" in n}
        assert {"licenses/LICENSE", "licenses/NOTICE"} <= set(info)
        entry_points = archive.read(info["entry_points.txt"]).decode()
    assert "orsched = orsched.cli:main" in entry_points


def test_the_sdist_holds_tests_benchmarks_documentation_and_makefile(unpacked):
    for name in (
        "Makefile", "constraints.txt", "LICENSE", "NOTICE", "CITATION.cff", "CHANGELOG.md",
        "docs/conf.py", "docs/index.md", "tests/conftest.py", "benchmarks/speed/run.py",
        "examples/own_trace.py", "examples/data/requests.csv", "models/__init__.py",
    ):  # fmt: skip
        assert (unpacked / name).is_file(), name
    assert not (unpacked / "docs" / "_build").exists()


ELSEWHERE = """
import sys; sys.path.insert(0, 'site')
import orsched, orsched.models, orsched.heuristics, orsched.instances, orsched.simulator
print(sorted({m.__file__.split('site/')[0] for n, m in sys.modules.items()
              if n.startswith('orsched')}))
from importlib.resources import files
print(files('orsched').joinpath('py.typed').is_file())
"""


def test_the_wheel_works_from_another_place(wheel, tmp_path):
    """Unpacked alone, every package imports from the wheel and from nowhere else."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    where, typed = python("-c", ELSEWHERE, cwd=tmp_path).splitlines()
    assert where in ("['']", f"['{tmp_path}/']")
    assert typed == "True"
