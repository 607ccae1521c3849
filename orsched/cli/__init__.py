"""The command line ``orsched``: solve, simulate, bound, compare, check, report, generate and more.

Results go to stdout, progress and messages to stderr. Exit codes: 0 done, 1 a schedule is not
valid, 2 bad input, 3 time limit without a schedule, 130 interrupted.
"""

from orsched.cli.main import cli, main

__all__ = ["cli", "main"]
