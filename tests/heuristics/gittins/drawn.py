"""Random instances and parameters for the Gittins policy."""

import random

from orsched.instances import predict
from tests.heuristics.building import built
from tests.random_instances import random_batching_instance, unpadded

KNOWN = ("none", "predicted", "clairvoyant")


def drawn(seed, most=10, longest=6):
    """An instance on workers that do not pad, with predictions."""
    instance = random_batching_instance(random.Random(f"gittins {seed}"), most, longest)
    return predict(unpadded(instance), "noise:sigma=1", seed)


def params_of(seed):
    """Parameters far from the defaults as well."""
    rng = random.Random(f"gittins parameters {seed}")
    return {
        "index": rng.choice(("gittins", "serpt")), "aging": rng.choice((0.0, 1.0, 50.0, 1e6)),
        "max_num_batched_tokens": rng.choice((1, 3, 8, 30, 2048)),
        "gate": rng.choice((1e-6, 0.5, 5.0, 1e9)), "gate_aging": rng.choice((0.0, 3.0)),
        "window_s": rng.choice((1e-3, 20.0)), "reserve": rng.choice((0.0, 0.5, 2.0)),
        "batch_weight": rng.choice((1.0, 0.1)),
        "ttft_s": rng.choice((None, None, 0.0, 2e-8, 1e-6, 5e-3)),
    }  # fmt: skip


def policy_for(instance, known="none", seed=None, **params):
    """A fresh policy, with random parameters if a seed is given."""
    return built(instance, "gittins", known, **({} if seed is None else params_of(seed)) | params)
