"""The page of the pieces: written from the table, and every cell of it runs."""

import pytest

from benchmarks import pieces

NAMES = [piece.noun for piece in pieces.PIECES]


def test_the_page_is_what_the_table_says():
    text = pieces.PAGE.read_text(encoding="utf-8")
    assert pieces.page(text) == text, "python -m benchmarks.pieces"


@pytest.mark.parametrize("piece", pieces.PIECES, ids=NAMES)
def test_the_python_line_runs_and_its_picture_is_there(piece):
    assert len(repr(piece.value())) < 400
    assert piece.draw is None or piece.picture.stat().st_size < 100_000


@pytest.mark.parametrize("piece", pieces.PIECES, ids=NAMES)
def test_the_commands_run(piece, capsys):
    assert set(pieces.run(piece)) == {0}
    assert capsys.readouterr().out or "-o" in " ".join(piece.commands)
