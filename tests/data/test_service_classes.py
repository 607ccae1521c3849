"""Service classes and tenants as data: limits, names, views; workers by role in scenarios."""

import json

import pytest

import orsched
from orsched import Instance, Link, Policy, Requests, ServiceClass, Worker, simulate
from orsched.cli.commands import run as run_command
from orsched.data.links import Split, read_split
from orsched.data.service_classes import DEFAULT_CLASSES, read_class, with_specs
from orsched.heuristics.pang import FirstComeFirstServed
from orsched.planning.study import run
from orsched.solving.scenario import read_workers, scenario, worker_files
from orsched.views.html import limit_text
from tests.decoding import decoding
from tests.refusals import place, refusal

ONE = decoding([1], [1], Worker(1))


def test_limits_in_seconds_are_stored_in_nanoseconds():
    kind = ServiceClass("chat", ttft_s=1, tpot_s=0.05)
    assert (kind.ttft_ns, kind.tpot_ns, kind.deadline_ns) == (10**9, 5 * 10**7, None)
    assert kind == ServiceClass("chat", ttft_ns=10**9, tpot_ns=5 * 10**7)
    assert kind == read_class("chat:ttft=1,tpot=0.05") == ServiceClass.from_dict(kind.to_dict())
    assert limit_text(kind) == "TTFT 1 s, TPOT 0.05 s"


def test_a_class_without_limits_on_tokens_is_bulk_unless_it_is_interactive():
    assert [kind.bulk for kind in DEFAULT_CLASSES] == [False, True]
    assert read_class("nightly:deadline=3600").bulk
    assert not read_class("nightly:bulk=false").bulk
    assert not read_class("chat:tpot=1").bulk
    assert not any(kind.has_limits for kind in DEFAULT_CLASSES)
    assert read_class("nightly:deadline=3600").has_limits


def of_tenant(tenant, tenants=None):
    return Requests([1, 1], [1, 1], tenant=tenant, tenants=tenants)


def of_group(group, groups=None):
    return Requests([1, 1], [1, 1], group=group, groups=groups)


@pytest.mark.parametrize(("make", "field", "row", "says"), [
    (lambda: ServiceClass("a", ttft_s=-1), "ttft_s", None, "negative"),
    (lambda: ServiceClass("a", tpot_s=float("nan")), "tpot_s", None, "not a finite"),
    (lambda: ServiceClass("a", deadline_ns=-1), "deadline_ns", None, "below 0"),
    (lambda: ServiceClass("a", ttft_s=1, ttft_ns=1), "ttft_s", None, "in seconds and"),
    (lambda: ServiceClass(""), "name", None, "is not a name"),
    (lambda: ServiceClass(7), "name", None, "is not a name"),
    (lambda: ServiceClass("a", bulk=1), "bulk", None, "truth value"),
    (lambda: read_class("a:tft=1"), "class", None, "no limit 'tft'"),
    (lambda: read_class("a:ttft=soon"), "class.ttft_s", None, "is not a number"),
    (lambda: read_class("a:ttft"), "class", None, "is not NAME=VALUE"),
    (lambda: read_class(":ttft=1"), "class", None, "is not a name"),
    (lambda: with_specs(DEFAULT_CLASSES, ["a:ttft=1", "a"]), "class", None, "given twice"),
    (lambda: ONE.replace(classes=[]), "classes", None, ""),
    (lambda: ONE.replace(classes="interactive"), "classes", None, ""),
    (lambda: ONE.replace(classes=["interactive"]), "classes", 0, ""),
    (lambda: of_tenant([0]), "tenant", None, ""), (lambda: of_tenant(["a", 1]), "tenant", 1, ""),
    (lambda: of_tenant(["a", "1"]), "tenant", 1, ""),
    (lambda: of_tenant(["a", ""]), "tenant", 1, ""),
    (lambda: of_tenant([0, 1], ["a", "a"]), "tenants", 1, ""),
    (lambda: of_tenant([0, 1], "ab"), "tenants", None, ""),
    (lambda: of_tenant(None, ["a"]), "tenants", None, ""),
    (lambda: of_group(["a", 1]), "group", 1, "is among names"),
    (lambda: of_group(["a", "1"]), "group", 1, "'1' is not a name of a group"),
    (lambda: of_group([0, 2], ["a", "b"]), "group", 1, "2 is above 1"),
    (lambda: of_group(None, ["a"]), "groups", None, "without the column 'group'"),
])  # fmt: skip
def test_wrong_classes_and_tenants_are_located(make, field, row, says):
    """More of them, of instances and in files, stand in the table of malformed files."""
    error = refusal(make)
    assert place(error) == (row, field)
    assert says in error.problem


