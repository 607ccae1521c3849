"""Settings and fixtures that all tests share."""

from __future__ import annotations

import os
import signal
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

os.environ.setdefault("MPLBACKEND", "Agg")

import pytest
from hypothesis import HealthCheck, settings

import orsched

# In the background of a shell that has no job control Ctrl-C is ignored, and whatever is started
# here would inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Hypothesis draws constants from the modules that are loaded: load all of ours, so that what a
# test draws does not depend on the tests before it.
for _module in walk_packages(orsched.__path__, "orsched."):
    if not _module.name.endswith(".__main__") and not _module.name.startswith("orsched.runner"):
        import_module(_module.name)

# Derandomized: a run depends on the code only. The full runs look further.
_SAME = {"derandomize": True, "deadline": None, "database": None, "print_blob": True}
_SAME["suppress_health_check"] = [HealthCheck.too_slow]  # a loaded machine is no fault of a test
for _name, _examples in {"ci": 50, "full": 500}.items():
    settings.register_profile(_name, max_examples=_examples, **_SAME)
settings.load_profile("full" if os.environ.get("ORSCHED_FULL") == "1" else "ci")

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def repo_root() -> Path:
    """Root of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder with the public traces, which are not part of the repository."""
    folder = os.environ.get("ORSCHED_DATA")
    if not folder:
        pytest.skip("ORSCHED_DATA does not name the folder with the public traces")
    path = Path(folder)
    if not path.is_dir():
        pytest.fail(f"ORSCHED_DATA={folder} is not a folder")
    return path


@pytest.fixture(autouse=True)
def _keep_ctrl_c():
    """Give the next test Python's own Ctrl-C: ``main`` leaves a handler that ends the process."""
    before = signal.getsignal(signal.SIGINT)
    yield
    if signal.getsignal(signal.SIGINT) is not before:
        signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def _prove_again():
    """Forget what was proven before: a test may replace a search, and others share its instance."""
    import_module("orsched.models.bounds.bounds")._KEPT.clear()


@pytest.fixture(autouse=True)
def _close_figures():
    """Leave no matplotlib figure open for the next test."""
    yield
    import sys

    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
