"""Weights of a model's folder: tensors by name, read without running what is beside them.

Of a folder nothing is read but ``config.json`` and the weights; transformers is not told where it
lies, so that neither code nor adapters nor other checkpoints in it count.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from orsched.common.errors import InputError
from orsched.runner.worker.config_json import CONFIG, REMEDY, blamed_on, read_object

MAX_INDEX_BYTES = 1 << 26
INDEX = ".index.json"
SAFE, PICKLED = "model.safetensors", "pytorch_model.bin"
_SHARD = re.compile(r"[\w.-]{1,200}")


def folder_model(folder: Path, config: Any, numbers: Any, allow_pickle: bool = False) -> Any:
    """Return the model in a folder with its weights, on the CPU.

    Args:
        folder: of ``config`` and weights.
        config: as ``folder_config`` returns it.
        numbers: torch's type of the weights.
        allow_pickle: whether weights may be pickled, which torch is asked to read without running
            anything.

    Raises:
        InputError: there are no weights, they are pickled, damaged, or of another model.
    """
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    files = weight_files(folder, allow_pickle)
    state: dict[str, Any] = {}
    for path in files:
        with blamed_on(path, field="model"):
            state |= _tensors(path)
    with blamed_on(folder, "model"):
        _require_enough(folder, config, sum(tensor.numel() for tensor in state.values()))
        model, found = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)].from_pretrained(
            None, config=config, state_dict=state, dtype=numbers, output_loading_info=True
        )
        missing = sorted(found["missing_keys"])
        if missing:
            raise _of_another_model(folder, f"{len(missing)} are missing, such as {missing[0]}")
    return model


def weight_files(folder: Path, allow_pickle: bool = False) -> list[Path]:
    """Return the files of a model's weights, each of them in the folder.

    Raises:
        InputError: there are none, they are pickled and may not be, or the index of the files is
            wrong.
    """
    for name in (SAFE, PICKLED):
        if name == PICKLED:
            _require_no_pickle(folder, allow_pickle)
        if (folder / name).is_file():
            return [folder / name]
        index = folder / (name + INDEX)
        if index.is_file():
            return _indexed(index, Path(name).suffix)
    raise InputError(
        f"there are no weights: no {SAFE}", file=str(folder), field="model", remedy=REMEDY
    )


def _require_no_pickle(folder: Path, allowed: bool) -> None:
    """Refuse pickled weights, unless they are allowed."""
    found = [p for kind in ("*.bin", "*.pt", "*.pth", "*.ckpt") for p in sorted(folder.glob(kind))]
    if found and not allowed:
        raise InputError(
            f"the weights are pickled ({found[0].name:.80}), a format that can run code",
            file=str(folder),
            field="model",
            remedy="convert them to safetensors, or add --allow-pickle; in Python "
            "allow_pickle=True",
        )


def _indexed(index: Path, suffix: str) -> list[Path]:
    names = read_object(index, MAX_INDEX_BYTES).get("weight_map")
    values = list(dict.fromkeys(names.values())) if isinstance(names, dict) else []
    for name in values or [None]:
        plain = isinstance(name, str) and _SHARD.fullmatch(name) and name.endswith(suffix)
        if not plain or not (index.parent / str(name)).is_file():
            raise InputError(
                f"{name!r:.80} is not a weights file beside it",
                file=str(index),
                field="weight_map",
                remedy="copy the model again",
            )
    return [index.parent / str(name) for name in values]


def _tensors(path: Path) -> dict[str, Any]:
    import torch
    from safetensors.torch import load_file

    if path.suffix == ".safetensors":
        return dict(load_file(path))
    read = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(read, dict) or not all(torch.is_tensor(item) for item in read.values()):
        raise ValueError("holds something else than tensors by name")
    return read


def _require_enough(folder: Path, config: Any, elements: int) -> None:
    """Refuse files with fewer weights than the model has, before it is built in full size."""
    import torch
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    needed = sum(parameter.numel() for parameter in model.parameters())
    if elements < needed:
        raise _of_another_model(folder, f"{elements:,} for {needed:,} parameters")


def _of_another_model(folder: Path, problem: str) -> InputError:
    return InputError(
        f"the weights are not those of {CONFIG}: {problem}",
        file=str(folder),
        field="model",
        remedy="copy the model again",
    )
