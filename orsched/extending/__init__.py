"""Everything that a policy, a cost model, a reader or a study of one's own needs, in one place.

The guides use these names: *Write your own policy*, *Your own requests*, *Machines and calibration*
and *Studies*. Other parts of the library may move; these names stay.
"""

from orsched.common.columns import whole_number
from orsched.common.errors import (
    InfeasibleError,
    InputError,
    OrschedError,
    PolicyError,
    TimeLimitError,
)
from orsched.costs import CostModel, Floor, RoundFloor, StageFloor, floor_faults, knows_cached
from orsched.costs.protocol import read_parameters
from orsched.data.instance import Instance
from orsched.data.memory import BlockMemory
from orsched.data.requests import Prefixes, Requests
from orsched.data.schedule import Schedule
from orsched.data.step import ARRIVAL, FINISH, Step, decode_rounds, prefill_stage
from orsched.data.workers import Worker
from orsched.files import cells
from orsched.files.cells import CellError
from orsched.files.tables import Fields, read_objects, read_table
from orsched.heuristics.batch_builder import BatchBuilder
from orsched.heuristics.dispatching import (
    DISPATCHERS,
    Dispatched,
    Dispatcher,
    FewestRequests,
    LeastWork,
    RoundRobin,
)
from orsched.heuristics.policy_method import LiveMethod, PolicyMethod
from orsched.instances.arrivals import sampled, with_arrivals
from orsched.instances.predictions import predict
from orsched.instances.readers import ReadReport, Trace, read
from orsched.instances.readers.traces import Columns, assemble
from orsched.planning.study import over_seeds, paired, read_study, run
from orsched.simulator.policy import ClairvoyantView, Information, Policy, PredictedView, View
from orsched.solving.methods import Method, Outcome, Progress, Run
from orsched.solving.scenario import read_workers, with_workers

__all__ = [
    "ARRIVAL",
    "DISPATCHERS",
    "FINISH",
    "BatchBuilder",
    "BlockMemory",
    "CellError",
    "ClairvoyantView",
    "Columns",
    "CostModel",
    "Dispatched",
    "Dispatcher",
    "FewestRequests",
    "Fields",
    "Floor",
    "InfeasibleError",
    "Information",
    "InputError",
    "Instance",
    "LeastWork",
    "LiveMethod",
    "Method",
    "OrschedError",
    "Outcome",
    "Policy",
    "PolicyError",
    "PolicyMethod",
    "PredictedView",
    "Prefixes",
    "Progress",
    "ReadReport",
    "Requests",
    "RoundFloor",
    "RoundRobin",
    "Run",
    "Schedule",
    "StageFloor",
    "Step",
    "TimeLimitError",
    "Trace",
    "View",
    "Worker",
    "assemble",
    "cells",
    "decode_rounds",
    "floor_faults",
    "knows_cached",
    "over_seeds",
    "paired",
    "predict",
    "prefill_stage",
    "read",
    "read_objects",
    "read_parameters",
    "read_study",
    "read_table",
    "read_workers",
    "run",
    "sampled",
    "whole_number",
    "with_arrivals",
    "with_workers",
]
