"""What is refused, and what is said of it."""

import pytest

from orsched.common.errors import InputError


def refused(said, call, *given, kind=InputError, **named):
    """Return the error with which a call is refused; the pattern ``said`` is in its text."""
    with pytest.raises(kind, match=said or None) as caught:
        call(*given, **named)
    return caught.value
