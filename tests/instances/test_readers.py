"""Each reader on small samples, with the traps of the published files; arrivals spread."""

import logging
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orsched import InputError, Requests
from orsched.data.chains import chains_of
from orsched.files import cells, tables
from orsched.instances.readers import FORMATS, detect, format_names, read, spread_arrivals
from tests.refusals import place, refusal

AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2023-11-16 18:17:03.9799600,4808,10\n"
    "2023-11-16 18:17:04.0319601,3180,8\n"
)
SAMPLES = {
    "azure": AZURE,
    "burstgpt": (
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,ChatGPT,472,18,490,Conversation log\n45,GPT-4,1087,230,1317,API log\n"
    ),
    "splitwise": (
        "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,"
        "token_size\n0,2,0,0.125,1,300,12\n1,2,0,1.5,1,40,9\n"
    ),
    "vidur": "arrived_at,num_prefill_tokens,num_decode_tokens\n0.5,100,20\n0.7500000015,7,3\n",
    "measured": (
        "id,arrival_s,prompt_tokens,output_tokens,queued_s,scheduled_s\n"
        "0,0.0,2358,531,0.0,2.1e-05\n1,0.265091,1034,769,0.386902,0.386912\n"
    ),
    "pairs": "id,prompt_tokens,answer_tokens\n0,74,66\n1,32,50\n",
    "llmservingsim": (
        '{"input_toks": 10, "output_toks": 4, "arrival_time_ns": 17, "input_tok_ids": [1]}\n'
        '{"input_toks": 11, "output_toks": 5, "arrival_time_ns": 1017}\n'
    ),
    "records": (
        '{"arrival_time_ms": 0.5, "input_length": 10, "output_length": 4}\n'
        '{"arrival_time_ms": 1.000001, "input_length": 11, "output_length": 5}\n'
    ),
    "llmservingsim-run": (
        '{"request_id": "bench-0", "input_toks": 10, "output_toks": 4, '
        '"arrival_time": 1777000000.25, "queued_ts": 4.5, "first_token_ts": 4.75}\n'
        '{"request_id": "bench-1", "input_toks": 11, "output_toks": 5, '
        '"arrival_time": 1777000001.2500000015}\n'
    ),
    "bailian": (
        '{"chat_id": 7, "parent_chat_id": -1, "timestamp": 61.114, "input_length": 33, '
        '"output_length": 4, "type": "text", "turn": 1, "hash_ids": [90, 91, 90]}\n'
        '{"chat_id": 8, "parent_chat_id": 7, "timestamp": 62.5, "input_length": 40, '
        '"output_length": 5, "type": "text", "turn": 2, "hash_ids": [90, 91]}\n'
    ),
    "rollouts": (
        '{"group": 0, "stream": 0, "prompt_len": 7570, "out_lens": [399, 65, 57], '
        '"obs_lens": [23, 942, 2126]}\n'
        '{"group": 0, "stream": 1, "prompt_len": 7570, "out_lens": [12], "obs_lens": []}\n'
    ),
    "servegen-offline": (
        '{"request_id": 0, "type": "text", "input_length": 61, "output_length": 20, '
        '"duration": 14000}\n'
        '{"request_id": 1, "type": "text", "input_length": 54, "output_length": 31, '
        '"duration": 11630}\n'
    ),
    "mooncake": (
        '{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}\n'
        '{"timestamp": 3000, "input_length": 512, "output_length": 6, "hash_ids": [0]}\n'
    ),
    "vllm-bench": (
        '{"date": "20261102", "total_input_tokens": 30, "total_output_tokens": 7, '
        '"input_lens": [10, 20], "output_lens": [4, 3], "start_times": [100.5, 100.75], '
        '"errors": ["", ""]}'
    ),
    "aiperf": (
        '{"metadata": {"request_start_ns": 1759813207500000000, "was_cancelled": false}, '
        '"metrics": {"input_sequence_length": {"value": 10, "unit": "tokens"}, '
        '"time_to_first_token": {"value": 187.5, "unit": "ms"}, "request_latency": '
        '{"value": 2, "unit": "s"}, "output_sequence_length": {"value": 4, "unit": "tokens"}}, '
        '"error": null}\n'
        '{"metadata": {"request_start_ns": 1759813207750000000}, "metrics": {'
        '"input_sequence_length": {"value": 20, "unit": "tokens"}, "output_sequence_length": '
        '{"value": 3, "unit": "tokens"}, "time_to_first_token": {"value": 100, "unit": "ms"}, '
        '"request_latency": {"value": 400, "unit": "ms"}}}\n'
    ),
    "guidellm": (
        '{"metadata": {}, "benchmarks": [{"requests": {"successful": [{"prompt_tokens": 10, '
        '"output_tokens": 4, "request_start_time": 1759813207.5, "first_token_time": '
        '1759813207.6875, "last_token_time": 1759813209.5}, {"prompt_tokens": 20, '
        '"output_tokens": 3, "request_start_time": 1759813207.75, "first_token_time": '
        '1759813207.85, "last_token_time": 1759813208.15}], "incomplete": [], "errored": []}}]}'
    ),
    "inference-perf": (
        '[{"start_time": 1393.5, "end_time": 1395.5, "request": "{}", "info": {"input_tokens": '
        '10, "output_tokens": 4, "output_token_times": [1393.6875, 1394, 1395, 1395.5]}, "error": '
        'null}, {"start_time": 1393.75, "end_time": 1394.15, "request": "{}", "info": '
        '{"request_metrics": {"text": {"input_tokens": 20}}, "response_metrics": {"output_tokens": '
        '3, "output_token_times": [1393.85, 1394, 1394.15]}}, "error": null}]'
    ),
    "llmperf": (
        '[{"error_code": null, "ttft_s": 0.1875, "end_to_end_latency_s": 2, '
        '"number_output_tokens": 4, "number_input_tokens": 10}, {"error_code": null, '
        '"ttft_s": 0.1, "end_to_end_latency_s": 0.4, "number_output_tokens": 3, '
        '"number_input_tokens": 20}]'
    ),
    "otlp": (
        '{"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "llm_request", '
        '"startTimeUnixNano": "1759813207500000000", "endTimeUnixNano": "1759813209500000000", '
        '"attributes": [{"key": "gen_ai.usage.prompt_tokens", "value": {"intValue": "10"}}, '
        '{"key": "gen_ai.usage.completion_tokens", "value": {"intValue": "4"}}, {"key": '
        '"gen_ai.latency.time_to_first_token", "value": {"doubleValue": 0.1875}}]}, '
        '{"name": "other"}]}]}]}\n'
        '{"resourceSpans": [{"scopeSpans": [{"spans": [{"startTimeUnixNano": '
        '"1759813207750000000", "endTimeUnixNano": "1759813208150000000", "attributes": '
        '[{"key": "gen_ai.usage.input_tokens", "value": {"intValue": 20}}, {"key": '
        '"gen_ai.usage.output_tokens", "value": {"intValue": 3}}, {"key": '
        '"gen_ai.latency.time_to_first_token", "value": {"doubleValue": 0.1}}]}]}]}]}\n'
    ),
    "openai-batch": (
        '{"custom_id": "a", "response": {"status_code": 200, "body": {"created": 1711471533, '
        '"usage": {"prompt_tokens": 10, "completion_tokens": 4}}}, "error": null}\n'
        '{"custom_id": "b", "response": {"body": {"usage": {"input_tokens": 20, "output_tokens": '
        "3}}}}\n"
    ),
    "openai-usage": (
        '{"ts": "2025-10-07T05:00:00.5Z", "usage": {"prompt_tokens": 10, "completion_tokens": '
        '4}}\n{"ts": "2025-10-07T05:00:00.75Z", "usage": {"prompt_tokens": 20, '
        '"completion_tokens": 3}}\n'
    ),
    "requests": (
        "time;promptTokens;completion tokens;class;model\n"
        "2024-05-10 09:00:00;300;20;interactive;a\n2024-05-10 09:00:01.5;40;9;batch;b\n"
    ),
}
EXPECTED = {
    "azure": ([4808, 3180], [10, 8], [0, 52_000_100]),
    "burstgpt": ([472, 1087], [18, 230], [0, 40 * 10**9]),
    "splitwise": ([300, 40], [12, 9], [0, 1_375_000_000]),
    "vidur": ([100, 7], [20, 3], [0, 250_000_002]),
    "measured": ([2358, 1034], [531, 769], [0, 265_091_000]),
    "pairs": ([74, 32], [66, 50], [0, 0]),
    "llmservingsim": ([10, 11], [4, 5], [0, 1000]),
    "records": ([10, 11], [4, 5], [0, 500_001]),
    "llmservingsim-run": ([10, 11], [4, 5], [0, 1_000_000_002]),
    "bailian": ([33, 40], [4, 5], [0, 1_386_000_000]),
    "rollouts": ([7570 + 23 + 942, 7570], [521, 12], [0, 0]),
    "servegen-offline": ([61, 54], [20, 31], [0, 0]),
    "mooncake": ([600, 512], [5, 6], [0, 3 * 10**9]),
    "vllm-bench": ([10, 20], [4, 3], [0, 250_000_000]),
    **dict.fromkeys(
        ("aiperf", "guidellm", "inference-perf", "otlp", "openai-usage"),
        ([10, 20], [4, 3], [0, 250_000_000]),
    ),
    **dict.fromkeys(("llmperf", "openai-batch"), ([10, 20], [4, 3], [0, 0])),
    "requests": ([300, 40], [20, 9], [0, 1_500_000_000]),
}


