"""Words, sentences and banned words of everything that users read.

python -m benchmarks.prose [NAME ...] prints a row for README, CONTRIBUTING and each page, and one
for the help of all commands and the docstrings of public names. ``words`` are all words of a page
with its tables and code; sentences are those of its prose. Result pages are generated and counted
apart. ``--faults NAME ...`` prints what the style test refuses in the named texts, and
``--strings`` the strings of the library that hold banned words.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.speed.section import table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("orsched", "models", "heuristics", "instances", "runner")
MEAN, LONGEST = 25, 40
"""The most words of a sentence: on average on a page, and of any."""
COMPARED = "longer|more|less|fewer|better|worse|later|earlier|larger|smaller|shorter|slower|faster"
BANNED = re.compile(
    r"\b(?:nobody|whoever|somebody|anew|of yours|if wanted|stands(?! for)|dear(?:er)?|alike|surely"
    r"|simply|just|of course|made (?:large|small)"
    r"|(?:is|are) there(?! (?:an?|any|no|enough|more)\b)"
    rf"|(?<!there )(?:is|are) no(?! (?:{COMPARED})\b))\b",
    re.IGNORECASE,
)
SHORTENED = re.compile(r"\b(al|e\.g|i\.e|cf|vs|eq|eqs|Fig|Figs|Sec|no|approx|resp)\.\s")
ITEM = re.compile(r"\s*(?:[-*+]|\d+\.|:)\s+| {4}[\w*][\w*,. ]{0,50}: |[A-Z][a-z]+:$")
"""How an item of a list, an attribute or argument, and the heading above these begin."""
END = re.compile(r"(?<=[.!?])[\"')\]*_`]*\s+(?=[\"'(\[*_`$]*[A-Z0-9])")


class Text(NamedTuple):
    """A text that users read: its name, itself, and what kind it is."""

    name: str
    text: str
    kind: str


def pages() -> Iterator[Text]:
    """Yield README, CONTRIBUTING and the pages of the documentation."""
    beside = (ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "LAYOUT"))
    for path in (*beside, *sorted(ROOT.glob("docs/*.md"))):
        kind = "generated" if path.name.startswith("results-") else "page"
        yield Text(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"), kind)


def helps() -> Iterator[Text]:
    """Yield the help of each command, its options behind it."""
    from orsched.cli import cli

    def below(command: Any, path: str) -> Iterator[Text]:
        options = [getattr(option, "help", None) or "" for option in command.params]
        yield Text(f"{path} --help", "\n\n".join([command.help or "", *options]), "help")
        for name in command.list_commands(None) if hasattr(command, "list_commands") else ():
            yield from below(command.get_command(None, name), f"{path} {name}")

    yield from below(cli, "orsched")


def docstrings() -> Iterator[Text]:
    """Yield the docstrings of the public names."""
    import orsched

    for name in sorted(set(orsched.__all__) - {"__version__"}):
        what = getattr(orsched, name)
        found = [inspect.getdoc(what)] if callable(what) else []
        if inspect.isclass(what):
            members = (m for k, m in vars(what).items() if not k.startswith("_"))
            found += [inspect.getdoc(m) for m in members if callable(m) or isinstance(m, property)]
        yield Text(f"orsched.{name}", "\n\n".join(filter(None, found)), "docstring")


def texts() -> list[Text]:
    """Return all of them."""
    return [*pages(), *helps(), *docstrings()]


def blocks(text: str) -> list[str]:
    """Return the paragraphs and items of a text without code, tables, comments and headings."""
    text = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.S)
    text = re.sub(
        r"^( *)(`{3,}|~{3,})(?!\S*\{(?:note|tip|warning)).*?^\1\2 *$", "\n", text, flags=re.S | re.M
    )
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    text = re.sub(r"\$\$.*?\$\$", " Formula ", text, flags=re.S)
    text = re.sub(r"!\[(.*?)\]\(.*?\)", "", text, flags=re.S)
    text = re.sub(r"\[\]\([^)]*\)", "Page", text)
    text = re.sub(r"\[([^\]]*)\]\([^)\s]*\)", r"\1", text)
    text = re.sub(r"``[^`]+``|`[^`]+`", "Code", text)
    text = re.sub(r"\$[^$\n]+(?:\n[^$\n]+)?\$", "Formula", text)
    found: list[list[str]] = [[]]
    for line in text.splitlines():
        item = ITEM.match(line)
        bare = line.strip()
        skipped = bare.startswith(("|", "#", ":::", ">>>", "... "))
        if not bare or item or skipped:
            found.append([])
        if bare and not skipped:
            found[-1].append(line[item.end() :].strip() if item else bare)
    return [" ".join(block) for block in found if block]


def sentences(text: str) -> list[str]:
    """Return the sentences of a text; fragments of fewer than three words count as none."""
    found = []
    for block in blocks(text):
        block = SHORTENED.sub(lambda m: m[1].replace(".", "") + " ", block)
        found += [each for each in END.split(block) if len(words(each)) > 2]
    return found


def words(text: str) -> list[str]:
    """Return the words of a sentence: what holds a letter or a digit."""
    return [word for word in text.split() if re.search(r"\w", word)]


def banned(text: str) -> list[str]:
    """Return the banned words of a text's prose, each with the words beside it."""
    whole = "\n".join(blocks(text))
    return [whole[max(0, m.start() - 30) : m.end() + 30].replace("\n", " ")
            for m in BANNED.finditer(whole)]  # fmt: skip


