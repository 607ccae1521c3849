"""Which instances have a schedule at all: each request fits onto some worker."""

from __future__ import annotations

import pytest

from orsched.common.errors import InfeasibleError
from orsched.data.instance import Instance
from orsched.data.memory import BlockMemory
from orsched.data.requests import Requests
from orsched.data.workers import Worker


def test_each_request_needs_one_worker_that_fits_it():
    """The long prompt fits onto one worker, the long answer onto the other, both onto neither."""
    capped = Worker(1, prefill_cap_tokens=4, name="capped")
    small = Worker(1, memory=BlockMemory(2, 4, "whole"), name="small")
    Instance(Requests([4, 7], [9, 1]), (capped, small), first_token="decode").require_feasible()
    both = Instance(Requests([4, 7], [9, 2]), (capped, small), first_token="decode")
    with pytest.raises(InfeasibleError, match=r"request 1 \(row 1\).*4 .*capped.*3 .* 2 of small"):
        both.require_feasible()
    with pytest.raises(InfeasibleError, match=r"row 0\) needs 4 memory blocks.*the 2 of small"):
        Instance(Requests([4], [9]), small, first_token="decode").require_feasible()


def test_chunks_lift_the_limit_on_prefills_only():
    worker = Worker(1, prefill_cap_tokens=4, memory=BlockMemory(2, 4, "whole"))
    Instance(Requests([7], [1]), worker, first_token="decode").require_feasible(chunks=True)
    with pytest.raises(InfeasibleError, match="prefill_cap_tokens"):
        Instance(Requests([7], [1]), worker, first_token="decode").require_feasible()
    with pytest.raises(InfeasibleError, match="memory blocks"):
        Instance(Requests([7], [2]), worker, first_token="decode").require_feasible(chunks=True)


@pytest.mark.parametrize(("rule", "longest"), [("decode", 4), ("prefill", 5)])
def test_paged_memory_holds_the_whole_cache_at_the_end(rule, longest):
    """The token that a prefill yields is in the cache only once a round follows it."""
    worker = Worker(3, memory=BlockMemory(2, 4, "paged"))
    Instance(Requests([4], [longest]), worker, first_token=rule).require_feasible()
    with pytest.raises(InfeasibleError, match="memory blocks"):
        Instance(Requests([4], [longest + 1]), worker, first_token=rule).require_feasible()
