"""``python -m orsched``: the command line."""

from orsched.cli import main

main()
