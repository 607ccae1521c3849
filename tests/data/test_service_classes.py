"""Service classes and tenants as data: limits, names, what policies see of them."""

from __future__ import annotations

import pytest

from orsched import Instance, Policy, Requests, ServiceClass, Worker, simulate
from orsched.common.errors import InputError
from orsched.data.service_classes import DEFAULT_CLASSES, limit_text, read_class, with_specs
from orsched.heuristics.pang import FirstComeFirstServed


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


@pytest.mark.parametrize(
    ("make", "field", "says"),
    [
        (lambda: ServiceClass("a", ttft_s=-1), "ttft_s", "negative"),
        (lambda: ServiceClass("a", tpot_s=float("nan")), "tpot_s", "not a finite"),
        (lambda: ServiceClass("a", deadline_ns=-1), "deadline_ns", "below 0"),
        (lambda: ServiceClass("a", ttft_s=1, ttft_ns=1), "ttft_s", "in seconds and"),
        (lambda: ServiceClass(""), "name", "is not a name"),
        (lambda: ServiceClass(7), "name", "is not a name"),
        (lambda: ServiceClass("a", bulk=1), "bulk", "truth value"),
        (lambda: read_class("a:tft=1"), "class", "no limit 'tft'"),
        (lambda: read_class("a:ttft=soon"), "class.ttft_s", "no number"),
        (lambda: read_class("a:ttft"), "class", "is not NAME=VALUE"),
        (lambda: read_class(":ttft=1"), "class", "is not a name"),
        (lambda: with_specs(DEFAULT_CLASSES, ["a:ttft=1", "a"]), "class", "given twice"),
    ],
)
def test_wrong_classes_are_located(make, field, says):
    with pytest.raises(InputError) as caught:
        make()
    assert caught.value.field == field
    assert says in caught.value.problem.replace("is not a number", "no number")


@pytest.mark.parametrize(
    ("classes", "field", "row"),
    [
        ([], "classes", None),
        ("interactive", "classes", None),
        (["interactive"], "classes", 0),
        ([ServiceClass("a"), ServiceClass("a")], "classes", 1),
        ([ServiceClass("a")], "service_class", 2),
    ],
)
def test_wrong_classes_of_an_instance_are_located(classes, field, row):
    requests = Requests([1] * 3, [1] * 3, service_class=[0, 0, 1])
    with pytest.raises(InputError) as caught:
        Instance(requests, Worker(1), classes=classes, first_token="decode")
    assert (caught.value.field, caught.value.row) == (field, row)


def test_an_unknown_class_lists_those_there_are():
    with pytest.raises(InputError, match="known: interactive, batch"):
        Instance(Requests([1], [1]), Worker(1), first_token="decode").class_code("chat")


def test_classes_replace_those_of_their_name_and_others_come_behind():
    instance = Instance(Requests([1], [1]), Worker(1), first_token="decode").with_classes(
        "interactive:ttft=1", "code"
    )
    assert [kind.name for kind in instance.classes] == ["interactive", "batch", "code"]
    assert instance.classes[0].ttft_ns == 10**9
    assert instance.names_classes


def test_the_hash_is_that_of_before_without_classes_tenants_and_deadlines():
    plain = Instance(Requests([1, 2], [3, 4]), Worker(2), first_token="decode")
    hashes = {
        plain.sha256,
        plain.with_classes("interactive:ttft=1").sha256,
        plain.with_classes("interactive:ttft=2").sha256,
        plain.replace(requests=plain.requests.replace(tenant=[0, 1])).sha256,
        plain.replace(requests=plain.requests.replace(tenant=["a", "b"])).sha256,
        plain.replace(requests=plain.requests.replace(deadline_ns=[0, 1])).sha256,
    }
    assert len(hashes) == 6
    assert plain.with_classes("interactive", "batch").sha256 == plain.sha256
    assert plain.sha256 == "a4a5a34dabb0805e86cd732df1330d54b866abf147a90a99d57ca802dff920df"


def test_deadlines_are_those_of_the_request_else_of_its_class():
    requests = Requests([1] * 3, [1] * 3, service_class=[0, 1, 1], deadline_ns=[0, 0, 7])
    assert (
        Instance(requests.replace(deadline_ns=None), Worker(1), first_token="decode").deadlines_ns
        is None
    )
    instance = Instance(requests, Worker(1), first_token="decode").with_classes("batch:deadline=2")
    assert instance.deadlines_ns.tolist() == [-1, 2 * 10**9, 7]


@pytest.mark.parametrize(
    ("tenant", "tenants", "field", "row"),
    [
        ([0, -1], None, "tenant", 1),
        ([0], None, "tenant", None),
        (["a", 1], None, "tenant", 1),
        (["a", "1"], None, "tenant", 1),
        (["a", ""], None, "tenant", 1),
        ([0, 2], ["a", "b"], "tenant", 1),
        ([0, 1], ["a", "a"], "tenants", 1),
        ([0, 1], "ab", "tenants", None),
        (None, ["a"], "tenants", None),
    ],
)
def test_wrong_tenants_are_located(tenant, tenants, field, row):
    with pytest.raises(InputError) as caught:
        Requests([1, 1], [1, 1], tenant=tenant, tenants=tenants)
    assert (caught.value.field, caught.value.row) == (field, row)


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
            )  # fmt: skip
        return super().decide(view)


def test_policies_see_class_tenant_and_limits_of_what_has_arrived():
    requests = Requests(
        [1, 1],
        [1, 1],
        arrival_ns=[0, 10**9],
        service_class=[2, 1],
        tenant=[3, 4],
        deadline_ns=[5, 6],
    )
    classes = with_specs(DEFAULT_CLASSES, ["interactive:ttft=1", "code"])
    instance = Instance(requests, Worker(1), classes=classes, first_token="decode")
    policy = Looks()
    simulate(instance, policy)
    names, classes, tenants, deadlines = policy.seen
    assert names == ["interactive", "batch", "code"]
    assert (classes, tenants, deadlines) == ([2, 0], [3, 0], [5, 0])


def test_without_tenants_and_deadlines_views_hold_none():
    seen = []

    class Asks(FirstComeFirstServed):
        def decide(self, view):
            seen.append((view.tenant, view.deadline_ns, list(view.service_class)))
            return super().decide(view)

    assert issubclass(Asks, Policy)
    simulate(Instance(Requests([1], [1]), Worker(1), first_token="decode"), Asks())
    assert seen[0] == (None, None, [1])
