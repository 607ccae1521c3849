"""What all tests of the torch worker share."""

from importlib.util import find_spec

import pytest

from orsched.runner.worker import graphs

if not (find_spec("torch") and find_spec("transformers")):  # the extra 'runner' is not installed
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(autouse=True)
def one_thread():
    """More threads only wait for one another at this size."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def small_graphs(monkeypatch):
    """Fewer graphs, sooner: for tests that rehearse them."""
    monkeypatch.setattr(graphs, "MOST_TOKENS", 48)
    monkeypatch.setattr(graphs, "WARM_UPS", 1)
