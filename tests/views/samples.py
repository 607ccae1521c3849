"""Schedules to draw and to export, and a reader of pages."""

from dataclasses import replace
from html.parser import HTMLParser

import numpy as np

import orsched
from orsched.costs import AffineCost
from orsched.data.instance import Instance
from orsched.data.memory import BlockMemory
from orsched.data.requests import Requests
from orsched.data.schedule import Schedule, Steps, Work
from orsched.data.workers import Worker
from orsched.heuristics.pang import FirstComeFirstServed
from orsched.metrics.timeline import Timeline
from orsched.models.bounds.bounds import makespan_bound
from orsched.simulator import simulate_policy
from orsched.views.spans import client_use
from tests.in_order import in_order
from tests.pools import pool_instance, pool_policy


def random_instance(n=30, clients=6, seed=0, *, latest_ns=0, first_token="decode", **fields):
    """An instance with a prefill cap, and memory that binds now and then."""
    random = np.random.default_rng(seed)
    requests = Requests(
        random.integers(24, 192, n),
        random.integers(1, 512, n),
        arrival_ns=random.integers(0, latest_ns + 1, n),
        ids=fields.pop("ids", None),
    )
    worker = Worker(clients, prefill_cap_tokens=512, memory=BlockMemory(8 * clients, 128, "whole"))
    return Instance(requests, (worker,), first_token=first_token, **fields)


def served(instance, *, bound=True):
    """First come, first served, with the bound that belongs to the instance."""
    schedule = simulate_policy(instance, FirstComeFirstServed()).schedule
    certificate = makespan_bound(instance).to_dict() if bound else None
    return schedule.replace(bound=certificate, run={"decision_ns": {"p99": 4321}})


def by_hand():
    """Two workers, a prefill in two chunks, and a request that is evicted and starts again."""
    workers = (Worker(2, AffineCost(), name="big"), Worker(1, AffineCost(), name="small"))
    instance = Instance(
        Requests([5, 2, 4], [2, 3, 1]), workers, name="by hand", first_token="decode"
    )
    steps = Steps(
        worker=[0, 1, 1, 0, 0, 0, 0],
        phase=[0, 0, 1, 0, 1, 0, 1],
        start_ns=[0, 5, 9, 10, 20, 24, 30],
        end_ns=[10, 9, 12, 20, 24, 30, 33],
        rounds=[1, 1, 1, 1, 2, 1, 1],
    )
    work = Work(
        request=[0, 0, 0, 1, 1, 1, 1, 2, 2],
        client=[0, 0, 0, 1, 1, 0, 0, 0, 0],
        phase=[0, 0, 1, 0, 1, 0, 1, 0, 1],
        first_step=[0, 3, 4, 0, 4, 5, 6, 1, 2],
        last_step=[0, 3, 4, 0, 4, 5, 6, 1, 2],
        tokens=[3, 2, 1, 2, 1, 2, 1, 4, 1],
        stay=[0, 0, 0, 0, 0, 1, 1, 0, 0],
    )
    return instance, Schedule(instance.sha256, steps, work, "drawn", "clairvoyant")


def every_kind():
    """Two workers: a static batch that holds a request, and mixed steps with a paused request."""
    cost = in_order(AffineCost, 10, 1, 4, 1)
    workers = (
        Worker(2, cost, memory=BlockMemory(9, 2, "paged"), padding=True),
        Worker(2, cost, memory=BlockMemory(9, 4, "whole"), name="mixed"),
    )
    requests = Requests([3, 5, 4, 6], [1, 3, 4, 3])
    instance = Instance(requests, workers, name="every kind", first_token="decode")
    steps = Steps(
        worker=[0, 1, 1, 0, 0, 1, 1, 1],
        phase=[0, 0, 2, 1, 1, 2, 1, 1],
        start_ns=[0, 0, 14, 20, 26, 29, 42, 47],
        end_ns=[20, 14, 29, 26, 38, 42, 47, 59],
        rounds=[1, 1, 1, 1, 2, 1, 1, 2],
    )
    work = Work(
        request=[0, 0, 0, 1, 1, 2, 2, 2, 3, 3, 3],
        client=[0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 1],
        phase=[0, 1, 2, 0, 1, 0, 1, 1, 0, 0, 1],
        first_step=[0, 3, 4, 0, 3, 1, 2, 7, 2, 5, 6],
        last_step=[0, 3, 4, 0, 4, 1, 5, 7, 2, 5, 7],
        tokens=[3, 1, 1, 5, 1, 4, 1, 1, 4, 2, 1],
    )
    return instance, Schedule(instance.sha256, steps, work, "drawn", "clairvoyant")


