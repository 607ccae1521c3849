"""Makespan packing (Pang (26)-(30), P||Cmax): local search, column generation, certificates."""

if __name__ != "orsched.models.pcmax":
    raise ImportError("use 'import orsched.models.pcmax', not 'import models.pcmax'")
