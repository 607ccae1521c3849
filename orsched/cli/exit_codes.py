"""Exit codes of the command line; docs/cli.md has the table."""

EXIT_INVALID = 1
EXIT_INPUT = 2
EXIT_TIME_LIMIT = 3
EXIT_FAILED_CELLS = 4
EXIT_BUG = 70
"""EX_SOFTWARE of sysexits.h."""
EXIT_MACHINE = 71
"""EX_OSERR of sysexits.h: the machine failed, not the input."""
EXIT_INTERRUPTED = 130
