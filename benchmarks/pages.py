"""The tables of pages, and the numbers in their cells."""

from __future__ import annotations

import re

NUMBER = re.compile(r"(?<![\w+-])(?<!\d\.)[+-]?\d[\d,]*(?:\.\d+)?(?!\w)")


def tables(text: str, heading: str) -> list[list[list[str]]]:
    """Return the tables of a section as rows of cells, the head first.

    Those between bars, and those that stand as they are printed: two spaces or more between cells.
    """
    found: list[list[list[str]]] = []
    here, fence, before = False, "", []
    for line in text.splitlines():
        if line.startswith("```"):
            fence, cells = "" if fence else line[3:], []
        elif line.startswith("#") and not fence:
            here, cells = line.lstrip("# ") == heading, []
        elif fence == "text":
            cells = re.split(" {2,}", line.strip()) if "  " in line.strip() else []
        else:
            cells = [cell.strip() for cell in line.strip("|").split("|")] if line[:1] == "|" else []
        if here and cells:
            if not before:
                found.append([cells])
            elif set("".join(cells)) - set(":- "):
                found[-1].append(cells)
        before = cells
    return found


def numbers(line: str) -> list[str]:
    """Return the numbers in a line, without commas."""
    line = line.replace("\N{PLUS-MINUS SIGN}", " ").replace("\N{MINUS SIGN}", "-")
    return [text.replace(",", "") for text in NUMBER.findall(line)]
