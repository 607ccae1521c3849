"""Instances with links and schedules with transfers in files, and what is wrong with links."""

import json
from importlib.resources import files

import jsonschema
import pytest

from orsched import BlockMemory, Instance, PrefixCache, Requests, Worker
from orsched.common.errors import InfeasibleError, InputError
from orsched.data.links import Link, read_link
from orsched.files import load_instance, load_schedule, save_instance, save_schedule
from orsched.simulator import simulate_policy
from tests.pools import pool_instance, pool_policy
from tests.refusals import refusal

SUFFIXES = (".json", ".parquet")


def make(*workers, link=None):
    return Instance(Requests([10], [3]), workers, "decode", link=link)


def schema(kind):
    return json.loads(files("orsched.files.schemas").joinpath(f"{kind}.schema.json").read_text())


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("seed", range(6))
def test_files_hold_roles_links_and_transfers(tmp_path, seed, suffix):
    instance = pool_instance(seed)
    schedule = simulate_policy(instance, pool_policy(seed)).schedule
    one, two = tmp_path / f"instance{suffix}", tmp_path / f"schedule{suffix}"
    save_instance(instance, one)
    save_schedule(schedule, two)
    again = load_instance(one)
    assert again == instance
    assert again.sha256 == instance.sha256
    assert [worker.role for worker in again.workers] == [w.role for w in instance.workers]
    assert load_schedule(two).transfers == schedule.transfers
    assert load_schedule(two).work == schedule.work
    if suffix == ".json":
        jsonschema.validate(json.loads(one.read_text()), schema("instance"))
        jsonschema.validate(json.loads(two.read_text()), schema("schedule"))


def test_files_without_roles_are_as_before_and_links_are_part_of_the_problem(tmp_path):
    """What does not use links has neither their fields nor another hash."""
    instance = make(Worker(2))
    save_instance(instance, tmp_path / "a.json")
    document = json.loads((tmp_path / "a.json").read_text())
    assert "link" not in document
    assert not {"role", "device"} & set(document["workers"][0])
    assert instance.sha256[:8] == "932b492e"  # as before there were links
    workers = (Worker(2, role="prefill"), Worker(2, role="decode"))
    links = (Link(), Link(ns_per_token=1), Link(ns_per_token=0, latency_ns=1))
    both = make(Worker(2), Worker(2), link=Link())
    assert len({make(*workers, link=link).sha256 for link in links} | {both.sha256}) == 4


@pytest.mark.parametrize(("spec", "link"), [
    ("free", Link()), ("ns_per_token=7", Link(ns_per_token=7)),
    ("ns_per_token=5243,latency_ns=10000", Link(ns_per_token=5243, latency_ns=10_000)),
    # Llama 3 8B: 2 x 32 layers x 8 heads x 128 numbers of 2 bytes; 25 GB/s
    ("bandwidth=25e9,kv_bytes=131072,latency=1e-5", Link(ns_per_token=5243, latency_ns=10_000)),
    ({"ns_per_token": 3, "latency_ns": 4}, Link(ns_per_token=3, latency_ns=4)),
    (Link(ns_per_token=5), Link(ns_per_token=5)),
])  # fmt: skip
def test_links_are_read(spec, link):
    assert read_link(spec) == link


@pytest.mark.parametrize(("spec", "field"), [
    ("fast", "link"), (3, "link"), ("ns_per_token=-1", "ns_per_token"),
    ("ns_per_token=x", "ns_per_token"), ("speed=3", "speed"), ("bandwidth=25e9", "kv_bytes"),
    ("bandwidth=0,kv_bytes=2", "bandwidth"), ("bandwidth=1,kv_bytes=2,latency=-1", "latency"),
    ("bandwidth=1,kv_bytes=2,ns_per_token=1", "ns_per_token"),
])  # fmt: skip
def test_wrong_links_are_located(spec, field):
    assert refusal(read_link, spec).field == field


PREFIXED = BlockMemory(100, 16, "paged", PrefixCache())


@pytest.mark.parametrize(("workers", "link", "field"), [
    ([Worker(1, role="prefill"), Worker(1)], None, "workers[0].role"),
    ([Worker(1, device="a"), Worker(1, device="a")], None, "workers[0].device"),
    ([Worker(1, role="prefill")], Link(), "workers"),
    ([Worker(1, role="decode")], Link(), "workers"),
    ([Worker(1, memory=BlockMemory(100, 16, "whole"))], Link(), "workers[0].memory"),
    ([Worker(1), Worker(1, memory=PREFIXED)], Link(), "workers[1].memory"),
    ([Worker(1, padding=True)], Link(), "workers[0].padding"),
    ([Worker(1, available_ns=((5, None),))], Link(), "workers[0].available_ns"),
    ([Worker(1)], "free", "link"),
])  # fmt: skip
def test_instances_that_cannot_be(workers, link, field):
    assert refusal(make, *workers, link=link).field == field


def test_unknown_roles_are_refused_and_links_by_runs_and_plans():
    assert "both, prefill, decode" in str(refusal(Worker, 1, role="encode"))
    with pytest.raises(InputError, match="does not support caches that change workers"):
        make(Worker(1), link=Link()).require_steady("a run")


def test_a_request_has_to_fit_into_both_pools():
    small = BlockMemory(1, 4, "paged")
    for roles in (("prefill", "decode"), ("decode", "prefill")):
        workers = (Worker(1, role=roles[0], memory=small), Worker(1, role=roles[1]))
        with pytest.raises(InfeasibleError, match="fits onto no worker"):
            make(*workers, link=Link()).require_feasible()
