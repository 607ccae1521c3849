"""MICO (Cong et al.): dealing requests to clouds by predicted length, insertion into batches."""

from orsched.heuristics.mico.distribution import ABLATION, Distributor, MicoParams
from orsched.heuristics.mico.mico import Mico

__all__ = ["ABLATION", "Distributor", "Mico", "MicoParams"]
