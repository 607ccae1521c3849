"""What all tests of the torch worker share."""

from __future__ import annotations

import pytest

from orsched.runner.worker import graphs


@pytest.fixture(autouse=True)
def one_thread():
    """More threads only wait for one another at this size."""
    try:
        import torch
    except ImportError:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def small_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer graphs, sooner: for tests that rehearse them."""
    monkeypatch.setattr(graphs, "MOST_TOKENS", 48)
    monkeypatch.setattr(graphs, "WARM_UPS", 1)