@pytest.fixture
def write(tmp_path):
    def put(text, name="trace.csv"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return put


@pytest.mark.parametrize("name", SAMPLES)
def test_each_format_is_recognised_and_read_exactly(name, write):
    path = write(SAMPLES[name])
    assert detect(path) == name
    requests, report = read(path)
    prompts, outputs, arrivals = EXPECTED[name]
    assert requests.prompt_tokens.tolist() == prompts
    assert requests.output_tokens.tolist() == outputs
    assert requests.arrival_ns.tolist() == arrivals
    assert (report.format, report.rows, report.kept, report.dropped) == (name, 2, 2, {})
    assert read(path, name).requests == requests


def test_every_format_has_a_sample():
    assert set(SAMPLES) == set(FORMATS) - {"genai-perf", "mooncake-turns"}  # refused; named
    assert format_names()[: len(FORMATS)] == list(FORMATS)


@pytest.mark.parametrize("stamps", [
    ("2024-05-10 00:00:00.009930+00:00", "2024-05-10 00:00:01.5+00:00"),
    ("2024-05-10T00:00:00.009930Z", "2024-05-10T00:00:01.5Z"),
    ("2024-05-10T02:00:00.009930+02:00", "2024-05-09T19:00:01.5-0500"),
    ("2024-05-10 00:00:00.009930", "2024-05-10T00:00:01.500000000"),
])  # fmt: skip
def test_azure_timestamps_in_both_forms(stamps, write):
    text = AZURE.splitlines()[0] + "".join(f"\n{stamp},5,6" for stamp in stamps)
    assert read(write(text)).requests.arrival_ns.tolist() == [0, 1_490_070_000]


@given(st.integers(-(10**18), 2 * 10**18), st.integers(0, 9), st.booleans())
def test_timestamps_are_exact_integers(ns, decimals, with_t):
    ns -= ns % 10 ** (9 - decimals)
    second, fraction = divmod(ns, 10**9)
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=second)
    text = moment.strftime("%Y-%m-%dT%H:%M:%S" if with_t else "%Y-%m-%d %H:%M:%S")
    if decimals:
        text += "." + f"{fraction:09d}"[:decimals]
    assert cells.timestamps([text]).tolist() == [ns]


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1))
def test_whole_numbers_read_back(numbers):
    assert cells.whole_numbers([str(n) for n in numbers]).tolist() == numbers
    assert cells.whole_numbers([f" {n}.0 " for n in numbers]).tolist() == numbers


