"""How late requests may be, by hand and against schedules that are made later."""

import numpy as np
import pytest

import orsched
from orsched import AffineCost, InputError, Instance, Requests, Worker
from orsched.models.bounds.request_slack import request_slack
from tests.in_order import in_order
from tests.models.full_mip.small import random_instance
from tests.refusals import refused
from tests.seeds import seeds
from tests.views import samples

COST = in_order(AffineCost, 10, 0, 5, 0)


def two_workers(arrivals=(0, 0, 0)):
    """Requests 0 and 2 on the first worker, 1 on the second."""
    requests = Requests([1, 1, 1], [4, 2, 6], arrival_ns=list(arrivals))
    return Instance(requests, workers=(Worker(1, COST),) * 2, first_token="decode")


def test_only_the_worker_that_ends_last_is_critical():
    instance = two_workers()
    schedule = orsched.simulate(instance, "fcfs", parameters={"dispatch": "round_robin"}).schedule
    found = request_slack(instance, schedule)
    # Worker 0: 10 + 4 x 5, then 10 + 6 x 5, in all 70; worker 1: 10 + 2 x 5 = 20.
    assert schedule.makespan_ns == 70
    assert found.slack_ns.tolist() == [0, 50, 0]
    assert found.finish_slack_ns.tolist() == [0, 50, 0]
    assert found.late_ns.tolist() == [0, 50, 30]  # request 2 waits 30 anyway
    assert found.critical == [0, 2]
    nodes = found.graph.nodes
    assert sum(nodes[each]["duration_ns"] for each in found.path) == 70
    assert found.to_pandas()["critical"].tolist() == [True, False, True]
    assert "2 of 3 requests are critical" in repr(found)


def test_a_gap_before_an_arrival_is_slack_of_what_comes_before():
    instance = two_workers((0, 0, 45))
    schedule = orsched.simulate(instance, "fcfs", parameters={"dispatch": "round_robin"}).schedule
    found = request_slack(instance, schedule)
    # Worker 0 is idle from 30 to 45 and ends at 85.
    assert found.slack_ns.tolist() == [15, 65, 0]
    assert len(found.path) == 2


@pytest.mark.parametrize("seed", seeds(8, 20))
def test_with_one_worker_what_comes_behind_the_last_gap_is_critical(seed):
    instance = random_instance(seed)
    schedule = orsched.simulate(instance, "fcfs").schedule
    found, steps = request_slack(instance, schedule), schedule.steps
    idle = steps.start_ns[1:] - steps.end_ns[:-1]
    for row in range(len(steps)):
        latest = found.graph.nodes[row]["latest_end_ns"]
        assert latest - steps.end_ns[row] == idle[row:].sum()
    assert (found.late_ns >= found.slack_ns).all()


def test_caches_on_links_are_nodes_with_a_slack():
    instance, schedule = samples.transferred(2)
    found = request_slack(instance, schedule)
    sent = [node for node in found.graph if isinstance(node, tuple)]
    assert len(sent) == len(schedule.transfers)
    nodes = found.graph.nodes
    for node in sent:
        assert nodes[node]["latest_end_ns"] >= nodes[node]["end_ns"]
        assert {"request"} <= {r for _, _, d in found.graph.in_edges(node, data=True)
                               for r in d["reasons"]}  # fmt: skip
    ends = [nodes[node]["latest_end_ns"] - nodes[node]["end_ns"] for node in found.graph]
    assert min(ends) == 0


def test_no_request_has_none_and_other_schedules_are_refused():
    instance = samples.empty()[0]
    found = request_slack(*samples.empty())
    assert (found.critical, found.path) == ([], ())
    assert found.to_pandas().columns[0] == "request"
    other = orsched.simulate(two_workers(), "fcfs").schedule
    refused("", request_slack, instance, other, kind=InputError)


def test_the_picture_frames_what_is_critical_and_shows_the_slack():
    instance = two_workers()
    schedule = orsched.simulate(instance, "fcfs", parameters={"dispatch": "round_robin"}).schedule
    axes = request_slack(instance, schedule).plot()
    by_gid = {each.get_gid(): each for each in axes.collections}
    assert len(by_gid["critical"].get_paths()) == 4  # prefill and decode of requests 0 and 2
    ((line,),) = [by_gid["slack"].get_segments()]
    np.testing.assert_allclose(line[:, 0], [20e-9, 70e-9])