def test_classes_replace_those_of_their_name_and_others_come_behind():
    assert "known: interactive, batch" in str(refusal(ONE.class_code, "chat"))
    instance = ONE.with_classes("interactive:ttft=1", "code")
    assert [kind.name for kind in instance.classes] == ["interactive", "batch", "code"]
    assert instance.classes[0].ttft_ns == 10**9
    assert instance.names_classes


def test_the_hash_is_that_of_before_without_classes_tenants_and_deadlines():
    plain = decoding([1, 2], [3, 4], Worker(2))
    hashes = {
        plain.sha256,
        plain.with_classes("interactive:ttft=1").sha256,
        plain.with_classes("interactive:ttft=2").sha256,
        plain.replace(requests=plain.requests.replace(tenant=[0, 1])).sha256,
        plain.replace(requests=plain.requests.replace(tenant=["a", "b"])).sha256,
        plain.replace(requests=plain.requests.replace(deadline_ns=[0, 1])).sha256,
        plain.replace(requests=plain.requests.replace(group=[0, 1])).sha256,
        plain.replace(requests=plain.requests.replace(group=["a", "b"])).sha256,
    }
    assert len(hashes) == 8
    assert plain.with_classes("interactive", "batch").sha256 == plain.sha256
    assert plain.sha256 == "a4a5a34dabb0805e86cd732df1330d54b866abf147a90a99d57ca802dff920df"


def test_deadlines_are_those_of_the_request_else_of_its_class():
    classes = {"service_class": [0, 1, 1]}
    assert decoding([1] * 3, [1] * 3, Worker(1), **classes).deadlines_ns is None
    instance = decoding([1] * 3, [1] * 3, Worker(1), **classes, deadline_ns=[0, 0, 7])
    instance = instance.with_classes("batch:deadline=2")
    assert instance.deadlines_ns.tolist() == [-1, 2 * 10**9, 7]


def test_groups_by_name_are_numbered_beside_tenants():
    requests = Requests([1, 2, 3], [1] * 3, tenant=[9, 9, 9], group=["b", "a", "b"])
    assert (requests.group.tolist(), requests.groups) == ([0, 1, 0], ("b", "a"))
    taken = requests.take([1, 2])
    assert (taken.group.tolist(), taken.groups, taken.tenants) == ([1, 0], ("b", "a"), None)
    assert decoding([1, 2], [1, 1], Worker(1), group=[5, 5]).summary()["groups"] == 1
    assert "groups" not in ONE.summary()


def test_tenants_by_name_are_numbered_and_go_with_their_requests():
    requests = Requests([1, 2, 3], [1] * 3, tenant=["b", "a", "b"])
    assert (requests.tenant.tolist(), requests.tenants) == ([0, 1, 0], ("b", "a"))
    assert requests.tenant_name(1) == "a"
    taken = requests.take([1, 2])
    assert (taken.tenant.tolist(), taken.tenants) == ([1, 0], ("b", "a"))
    assert requests.replace(tenant=[5, 6, 5], tenants=None).tenant_name(6) == "6"


class Looks(FirstComeFirstServed):
    """Notes what it sees of every request at the first decision."""

    def start(self, view):
        super().start(view)
        self.seen = None

    def decide(self, view):
        if self.seen is None:
            self.seen = (
                [kind.name for kind in view.classes],
                list(view.service_class), list(view.tenant), list(view.deadline_ns),
                list(view.group),
            )  # fmt: skip
        return super().decide(view)


