"""``python -m orsched``: the command line.

Python puts the working folder before all other places of modules. It is left out again before
anything of them is imported, unless orsched itself lies in it.
"""

import os
import sys

import orsched

if __name__ == "__main__":
    home = os.path.dirname(orsched.__path__[0])
    if not sys.flags.safe_path and sys.path[0] != home and sys.path[0] == os.getcwd():
        del sys.path[0]
    from orsched.cli import main

    main()
