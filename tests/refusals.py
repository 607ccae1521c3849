"""What is refused, in a line: ``refusal(read, path).field``."""

import pytest

from orsched.common.errors import InputError


def refusal(call, *given, **named):
    """Return the error by which a call refuses what it is given."""
    with pytest.raises(InputError) as caught:
        call(*given, **named)
    return caught.value


def place(error):
    """Return the row and the field that an error names."""
    return error.row, error.field
