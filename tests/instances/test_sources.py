"""Mixes of sources, and ServeGen's tables and own files: what is drawn, what is refused."""

import json

import numpy as np
import pytest

from orsched import InputError, Worker
from orsched.instances import draw_sources, load_mix, source_mix
from orsched.instances.catalog import generate
from orsched.instances.servegen import FOLDERS, SERVEGEN, read_folder, read_servegen
from orsched.instances.source_mix import Lengths, LengthWindow, Source, SourceMix, Window
from tests.refusals import place, refusal

WORKER = Worker(8)
lognormal = source_mix.lognormal_lengths
LENGTHS = (LengthWindow(0, lognormal(100, 0.5, 1000), lognormal(50, 1, 800)),)

RATES = "client,window_start_s,rate_rps,gap_cv,family,param1,param2\n"
LAWS = (
    "client,window_start_s,field,mass,mean,std,q01,q05,q10,q20,q30,q40,q50,q60,q70,q80,q90,q95,"
    "q99,max\n"
)
QUANTILES = "10,20,30,40,50,60,70,80,90,100,110,120,130,200"


def mix(*sources):
    return SourceMix("mine", sources)


def source(name, *windows, lengths=LENGTHS):
    return Source(name, windows, lengths)


@pytest.mark.parametrize(("family", "shape", "square"), [
    ("Gamma", 1.0, 1), ("Gamma", 0.25, 4), ("Weibull", 0.6, 3.09), ("Weibull", 2.0, 0.273),
])  # fmt: skip
def test_windows_have_the_expected_number_of_requests(family, shape, square):
    """Also of bursty sources: the process begins stationary, not with an arrival."""
    one = mix(source("a", Window(0, 0.5, family, shape)))
    counts = [len(draw_sources(one, WORKER, seed=seed)) for seed in range(150)]
    assert one.expected(0, source_mix.WINDOW_S) == 300
    error = 4 * np.sqrt(300 * square / 150)
    assert abs(np.mean(counts) - 300) < error


def test_gaps_have_the_variation_of_their_law():
    steady, bursty = (
        draw_sources(mix(source("a", Window(0, 40, "Gamma", shape))), WORKER)
        for shape in (4.0, 0.0625)
    )
    for instance, cv in ((steady, 0.5), (bursty, 4)):
        gaps = np.diff(instance.requests.arrival_ns)
        assert abs(gaps.std() / gaps.mean() - cv) < 0.12 * cv


def test_rates_follow_the_windows():
    one = mix(source("a", Window(0, 1, "Gamma", 1), Window(1200, 9, "Gamma", 1)))
    instance = draw_sources(one, WORKER, start_s=300, duration_s=1500)
    seconds = instance.requests.arrival_ns / 1e9 + 300
    assert not ((seconds >= 600) & (seconds < 1200)).any()
    assert abs((seconds < 600).sum() - 300) < 70
    assert abs((seconds >= 1200).sum() - 5400) < 300
    assert seconds.max() < 1800
    assert one.expected(300, 1500) == 300 + 5400
    assert one.span_s == 1800


def test_a_rate_scales_all_sources_alike():
    both = mix(source("a", Window(0, 3, "Gamma", 1)), source("b", Window(0, 1, "Gamma", 1)))
    instance = draw_sources(both, WORKER, rate=40)
    names = [name.partition("/")[0] for name in instance.requests.ids]
    assert abs(len(names) - 40 * source_mix.WINDOW_S) < 800
    assert abs(names.count("a") / len(names) - 0.75) < 0.02


def test_lengths_change_with_their_windows():
    def law(tokens):
        return Lengths((float(tokens),) * 13, float(tokens), float(tokens))

    lengths = (LengthWindow(300, law(5), law(6)), LengthWindow(400, law(50), law(60)))
    one = mix(source("a", Window(0, 5, "Gamma", 1), lengths=lengths))
    instance = draw_sources(one, WORKER)
    late = instance.requests.arrival_ns >= 400 * 10**9
    assert late.any()
    assert not late.all()
    assert np.array_equal(instance.requests.prompt_tokens, np.where(late, 50, 5))
    assert np.array_equal(instance.requests.output_tokens, np.where(late, 60, 6))


