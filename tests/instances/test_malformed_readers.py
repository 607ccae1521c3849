"""Wrong and damaged trace files are refused with file, row, field and remedy."""

from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orsched.common.errors import InputError
from orsched.instances.readers import read
from tests.instances.test_readers import SAMPLES
from tests.refusals import refusal

FOLDER = Path(__file__).parent / "broken"


class Case(NamedTuple):
    """A file's text (or bytes), what the error must say of it, and the format argument."""

    name: str
    text: str | bytes
    row: int | None
    field: str | None
    problem: str
    remedy: str
    format: str | None = None


AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n"
BURST = (
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,ChatGPT,472,18,490,Conversation log\n"
)
VIDUR = "arrived_at,num_prefill_tokens,num_decode_tokens\n0.5,100,20\n"
PAIRS = "id,prompt_tokens,answer_tokens\n0,74,66\n"
SPLIT = (
    "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size\n"
    "0,2,0,0.1,1,300,12\n"
)
MEASURED = "id,arrival_s,prompt_tokens,output_tokens,queued_s\n0,0.0,2358,531,0.0\n"
MOON = '{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}\n'
PLAIN_MOON = '{"timestamp": 0, "input_length": 600, "output_length": 5}\n'
SERVING = '{"input_toks": 10, "output_toks": 4, "arrival_time_ns": 0}\n'
RUN = '{"request_id": "a", "input_toks": 10, "output_toks": 4, "arrival_time": 1777000000.5}\n'
CHAT = (
    '{"chat_id": 0, "timestamp": 0, "input_length": 32, "output_length": 5, "hash_ids": [1, 2]}\n'
)
RECORD = '{"arrival_time_ms": 0.5, "input_length": 10, "output_length": 4}\n'
BENCH = '{"total_input_tokens": 30, "total_output_tokens": 7, "input_lens": [10, 20]'

