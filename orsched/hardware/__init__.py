"""The catalogue of machines: GPUs and models, what was measured, and what data sheets promise."""

from orsched.hardware.catalogue import Machine, machine, machines, read_cost, read_machine
from orsched.hardware.data_sheet import data_sheet_cost, fitting
from orsched.hardware.gpus import GPUS, Gpu
from orsched.hardware.shapes import MODELS, ModelShape, read_config
from orsched.hardware.words import cost_words, machine_words

__all__ = [
    "GPUS",
    "MODELS",
    "Gpu",
    "Machine",
    "ModelShape",
    "cost_words",
    "data_sheet_cost",
    "fitting",
    "machine",
    "machine_words",
    "machines",
    "read_config",
    "read_cost",
    "read_machine",
]
