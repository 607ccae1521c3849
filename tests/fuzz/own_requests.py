"""Tables of requests as people have them: names, times and cells of all kinds, some wrong."""

from __future__ import annotations

import io

from orsched.instances.readers.headings import ALIASES

TIMES = ("arrival", "timestamp", "arrived_at", "arrival_s", "arrival_ms", "arrival_ns", "time_us")
ODD = ("", "x", "0", "-1", "1,5", "1.5", "NaN", "inf", "1e400", "9" * 25, "٣", "=1+1", True, None)
OTHERS = ("model", "ctx", "arival_s", "servce_class", "", "prompt", "deadline")
STARTS = (0, 0, 5, 1_700_000_000, 1_700_000_000_000, 1_700_000_000_000_000_000)


def own_rows(dice):
    """Return a heading and rows: mostly right, with what people get wrong."""
    targets = ["prompt_tokens", "output_tokens"]
    targets += [name for name in ALIASES if name not in targets and dice.random() < 0.15]
    head = [dice.choice(sorted(ALIASES[target])) for target in targets]
    timed = dice.random() < 0.7
    head += [dice.choice(TIMES)] if timed else []
    head += [dice.choice(OTHERS) for _ in range(dice.choice((0, 0, 1, 2)))]
    start, dated = dice.choice(STARTS), dice.random() < 0.2
    rows = []
    for row in range(dice.randint(1, 12)):
        cells = [_cell(dice, target, row) for target in targets]
        if timed:
            at = f"2024-05-10 09:00:{row:02}" if dated else start + row
            cells.append(at)
        cells += [dice.choice(("a", 3, "")) for _ in range(len(head) - len(cells))]
        rows.append(cells)
    if dice.random() < 0.3:
        row = dice.choice(rows)
        row[dice.randrange(len(row))] = dice.choice(ODD)
    if dice.random() < 0.1:
        dice.choice(rows).append(dice.choice(("", "7")))
    if dice.random() < 0.1:
        head[dice.randrange(len(head))] = dice.choice(head)
    order = list(range(len(head)))
    dice.shuffle(order)
    if all(len(row) == len(head) for row in rows):
        return [[line[i] for i in order] for line in [head, *rows]]
    return [head, *rows]


def _cell(dice, target, row):
    if target in ("id", "tenant"):
        return f"r{row}"
    if target == "service_class":
        return dice.choice(("interactive", "batch", 1))
    return dice.randint(1, 3_000)


def sheet_of(rows):
    """Return a spreadsheet's bytes."""
    import openpyxl

    book, out = openpyxl.Workbook(), io.BytesIO()
    for row in rows:
        book.active.append([None if cell == "" else cell for cell in row])
    book.save(out)
    return out.getvalue()