def test_policies_see_class_tenant_and_limits_of_what_has_arrived():
    columns = {"service_class": [2, 1], "tenant": [3, 4], "deadline_ns": [5, 6], "group": [7, 8]}
    requests = Requests([1, 1], [1, 1], arrival_ns=[0, 10**9], **columns)
    classes = with_specs(DEFAULT_CLASSES, ["interactive:ttft=1", "code"])
    policy = Looks()
    simulate(Instance(requests, Worker(1), "decode", classes=classes), policy)
    names, classes, tenants, deadlines, groups = policy.seen
    assert names == ["interactive", "batch", "code"]
    assert (classes, tenants, deadlines, groups) == ([2, 0], [3, 0], [5, 0], [7, 0])


def test_without_tenants_and_deadlines_views_hold_none():
    seen = []

    class Asks(FirstComeFirstServed):
        def decide(self, view):
            seen.append((view.tenant, view.deadline_ns, list(view.service_class)))
            return super().decide(view)

    assert issubclass(Asks, Policy)
    simulate(ONE, Asks())
    assert seen[0] == (None, None, [1])


def test_splits_are_read_and_written():
    split = read_split("2P1B3D:ns_per_token=7,latency_ns=9")
    roles, link = ((2, "prefill"), (1, "both"), (3, "decode")), Link(ns_per_token=7, latency_ns=9)
    assert split == Split(roles, link)
    assert (split.workers, split.name) == (6, "2P1B3D")
    assert read_split(str(split)) == split
    assert read_split(str(read_split("1P1D"))) == Split(((1, "prefill"), (1, "decode")))
    assert read_workers("2P2D:free") == read_split("2P2D:ns_per_token=0,latency_ns=0")
    assert worker_files("2P2D:ns_per_token=1,latency_ns=2") == ()


def test_other_texts_are_no_splits_and_wrong_ones_are_refused():
    for text in ("4", "a.json", "2X", "2p2d", "P", "2P2D.json"):
        assert read_split(text) is None
    for text in ("2P0D", "2P2D:speed=3", "999999P1D", "1P1D:ns_per_token=-1"):
        refusal(read_split, text)
    for text in ("2p2d", "2p2d:free"):  # small letters are told from files
        assert "did you mean 2P2D" in str(refusal(read_workers, text))


def test_a_scenario_on_a_split():
    small = orsched.load("two-by-two")
    made = scenario(small, "1P2D:ns_per_token=5")
    assert [worker.role for worker in made.workers] == ["prefill", "decode", "decode"]
    assert [worker.name for worker in made.workers] == ["prefill-0", "decode-0", "decode-1"]
    assert made.link == Link(ns_per_token=5)
    assert "1P2D" in made.name
    assert "need a link" in str(refusal(scenario, small, "1P2D"))


def test_a_study_over_splits(tmp_path):
    """One table has all splits, and the worker of both roles beside them."""
    study = {
        "instances": [{"generator": "uniform", "requests": 20, "clients": 8}],
        "arrivals": ["poisson:rate=2"],
        "workers": ["2B:free", "1P1D:free", "1P1D:ns_per_token=100000,latency_ns=1000"],
        "policies": ["disaggregated"],
        "slo": {"ttft_s": 1, "tpot_s": 0.1},
    }
    done = run(study, folder=tmp_path, jobs=1)
    assert [row["error"] for row in done.rows] == [None] * 3
    assert [row["workers_split"] for row in done.rows] == ["2B", "1P1D", "1P1D"]
    assert [row["workers"] for row in done.rows] == [2, 2, 2]
    assert [row["transfers_link_ns"] for row in done.rows][:2] == [0, 0]
    assert done.rows[2]["transfers_link_ns"] > 0
    assert done.rows[0]["transfers_count"] == 0 < done.rows[1]["transfers_count"]


def test_splits_on_the_command_line(tmp_path):
    """simulate and compare take them as --workers; the instance they write has roles and link."""
    out = tmp_path / "i.json"
    arguments = ["simulate", "two-by-two", "--policy", "disaggregated", "--workers", "1P1D:free"]
    more = ["--instance-output", str(out), "-o", str(tmp_path / "s.json")]
    assert run_command([*arguments, *more]) == 0
    document = json.loads(out.read_text())
    assert [worker["role"] for worker in document["workers"]] == ["prefill", "decode"]
    assert document["link"] == {"ns_per_token": 0, "latency_ns": 0}
