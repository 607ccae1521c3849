"""Makespan packing, Pang (26)-(30), as a linear model: which client serves which request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.common.errors import InputError
from orsched.models.exact_search.stage_plan import Plan, plan_of, read_problem, schedule_of
from orsched.models.full_mip.linear_solvers import BINARY, INTEGER, LinearModel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.models.exact_search.stage_plan import Problem


class PackingMip:
    """Min t with each request on one client, ``sum_j x_ij = 1``, and no client with more than t
    decode rounds, ``sum_i r_i x_ij <= t``. ``symmetry_breaking``: request i is on one of the
    clients 0..i. A schedule of a solution serves each client's requests in their order."""

    name = "packing"

    def __init__(self, instance: Instance, symmetry_breaking: bool = True) -> None:
        self.instance, self.symmetry_breaking = instance, symmetry_breaking
        worker = instance.require_stages("packing", paged=False)
        self.rounds = instance.rounds_needed.tolist()
        self.model = model = LinearModel()
        clients = range(worker.clients)
        self.x = [
            [model.add(f"x_{i}_{j}", BINARY, int(not symmetry_breaking or j <= i)) for j in clients]
            for i in range(len(self.rounds))
        ]
        self.load = model.add("t", INTEGER, sum(self.rounds))
        model.minimise([(self.load, 1)])
        for i, columns in enumerate(self.x):
            model.row(f"one_{i}", [(column, 1) for column in columns], least=1, most=1)
        for j in clients:
            taken = [(columns[j], -due) for columns, due in zip(self.x, self.rounds, strict=True)]
            model.row(f"load_{j}", [(self.load, 1), *taken], least=0)

    def schedule_of(self, values: Sequence[float]) -> Schedule:
        """Return the checked schedule of the clients in a solution."""
        client = [max(range(len(own)), key=lambda j: values[own[j]]) for own in self.x]
        plan = packed_plan(read_problem(self.instance), client)
        return schedule_of(self.instance, plan, self.name)

    def values_of(self, schedule: Schedule) -> list[int]:
        """Return the values of the columns that stand for the clients of a schedule."""
        client = plan_of(self.instance, schedule).client
        assert client is not None
        label: dict[int, int] = {}
        values, loads = [0] * len(self.model.names), [0] * self.instance.worker.clients
        for i, own in enumerate(client):
            j = label.setdefault(own, len(label)) if self.symmetry_breaking else own
            values[self.x[i][j]] = 1
            loads[j] += self.rounds[i]
        values[self.load] = max(loads, default=0)
        return values


def packed_plan(problem: Problem, client: Sequence[int]) -> Plan:
    """Return the plan in which each client serves its own requests in their order, prefilled as
    soon as it is free and the stage and memory have room."""
    queues = [[i for i, own in enumerate(client) if own == j][::-1] for j in range(problem.clients)]
    stage, rounds = [0] * len(client), list[int]()
    left: dict[int, int] = {}  # rounds of each request on a client
    while any(queues) or left:
        busy, tokens = {client[i] for i in left}, 0
        held = sum(problem.blocks[i] for i in left)
        started: list[int] = []
        for j, queue in enumerate(queues):
            if j in busy or not queue:
                continue
            i = queue[-1]
            fits = (
                problem.memory_blocks is None or held + problem.blocks[i] <= problem.memory_blocks
            )
            if fits and tokens + problem.prompts[i] <= problem.levels[-1][0]:
                started.append(queue.pop())
                tokens, held = tokens + problem.prompts[i], held + problem.blocks[i]
        if started:
            for i in started:
                stage[i] = len(rounds)
            rounds.append(0)
            left |= {i: problem.needed[i] for i in started if problem.needed[i]}
        elif not left:
            raise InputError("a request fits nowhere", field="instance", remedy="leave it out")
        passed = min(left.values(), default=0)
        rounds[-1] += passed
        left = {i: due - passed for i, due in left.items() if due > passed}
    return Plan(tuple(stage), tuple(client), tuple(rounds))
