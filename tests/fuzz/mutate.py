"""Structured mutation of a document and of its bytes; tables of requests as people have them."""

import copy
import io
import json

from orsched.instances.readers.headings import ALIASES

NUMBERS = (
    0, -1, 1, 2, 3, 7, 0.5, -0.0, 1e300, 5e-324, 2**31 - 1, 2**31, 2**53 + 1, 2**62, 2**62 + 1,
    2**63 - 1, 2**63, 2**64, -(2**63), 10**30, 99_999_999,
)  # fmt: skip
TEXTS = (
    "", " ", "a", "0", "-1", "1e5", "=HYPERLINK(1)", "\x1b]0;x\x07", "\0", "é日🙂", "$\\frac{$",
    "../../etc/passwd", "/dev/zero", "/dev/null", "this:s", "subprocess:Popen", "os:system",
    "fcfs", "vllm", "two-by-two", "prefill", "decode", "clairvoyant", "none", "affine", "levels",
    "poisson:rate=2", "gamma:rate=1,cv=9", "0:3", "0:99999999999", "x" * 300, "orsched/trace",
)  # fmt: skip
RAW = (
    "NaN", "-Infinity", "1e400", "1e9999999999999999999", "-1e-9999999999999999999", "01", "1_000",
    "0x10", "\u0663", "9" * 5_000, "[" * 3_000, '{"a":1,"a":2}', '"\\ud800"', '"\ud800"', "1.", "",
    "null", "true", "1e2", '"' + "x" * 200_000 + '"', "[[[[[[[[1]]]]]]]]", "{}", "[]",
)  # fmt: skip
PIECES = (
    b"", b",", b"\n", b"\r", b'"', b"{", b"}", b"[", b"]", b":", b"-", b"1e9", b"NaN", b"null",
    b"\xff", b"\0", b"\xef\xbb\xbf", b"\xd9\xa3", b"1_000", b"=", b";", b"\t", b"9" * 40,
)  # fmt: skip
_MARK = "\x01raw"


def mutated(document, dice):
    """Return a copy of an object or a list with some changes at random places inside, or none."""
    root = copy.deepcopy(document)
    for _ in range(dice.choice((0, 1, 1, 1, 1, 1, 2, 2, 3))):
        found = places(root)
        if found:
            _change(*dice.choice(found), root, dice)
    if dice.random() < 0.1:
        magnify(root, dice)
    return root


def magnify(root, dice):
    """Make some numbers of a document large, as a small file states them that asks for much."""
    found = [(h, k) for h, k in places(root) if isinstance(h[k], (int, list)) and h[k] is not True]
    for holder, key in dice.sample(found, min(len(found), dice.choice((1, 2, 4)))):
        holder[key] = _times(holder[key], 2 ** dice.choice((8, 16, 24, 30)))


def _times(value, factor):
    """Multiply the whole numbers in a value, up to the largest count that an instance may hold."""
    if isinstance(value, list):
        return [_times(item, factor) for item in value]
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return max(value, min(value * factor, 2**31 - 1))
    return value


def places(root):
    """Return (container, key) of each value; long lists count as a few."""
    found, left = [], [root]
    while left:
        holder = left.pop()
        keys = list(holder) if isinstance(holder, dict) else range(min(len(holder), 30))
        for key in keys:
            found.append((holder, key))
            if isinstance(holder[key], (dict, list)):
                left.append(holder[key])
    return found


