"""The layout: top-level folders, one import package, no file under two names."""

import subprocess
import sys
import tomllib

import pytest

FOLDERS = ("models", "heuristics", "instances", "runner")


@pytest.fixture(scope="module")
def pyproject(repo_root):
    return tomllib.loads((repo_root / "pyproject.toml").read_text())


def python(*args, cwd):
    """Run Python from a folder; `-c` puts that folder first on the path."""
    command = [sys.executable, *args]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def packages_in_tree(root):
    names = set()
    for folder, package in [("orsched", "orsched"), *((f, f"orsched.{f}") for f in FOLDERS)]:
        for init in (root / folder).rglob("__init__.py"):
            parts = init.parent.relative_to(root / folder).parts
            linked = folder == "orsched" and parts and parts[0] in FOLDERS
            if not linked:
                names.add(".".join((package, *parts)))
    return names


def test_the_list_of_packages_is_the_tree_and_every_folder_is_one(pyproject, repo_root):
    listed = pyproject["tool"]["setuptools"]["packages"]
    assert (len(listed), set(listed)) == (len(set(listed)), packages_in_tree(repo_root))

    for folder in ("orsched", *FOLDERS):
        for source in (repo_root / folder).rglob("*.py"):
            assert (source.parent / "__init__.py").is_file(), f"{source.parent} lacks __init__.py"


@pytest.mark.parametrize("folder", FOLDERS)
def test_folder_is_linked_relatively_and_mapped(folder, pyproject, repo_root):
    link = repo_root / "orsched" / folder
    assert link.is_symlink()
    assert str(link.readlink()) == f"../{folder}"
    assert pyproject["tool"]["setuptools"]["package-dir"][f"orsched.{folder}"] == folder


def test_links_are_committed_as_links(repo_root):
    if not (repo_root / ".git").exists():
        pytest.skip("not a git checkout")
    command = ["git", "ls-files", "-s", *(f"orsched/{f}" for f in FOLDERS)]
    done = subprocess.run(command, cwd=repo_root, capture_output=True, text=True, check=True)
    listing = done.stdout.splitlines()
    assert len(listing) == len(FOLDERS)
    assert all(line.startswith("120000 ") for line in listing)


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_top_level_folder_cannot_be_imported_by_its_own_name(folder, repo_root):
    result = python("-c", f"import {folder}", cwd=repo_root)
    assert result.returncode == 1
    assert f"ImportError: use 'import orsched.{folder}', not 'import {folder}'" in result.stderr


LOAD_ALL = """
import collections, importlib, json, os, sys, tomllib
for name in tomllib.load(open("pyproject.toml", "rb"))["tool"]["setuptools"]["packages"]:
    package = importlib.import_module(name)
    for entry in sorted(os.listdir(package.__path__[0])):
        stem, ext = os.path.splitext(entry)
        if ext == ".py" and not stem.startswith("__"):
            try:
                importlib.import_module(f"{name}.{stem}")
            except ImportError as error:
                if (error.name or "").partition(".")[0] not in ("torch", "transformers", "vllm"):
                    raise
files = collections.defaultdict(list)
for name, module in sorted(sys.modules.items()):
    if name.partition(".")[0] in ("orsched", "models", "heuristics", "instances", "runner"):
        files[os.path.realpath(module.__file__)].append(name)
print(json.dumps({f: n for f, n in files.items() if len(n) > 1}), len(files))
"""


def test_no_file_is_loaded_under_two_names(repo_root):
    result = python("-c", LOAD_ALL, cwd=repo_root)
    assert result.returncode == 0, result.stderr
    twice, count = result.stdout.rsplit(maxsplit=1)
    assert twice == "{}"
    assert int(count) > 20


HEAVY = (
    "torch", "pyscipopt", "ortools", "matplotlib", "pandas", "numba", "pyarrow", "networkx",
    "scipy", "plotly", "transformers", "jsonschema",
)  # fmt: skip


def test_import_orsched_loads_nothing_heavy(repo_root):
    code = f"import sys, orsched; print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    result = python("-c", code, cwd=repo_root)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "[]"