def alike(n, prompt, output, workers, *, gap_ns=0):
    """Requests of one size on workers of so many clients, each so much later than the last."""
    requests = Requests([prompt] * n, [output] * n, arrival_ns=[gap_ns * k for k in range(n)])
    owners = tuple(Worker(clients) for clients in workers)
    return Instance(requests, owners, name="all alike", first_token="decode")


def one_long():
    """Many short requests and a long one."""
    requests = Requests(np.full(300, 10), np.append(np.full(299, 10), 3000))
    return Instance(requests, Worker(300), name="one long request", first_token="decode")


def empty():
    """Nothing to do."""
    instance = alike(0, 1, 1, [2])
    return instance, served(instance, bound=False)


def use_of(instance, schedule):
    """Who holds which client when."""
    return client_use(Timeline(instance, schedule))


def mixed(seed=0, policy="vllm", limits=("interactive:ttft=2,tpot=0.05",)):
    """Interactive requests that arrive beside bulk ones, of three tenants, with paged memory."""
    draw = np.random.default_rng(seed)
    kind = draw.integers(0, 2, 40)
    requests = orsched.Requests(
        np.where(kind == 0, draw.integers(50, 400, 40), draw.integers(500, 2000, 40)),
        draw.integers(10, 200, 40),
        arrival_ns=np.where(kind == 0, draw.integers(0, 20 * 10**9, 40), 0),
        service_class=kind,
        tenant=[["ada", "bob", "cy"][k] for k in draw.integers(0, 3, 40)],
    )
    memory = orsched.BlockMemory(500, 16, allocation="paged")
    worker = orsched.Worker(8, orsched.AffineCost(), memory=memory)
    instance = orsched.Instance(requests, worker, first_token="prefill", name="mixed")
    instance = instance.with_classes(*limits) if limits else instance
    return instance, orsched.simulate(instance, policy).schedule


def timed(plan, start_ns, end_ns, **changes):
    """The same steps at other times."""
    steps = replace(plan.steps, start_ns=start_ns, end_ns=end_ns)
    return plan.replace(steps=steps, results={}, **changes)


def slower(trace, factor=2, **changes):
    """Every step of a run takes so many times as long."""
    steps = trace.steps
    return timed(trace, factor * steps.start_ns, factor * steps.end_ns, bound=None, **changes)


def begun(schedule, count, run):
    """A run that was stopped after so many steps."""
    kept = schedule.work.first_step < count
    work = {name: column[kept] for name, column in vars(schedule.work).items()}
    work["last_step"] = work["last_step"].clip(max=count - 1)
    steps = Steps(**{name: column[:count] for name, column in vars(schedule.steps).items()})
    return schedule.replace(steps=steps, work=Work(**work), results={}, bound=None,
                            run={**run, "complete": False})  # fmt: skip


def rows_of(*columns):
    """Columns as a list of rows."""
    return list(zip(*(column.tolist() for column in columns), strict=True))


def transferred(seed):
    """Pools of workers that hand requests over."""
    instance = pool_instance(seed)
    return instance, simulate_policy(instance, pool_policy(seed)).schedule


class Page(HTMLParser):
    """Elements by tag, scripts by id, the cells of each table row; what is opened is closed."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.scripts, self.texts, self.rows, self._open = [], {}, [], {}, []
        self._script = self._table = self._row = None
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        fields = dict(attrs)
        self.elements.append((tag, fields))
        if tag not in ("meta", "input", "br"):
            self._open.append(tag)
        if tag == "script":
            self._script = fields.get("id", f"script-{len(self.scripts)}")
        if tag == "table":
            self._table = fields.get("id")
        if tag == "tr":
            self._row = {}
            self.rows.setdefault(self._table, []).append(self._row)
        if "data-field" in fields:
            self._row[fields["data-field"]] = fields

    def handle_endtag(self, tag):
        assert self._open.pop() == tag
        if tag == "script":
            self._script = None

    def handle_data(self, data):
        if self._script:
            self.scripts[self._script] = self.scripts.get(self._script, "") + data
        else:
            self.texts.append(data)
