"""``python -m orsched``: the command line."""

from orsched.cli import main

if __name__ == "__main__":
    main()
