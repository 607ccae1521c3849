"""Presets have the shapes of the models that they are named after."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the extra 'runner' is not installed")
transformers = pytest.importorskip("transformers", reason="the extra 'runner' is not installed")

from orsched.runner.worker.language_model import (  # noqa: E402
    PRESETS,
    preset_config,
    shape_of,
)
from orsched.runner.worker.model_folder import FAMILIES  # noqa: E402

# parameters as the model cards and the sizes of the published weights say; heads of keys and their
# size make the cache: 32, 128 and 800 KiB a token in two bytes a number
PUBLISHED = {
    "1b": (1_235_814_400, 32),
    "8b": (8_030_261_248, 128),
    "13b": (13_015_864_320, 800),
}


@pytest.mark.parametrize("name", list(PUBLISHED))
def test_a_preset_has_as_many_parameters_as_the_model(name: str) -> None:
    parameters, kib_a_token = PUBLISHED[name]
    config = preset_config(name)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    assert sum(each.numel() for each in model.parameters()) == parameters
    shape = shape_of(config)
    assert 2 * 2 * shape.layers * shape.kv_heads * shape.head_dim == kib_a_token * 1024


@pytest.mark.parametrize("name", list(PRESETS))
def test_a_preset_is_of_a_family_that_is_tested(name: str) -> None:
    config = preset_config(name)
    assert config.model_type in FAMILIES
    assert shape_of(config).positions >= 4096
