"""The documentation covers what there is to document."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from importlib import import_module

import pytest

import orsched


def test_every_public_name_is_on_a_page_of_the_api(repo_root):
    blocks = [b for page in api_pages(repo_root) for b in page.split(".. currentmodule:: ")[1:]]
    text = "".join(block for block in blocks if block.startswith("orsched\n"))
    directive = r"^\.\. auto(?:class|function|exception|data):: (\w+)$"
    named = re.findall(directive, text, re.M)
    elsewhere = re.findall(r"^\.\. autofunction:: orsched\.[\w.]+\.(\w+)$", text, re.M)
    assert {*named, *elsewhere} >= set(orsched.__all__) - {"__version__"}
    assert set(named) <= set(orsched.__all__)
    assert len(named) == len(set(named))


def api_pages(root):
    """Return the texts of the pages of the API, one a topic."""
    texts = [page.read_text() for page in sorted((root / "docs").glob("api*.md"))]
    assert len(texts) > 5
    return texts


@pytest.mark.parametrize("package", ["models", "models.batch", "models.full_mip"])
def test_the_public_names_of_the_models_are_documented(package, repo_root):
    pages = "".join(api_pages(repo_root)) + (repo_root / "docs" / "batcher.md").read_text()
    named = set(re.findall(r"^\.\. auto(?:class|function|data):: (\w+)$", pages, re.M))
    modules = re.findall(r"^\.\. automodule:: ([\w.]+)$", pages, re.M)
    for module in modules:
        named |= {name for name in vars(import_module(module)) if not name.startswith("_")}
    assert set(import_module(f"orsched.{package}").__all__) <= named


def test_every_module_that_the_pages_of_the_api_name_exists(repo_root):
    pages = "".join(api_pages(repo_root))
    modules = re.findall(r"^\.\. automodule:: orsched\.([\w.]+)$", pages, re.M)
    assert len(modules) > 10
    for module in modules:
        place = repo_root / "orsched" / module.replace(".", "/")
        assert place.with_suffix(".py").is_file() or (place / "__init__.py").is_file(), module


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "docs/index.md"])
def test_the_make_targets_that_are_named_exist(name, repo_root):
    targets = set(re.findall(r"^([a-z][a-z-]*):", (repo_root / "Makefile").read_text(), re.M))
    named = set(re.findall(r"\$ make ([a-z -]+[a-z])", (repo_root / name).read_text()))
    assert named
    for line in named:
        assert set(line.split()) <= targets, line


def contents(root, page="index"):
    """Return the pages of a page's contents and those of theirs, as often as they stand there."""
    text = (root / "docs" / f"{page}.md").read_text()
    found = []
    for block in re.findall(r"^```\{toctree\}\n(.*?)^```", text, re.S | re.M):
        for name in re.findall(r"^([\w-]+)$", block, re.M):
            found += [name, *contents(root, name)]
    return found


def test_every_page_is_in_the_contents_once(repo_root):
    pages = {page.stem for page in (repo_root / "docs").glob("*.md")} - {"index"}
    found = contents(repo_root)
    assert set(found) == pages
    assert len(found) == len(pages)


GROUPS = ("start", "how-to", "theory", "methods", "results", "reference")


def test_the_contents_are_five_groups_and_the_reference(repo_root):
    text = (repo_root / "docs" / "index.md").read_text()
    (block,) = re.findall(r"^```\{toctree\}\n:hidden:\n\n(.*?)^```", text, re.S | re.M)
    assert tuple(block.split()) == GROUPS
    for group in GROUPS:
        assert f"]({group}.md)**" in text, group


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_says_of_each_of_its_pages_what_it_is_about(group, repo_root):
    text = (repo_root / "docs" / f"{group}.md").read_text()
    (block,) = re.findall(r"^```\{toctree\}\n:hidden:\n\n(.*?)^```", text, re.S | re.M)
    described = re.findall(r"^- \[\]\(([\w-]+)\.md\): \S", text, re.M)
    assert described == block.split()


