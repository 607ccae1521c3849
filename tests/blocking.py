"""Programs that run as if some packages were not installed."""

import os
import subprocess
import sys

_PREFIX = """
import sys
from itertools import chain

class Without:
    # finds what the other finders find, but for what is blocked: to all that ask it is missing

    def __init__(self, others):
        self.others = others

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            return None
        found = (other.find_spec(name, path, target) for other in self.others)
        return next((spec for spec in found if spec is not None), None)

    def find_distributions(self, *context):
        able = [other for other in self.others if hasattr(other, "find_distributions")]
        return chain.from_iterable(other.find_distributions(*context) for other in able)

    def invalidate_caches(self):
        pass

sys.meta_path[:] = [Without(list(sys.meta_path))]
for name in BLOCKED:
    try:
        __import__(name)
    except ImportError:
        continue
    raise SystemExit(f"{name} is not blocked")
"""


def run_without(blocked, program, folder, timeout=300):
    """Run a program, which finds ``BLOCKED`` set, in a folder; return the finished process."""
    paths = os.pathsep.join(path for path in sys.path if path)
    line = [sys.executable, "-c", f"BLOCKED = {tuple(blocked)!r}\n{_PREFIX}\n{program}"]
    place = {"cwd": folder, "env": {**os.environ, "PYTHONPATH": paths}}
    return subprocess.run(line, **place, capture_output=True, text=True, timeout=timeout)