def test_line_ends_mark_blank_lines_blanks_and_extra_columns_do_not_matter(write):
    plain = read(write(AZURE)).requests
    rows = AZURE.splitlines()
    variants = [
        "\ufeff" + AZURE, AZURE.replace("\n", "\r\n"), AZURE.rstrip("\n"),
        AZURE.replace("\n", "\n\n"), AZURE.replace(",", " , "),
        "\n".join([rows[0] + ",Note", rows[1] + ',"a\nb, c"', rows[2] + ","]),
        "\n".join('"' + row.replace(",", '","') + '"' for row in rows),
    ]  # fmt: skip
    for text in variants:
        assert read(write(text)).requests == plain


def test_lines_are_counted_over_blank_lines_quotes_and_chunks(write, monkeypatch):
    monkeypatch.setattr(tables, "CHUNK_ROWS", 2)
    head = "id,prompt_tokens,answer_tokens,note\n"
    good = "".join(f"r{i},{i + 1},2,\n" for i in range(5))
    requests = read(write(head + good)).requests
    assert requests.prompt_tokens.tolist() == [1, 2, 3, 4, 5]
    assert requests.ids == ("r0", "r1", "r2", "r3", "r4")
    for middle, line in (("\n\n", 9), ('x,1,1,"a\nb\nc"\n', 10), ("", 7)):
        assert refusal(read, write(head + good + middle + "bad,-1,2,\n")).row == line
        assert refusal(read, write(head + middle + good + "bad,1\n")).row == line


