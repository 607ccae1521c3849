"""Tables of served configurations: what a row says, and what is wrong with others."""

from pathlib import Path

import pytest

from orsched.planning.validation.served import read_served
from tests.refusals import place, refusal

SILICON = Path(__file__).parent / "silicon"
HEAD, ROW = (SILICON / "rows.csv").read_text().splitlines()[:2]


def table(tmp_path, *rows, head=HEAD):
    path = tmp_path / "rows.csv"
    path.write_text("\n".join((head, *rows)) + "\n")
    return path


def changed(**cells):
    """Return the first row with some cells changed."""
    found = dict(zip(HEAD.split(","), ROW.split(","), strict=True)) | cells
    return ",".join(found.values())


def test_a_row_of_measured_configurations():
    found = {each.id: each for each in read_served(SILICON / "rows.csv")}
    assert len(found) == 130
    each = found["minimaxm2_5_b200_vllm_fp4_agg_1024x1024_c8_cfg702"]
    assert (each.model, each.gpu, each.engine) == ("MiniMaxAI/MiniMax-M2.5", "b200_sxm", "vllm")
    assert (each.precision, each.tensor, each.data, each.expert) == ("fp4", 4, 1, 1)
    assert (each.prompt_tokens, each.output_tokens, each.concurrency) == (1024, 1024, 8)
    assert each.measured == {"tpot": pytest.approx(0.00652962), "ttft": pytest.approx(0.0526578)}
    assert (each.requests, each.refused) == (None, "")
    refused = [each.refused for each in found.values() if each.refused]
    assert refused == ["prefill and decode on different GPUs"]


def test_requests_in_flight_are_those_of_all_replicas(tmp_path):
    four = {"batch_size": "16", "attention_dp_size": "4", "pp_size": ""}
    (each,) = read_served(table(tmp_path, changed(silicon_data_source="", **four)))
    assert (each.concurrency, each.data, each.pipeline) == (64, 4, 1)
    (each,) = read_served(
        table(tmp_path, changed(silicon_data_source="silicon_concurrency=50", **four))
    )
    assert each.concurrency == 50


def test_a_run_of_a_benchmark_tells_its_layout_by_its_name():
    each = read_served(SILICON / "runs.csv")[0]
    assert each.id == "glm-5/glm5_fp8_vllm_tp8_isl10240_osl128_conc16"
    assert (each.precision, each.engine, each.tensor, each.gpu) == ("fp8", "vllm", 8, "")
    assert (each.prompt_tokens, each.output_tokens, each.requests) == (10240, 128, 160)
    assert each.measured["makespan"] == pytest.approx(214.63910559937358)
    assert each.measured["throughput"] == pytest.approx(20480 / each.measured["makespan"])
    assert each.statistic == "median"


@pytest.mark.parametrize(("name", "tensor", "data", "expert", "refused"), [
    ("m/m25_vllm_tep8_isl1_osl1_conc4", 8, 1, 8, ""),
    ("m/m25_fp4_sglang_dep4", 1, 4, 4, ""),
    ("m/unknown", 1, 1, 1, "the name of the run does not tell its GPUs"),
])  # fmt: skip
def test_layouts_of_runs(tmp_path, name, tensor, data, expert, refused):
    head, row = (SILICON / "runs.csv").read_text().splitlines()[:2]
    path = table(tmp_path, f"{name},{row.partition(',')[2]}", head=head)
    (each,) = read_served(path)
    assert (each.tensor, each.data, each.expert, each.refused) == (tensor, data, expert, refused)


@pytest.mark.parametrize(("cells", "said", "where"), [
    ({"isl": "0"}, "0 is below 1", (2, "isl")),
    ({"osl": "many"}, "is not a whole number", (2, "osl")),
    ({"isl": "1e9"}, "is not a whole number", (2, "isl")),
    ({"tp_size": "-1"}, "negative", (2, "tp_size")),
    ({"batch_size": "9999999999"}, "above", (2, "batch_size")),
    ({"silicon_tpot_ms": "nan"}, "not a finite time", (2, "silicon_tpot_ms")),
    ({"silicon_ttft_ms": "-3"}, "negative", (2, "silicon_ttft_ms")),
    ({"id": " "}, "the id ' ' is empty", (2, "id")),
])  # fmt: skip
def test_wrong_cells_are_refused_with_row_and_field(tmp_path, cells, said, where):
    error = refusal(read_served, table(tmp_path, changed(**cells)))
    assert place(error) == where
    assert said in str(error)
    assert "rows.csv" in str(error)


def test_rows_that_are_no_such_table(tmp_path):
    other = table(tmp_path, "1,2", head="prompt_tokens,output_tokens")
    assert "not a table of served configurations" in str(refusal(read_served, other))
    error = refusal(read_served, table(tmp_path, ROW, ROW))
    assert place(error) == (3, "id")
    without = HEAD.replace("system", "machine")
    assert place(refusal(read_served, table(tmp_path, ROW, head=without)))[1] == "system"
    assert "is empty" in str(refusal(read_served, table(tmp_path, head="")))