def test_lengths_have_quantiles_mean_and_maximum_of_their_table():
    uniform = (np.arange(100_000) + 0.5) / 100_000
    for mean, sigma, largest in ((100, 0.5, 1000), (300, 1.0, 4000), (50, 1.5, 9000)):
        law = source_mix.lognormal_lengths(mean, sigma, largest)
        drawn = law.draw(uniform)
        assert abs(drawn.mean() / mean - 1) < 0.02
        assert drawn.max() <= largest
        assert (np.diff(drawn) >= 0).all()
        assert abs(np.quantile(drawn, 0.5) - law.quantiles[6]) <= 1
        assert abs(np.quantile(drawn, 0.95) - law.quantiles[11]) <= 2
    constant = Lengths((12.0,) * 13, 12.0, 12.0)
    assert set(constant.draw(uniform).tolist()) == {12}
    assert Lengths((0.2,) * 13, 0.3, 0.2).draw(uniform).min() == 1


def test_a_further_source_shifts_none_of_the_others():
    a, b = source("a", Window(0, 2, "Gamma", 0.5)), source("b", Window(0, 1, "Weibull", 0.7))

    def rows(instance, name):
        req = instance.requests
        return [
            (req.arrival_ns[i], req.prompt_tokens[i], req.output_tokens[i])
            for i, request in enumerate(req.ids)
            if request.startswith(f"{name}/")
        ]

    alone, beside = draw_sources(mix(a), WORKER, seed=3), draw_sources(mix(b, a), WORKER, seed=3)
    assert rows(alone, "a") == rows(beside, "a")
    assert rows(beside, "b")
    assert draw_sources(mix(a), WORKER, seed=3) == alone
    assert draw_sources(mix(a), WORKER, seed=4) != alone
    assert (np.diff(beside.requests.arrival_ns) >= 0).all()
    assert len(set(beside.requests.ids)) == len(beside)


def test_the_synthetic_mix_ships_and_is_a_generator():
    chosen = load_mix("synthetic")
    assert chosen.span_s == 3600
    instance = generate("sources", seed=2, duration_s=3600, clients=16)
    assert abs(len(instance) - chosen.expected(0, 3600)) < 3000
    assert {name.partition("/")[0] for name in instance.requests.ids} == {
        one.name for one in chosen.sources
    }
    assert instance.first_token == "prefill"
    assert instance.worker.clients == 16


def test_wrong_arguments_and_mixes_that_are_none_are_named(tmp_path):
    one = mix(source("a", Window(0, 2, "Gamma", 1)))
    for options in ({"start_s": -1}, {"duration_s": 0}, {"rate": 0}, {"seed": -1}):
        assert [refusal(draw_sources, one, WORKER, **options).field] == list(options)
    error = refusal(draw_sources, one, WORKER, start_s=600, rate=3)
    assert "has no requests from 600 s on" in str(error)
    assert len(draw_sources(one, WORKER, start_s=600)) == 0
    assert "requests are expected" in str(refusal(draw_sources, one, WORKER, rate=1e8))
    assert "unknown mix 'nothing'" in str(refusal(load_mix, "nothing"))
    assert "servegen_deepseek_r1_rates" in str(refusal(load_mix, "deepseek_r1", tmp_path))
    for name in ("m_tiny", "synthetic", "../m_small"):
        error = refusal(read_servegen, name, tmp_path / "rates.csv", tmp_path / "lengths.csv")
        assert (error.field, "m_small" in str(error)) == ("mix", True)


def write_tables(folder, rates, laws):
    (folder / "servegen_m_small_rates.csv").write_text(RATES + rates)
    (folder / "servegen_m_small_lengths.csv").write_text(LAWS + laws)