def test_rows_keep_the_order_of_the_file_and_time_starts_at_the_earliest(write):
    rows = AZURE.splitlines()
    trace = read(write("\n".join([rows[0], rows[2], rows[1]])))
    assert trace.requests.arrival_ns.tolist() == [52_000_100, 0]
    assert trace.requests.prompt_tokens.tolist() == [3180, 4808]
    assert any("not in order of arrival" in note for note in trace.report.notes)


def test_failed_requests_are_kept_out_only_when_asked_and_counted(write, caplog):
    failed = "50,GPT-4,0,0,0,API log\n60,GPT-4,9,0,9,API log\n70,GPT-4,3,4,7,x\n"
    path = write(SAMPLES["burstgpt"] + failed)
    with pytest.raises(InputError, match=r"row 4.*2 of 5 requests.*drop_empty"):
        read(path)
    with caplog.at_level(logging.INFO, "orsched.instances.readers"):
        requests, report = read(path, drop_empty=True)
    assert requests.output_tokens.tolist() == [18, 230, 4]
    assert requests.arrival_ns.tolist() == [0, 40 * 10**9, 65 * 10**9]
    assert report.dropped == {"has no output tokens": 1, "has no tokens at all": 1}
    assert report.rows == report.kept + sum(report.dropped.values()) == 5
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "3 of 5 requests" in caplog.text
    assert report.to_dict()["dropped"] == report.dropped


def test_time_starts_at_the_earliest_row_even_when_that_row_is_left_out(write):
    head, first, second = SAMPLES["burstgpt"].splitlines()
    requests, _ = read(write("\n".join([head, "1,GPT-4,0,0,0,x", first])), drop_empty=True)
    assert requests.arrival_ns.tolist() == [4 * 10**9]
    assert second.startswith("45")


def test_mooncake_blocks_become_prefixes_also_when_a_request_is_left_out(write):
    prefixes = read(write(SAMPLES["mooncake"])).requests.prefixes
    assert prefixes.block_tokens == 512
    assert prefixes.offsets.tolist() == [0, 2, 3]
    assert prefixes.ids.tolist() == [0, 1, 0]
    text = SAMPLES["mooncake"].replace("600", "32").replace("512", "16")
    assert read(write(text), block_tokens=16).requests.prefixes.block_tokens == 16
    plain = SAMPLES["mooncake"].replace(', "hash_ids": [0, 1]', "").replace(', "hash_ids": [0]', "")
    assert read(write(plain)).requests.prefixes is None
    first, second = SAMPLES["mooncake"].splitlines()
    failed = '{"timestamp": 9, "input_length": 1024, "output_length": 0, "hash_ids": [7, 8]}'
    requests, report = read(write("\n".join([failed, first, second])), drop_empty=True)
    assert report.dropped == {"has no output tokens": 1}
    assert requests.prefixes.ids.tolist() == [0, 1, 0]


TALKS = [  # seconds, prompt, answer, blocks of 16 tokens; parent
    (0, 40, 6, [0, 1, 2], -1),  # block 0 is the system prompt, and first in this conversation
    (1, 20, 4, [0, 3], -1),
    (2, 50, 6, [0, 1, 4, 5], 0),
    (2, 52, 6, [0, 1, 4, 6], -1),  # its parent would arrive at the same time, the other is taken
    (4, 60, 6, [0, 1, 4, 7], 2),
    (3, 40, 6, [0, 8, 9], -1),  # the system prompt does not make a turn of row 1
    (5, 44, 6, [0, 8, 10], -1),  # without room for the answer of row 5
    (6, 46, 6, [0, 8, 11], 5),
    (7, 46, 0, [12, 13, 14], -1),  # failed
    (8, 80, 9, [12, 13, 15, 16, 17], -1),
]


