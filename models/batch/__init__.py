"""The DP batcher of SCLS: requests into batches of least total serving time, under memory."""

if __name__ != "orsched.models.batch":
    raise ImportError("use 'import orsched.models.batch', not 'import models.batch'")

from orsched.models.batch.batcher import batch
from orsched.models.batch.memory import DEEPSPEED, BatchMemory, PaddedMemory, TableMemory
from orsched.models.batch.result import Batches

__all__ = ["DEEPSPEED", "BatchMemory", "Batches", "PaddedMemory", "TableMemory", "batch"]
