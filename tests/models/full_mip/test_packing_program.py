"""Makespan packing as a linear model."""

import pytest

import orsched
from orsched.models.full_mip.model_files import file_lines
from orsched.models.full_mip.programs import read_program
from orsched.models.mip import build
from tests.models.full_mip.small import random_instance
from tests.refusals import refused


@pytest.mark.parametrize("seed", range(15))
def test_its_optimum_is_that_of_pack_and_its_schedule_is_valid(seed):
    instance = random_instance(seed, most=6)
    clients = instance.worker.clients
    found = build(instance, "packing", symmetry_breaking=seed % 2 == 0).solve("cpsat")
    packed = orsched.pack(instance.rounds_needed.tolist(), clients)
    assert found.status == "optimal"
    assert found.objective == packed.makespan
    assert orsched.check(instance, found.schedule) == []
    assert found.schedule.steps.rounds.sum() >= packed.makespan


def test_a_schedule_is_a_start_of_it():
    instance = orsched.load("packing")
    for symmetry in (True, False):
        program = read_program(instance, "packing", symmetry_breaking=symmetry)
        values = program.values_of(orsched.solve(instance, "offline").schedule)
        assert program.model.violation(values) is None


def test_the_file_says_what_the_objective_counts():
    program = read_program(orsched.load("gate"), "packing")
    text = "".join(file_lines(program, "lp"))
    assert "objective = decode rounds of the client with the most" in text
    assert "x_i_j: 0-1: request i is served by client j" in text
    refused("counts decode rounds", program.to_ns, 5)
    refused("packing has no stages", read_program, orsched.load("gate"), "packing", stages=2)
    refused("up to", read_program, orsched.load("gate"), "packing", max_nonzeros=3)