def test_mooncake_turns_follow_the_latest_request_that_they_continue(write):
    line = '{{"timestamp": {}, "input_length": {}, "output_length": {}, "hash_ids": {}}}\n'
    rows = [line.format(1000 * at, *rest) for at, *rest, _ in TALKS]
    options = {"drop_empty": True, "block_tokens": 16}
    path = write("".join(rows))
    requests, report = read(path, "mooncake-turns", **options)
    plain = read(path, **options).requests  # is not recognised as the format of turns
    assert requests.replace(parent=None, delay_ns=None) == plain
    assert plain.parent is None
    assert requests.parent.tolist() == [parent for *_, parent in TALKS[:8]] + [-1]
    assert requests.delay_ns.tolist() == [
        -1 if parent < 0 else (at - TALKS[parent][0]) * 10**9 for at, *_, parent in TALKS[:8]
    ] + [-1]
    assert (report.format, report.dropped) == ("mooncake-turns", {"has no output tokens": 1})
    assert "3 requests follow another" in " ".join(report.notes)
    chains_of(requests, 16)  # raises where a prompt does not begin with its parent's
    bare = "".join(row.partition(', "hash')[0] + "}\n" for row in rows)
    for text in (bare, bare.replace("}", ', "hash_ids": null}')):
        error = refusal(read, write(text), "mooncake-turns", drop_empty=True)
        assert (error.field, "mooncake" in error.remedy) == ("hash_ids", True)


@pytest.mark.parametrize(("ids", "said"), [("[1]", "is block 0"), ("[9, 9]", "twice")])
def test_mooncake_chains_that_disagree_are_named_by_their_line(write, ids, said):
    length = 512 * len(ids.split(","))
    third = f'{{"timestamp": 9, "input_length": {length}, "output_length": 1, "hash_ids": {ids}}}'
    error = refusal(read, write(SAMPLES["mooncake"] + third))
    assert place(error) == (3, "hash_ids")
    assert error.file
    assert said in error.problem


def test_trajectories_are_requests_of_their_group(write):
    """What follows the last turn is never read by the model."""
    requests, report = read(write(SAMPLES["rollouts"]))
    assert (requests.group.tolist(), requests.ids) == ([0, 0], ("0/0", "0/1"))
    assert any("1 trajectories" in note and "965 tokens" in note for note in report.notes)
    plain = SAMPLES["rollouts"].replace(', "obs_lens": [23, 942, 2126]', "")
    assert read(write(plain.replace(', "obs_lens": []', ""))).requests.prompt_tokens[0] == 7570
    error = refusal(read, write(SAMPLES["rollouts"].replace("[12]", "[]")))
    assert place(error) == (2, "out_lens")
    for wrong in ("[12.5]", "12", "[-1]", '["1"]', f"[{2**62 + 1}]"):
        error = refusal(read, write(SAMPLES["rollouts"].replace("[12]", wrong)))
        assert place(error) == (2, "out_lens")
    huge = SAMPLES["rollouts"].replace("[12]", f"[{2**62}, {2**62}]")
    assert refusal(read, write(huge)).field == "output_tokens"


def test_bailian_blocks_become_chains_whatever_they_hash(write):
    """The same content may stand at two places of a prompt: it is another prefix there."""
    requests, report = read(write(SAMPLES["bailian"]))
    assert requests.ids == ("7", "8")
    assert requests.prefixes.block_tokens == 16
    assert requests.prefixes.offsets.tolist() == [0, 3, 5]
    assert requests.prefixes.ids.tolist() == [0, 1, 2, 0, 1]
    assert "1 requests follow another of their chat" in " ".join(report.notes)
    twice = SAMPLES["bailian"].replace('"chat_id": 8', '"chat_id": 7')
    assert read(write(twice)).requests.ids is None
    plain = SAMPLES["bailian"].replace(', "hash_ids": [90, 91, 90]', "")
    plain = plain.replace(', "hash_ids": [90, 91]', "")
    assert read(write(plain)).requests.prefixes is None


