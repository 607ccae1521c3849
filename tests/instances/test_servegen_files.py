"""ServeGen's own files: read as they are published, equal to what they say, refused where wrong."""

from __future__ import annotations

import json

import numpy as np
import pytest

from orsched import InputError, Worker
from orsched.instances import draw_sources, load_mix
from orsched.instances.servegen import FOLDERS, SERVEGEN, read_folder
from orsched.instances.source_mix import Window

TRACE = "0,2.5,1.1,Gamma,0.5,0.8\n600,0,0,,0,0\n1200,0.5,9,Weibull,0.01,0.002\n"
LAWS = {
    "0": {"input_tokens": "{10: 0.25, 30: 0.75}", "output_tokens": "{5: 1.0}"},
    "21600": {"input_tokens": "{}", "output_tokens": "{}"},
}


@pytest.fixture
def write(tmp_path):
    def put(folder="language/m-mid", trace=TRACE, laws=LAWS, client=0):
        base = tmp_path / folder
        base.mkdir(parents=True, exist_ok=True)
        (base / f"chunk-{client}-trace.csv").write_text(trace)
        if laws is not None:
            text = laws if isinstance(laws, str) else json.dumps(laws)
            (base / f"chunk-{client}-dataset.json").write_text(text)
        return base

    return put


@pytest.mark.parametrize("name", SERVEGEN)
@pytest.mark.parametrize("below", ["", "data/", "ServeGen/data/"])
def test_every_mix_is_found_in_its_own_folder(name, below, write, tmp_path):
    write(below + FOLDERS[name])
    mix = load_mix(name, tmp_path)
    assert mix.name == name
    assert mix.sources[0].windows == (
        Window(0, 2.5, "Gamma", 0.5),
        Window(1200, 0.5, "Weibull", 0.2),
    )
    (window,) = mix.sources[0].lengths
    assert window.prompt.mean == 25.0
    assert window.prompt.quantiles == (10.0,) * 4 + (30.0,) * 9
    assert (window.output.largest, window.output.mean) == (5.0, 5.0)


def test_requests_are_drawn_by_the_published_laws(write):
    folder = write()
    instance = draw_sources(str(folder), Worker(8), duration_s=600, rate=20, seed=1)
    prompts = instance.requests.prompt_tokens
    assert set(np.unique(prompts).tolist()) <= set(range(10, 31))
    assert abs(prompts.mean() - 25) < 1
    assert set(instance.requests.output_tokens.tolist()) == {5}


def test_a_multimodal_prompt_is_the_sum_of_its_parts(write):
    laws = {
        "0": {
            "text_tokens": "{1: 0.5, 3: 0.5}",
            "image_tokens": "{0: 0.5, 10: 0.5}",
            "audio_tokens": "{0: 1.0}",
            "video_tokens": "{0: 1.0}",
            "image_count": "{1: 1.0}",
            "output_tokens": "{2: 1.0}",
        },
        "21600": {
            "text_tokens": "{0: 1.0}",
            "image_tokens": "{0: 1.0}",
            "output_tokens": "{0: 1.0}",
        },
    }
    (window,) = read_folder("x", write(laws=laws)).sources[0].lengths
    # 1, 3, 11 and 13 tokens, a quarter each.
    assert (window.prompt.mean, window.prompt.largest) == (pytest.approx(7.0), 13.0)
    assert [window.prompt.quantiles[i] for i in (0, 4, 5, 8, 12)] == [1.0, 3.0, 3.0, 11.0, 13.0]


def test_a_client_without_lengths_gets_the_mean_of_the_others(write):
    write(client=3)
    folder = write(client=11, laws=None)
    mix = read_folder("x", folder)
    assert [one.name for one in mix.sources] == ["3", "11"]
    assert mix.sources[1].lengths[0].prompt == mix.sources[0].lengths[0].prompt


@pytest.mark.parametrize(
    ("trace", "laws", "row", "field", "said"),
    [
        ("0,1,1,Pareto,1,1\n", LAWS, 1, "family", "'Pareto' is not a family"),
        ("0,1,1,Gamma,1,1\n600,x,1,Gamma,1,1\n", LAWS, 2, "rate_rps", "'x' is not a number"),
        ("0,1,1,Gamma,1\n", LAWS, 1, None, "5 fields where 6"),
        (TRACE, "{", None, None, "is not JSON"),
        (TRACE, {"0": {"output_tokens": "{1: 1.0}"}}, None, "0/input_tokens", "missing"),
        (TRACE, {"0": {"input_tokens": "{1: 1.0}"}}, None, "0/output_tokens", "missing"),
        (TRACE, {"0": {**LAWS["0"], "input_tokens": "{1: 0.5}"}}, None, "0/input_tokens", "sum to"),
        (TRACE, {"0": {**LAWS["0"], "input_tokens": "__import__('os')"}}, None, "0/input_tokens",
         "is not a text of the form"),
        (TRACE, {"0": {**LAWS["0"], "input_tokens": "{open('x'): 1.0}"}}, None, "0/input_tokens",
         "is not tokens: share"),
        (TRACE, {"now": LAWS["0"]}, None, "now", "is not a window"),
    ],
)  # fmt: skip
def test_wrong_files_are_named(write, trace, laws, row, field, said):
    folder = write(trace=trace, laws=laws)
    with pytest.raises(InputError) as caught:
        read_folder("x", folder)
    assert caught.value.file.startswith(str(folder))
    assert (caught.value.row, caught.value.field) == (row, field)
    assert said in caught.value.problem
    assert caught.value.remedy


def test_more_tokens_than_any_prompt_has_take_no_memory(write):
    """Shares are held for each number of tokens: 30 bytes of text asked for 16 GB."""
    laws = {"0": {"input_tokens": "{999999999: 1.0}", "output_tokens": "{5: 1.0}"}}
    with pytest.raises(InputError, match="more than 16777216 tokens"):
        read_folder("x", write(laws=laws))


@pytest.mark.parametrize("cell", ["9" * 200_000, '"' + "x\n" * 100_000])
def test_a_cell_without_end_is_named(write, cell):
    with pytest.raises(InputError, match="not a CSV table") as caught:
        read_folder("x", write(trace=f"0,2.5,1.1,Gamma,0.5,0.8\n0,1,1,{cell}\n"))
    assert caught.value.row == 2


def test_what_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match="language/m-mid") as caught:
        load_mix("m_mid", tmp_path)
    assert caught.value.field == "mix"
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="chunk-N-trace"):
        load_mix(str(tmp_path / "empty"))
    with pytest.raises(InputError, match="no source has both lengths"):
        read_folder("x", _only_rates(tmp_path))


def _only_rates(tmp_path):
    (tmp_path / "chunk-0-trace.csv").write_text(TRACE)
    return tmp_path