def _change(holder, key, root, dice):
    old = holder[key]
    if isinstance(old, list) and dice.random() < 0.5:
        holder[key] = _other_list(old, dice)
    elif isinstance(old, int) and not isinstance(old, bool) and dice.random() < 0.6:
        holder[key] = dice.choice((old + 1, old - 1, -old, 2 * old, old // 2, old * 1000, 0, 1))
    elif dice.random() < 0.25:
        _rename_or_drop(holder, key, dice)
    else:
        holder[key] = _value(root, dice)


def _value(root, dice):
    draw = dice.random()
    if draw < 0.35:
        return dice.choice(NUMBERS)
    if draw < 0.6:
        return dice.choice(TEXTS)
    if draw < 0.75:
        return f"{_MARK}{dice.randrange(len(RAW))}"
    if draw < 0.9:
        other, key = dice.choice(places(root))
        return copy.deepcopy(other[key])
    return dice.choice((None, True, False, [], {}, [[]], [1, "a"], {"a": 1}))


def _other_list(old, dice):
    new = list(old)
    kind = dice.randrange(7)
    if kind == 5 and new:
        new[dice.randrange(len(new))] = dice.choice((*NUMBERS, *TEXTS, None, True, [1]))
        return new
    changes = (
        lambda: new[: len(new) // 2], lambda: new * dice.choice((2, 3, 50)), lambda: new[::-1],
        lambda: dice.sample(new, len(new)), lambda: [*new, dice.choice(NUMBERS)],
    )  # fmt: skip
    return changes[kind]() if kind < 5 else [dice.choice(NUMBERS) for _ in new]


def _rename_or_drop(holder, key, dice):
    value = holder.pop(key) if dice.random() < 0.8 else holder[key]
    if isinstance(holder, dict) and dice.random() < 0.5:
        holder[dice.choice((*TEXTS, *holder, f"{key}s"))] = value
    elif isinstance(holder, list) and dice.random() < 0.5:
        holder.insert(dice.randrange(len(holder) + 1), value)


def json_bytes(document, dice):
    """Return a document as JSON text, with what no dumper would write, sometimes damaged."""
    if dice.random() < 0.01:
        document = dice.choice((None, 0, "x", [], {}, [document]))
    text = json.dumps(document, ensure_ascii=dice.random() < 0.5)
    for number, raw in enumerate(RAW):
        mark = json.dumps(f"{_MARK}{number}")
        if mark in text:
            text = text.replace(mark, raw)
    content = text.encode("utf-8", "surrogatepass")
    return damaged(content, dice) if dice.random() < 0.15 else content


def damaged(content, dice):
    """Return bytes with a few pieces cut, replaced or put in."""
    for _ in range(dice.choice((1, 1, 2, 3))):
        start = dice.randrange(len(content) + 1)
        width = dice.choice((0, 0, 1, 2, 10, 1000))
        content = content[:start] + dice.choice(PIECES) + content[start + width :]
    return content


def without_marks(document):
    """Return a document whose raw texts are plain ones, for what takes no text."""
    if isinstance(document, dict):
        return {key: without_marks(value) for key, value in document.items()}
    if isinstance(document, list):
        return [without_marks(value) for value in document]
    if isinstance(document, str) and document.startswith(_MARK):
        return "raw"
    return document


def toml_text(table):
    return "".join(f"{json.dumps(key)} = {_toml(value)}\n" for key, value in table.items())


def _toml(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, str) and value.startswith(_MARK):
        return RAW[int(value[len(_MARK) :])]
    return json.dumps(value)


TIMES = ("arrival", "timestamp", "arrived_at", "arrival_s", "arrival_ms", "arrival_ns", "time_us")
ODD = ("", "x", "0", "-1", "1,5", "1.5", "NaN", "inf", "1e400", "9" * 25, "٣", "=1+1", True, None)
OTHERS = ("model", "ctx", "arival_s", "servce_class", "", "prompt", "deadline")
STARTS = (0, 0, 5, 1_700_000_000, 1_700_000_000_000, 1_700_000_000_000_000_000)


def own_rows(dice):
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
            cells.append(f"2024-05-10 09:00:{row:02}" if dated else start + row)
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
    import openpyxl

    book, out = openpyxl.Workbook(), io.BytesIO()
    for row in rows:
        book.active.append([None if cell == "" else cell for cell in row])
    book.save(out)
    return out.getvalue()
