"""The documentation covers what there is, and shows what its commands print."""

import re
import shlex
import subprocess
import sys
from importlib import import_module

import pytest

import orsched
from benchmarks import readme

TREE = r"^```\{toctree\}\n(?::caption: (.*)\n)?(?::hidden:\n)?\n((?s:.*?))^```"
KINDS = ["Start", "Tutorials", "How-to", "Explanation", "Reference", "Results"]


def text_of(root, page):
    return (root / "docs" / f"{page}.md").read_text()


def test_every_public_name_is_on_a_page_of_the_api(repo_root):
    blocks = text_of(repo_root, "api").split(".. currentmodule:: ")[1:]
    text = "".join(block for block in blocks if block.startswith("orsched\n"))
    directive = r"^\.\. auto(?:class|function|exception|data):: (\w+)$"
    named = re.findall(directive, text, re.M)
    elsewhere = re.findall(r"^\.\. autofunction:: orsched\.[\w.]+\.(\w+)$", text, re.M)
    assert {*named, *elsewhere} >= set(orsched.__all__) - {"__version__"}
    assert set(named) <= set(orsched.__all__)
    assert sorted(named) == sorted(set(named))


@pytest.mark.parametrize("package", ["models", "models.batch", "models.full_mip"])
def test_the_public_names_of_the_models_are_documented(package, repo_root):
    pages = text_of(repo_root, "api")
    named = set(re.findall(r"^\.\. auto(?:class|function|data):: (\w+)$", pages, re.M))
    modules = re.findall(r"^\.\. automodule:: ([\w.]+)$", pages, re.M)
    for module in modules:
        named |= {name for name in vars(import_module(module)) if not name.startswith("_")}
    assert set(import_module(f"orsched.{package}").__all__) <= named


def test_every_module_that_the_page_of_the_api_names_exists(repo_root):
    modules = re.findall(r"^\.\. automodule:: (orsched\.[\w.]+)$", text_of(repo_root, "api"), re.M)
    assert len(modules) > 10
    for module in modules:
        import_module(module)


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_the_make_targets_that_are_named_exist(name, repo_root):
    targets = set(re.findall(r"^([a-z][a-z-]*):", (repo_root / "Makefile").read_text(), re.M))
    named = set(re.findall(r"\$ make ([a-z -]+[a-z])", (repo_root / name).read_text()))
    assert named
    for line in named:
        assert set(line.split()) <= targets, line


def contents(root, page="index"):
    """Return the pages of a page's contents and those of theirs, as often as they stand there."""
    blocks = "\n".join(block for _, block in re.findall(TREE, text_of(root, page), re.M))
    names = re.findall(r"^([\w-]+)$", blocks, re.M)
    return [each for name in names for each in (name, *contents(root, name))]


def test_every_page_is_in_the_contents_once(repo_root):
    pages = {page.stem for page in (repo_root / "docs").glob("*.md")} - {"index"}
    found = contents(repo_root)
    assert (set(found), len(found)) == (pages, len(pages))


def test_the_contents_are_one_list_for_each_kind_of_page(repo_root):
    found = re.findall(TREE, text_of(repo_root, "index"), re.M)
    assert [caption for caption, _ in found] == KINDS
    assert all(block.split() for _, block in found)


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


def test_every_figure_of_a_row_is_defined(repo_root):
    from orsched.metrics.flat_figures import FIGURES
    from orsched.solving.result import ROW

    rows = re.findall(r"^\| (`.*?) \| \S", text_of(repo_root, "words"), re.M)
    defined = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert {*FIGURES, *ROW} - defined == set()


def test_the_glossary_has_the_words_that_tables_and_files_use(repo_root):
    glossary = r"^:::\{glossary\}\n(.*?)^:::"
    (block,) = re.findall(glossary, text_of(repo_root, "words"), re.S | re.M)
    terms = re.findall(r"^([^\s].*)$", block, re.M)
    assert (terms[0], len(terms)) == ("client", len(set(terms)))
    wanted = [
        "TTFT", "TPOT", "JCT", "ITL", "goodput", "makespan", "gap", "bubble", "stage", "round",
        "step", "worker", "policy",
    ]  # fmt: skip
    assert {*wanted, "SLO attainment", "lower bound", "slot utilization"} <= set(terms)


def console_commands(root):
    """Return the words of each command of orsched in a console block, with its page."""
    pages = [root / "README.md", *sorted((root / "docs").glob("*.md")), *root.glob("examples/*")]
    for page in (page for page in pages if page.is_file()):
        text = page.read_text().replace("\\\n", " ")
        text += "\n".join(["", *re.findall(r"\| `(orsched [^`]*)` \|", text)])  # cells of tables
        for line in re.findall(r"^\s*\$? ?orsched ((?![^\n]*[|…]|\.)[a-z][^\n]*)$", text, re.M):
            line = line.partition("#")[0].partition(";")[0]
            yield shlex.split(line.replace(" ... ", " ")), page.name


def test_the_commands_on_the_pages_have_their_options(repo_root):
    from orsched.cli.commands import cli

    names = cli.list_commands(None)
    found = [each for each in console_commands(repo_root) if each[0][0] in names]
    assert len(found) > 60
    for words, page in found:
        command = cli.get_command(None, words[0])
        rest = words[1:]
        while rest and rest[0] in getattr(command, "commands", ()):
            command, rest = command.commands[rest[0]], rest[1:]
        known = {name for option in command.params for name in option.opts + option.secondary_opts}
        used = {word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)}
        assert used <= known | {"--help", "-h"}, f"{page}: orsched {shlex.join(words)}"


PAGES = [*readme.PAGES, "examples/README.md"]


@pytest.mark.parametrize("name", readme.PAGES)
def test_the_output_is_what_the_commands_print(name, repo_root):
    text = (repo_root / name).read_text()
    assert len(readme.BLOCK.findall(text)) == 1, name
    assert readme.current(text) == text, "python -m benchmarks.readme"


def test_other_output_is_found():
    page = "```console\n$ orsched --version\norsched 0\n```\n"
    assert readme.BLOCK.findall(page) == [("$ orsched --version\n", "orsched 0\n")]
    assert readme.BLOCK.findall("```console\n$ orsched info\n$ orsched data\n```\n") == []


@pytest.mark.parametrize("name", PAGES)
def test_the_links_lead_somewhere(name, repo_root):
    page = repo_root / name
    targets = re.findall(r"\]\(([^)\s#]+)", page.read_text())
    for target in targets:
        if target.startswith("http"):
            assert target.startswith("https://arxiv.org/abs/"), target
        else:
            assert (page.parent / target).exists(), target


def test_the_readme_is_short_and_its_picture_is_there_and_small(repo_root):
    text = (repo_root / "README.md").read_text()
    assert len(text.splitlines()) <= 92
    assert "pip install" in text
    assert len(re.findall(r"^- \*\*You .*\*\*.*\]\(", text, re.M)) == 3
    assert text.index("mixed-integer program") < text.index("polic")
    assert text.count("![") == 1
    assert readme.PICTURE.stat().st_size < 60_000
    for page, prefix in ((text, "docs/"), (text_of(repo_root, "index"), "")):
        assert f"({prefix}_static/{readme.PICTURE.name})" in page


def test_no_page_runs_a_plan_for_another_machine(repo_root):
    """A real worker follows the plan of an instance that was calibrated for it."""
    pages = [repo_root / "README.md", *(repo_root / "docs").glob("*.md")]
    for page in pages:
        for line in page.read_text().splitlines():
            if line.startswith("$ orsched run pang"):
                assert "--worker virtual" in line, page.name