def test_the_python_examples_of_readme_and_start_page_run(repo_root, capsys):
    for name in ("README.md", "docs/index.md"):
        blocks = re.findall(r"```python\n(.*?)```", (repo_root / name).read_text(), re.S)
        assert blocks, name
        for block in blocks:
            exec(compile(block, name, "exec"), {})
        assert capsys.readouterr().out.strip(), name


def benchmark_commands(root):
    """Return each module of ``benchmarks`` that a page starts, with its words and the page."""
    pages = [root / "README.md", root / "CONTRIBUTING.md", root / "Makefile"]
    for page in (*pages, *sorted((root / "docs").glob("*.md"))):
        for line in page.read_text().splitlines():
            for module, rest in re.findall(r"-m (benchmarks[.\w]+)([^`#()|]*)", line):
                yield module, rest, page.name


def test_the_benchmarks_that_a_page_starts_exist_with_their_options(repo_root):
    found = list(benchmark_commands(repo_root))
    assert len({module for module, _, _ in found}) > 12
    for module, rest, page in found:
        folder = repo_root.joinpath(*module.split("."))
        source = folder / "__main__.py" if folder.is_dir() else folder.with_suffix(".py")
        assert source.is_file(), f"{page}: {module}"
        for option in re.findall(r"--[a-z][a-z-]*", rest):
            assert f'"{option}"' in source.read_text(), f"{page}: {module} {option}"


@pytest.mark.full
def test_the_benchmarks_that_a_page_starts_tell_their_usage(repo_root):
    for module in sorted({module for module, _, _ in benchmark_commands(repo_root)}):
        command = [sys.executable, "-m", module, "--help"]
        done = subprocess.run(command, cwd=repo_root, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{module}: {done.stderr}"
        assert done.stdout.startswith("usage"), shlex.join(command)


def test_the_glossary_has_the_words_that_tables_and_files_use(repo_root):
    text = (repo_root / "docs" / "glossary.md").read_text()
    (block,) = re.findall(r"^:::\{glossary\}\n(.*?)^:::", text, re.S | re.M)
    terms = re.findall(r"^([^\s].*)$", block, re.M)
    assert terms[0] == "client"
    assert len(terms) == len(set(terms))
    wanted = [
        "TTFT",
        "TPOT",
        "JCT",
        "ITL",
        "goodput",
        "makespan",
        "gap",
        "bubble",
        "stage",
        "round",
        "step",
        "worker",
        "policy",
    ]
    assert {*wanted, "SLO attainment", "lower bound", "slot utilization"} <= set(terms)


def console_commands(root):
    """Return the words of each command of orsched in a console block, with its page."""
    pages = [root / "README.md", *sorted((root / "docs").glob("*.md")), *root.glob("examples/*")]
    for page in (page for page in pages if page.is_file()):
        text = page.read_text().replace("\\\n", " ")
        for line in re.findall(r"^\s*\$? ?orsched ((?![^\n]*[|…]|\.)[a-z][^\n]*)$", text, re.M):
            line = line.partition("#")[0].partition(";")[0]
            yield shlex.split(line.replace(" ... ", " ")), page.name


def test_the_commands_on_the_pages_have_their_options(repo_root):
    from orsched.cli.commands import cli

    found = [
        (words, page)
        for words, page in console_commands(repo_root)
        if words[0] in cli.list_commands(None)
    ]
    assert len(found) > 60
    for words, page in found:
        command = cli.get_command(None, words[0])
        rest = words[1:]
        while rest and rest[0] in getattr(command, "commands", ()):
            command, rest = command.commands[rest[0]], rest[1:]
        known = {name for option in command.params for name in option.opts + option.secondary_opts}
        used = {word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)}
        assert used <= known | {"--help", "-h"}, f"{page}: orsched {shlex.join(words)}"