OWN = "prompt_len,output_len,timestamp\n374,44,1700000000.25\n"
LINE = '{"prompt_len": 5, "output_len": 3, "arrived_at": 3.5}\n'
OWN_CASES = [
    ("own, one to rename", "ctx,output_tokens\n1,2\n", 1, "prompt_tokens",
     "unknown column prompt_tokens", 'rename the column "ctx" to "prompt_tokens"'),
    ("own, two to rename", "ctx,gen\n1,2\n", 1, "prompt_tokens", "and none for output_t",
     'rename the columns "ctx" to "prompt_tokens" and "gen" to "output_tokens"'),
    ("own, no hint", "prompt_tokens,foo,bar\n1,2,3\n", 1, "output_tokens", "unknown column",
     'rename the column of these to "output_tokens": "foo", "bar"'),
    ("own, misspelt", "prompt_tokens,output_tokens,arival_s\n1,2,3\n", 1, "arival_s",
     "is like a column", 'rename the column "arival_s" to "arrival_s"'),
    ("own, twice meant", "prompt_len,input_tokens,output_len\n1,2,3\n", 1, "input_tokens",
     'both "prompt_len" and "input_tokens" could be', "keep one"),
    ("own, two deadlines", "prompt_len,output_len,deadline_s,deadline_ns\n1,2,3,4\n", 1,
     "deadline_ns", "both", "keep one", "requests"),
    ("own, decimal comma", OWN.replace(",", ";") + "3;4;0,5\n", 3, "timestamp",
     "'0,5' is not a time: it has a comma", "write 0.5 with a decimal point"),
    ("own, thousands", OWN.replace(",", ";") + "1,024;4;0\n", 3, "prompt_len",
     "'1,024' is not a whole number: it has a comma", "write 1024 without commas"),
    ("own, some of 1970", OWN + "3,4,0.5\n", 3, "timestamp", "some of the times count from 1970",
     "in the same way"),
    ("own, ms for s", OWN.replace("timestamp", "arrival_s").replace("1700", "1700000"), 2,
     "arrival_s", "too large for a time", "a Unix time in milliseconds?"),
    ("own, s too large", OWN.replace("timestamp", "arrival_s").replace("1700", "4000"), 2,
     "arrival_s", "too large for a time", "the largest time is 2**61 ns (73 years)"),
    ("own, foreign date", OWN + "3,4,10.05.2024 09:00\n", 3, "timestamp", "is not a time",
     "2023-11-16 18:17:03"),
    ("own, date and number", OWN.replace("1700000000.25", "2023-11-16 18:17:03") + "3,4,5\n", 3,
     "timestamp", "'5' is not a timestamp", "look like"),
    ("own, number NaN", OWN + "3,4,nan\n", 3, "timestamp", "not a finite", "seconds"),
    ("own, negative time", OWN + "3,4,-1\n", 3, "timestamp", "negative", "seconds"),
    ("own, no time", OWN + "3,4,\n", 3, "timestamp", "missing", "seconds"),
    ("own, fraction of ns", "prompt_len,output_len,arrival_ns\n1,2,0.5\n", 2, "arrival_ns",
     "'0.5' is not a whole number", "nanoseconds", "requests"),
    ("own, no answer", OWN + "3,0,1700000000\n", 3, "output_len", "no output tokens", "drop_empty"),
    ("own, id twice", "id,prompt_len,output_len\na,1,2\n\n,,\na,1,2\n", 5, "id",
     "'a' appears twice", "unique"),
    ("own, class", "prompt_len,output_len,class\n1,2,fast\n", 2, "class",
     "'fast' is not a service class", "interactive, batch; --class"),
    ("own, prediction 0", "prompt_len,output_len,predicted_tokens\n1,2,0\n", 2, "predicted_tokens",
     "0 is below 1", "at least one"),
    ("own, header only", "prompt_len,output_len\n", None, None, "no request", "at least"),
    ("own, short row", OWN + "3,4\n", 3, None, "2 cells where 3", "cut off"),
    ("own, quoted lines", 'prompt_len,output_len,note\n1,2,"a\nb"\n3,x,c\n', 4, "output_len",
     "'x' is not a whole number", "whole"),
    ("own, line lacks a name", LINE + '{"prompt_len": 5, "output_len": 3}\n', 2, "arrived_at",
     "missing", "fill it in"),
    ("own, truth value", LINE + LINE.replace("3,", "true,"), 2, "output_len",
     "true is not a number or a text", "give a number or a text"),
    ("own, long number", LINE + LINE.replace("3,", "9" * 5000 + ","), 2, None,
     "a number of 5000 digits", "64 bits"),
]  # fmt: skip