def test_bailian_prefixes_share_what_the_blocks_share(write):
    """Against the definition: two requests share as many blocks as their lists begin alike."""
    lists = [[5, 5, 6], [5, 6, 6], [5, 5, 9], [6], [5, 5, 6, 5]]
    line = (
        '{{"chat_id": {}, "timestamp": 0, "input_length": {}, "output_length": 1, '
        '"hash_ids": {}}}\n'
    )
    text = "".join(line.format(i, 16 * len(ids), ids) for i, ids in enumerate(lists))
    found = read(write(text)).requests.prefixes
    for i, one in enumerate(lists):
        for j, other in enumerate(lists):
            true = 0
            while true < min(len(one), len(other)) and one[true] == other[true]:
                true += 1
            pairs = zip(found.of(i).tolist(), found.of(j).tolist(), strict=False)
            assert sum(a == b for a, b in pairs) == true


@pytest.mark.parametrize(("text", "field", "said"), [
    ('{"session_id": "a", "arrival_time_ns": 0, "sub_requests": []}', "sub_requests", "calls"),
    ('{"request_id": 0, "type": "text", "input_length": 4, "hash_ids": [1]}',
     "output_length", "traces a to c"),
])  # fmt: skip
def test_files_that_hold_no_requests_say_what_they_lack(text, field, said, write):
    error = refusal(read, write(text))
    assert place(error) == (1, field)
    assert said in error.problem
    assert error.remedy


def test_files_without_times_say_so(write):
    text = SAMPLES["vllm-bench"].replace(', "start_times": [100.5, 100.75]', "")
    requests, report = read(write(text))
    assert requests.arrival_ns.tolist() == [0, 0]
    assert any("no arrival times" in note for note in report.notes)
    failed = text.replace('["", ""]', '["", "timeout"]')
    requests, report = read(write(failed), drop_empty=True)
    assert requests.prompt_tokens.tolist() == [10]
    assert report.dropped == {"failed": 1}
    trace = read(write("num_prefill_tokens,num_decode_tokens,pd_ratio\n5,6,0.8\n"))
    assert trace.requests.arrival_ns.tolist() == [0]
    assert "no arrival times" in trace.report.notes[0]


def test_vllm_bench_is_recognised_when_indented_or_long(write):
    indented = SAMPLES["vllm-bench"].replace(", ", ",\n  ")
    assert detect(write(indented)) == "vllm-bench"
    assert len(read(write(indented)).requests) == 2
    many = 30_000
    text = (
        f'{{"total_input_tokens": {many}, "total_output_tokens": {many}, '
        f'"input_lens": {[1] * many}, "output_lens": {[1] * many}}}'
    )
    assert len(read(write(text)).requests) == many


def test_names_are_kept_unless_they_are_row_numbers_and_no_prompt_is_named(write):
    assert read(write(SAMPLES["pairs"])).requests.ids is None
    named = SAMPLES["pairs"].replace("1,32", "x,32")
    assert read(write(named)).requests.ids == ("0", "x")
    assert place(refusal(read, write(SAMPLES["pairs"] + "2,0,9\n"))) == (4, "prompt_tokens")


def _requests(times):
    return Requests([1] * len(times), range(1, len(times) + 1), arrival_ns=times)


def test_requests_of_a_step_are_spread_evenly_in_the_order_of_rows():
    spread = spread_arrivals(_requests([0, 3000, 0, 0, 9000, 9000]))
    assert spread.arrival_ns.tolist() == [0, 3000, 1000, 2000, 9000, 12_000]
    for times in ([], [5], [7, 7, 7]):
        assert spread_arrivals(_requests(times)) == _requests(times)


@given(
    st.lists(st.integers(0, 50).map(lambda t: t * 1000), min_size=2, max_size=60),
    st.sampled_from([None, 0, 1]),
)
def test_spreading_stays_inside_the_step_and_keeps_the_order(times, seed):
    requests = _requests(times)
    spread = spread_arrivals(requests, seed)
    before, after = requests.arrival_ns, spread.arrival_ns
    assert (after >= before).all()
    distinct = np.unique(before)
    if len(distinct) > 1:
        following = np.append(distinct[1:], distinct[-1] + np.diff(distinct).max())
        assert (after < following[np.searchsorted(distinct, before)]).all()
    order = np.argsort(before, kind="stable")
    assert (np.diff(after[order]) >= 0).all()
    assert spread.output_tokens.tolist() == requests.output_tokens.tolist()
    assert spread_arrivals(requests, seed) == spread
