"""What is refused, in a line: ``refusal(read, path).field``."""

import pytest

from orsched.common.errors import InputError


def refused(said, call, *given, kind=InputError, **named):
    """Return the error with which a call is refused; the pattern ``said`` is in its text."""
    with pytest.raises(kind, match=said or None) as caught:
        call(*given, **named)
    return caught.value


def refusal(call, *given, **named):
    """Return the error by which a call refuses what it is given, a ``kind`` of its own as well."""
    with pytest.raises(InputError) as caught:
        call(*given, **named)
    return caught.value


def place(error):
    """Return the row and the field that an error names."""
    return error.row, error.field