CASES = [
    ("empty file", "", None, None, "the file is empty", "write it again"),
    ("blank file", "\n \n", None, None, "the file is empty", "write it again"),
    ("header only", AZURE.splitlines()[0] + "\n", None, None, "no request", "at least"),
    ("binary", b"id,\0\0\0", None, None, "NUL bytes", "UTF-8"),
    ("parquet", b"PAR1abcdPAR1", None, None, "Parquet", "CSV"),
    ("zip", b"PK\x03\x04abc", None, None, "spreadsheet", "CSV"),
    ("not utf-8", PAIRS.encode() + b"\xe9,1,2\n", 3, None, "not UTF-8", "UTF-8"),
    ("unknown header", "a,b,c\n1,2,3\n", 1, None, "no known format", "name the format"),
    ("header missing", "0,74,66\n", 1, None, "header is missing", "first line"),
    ("a column missing", "TIMESTAMP,ContextTokens\n", 1, "GeneratedTokens", "looks like azure",
     "ContextTokens, GeneratedTokens"),
    ("tabs, cut", PAIRS.replace(",", "\t") + "1\t2\n", 3, None, "2 cells", "cut off"),
    ("twice", "id,id,prompt_tokens,answer_tokens\n", 1, "id", "appears twice", ""),
    ("wrong format named", AZURE, 1, "num_prefill_tokens", "unknown column", "first line", "vidur"),
    ("unknown format", AZURE, None, "format", "unknown format", "azure", "parchment"),
    ("short row", AZURE + "2023-11-16 18:17:04,1\n", 3, None, "2 cells", "cut off"),
    ("long row", PAIRS + "1,1,024,5\n", 3, None, "4 cells", "quote texts"),
    ("open quote", PAIRS + '1,"2,3\n', 3, None, "not valid CSV", "quotes"),
    ("time mangled", AZURE + "17:04.0,1,1\n", 3, "TIMESTAMP", "'17:04.0' is not a timestamp",
     "spreadsheet"),
    ("thirteenth month", AZURE + "2023-13-01 00:00:00,1,1\n", 3, "TIMESTAMP", "not a timestamp",
     "2023-11-16"),
    ("hour 25", AZURE + "2023-11-16 25:00:00,1,1\n", 3, "TIMESTAMP", "not a time", "look"),
    ("year 3000", AZURE + "3000-01-01 00:00:00,1,1\n", 3, "TIMESTAMP", "too far", "year"),
    ("no time", AZURE + ",1,1\n", 3, "TIMESTAMP", "missing", "its time"),
    ("azure, no answer", AZURE + "2023-11-16 18:17:04,9,0\n", 3, "GeneratedTokens",
     "no output tokens", "drop_empty"),
    ("burst failure", BURST + "7,GPT-4,0,0,0,API log\n", 3, "Request tokens",
     "no tokens at all (1 of 2", "drop_empty"),
    ("burst sum", BURST + "7,GPT-4,5,5,11,API log\n", 3, "Total tokens", "11 is not 5 + 5",
     "correct the row"),
    ("vidur, time NaN", VIDUR + "nan,1,1\n", 3, "arrived_at", "finite", "seconds"),
    ("vidur, time inf", VIDUR + "inf,1,1\n", 3, "arrived_at", "finite", "seconds"),
    ("vidur, time < 0", VIDUR + "-1,1,1\n", 3, "arrived_at", "negative", "seconds"),
    ("vidur, huge time", VIDUR + "1e999999999,1,1\n", 3, "arrived_at", "large", "sec"),
    ("vidur, word", VIDUR + "soon,1,1\n", 3, "arrived_at", "not a number", "seconds"),
    ("fraction", VIDUR + "1,1.5,1\n", 3, "num_prefill_tokens", "'1.5' is not", "whole"),
    ("grouped", VIDUR + "1,1_000,1\n", 3, "num_prefill_tokens", "'1_000' is not", "who"),
    ("grouped seconds", VIDUR + "1_0.5,1,1\n", 3, "arrived_at", "'1_0.5' is not", "sec"),
    ("other digits", VIDUR + "1,\u0663,1\n", 3, "num_prefill_tokens", "is not", "whole"),
    ("other digits of seconds", VIDUR + "\u0663,1,1\n", 3, "arrived_at", "is not", "sec"),
    ("negative", VIDUR + "1,1,-4\n", 3, "num_decode_tokens", "-4 is negative", "0 or"),
    ("too long", VIDUR + f"1,1,{2**31}\n", 3, "num_decode_tokens", "above", "whole"),
    ("65 bits", VIDUR + f"1,1,{10**30}\n", 3, "num_decode_tokens", "64 bits", "fewer"),
    ("no tokens", VIDUR + "1,,1\n", 3, "num_prefill_tokens", "missing", "whole"),
    ("NaN tokens", PAIRS + "1,NaN,1\n", 3, "prompt_tokens", "'NaN' is not", "whole"),
    ("id twice", PAIRS + "x,1,1\nx,1,1\n", 4, "id", "twice, first in row 3", "unique"),
    ("no id", PAIRS + " ,1,1\n", 3, "id", "missing", "its name"),
    ("batch", SPLIT + "1,2,0,0.2,4,5,5\n", 3, "batch_size", "batch of 4", "of its own"),
    ("measured", MEASURED + "1,x,1,1,0\n", 3, "arrival_s", "'x' is not", "seconds"),
    ("cut jsonl", MOON + '{"timestamp": 1, "inp', 2, None, "not valid JSON at column", "cut short"),
    ("not an object", MOON + "7\n", 2, None, "not a JSON object", "one JSON object"),
    ("json NaN", MOON + '{"timestamp": NaN}\n', 2, None, "NaN", "finite number"),
    ("deep json", MOON + "[" * 100_000 + "\n", 2, None, "nested too deeply", "inner levels"),
    ("field missing", PLAIN_MOON + '{"timestamp": 1}\n', 2, "input_length", "the value is missing",
     "fill it in"),
    ("text for number", PLAIN_MOON + PLAIN_MOON.replace("600", '"600"'), 2, "input_length",
     '"600" is not a number', "give a number"),
    ("true for number", PLAIN_MOON + PLAIN_MOON.replace("600", "true"), 2, "input_length",
     "true is not a number", "give a number"),
    ("fraction in json", PLAIN_MOON + PLAIN_MOON.replace("600", "6.5"), 2, "input_length",
     "'6.5' is not a whole number", "whole number"),
    ("negative in json", PLAIN_MOON + PLAIN_MOON.replace("600", "-6"), 2, "input_length",
     "-6 is negative", "0 or more"),
    ("too few blocks", MOON + MOON.replace("[0, 1]", "[0]"), 2, "hash_ids",
     "1 blocks of 512 tokens for a prompt of 600", "block_tokens"),
    ("blocks missing", MOON + PLAIN_MOON, 2, "hash_ids", "others none", "for none"),
    ("blocks later", PLAIN_MOON + MOON, 2, "hash_ids", "others none", "for none"),
    ("blocks are a number", MOON + MOON.replace("[0, 1]", "7"), 2, "hash_ids", "not a list",
     "list"),
    ("block is text", MOON + MOON.replace("[0, 1]", '[0, "a"]'), 2, "hash_ids",
     "'a' is not a whole number", "list"),
    ("run, no time", RUN + RUN.replace('"arrival_time"', '"arrived"'), 2, "arrival_time",
     "the value is missing", "fill it in"),
    ("run, tokens in words", RUN + RUN.replace("10,", '"ten",'), 2, "input_toks",
     "is not a number", "give a number"),
    ("chat, blocks", CHAT + CHAT.replace("32", "90"), 2, "hash_ids",
     "2 blocks of 16 tokens for a prompt of 90", "block_tokens"),
    ("chat, blocks of some", CHAT + CHAT.replace(', "hash_ids": [1, 2]', ""), 2, "hash_ids",
     "some requests have blocks", "for every request or for none"),
    ("chat, time", CHAT + CHAT.replace('stamp": 0', 'stamp": -1'), 2, "timestamp",
     "-1 is negative", "0 or more"),
    ("serving, time < 0", SERVING + SERVING.replace('ns": 0', 'ns": -5'), 2, "arrival_time_ns",
     "negative", "0 or more"),
    ("record, huge time", RECORD + RECORD.replace("0.5", "1e300"), 2, "arrival_time_ms",
     "too large", "0 or more"),
    ("json exponent", RECORD + RECORD.replace("0.5", "1e9999999999999999999"), 2, None,
     "1e9999999999999999999 is too large for a number", "finite number"),
    ("key twice", PLAIN_MOON + PLAIN_MOON.replace("{", '{"timestamp": 4, '), 2, "timestamp",
     "appears twice", "keep one"),
    ("key twice inside", MOON + MOON.replace("[0, 1]", '{"a": 1, "a": 2}'), 2, "a",
     "appears twice", "keep one"),
    ("bench, array twice", BENCH + ', "input_lens": [1, 2], "output_lens": [7, 1]}', None,
     "input_lens", "appears twice", "keep one"),
    ("bench, exponent", BENCH + ', "output_lens": [7, 1e9999999999999999999]}', None, None,
     "1e9999999999999999999 is too large", "finite number"),
    ("bench, no detail", BENCH.partition(', "input_lens"')[0] + "}", None, "input_lens", "missing",
     "--save-detailed"),
    ("bench, lengths differ", BENCH + ', "output_lens": [7]}', None, "output_lens",
     "1 values where 2", "one value a request"),
    ("bench, failure", BENCH + ', "output_lens": [7, 0], "errors": ["", "boom"]}', 1,
     "output_lens", "failed (1 of 2", "drop_empty"),
    ("bench, two results", (BENCH + ', "output_lens": [7, 1]}\n') * 2, None, "format",
     "holds 2 runs", "vllm-bench:2", "vllm-bench"),
    ("bench, no array", BENCH + ', "output_lens": 7}', None, "output_lens", "not an array", ""),
    *OWN_CASES,
    ("conversations", '[{"conversations": []}]', None, None, "not token counts", "tokenizer"),
    ("conversations, lines", '{"id": "a", "conversations": []}\n', None, None, "not token counts",
     "tokenizer"),
]  # fmt: skip

