"""The mixes of sources by name: one that ships, and those of ServeGen, read from its files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from orsched.common.errors import InputError
from orsched.common.near_names import known_names
from orsched.instances.datasets import data_directory
from orsched.instances.servegen import SERVEGEN, read_servegen
from orsched.instances.servegen_files import FOLDERS, files_of, folder_of, read_folder
from orsched.instances.source_mix import (
    WINDOW_S,
    LengthWindow,
    Source,
    SourceMix,
    Window,
    lognormal_lengths,
)

if TYPE_CHECKING:
    from os import PathLike


def load_mix(name: str, directory: str | PathLike[str] | None = None) -> SourceMix:
    """Return the mix ``synthetic``, one of ServeGen, or that in a folder in ServeGen's layout.

    ServeGen's are ``m_small``, ``m_mid``, ``m_large``, ``deepseek_r1`` and ``mm_image``, in
    ``directory``, by default the one that ``ORSCHED_DATA`` names: its own files (``language/m-mid``
    and so on, below a folder ``data`` or not), or the tables condensed from them. A name with a
    slash, or of a folder with ``chunk-N-trace.csv``, is a folder. Sources without lengths get the
    mean of those of the others, weighted by traffic.

    Raises:
        InputError: there is no such mix, its files are not there, or one is wrong.
    """
    if name == "synthetic":
        return synthetic_mix()
    files = mix_files(name, directory)
    if files[0].name.startswith("chunk-"):
        folder = files[0].parent
        return read_folder(name if name in SERVEGEN else folder.name, folder)
    return read_servegen(name, files[0], files[1])


def mix_files(name: str, directory: str | PathLike[str] | None = None) -> list[Path]:
    """Return the files that a mix is read from, in a fixed order; raises as ``load_mix``."""
    if name == "synthetic":
        return []
    if name not in SERVEGEN:
        if files := files_of(Path(name)):
            return files
        if "/" in name or Path(name).is_dir():
            raise InputError(
                "holds no chunk-N-trace.csv", file=name, field="mix", remedy="ServeGen's layout"
            )
        remedy = known_names(name, ("synthetic", *SERVEGEN))
        raise InputError(f"there is no mix {name!r}", field="mix", remedy=remedy)
    base = data_directory(directory)
    tables = [base / f"servegen_{name}_{table}.csv" for table in ("rates", "lengths")]
    if tables[0].is_file() or tables[1].is_file():
        return tables
    folder = folder_of(name, base)
    if folder is None:
        raise InputError(
            f"neither {tables[0].name} nor ServeGen's {FOLDERS[name]} is there",
            file=str(base),
            field="mix",
            remedy=f"put ServeGen's folder data/{FOLDERS[name]} below it",
        )
    return files_of(folder)


_SYNTHETIC = (
    # name, requests a second in each window, family, shape, prompt and output (mean, sigma, most)
    ("chat", (3.0, 3.5, 4.0, 4.0, 3.5, 3.0), "Gamma", 1.0, (220, 1.0, 4096), (300, 0.8, 2048)),
    ("code", (0.5, 1.0, 2.0, 2.5, 1.0, 0.5), "Gamma", 0.1, (1600, 0.8, 8192), (60, 1.0, 1024)),
    ("summaries", (0.4,) * 6, "Weibull", 0.6, (2600, 0.4, 8192), (180, 0.5, 1024)),
    (
        "reasoning",
        (0.2, 0.2, 0.4, 0.4, 0.4, 0.2),
        "Gamma",
        0.8,
        (400, 0.9, 4096),
        (1400, 0.8, 8192),
    ),
    ("night", (0.0, 0.0, 0.0, 0.0, 2.0, 6.0), "Gamma", 0.04, (120, 0.3, 1024), (40, 0.5, 256)),
)


def synthetic_mix() -> SourceMix:
    """Return the mix that ships: five invented sources over one hour, about 6.8 requests a second.

    A steady chat, bursts of code completion that come and go, summaries, few but long reasoning
    requests, and a nightly job that starts late. Its constants are made up, not fitted.
    """
    sources = []
    for name, rates, family, shape, prompt, output in _SYNTHETIC:
        windows = [
            Window(i * WINDOW_S, rate, family, shape) for i, rate in enumerate(rates) if rate
        ]
        law = LengthWindow(0, lognormal_lengths(*prompt), lognormal_lengths(*output))
        sources.append(Source(name, tuple(windows), (law,)))
    return SourceMix("synthetic", tuple(sources))
