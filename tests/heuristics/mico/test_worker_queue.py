"""The line of waiting requests against a sorted list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orsched.heuristics.mico.worker_scheduler import WorkerQueue

KEYS = st.tuples(st.integers(0, 3), st.integers(0, 9))


@given(st.lists(st.one_of(st.none(), st.lists(KEYS, min_size=1, max_size=5)), max_size=20))
def test_the_smallest_key_is_next(waves):
    """A wave of keys is put, None takes one out."""
    line, model, number = WorkerQueue(), [], 0
    for wave in waves:
        if wave is None and model:
            expected = model.pop(0)[2]
            assert line.first() == expected
            assert line.pop() == expected
        elif wave is not None:
            keys = [(rank, arrival, number + i) for i, (rank, arrival) in enumerate(wave)]
            number += len(wave)
            line.extend(keys)
            model = sorted(model + keys)
        assert len(line) == len(model)
    assert [line.pop() for _ in model] == [key[2] for key in model]
