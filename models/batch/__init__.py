"""The DP batcher of SCLS: requests into batches of least total serving time, under memory."""

if __name__ != "orsched.models.batch":
    raise ImportError("use 'import orsched.models.batch', not 'import models.batch'")

from orsched.models.batch.batch_problem import DEEPSPEED, BatchMemory, PaddedMemory, TableMemory
from orsched.models.batch.batcher import Batches, batch

__all__ = ["DEEPSPEED", "BatchMemory", "Batches", "PaddedMemory", "TableMemory", "batch"]
