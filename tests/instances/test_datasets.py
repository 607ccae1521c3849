"""The table of public data sets, verification and conversion."""

import numpy as np
import pytest

from orsched import InputError, Worker
from orsched.data.requests import NONE, conversations
from orsched.files import load_instance
from orsched.instances import datasets
from orsched.instances.datasets import DATA_SETS
from orsched.instances.readers import FORMATS, read, spread_arrivals
from tests.refusals import refusal

TRACE = '{"timestamp": 0, "input_length": 6, "output_length": 5}\n' * 4 + (
    '{"timestamp": 100, "input_length": 7, "output_length": 0}\n'
)


def test_the_table_is_complete_and_consistent():
    assert len(DATA_SETS) == 22
    for name, entry in DATA_SETS.items():
        assert entry.file.startswith(name + ".")
        assert entry.licence in {"MIT", "Apache-2.0", "CC-BY-4.0"}
        assert entry.origin.count("/") == 1
        assert entry.rows > 0
        assert len(entry.sha256) == 64
        assert entry.format is None or entry.format in FORMATS
        assert entry.licence != "CC-BY-4.0" or entry.citation
    assert len({entry.sha256 for entry in DATA_SETS.values()}) == len(DATA_SETS)


def test_verify_tells_missing_and_changed_files(tmp_path, monkeypatch):
    (tmp_path / "azure_code_2023.csv").write_text("changed\n")
    outcomes = {item.file: item for item in datasets.verify(tmp_path)}
    assert len(outcomes) == len(DATA_SETS)
    assert outcomes["azure_code_2023.csv"].status == "changed"
    assert outcomes["azure_code_2023.csv"].sha256 != DATA_SETS["azure_code_2023"].sha256
    assert outcomes["azure_conv_2023.csv"] == ("azure_conv_2023.csv", "missing", None)
    assert list(datasets.found(tmp_path)) == ["azure_code_2023"]
    changed = DATA_SETS["azure_code_2023"]._replace(sha256=outcomes["azure_code_2023.csv"].sha256)
    monkeypatch.setitem(DATA_SETS, "azure_code_2023", changed)
    assert {i.file: i.status for i in datasets.verify(tmp_path)}["azure_code_2023.csv"] == "ok"


def test_the_directory_comes_from_the_argument_or_the_environment(tmp_path, monkeypatch):
    monkeypatch.delenv(datasets.VARIABLE, raising=False)
    assert "ORSCHED_DATA" in str(refusal(datasets.data_directory))
    assert "not a directory" in str(refusal(datasets.data_directory, tmp_path / "none"))
    monkeypatch.setenv(datasets.VARIABLE, str(tmp_path))
    assert datasets.data_directory() == tmp_path


def test_convert_reads_spreads_labels_and_saves(tmp_path):
    source, target = tmp_path / "trace.jsonl", tmp_path / "out.json"
    source.write_text(TRACE)
    assert "drop_empty" in str(refusal(datasets.convert, source, target, Worker(2)))
    assert not target.exists()
    options = {"drop_empty": True, "first_token": "prefill", "name": "mine"}
    made = datasets.convert(source, target, Worker(2), **options)
    assert load_instance(target) == made.instance
    assert made.report.dropped == {"has no output tokens": 1}
    assert made.instance.name == "mine"
    assert made.instance.first_token == "prefill"
    assert "1 of 5 left out" in made.instance.description
    assert made.instance.source == "file trace.jsonl"
    source.write_text(TRACE.replace('"output_length": 0', '"output_length": 9'))
    spread = datasets.convert(source, target, Worker(2), spread=True).instance
    assert spread.requests.arrival_ns.tolist() == [0, 25 * 10**6, 50 * 10**6, 75 * 10**6, 10**8]


def test_convert_takes_a_data_set_by_name(tmp_path, monkeypatch):
    monkeypatch.setenv(datasets.VARIABLE, str(tmp_path))
    path = tmp_path / "mooncake_conversation.jsonl"
    path.write_text(TRACE.replace('"output_length": 0', '"output_length": 9'))
    name = "mooncake_conversation"
    made = datasets.convert(name, tmp_path / "a.json", Worker(2)).instance
    assert made.source == "file mooncake_conversation.jsonl"  # changed: no false attribution
    same = DATA_SETS[name]._replace(sha256=datasets.file_sha256(path))
    monkeypatch.setitem(DATA_SETS, name, same)
    made = datasets.convert(name, tmp_path / "a.json", Worker(2)).instance
    assert "kvcache-ai/Mooncake" in made.source
    assert made.licence == "Apache-2.0"
    error = refusal(datasets.convert, "oasst_trees_llama_tokens", tmp_path / "b.json", Worker(2))
    assert "holds no requests" in str(error)
    assert "azure_conv_2023" in str(error.remedy)
    with pytest.raises(InputError, match="does not exist"):
        datasets.convert("nothing-of-the-kind", tmp_path / "b.json", Worker(2))