BROKEN = {
    "truncated.jsonl": (None, 3, None, "not valid JSON at column", "cut short"),
    "semicolons.csv": (None, 3, "Arrival", "'0,5' is not a time: it has a comma", "write 0.5 with"),
    "utf16.csv": (None, None, None, "UTF-16", "save it as UTF-8"),
    "excel_times.csv": (None, 2, "TIMESTAMP", "'17:04.0' is not a timestamp", "original file"),
    "negative_tokens.csv": (None, 3, "num_prefill_tokens", "-1 is negative", "0 or more"),
    "no_header.csv": (None, 1, None, "header is missing", "id, prompt_tokens, answer_tokens"),
    "short_row.csv": (None, 4, None, "2 cells where 3", "cut off"),
    "duplicate_ids.csv": (None, 4, "id", "'a' appears twice", "unique"),
    "nan_tokens.csv": (None, 4, "prompt_tokens", "'NaN' is not a whole number", "whole number"),
    "gzip_bytes.csv": (None, None, None, "gzip-compressed", "gunzip"),
    "no_detail.json": (None, None, "input_lens", "the array is missing", "--save-detailed"),
    "thousands.csv": (None, 3, None, "8 cells where 6", "separators of thousands"),
    "latin1.csv": (None, 3, None, "not UTF-8", "UTF-8"),
    "conversations.json": (None, None, None, "not token counts", "tokenizer"),
}
"""Files in ``broken/``: format argument, row, field, part of the problem, part of the remedy."""