def test_tables_of_servegen_are_read(tmp_path):
    write_tables(
        tmp_path,
        "7,600,2.5,1,Weibull,0.01,3\n7,0,1.5,1,Gamma,0.5,3\n9,0,1,1,Gamma,1,1\n",
        f"7,0,input_tokens,1,75,9,{QUANTILES}\n7,0,output_tokens,1,75,9,{QUANTILES}\n"
        f"7,0,reason_ratio,1,0.5,0.1,{QUANTILES}\n",
    )
    found = load_mix("m_small", tmp_path)
    assert [one.name for one in found.sources] == ["7", "9"]
    windows = (Window(0, 1.5, "Gamma", 0.5), Window(600, 2.5, "Weibull", 0.2))
    assert found.sources[0].windows == windows
    law = found.sources[0].lengths[0].prompt
    assert law == Lengths(tuple(10.0 * k for k in range(1, 14)), 200.0, 75.0)
    # A source without a table gets the mean of the others': here that of the only one.
    assert found.sources[1].lengths[0].prompt == law
    assert "ServeGen" in found.source


@pytest.mark.parametrize(("rates", "laws", "problem"), [
    ("7,0,x,1,Gamma,0.5,3\n", "", "'x' is not a number"),
    ("7,0,-1,1,Gamma,0.5,3\n", "", "finite number above 0"),
    ("7,0,1,1,Pareto,0.5,3\n", "", "'Pareto' is not a family"),
    ("7,0,1,1,Gamma\n", "", "5 cells where 7"),
    ("7,0,1,1,Gamma,0.5,3\n", "", "no source has both lengths"),
    ("7,0,1,1,Gamma,0.5,3\n", f"7,0,input_tokens,1,nan,9,{QUANTILES}\n", "finite number"),
])  # fmt: skip
def test_wrong_tables_are_named_with_the_line(tmp_path, rates, laws, problem):
    write_tables(tmp_path, rates, laws)
    error = str(refusal(load_mix, "m_small", tmp_path))
    assert "servegen_m_small" in error
    assert problem in error


# Rate-weighted means over all windows, from the description of the data: prompt, output tokens.
MEANS = {"deepseek_r1": (86_400, 1268, 1527), "m_small": (14 * 86_400, 120, 15)}


@pytest.mark.full
@pytest.mark.parametrize("name", MEANS)
def test_the_published_mixes_have_the_published_means(name, data_dir):
    span, prompt, output = MEANS[name]
    rate = 300_000 / span
    instance = draw_sources(name, WORKER, duration_s=span, rate=rate)
    assert abs(len(instance) / 300_000 - 1) < 0.1
    # The lengths of five sources of m_small are not published: the others stand for them.
    allowed = 0.2 if name == "m_small" else 0.05
    assert abs(instance.requests.prompt_tokens.mean() / prompt - 1) < allowed
    assert abs(instance.requests.output_tokens.mean() / output - 1) < allowed


# -- ServeGen's own files: read as they are published, refused where wrong ----------------------


TRACE = "0,2.5,1.1,Gamma,0.5,0.8\n600,0,0,,0,0\n1200,0.5,9,Weibull,0.01,0.002\n"
FOLDER_LAWS = {
    "0": {"input_tokens": "{10: 0.25, 30: 0.75}", "output_tokens": "{5: 1.0}"},
    "21600": {"input_tokens": "{}", "output_tokens": "{}"},
}


def inputs(law):
    return {"0": {**FOLDER_LAWS["0"], "input_tokens": law}}