def test_published_files_are_unchanged(data_dir):
    assert {item.status for item in datasets.verify(data_dir)} == {"ok"}
    assert set(datasets.found(data_dir)) == set(DATA_SETS)


PUBLISHED = {
    # name: (kept, prompt mean, prompt std, prompt max, output mean, output std, output max, gap CV)
    "gsm8k_llama_tokens": (1319, 68.429, 25.041, 191, 131.826, 56.726, 428, None),
    "azure_conv_2023": (19_366, 1154.7, 1108.8, 14_050, 211.1, 162.9, 1000, 1.09),
    "azure_code_2023": (8_819, 2047.8, 1973.8, 7437, 27.9, 59.9, 1899, 13.2),
    "burstgpt_head400": (383, 543.6, 550.7, None, 288.8, 297.3, None, None),
    "mooncake_conversation": (12_031, 12_035, 15_800, 126_195, 342.6, 249.9, 2000, 3.0),
    "sharegpt_10k_llama2_tokens": (10_000, 245.8, 548.9, 3973, 325.6, 241.9, 1734, None),
    "arxiv_summarization_llama2_tokens": (28_257, 2588.1, 944.7, 4054, 291.4, 530.5, 4056, None),
    "vllm_measured_rtx4090_llama31_8b": (300, 857, 527, None, 653, 98, None, 0.94),
    "vllm_measured_rtxpro6000_qwen3_32b": (300, 862, 554, None, 665, 115, None, 0.94),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_files_have_the_published_figures(name, data_dir):
    entry = DATA_SETS[name]
    requests, report = read(data_dir / entry.file, drop_empty=True)
    assert (report.format, report.rows) == (entry.format, entry.rows)
    figures = [len(requests)]
    for column in (requests.prompt_tokens, requests.output_tokens):
        figures += [column.mean(), column.std(), column.max()]
    gaps = requests.arrival_ns.copy()
    gaps.sort()
    gaps = gaps[1:] - gaps[:-1]
    figures.append(gaps.std() / gaps.mean() if gaps.any() else None)
    for figure, printed in zip(figures, PUBLISHED[name], strict=True):
        if printed is not None:
            digits = len(str(printed).partition(".")[2])
            assert round(float(figure), digits) == printed
    assert sum(report.dropped.values()) == entry.rows - len(requests)


def test_mooncake_prefixes_and_steps(data_dir):
    requests = read(data_dir / "mooncake_conversation.jsonl").requests
    prefixes = requests.prefixes
    assert len(prefixes.ids) == 288_500
    assert len(set(prefixes.ids.tolist())) == 182_790
    assert (prefixes.ids[prefixes.offsets[:-1]] == 0).all()
    assert len(set(requests.arrival_ns.tolist())) == 1180
    gaps = spread_arrivals(requests, seed=0).arrival_ns
    gaps = gaps[1:] - gaps[:-1]
    assert abs(gaps.std() / gaps.mean() - 1) < 0.1


def test_mooncake_turns(data_dir):
    """Each count beside what a turn must be."""
    requests = read(data_dir / "mooncake_conversation.jsonl", "mooncake-turns").requests
    turns = np.flatnonzero(requests.parent != NONE)
    parents = requests.parent[turns]
    assert (len(turns), int(conversations(requests.parent)[1].max())) == (3535, 42)
    assert len(set(parents.tolist())) == len(parents)
    room = requests.prompt_tokens[parents] + requests.output_tokens[parents]
    assert (requests.prompt_tokens[turns] >= room).all()
    for turn, parent in zip(turns.tolist(), parents.tolist(), strict=True):
        known = requests.prefixes.of(parent)[: requests.prompt_tokens[parent] // 512]
        assert requests.prefixes.of(turn)[: len(known)].tolist() == known.tolist()
    assert (
        requests.delay_ns[turns] == np.diff(requests.arrival_ns[[parents, turns]], axis=0)
    ).all()
    assert (requests.delay_ns[turns] > 0).all()