def _check(error, file, row, field, problem, remedy):
    if field != "format":
        assert error.file == str(file)
    assert (error.row, error.field) == (row, field)
    assert problem in error.problem
    assert remedy in (error.remedy or "")
    assert str(error).endswith(")") or error.remedy is None


@pytest.mark.parametrize("case", [pytest.param(Case(*case), id=case[0]) for case in CASES])
def test_malformed_text(case, tmp_path):
    path = tmp_path / "trace"
    path.write_bytes(case.text if isinstance(case.text, bytes) else case.text.encode())
    error = refusal(read, path, case.format)
    _check(error, path, case.row, case.field, case.problem, case.remedy)


@pytest.mark.parametrize("name", BROKEN)
def test_broken_file(name):
    format, *expected = BROKEN[name]
    _check(refusal(read, FOLDER / name, format), FOLDER / name, *expected)


def test_every_broken_file_is_in_the_table_and_every_case_has_its_own_name():
    assert {path.name for path in FOLDER.iterdir()} == set(BROKEN)
    assert len({case[0] for case in CASES}) == len(CASES) >= 25


@pytest.mark.parametrize("name", ["does not exist", "."])
def test_what_is_no_file_is_refused(name, tmp_path):
    assert refusal(read, tmp_path / name).file == str(tmp_path / name)


PIECES = [b"", b",", b"\n", b"\r", b'"', b"{", b"]", b"-", b"1e9", b"NaN", b"null", b"\xff", b"\0"]


@pytest.mark.parametrize("name", SAMPLES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damage(name, tmp_path, data):
    raw = SAMPLES[name].encode()
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(raw)))
        width = data.draw(st.sampled_from([0, 1, 2, 10, 1000]))
        raw = raw[:start] + data.draw(st.sampled_from(PIECES)) + raw[start + width :]
    path = tmp_path / "trace"
    path.write_bytes(raw)
    for format in (None, name):
        try:
            requests, report = read(path, format, drop_empty=True)
        except InputError as error:
            named = error.file
        else:
            named = report.file
            assert len(requests) == report.kept == report.rows - sum(report.dropped.values())
        assert named == str(path)
