"""A certificate is read from a file: whatever is wrong with it, it proves nothing."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, ParamSpec

from orsched.certificates.budget import BudgetError
from orsched.common.errors import TimeLimitError

if TYPE_CHECKING:
    from collections.abc import Callable

Arguments = ParamSpec("Arguments")


def proving(verify: Callable[Arguments, list[str]]) -> Callable[Arguments, list[str]]:
    """Let what a verification raises be the one reason why a certificate proves nothing."""

    @wraps(verify)
    def found(*args: Arguments.args, **options: Arguments.kwargs) -> list[str]:
        try:
            return verify(*args, **options)
        except BudgetError as error:
            return [str(error)]
        except TimeLimitError:  # the command's deadline, which may ring anywhere
            raise
        except Exception as error:
            return [f"the certificate is malformed: {error!r}"]

    return found