@pytest.fixture
def write(tmp_path):
    def put(folder="language/m-mid", trace=TRACE, laws=FOLDER_LAWS, client=0):
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
    found = load_mix(name, tmp_path)
    assert found.name == name
    windows = (Window(0, 2.5, "Gamma", 0.5), Window(1200, 0.5, "Weibull", 0.2))
    assert found.sources[0].windows == windows
    (window,) = found.sources[0].lengths
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
    parts = {"text_tokens": "{1: 0.5, 3: 0.5}", "image_tokens": "{0: 0.5, 10: 0.5}"}
    parts |= {"audio_tokens": "{0: 1.0}", "video_tokens": "{0: 1.0}"}
    none = dict.fromkeys(("text_tokens", "image_tokens", "output_tokens"), "{0: 1.0}")
    laws = {"0": {**parts, "image_count": "{1: 1.0}", "output_tokens": "{2: 1.0}"}, "21600": none}
    (window,) = read_folder("x", write(laws=laws)).sources[0].lengths
    # 1, 3, 11 and 13 tokens, a quarter each.
    assert (window.prompt.mean, window.prompt.largest) == (pytest.approx(7.0), 13.0)
    assert [window.prompt.quantiles[i] for i in (0, 4, 5, 8, 12)] == [1.0, 3.0, 3.0, 11.0, 13.0]


def test_a_client_without_lengths_gets_the_mean_of_the_others(write):
    write(client=3)
    folder = write(client=11, laws=None)
    found = read_folder("x", folder)
    assert [one.name for one in found.sources] == ["3", "11"]
    assert found.sources[1].lengths[0].prompt == found.sources[0].lengths[0].prompt


@pytest.mark.parametrize(("trace", "laws", "row", "field", "said"), [
    ("0,1,1,Pareto,1,1\n", FOLDER_LAWS, 1, "family", "'Pareto' is not a family"),
    ("0,1,1,Gamma,1,1\n600,x,1,Gamma,1,1\n", FOLDER_LAWS, 2, "rate_rps", "'x' is not a number"),
    ("0,1,1,Gamma,1\n", FOLDER_LAWS, 1, None, "5 fields where 6"),
    (TRACE, "{", None, None, "is not JSON"),
    (TRACE, {"0": {"output_tokens": "{1: 1.0}"}}, None, "0/input_tokens", "missing"),
    (TRACE, {"0": {"input_tokens": "{1: 1.0}"}}, None, "0/output_tokens", "missing"),
    (TRACE, inputs("{1: 0.5}"), None, "0/input_tokens", "sum to"),
    (TRACE, inputs("__import__('os')"), None, "0/input_tokens", "is not a text of the form"),
    (TRACE, inputs("{open('x'): 1.0}"), None, "0/input_tokens", "is not tokens: share"),
    (TRACE, {"now": FOLDER_LAWS["0"]}, None, "now", "is not a window"),
])  # fmt: skip
def test_wrong_files_are_named(write, trace, laws, row, field, said):
    folder = write(trace=trace, laws=laws)
    error = refusal(read_folder, "x", folder)
    assert error.file.startswith(str(folder))
    assert place(error) == (row, field)
    assert said in error.problem
    assert error.remedy


def test_more_tokens_than_any_prompt_has_take_no_memory(write):
    """Shares are held for each number of tokens: 30 bytes of text asked for 16 GB."""
    with pytest.raises(InputError, match="more than 16777216 tokens"):
        read_folder("x", write(laws=inputs("{999999999: 1.0}")))
    for cell in ("9" * 200_000, '"' + "x\n" * 100_000):  # nor does a cell without end
        error = refusal(read_folder, "x", write(trace=f"0,2.5,1.1,Gamma,0.5,0.8\n0,1,1,{cell}\n"))
        assert (error.row, "not a CSV table" in str(error)) == (2, True)


def test_what_is_not_there_is_named(tmp_path):
    error = refusal(load_mix, "m_mid", tmp_path)
    assert (error.field, "language/m-mid" in str(error)) == ("mix", True)
    (tmp_path / "empty").mkdir()
    assert "chunk-N-trace" in str(refusal(load_mix, str(tmp_path / "empty")))
    (tmp_path / "chunk-0-trace.csv").write_text(TRACE)  # rates only
    assert "no source has both lengths" in str(refusal(read_folder, "x", tmp_path))
