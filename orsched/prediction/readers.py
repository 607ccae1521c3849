"""Files of prompts, with or without the lengths of their replies: JSON lines, JSON, Parquet."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.common.errors import InputError, file_hint, unavailable
from orsched.common.scalars import ROWS
from orsched.common.units import MAX_TOKENS
from orsched.files.cells import CellError, texts, whole_numbers
from orsched.files.document import kind as json_kind
from orsched.files.tables import read_objects
from orsched.files.text import head_of, locating, parse_json, read_bytes, read_text
from orsched.prediction.data import LabelledPrompts, Prompt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Path = str | os.PathLike[str]
    Row = tuple[int, dict[str, Any]]


LETTERS_A_TOKEN = 6  # letters of one word that the rule takes for one token

_PIECES = re.compile(r"[A-Za-z]+|\s*\n\s*|[^\sA-Za-z]")


def count_by_rule(text: str) -> int:
    """Return how many tokens the rule finds in a text.

    A run of Latin letters has one token for each six letters begun; each digit, mark or other
    character has one, and so has a break between lines; blanks have none.
    """
    return sum(
        -(-len(piece) // LETTERS_A_TOKEN) if piece.isalpha() and piece.isascii() else 1
        for piece in _PIECES.findall(text)
    )


def token_counter(tokenizer: str | os.PathLike[str] | None = None) -> Callable[[str], int]:
    """Return what counts the tokens of a text.

    ``tokenizer``: a ``tokenizer.json`` or the folder that holds it, read without running any code
    of the folder; None for the rule (``count_by_rule``). Raises ``InputError`` for no such file or
    no tokenizer, ``MissingDependencyError`` without the package ``tokenizers``.
    """
    if tokenizer is None:
        return count_by_rule
    name = os.fspath(tokenizer)
    path = os.path.join(name, "tokenizer.json") if os.path.isdir(name) else name
    if not os.path.isfile(path):
        raise InputError("the file does not exist", file=path, remedy=file_hint(path))
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        missing = "tokenizers is needed for a tokenizer's file: pip install 'orsched[runner]'"
        raise unavailable(error, missing) from None
    try:
        loaded = Tokenizer.from_file(path)
    except Exception as error:  # its own class of errors is Exception itself
        raise InputError(
            f"is not a tokenizer: {str(error)[:200]}", file=path, remedy="give a tokenizer.json"
        ) from None
    return lambda text: len(loaded.encode(text, add_special_tokens=False).ids)


_ROLES = {
    "user": "user", "human": "user", "prompter": "user",
    "assistant": "assistant", "gpt": "assistant", "bot": "assistant", "model": "assistant",
    "system": "system",
}  # fmt: skip
_NAMES = ("conversation_id", "conversation", "prompt", "instruction")
_MOST_TURNS = 10_000


def read_labelled_prompts(
    path: Path, *, tokenizer: Path | None = None, progress: Callable[[str], None] | None = None
) -> LabelledPrompts:
    """Return the rows of a file of prompts with the lengths of their replies.

    A row is a JSON object (one a line, or in one JSON list) or a row of a Parquet table, with

    - ``prompt`` (a text), ``conversation`` (messages with ``role`` and ``content``, or ``from`` and
      ``value``; the last is the user's) or ``instruction`` with ``input`` (as in Alpaca's files);
    - ``output_tokens``, or ``output``, a text whose tokens are counted;
    - if it has one, ``conversation_id``, by which rows belong together.

    A conversation that ends with a reply gives its last message's length by that reply where there
    is neither ``output_tokens`` nor ``output``. Rows whose reply is empty are left out.

    Args:
        path: the file.
        tokenizer: counts ``output``, see ``token_counter``.
        progress: called with what was read so far.

    Raises:
        InputError: names file, row (a line of text from 1, a row of a table or list from 0), field.
    """
    name = os.fspath(path)
    count = token_counter(tokenizer)
    prompts, lengths, names = [], [], []
    named = False
    for row, values in _rows(path):
        try:
            prompt, reply = prompt_of(values)
            length = _length(values, reply, count)
            names.append(_conversation_name(values, prompt))
        except InputError as error:
            raise error.located(file=name, row=row) from None
        if length == 0:
            names.pop()
            continue
        named = named or "conversation_id" in values
        prompts.append(prompt)
        lengths.append(length)
        if progress is not None and len(prompts) % 5000 == 0:
            progress(f"{len(prompts):,} prompts read")
    if not prompts:
        raise InputError("has no row with a reply", file=name, remedy="give output_tokens, 1 up")
    return LabelledPrompts(
        prompts, np.array(lengths, np.int64), names if named else None, os.path.basename(name)
    )


def read_prompts(path: Path) -> tuple[list[Prompt], list[str] | None]:
    """Return the prompts of a file in its order, and their ``id`` where all rows have one.

    Lengths are not looked at; else the file is one for ``read_labelled_prompts``.
    """
    prompts, ids = [], []
    for row, values in _rows(path):
        try:
            prompts.append(prompt_of(values)[0])
            if "id" in values:
                ids.append(str(values["id"]))
        except InputError as error:
            raise error.located(file=os.fspath(path), row=row) from None
    return prompts, ids if ids and len(ids) == len(prompts) else None


def prompt_of(values: dict[str, Any]) -> tuple[Prompt, str | None]:
    """Return the prompt of a row, and the reply that its conversation ends with, if any.

    Raises ``InputError`` that names the field.
    """
    if values.get("conversation") is not None:
        return _from_messages(values["conversation"])
    if values.get("prompt") is not None:
        return Prompt(_text(values["prompt"], "prompt")), None
    if values.get("instruction") is not None:
        text = _text(values["instruction"], "instruction")
        given = _text(values.get("input") or "", "input")
        return Prompt(f"{text}\n\n{given}" if given else text), None
    raise InputError(
        "is missing", field="prompt", remedy="each row has prompt, conversation or instruction"
    )


def _from_messages(messages: object) -> tuple[Prompt, str | None]:
    if not isinstance(messages, list) or not messages:
        raise InputError(
            "is not a list of messages", field="conversation", remedy="[{role, content}, ...]"
        )
    if len(messages) > _MOST_TURNS:
        raise InputError(
            f"more than {_MOST_TURNS:,} messages",
            field="conversation",
            remedy="cut the conversation to its last messages",
        )
    turns = [_message(item, place) for place, item in enumerate(messages)]
    reply = turns.pop()[1] if turns[-1][0] == "assistant" else None
    if not turns or turns[-1][0] != "user":
        raise InputError(
            "has no user's message at its end", field="conversation", remedy="end with the prompt"
        )
    text = turns.pop()[1]
    return Prompt(
        text,
        tuple(words for role, words in turns if role == "user"),
        tuple(words for role, words in turns if role == "assistant"),
        "\n".join(words for role, words in turns if role == "system"),
    ), reply


def _message(item: object, place: int) -> tuple[str, str]:
    field = f"conversation[{place}]"
    if not isinstance(item, dict):
        raise InputError(
            f"is {json_kind(item)}, no message",
            field=field,
            remedy="give an object with role and content",
        )
    role, words = item.get("role", item.get("from")), item.get("content", item.get("value"))
    if not isinstance(role, str) or role not in _ROLES:
        raise InputError(
            f"{str(role)[:40]!r} is not a role", field=f"{field}.role", remedy="user or assistant"
        )
    return _ROLES[role], _text(words, f"{field}.content")


def _text(value: object, field: str) -> str:
    if not isinstance(value, str):
        raise InputError(f"is {json_kind(value)}, not a text", field=field, remedy="give a text")
    return value


def _length(values: dict[str, Any], reply: str | None, count: Callable[[str], int]) -> int:
    tokens = values.get("output_tokens")
    if tokens is None:
        output = values.get("output")
        text = reply if output is None else _text(output, "output")
        if text is None:
            raise InputError(
                "is missing", field="output_tokens", remedy="give output_tokens, or output (a text)"
            )
        return min(count(text), MAX_TOKENS)
    try:
        return int(whole_numbers(texts([tokens], quoted=False))[0])
    except CellError as error:
        raise InputError(error.problem, field="output_tokens", remedy=error.remedy) from None


def _conversation_name(values: dict[str, Any], prompt: Prompt) -> str:
    name = values.get("conversation_id")
    if name is None:
        return prompt.opening()
    if isinstance(name, bool) or not isinstance(name, (str, int)):
        raise InputError(
            f"is {json_kind(name)}, not a name", field="conversation_id", remedy="a text"
        )
    return str(name)


def _rows(path: Path) -> Iterator[Row]:
    """Yield the rows of a file with their places; raises ``InputError`` that names the file."""
    name = os.fspath(path)
    if name.endswith(".parquet"):
        yield from _parquet_rows(path)
        return
    if not head_of(path).lstrip().startswith("["):
        yield from read_objects(path)
        return
    with locating(path):
        for row, value in enumerate(parse_json(read_text(path), exact=True)):
            if not isinstance(value, dict):
                raise InputError(
                    f"is {json_kind(value)}, not an object", row=row, remedy="one JSON object a row"
                )
            yield row, value


def _parquet_rows(path: Path) -> Iterator[Row]:
    name = os.fspath(path)
    raw = read_bytes(path)
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        missing = "pyarrow is needed for Parquet files: pip install 'orsched[parquet]'"
        raise unavailable(error, missing) from None
    try:
        source = pq.ParquetFile(pa.BufferReader(raw))
        with locating(path):
            ROWS.require(source.metadata.num_rows)
        wanted = (*_NAMES, "input", "output", "output_tokens", "id")
        columns = [column for column in source.schema_arrow.names if column in wanted]
        row = 0
        for batch in source.iter_batches(batch_size=1000, columns=columns):
            for values in batch.to_pylist():
                yield row, values
                row += 1
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        problem = str(error).splitlines()[0][:200]
        raise InputError(
            f"is not a Parquet file that can be read: {problem}",
            file=name,
            remedy="copy it again",
        ) from None