def faults(text: Text) -> list[str]:
    """Return what STYLE refuses in a text: banned words, long sentences, a long mean."""
    found = [f"banned: ...{each}..." for each in banned(text.text)]
    lengths = {each: len(words(each)) for each in sentences(text.text)}
    found += [f"{n} words: {each}" for each, n in lengths.items() if n > LONGEST]
    mean = sum(lengths.values()) / len(lengths) if lengths else 0
    if mean > MEAN and text.kind in ("page", "generated"):
        found.append(f"a sentence has {mean:.1f} words on average, the most is {MEAN}")
    return found


def row(name: str, kind: str, several: Sequence[Text]) -> dict[str, object]:
    """Return the figures of one text or of several."""
    lengths = [len(words(s)) for each in several for s in sentences(each.text)]
    return {
        "text": name,
        "kind": kind,
        "texts": len(several),
        "words": sum(len(each.text.split()) for each in several),
        "sentences": len(lengths),
        "mean": round(sum(lengths) / len(lengths), 1) if lengths else None,
        "longest": max(lengths, default=None),
        f"above {LONGEST}": sum(n > LONGEST for n in lengths),
        "banned": sum(len(banned(each.text)) for each in several),
    }


def library_strings() -> Iterator[tuple[str, str]]:
    """Yield the strings of the library that hold banned words, with file and line."""
    for folder in FOLDERS:
        for path in sorted(path for path in (ROOT / folder).rglob("*.py") if not path.is_symlink()):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                text = node.value if isinstance(node, ast.Constant) else None
                if isinstance(text, str) and BANNED.search(text):
                    yield f"{path.relative_to(ROOT).as_posix()}:{node.lineno}", text


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and print."""
    parser = argparse.ArgumentParser(prog="prose", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", nargs="*", help="texts whose names hold one of these; default: all")
    parser.add_argument("--faults", action="store_true", help="print what is refused")
    parser.add_argument("--strings", action="store_true", help="banned words of the library")
    given = parser.parse_args(arguments)
    if given.strings:
        print("\n".join(f"{place}: {text!r}" for place, text in library_strings()))
        return 0
    chosen = [t for t in texts() if not given.name or any(name in t.name for name in given.name)]
    if given.faults:
        print("\n".join(f"{each.name}: {fault}" for each in chosen for fault in faults(each)))
        return 0
    found = [
        row(each.name, each.kind, [each]) for each in chosen if each.kind in ("page", "generated")
    ]
    for kind in ("page", "generated", "help", "docstring"):
        several = [each for each in chosen if each.kind == kind]
        found += [row(f"all of kind {kind}", kind, several)] if several else []
    print("\n".join(table(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
