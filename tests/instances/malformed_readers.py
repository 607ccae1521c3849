"""Wrong trace files: the text, and what the error must say of it."""

from __future__ import annotations

from typing import NamedTuple


class Case(NamedTuple):
    """A file's text (or bytes) and the expected format argument, row, field and remedy."""

    name: str
    format: str | None
    text: str | bytes
    row: int | None
    field: str | None
    problem: str
    remedy: str


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
    Case("own, one to rename", None, "ctx,output_tokens\n1,2\n", 1, "prompt_tokens",
         "no column prompt_tokens", 'rename the column "ctx" to "prompt_tokens"'),
    Case("own, two to rename", None, "ctx,gen\n1,2\n", 1, "prompt_tokens", "and none for output_t",
         'rename the columns "ctx" to "prompt_tokens" and "gen" to "output_tokens"'),
    Case("own, no hint", None, "prompt_tokens,foo,bar\n1,2,3\n", 1, "output_tokens", "no column",
         'rename the column of these to "output_tokens": "foo", "bar"'),
    Case("own, misspelt", None, "prompt_tokens,output_tokens,arival_s\n1,2,3\n", 1, "arival_s",
         "is like a column", 'rename the column "arival_s" to "arrival_s"'),
    Case("own, twice meant", None, "prompt_len,input_tokens,output_len\n1,2,3\n", 1,
         "input_tokens", 'both "prompt_len" and "input_tokens" could be', "keep one"),
    Case("own, two deadlines", "requests",
         "prompt_len,output_len,deadline_s,deadline_ns\n1,2,3,4\n", 1,
          "deadline_ns", "both", "keep one"),
    Case("own, decimal comma", None, OWN.replace(",", ";") + "3;4;0,5\n", 3, "timestamp",
         "'0,5' is not a time: it has a comma", "write 0.5 with a decimal point"),
    Case("own, thousands", None, OWN.replace(",", ";") + "1,024;4;0\n", 3, "prompt_len",
         "'1,024' is not a whole number: it has a comma", "write 1024 without commas"),
    Case("own, some of 1970", None, OWN + "3,4,0.5\n", 3, "timestamp",
         "some of the times count from 1970", "in the same way"),
    Case("own, ms for s", None, OWN.replace("timestamp", "arrival_s").replace("1700", "1700000"), 2,
         "arrival_s", "too large for a time", "a Unix time in milliseconds?"),
    Case("own, s too large", None, OWN.replace("timestamp", "arrival_s").replace("1700", "4000"), 2,
         "arrival_s", "too large for a time", "the largest time is 2**61 ns (73 years)"),
    Case("own, foreign date", None, OWN + "3,4,10.05.2024 09:00\n", 3, "timestamp", "is not a time",
         "2023-11-16 18:17:03"),
    Case("own, date and number", None, OWN.replace("1700000000.25", "2023-11-16 18:17:03")
         + "3,4,5\n", 3, "timestamp", "'5' is not a timestamp", "look like"),
    Case("own, number NaN", None, OWN + "3,4,nan\n", 3, "timestamp", "not a finite", "seconds"),
    Case("own, negative time", None, OWN + "3,4,-1\n", 3, "timestamp", "negative", "seconds"),
    Case("own, no time", None, OWN + "3,4,\n", 3, "timestamp", "missing", "seconds"),
    Case("own, fraction of ns", "requests", "prompt_len,output_len,arrival_ns\n1,2,0.5\n", 2,
         "arrival_ns", "'0.5' is not a whole number", "nanoseconds"),
    Case("own, no answer", None, OWN + "3,0,1700000000\n", 3, "output_len", "no output tokens",
         "drop_empty"),
    Case("own, id twice", None, "id,prompt_len,output_len\na,1,2\n\n,,\na,1,2\n", 5, "id",
         "'a' appears twice", "unique"),
    Case("own, class", None, "prompt_len,output_len,class\n1,2,fast\n", 2, "class",
         "'fast' is not a service class", "interactive, batch; --class"),
    Case("own, prediction 0", None, "prompt_len,output_len,predicted_tokens\n1,2,0\n", 2,
         "predicted_tokens", "0 is below 1", "at least one"),
    Case("own, header only", None, "prompt_len,output_len\n", None, None, "no request", "at least"),
    Case("own, short row", None, OWN + "3,4\n", 3, None, "2 cells where 3", "cut off"),
    Case("own, quoted lines", None, 'prompt_len,output_len,note\n1,2,"a\nb"\n3,x,c\n', 4,
         "output_len", "'x' is not a whole number", "whole"),
    Case("own, line lacks a name", None, LINE + '{"prompt_len": 5, "output_len": 3}\n', 2,
         "arrived_at", "missing", "fill it in"),
    Case("own, truth value", None, LINE + LINE.replace("3,", "true,"), 2, "output_len",
         "true is not a number or a text", "give a number or a text"),
    Case("own, long number", None, LINE + LINE.replace("3,", "9" * 5000 + ","), 2, None,
         "a number of 5000 digits", "64 bits"),
]  # fmt: skip

CASES = [
    Case("empty file", None, "", None, None, "the file is empty", "write it again"),
    Case("blank file", None, "\n \n", None, None, "the file is empty", "write it again"),
    Case("header only", None, AZURE.splitlines()[0] + "\n", None, None, "no request", "at least"),
    Case("binary", None, b"id,\0\0\0", None, None, "NUL bytes", "UTF-8"),
    Case("parquet", None, b"PAR1abcdPAR1", None, None, "Parquet", "CSV"),
    Case("zip", None, b"PK\x03\x04abc", None, None, "spreadsheet", "CSV"),
    Case("not utf-8", None, PAIRS.encode() + b"\xe9,1,2\n", 3, None, "not UTF-8", "UTF-8"),
    Case("unknown header", None, "a,b,c\n1,2,3\n", 1, None, "no known format", "name the format"),
    Case("header missing", None, "0,74,66\n", 1, None, "header is missing", "first line"),
    Case(
        "a column missing", None, "TIMESTAMP,ContextTokens\n", 1, "GeneratedTokens",
        "looks like azure", "ContextTokens, GeneratedTokens",
    ),
    Case("tabs, cut", None, PAIRS.replace(",", "\t") + "1\t2\n", 3, None, "2 cells", "cut off"),
    Case("twice", None, "id,id,prompt_tokens,answer_tokens\n", 1, "id", "appears twice", ""),
    Case("wrong format named", "vidur", AZURE, 1, "num_prefill_tokens", "no column", "first line"),
    Case("unknown format", "parchment", AZURE, None, "format", "no format", "azure"),
    Case("short row", None, AZURE + "2023-11-16 18:17:04,1\n", 3, None, "2 cells", "cut off"),
    Case("long row", None, PAIRS + "1,1,024,5\n", 3, None, "4 cells", "quote texts"),
    Case("open quote", None, PAIRS + '1,"2,3\n', 3, None, "not valid CSV", "quotes"),
    Case(
        "time mangled", None, AZURE + "17:04.0,1,1\n", 3, "TIMESTAMP",
        "'17:04.0' is not a timestamp", "spreadsheet",
    ),
    Case(
        "thirteenth month", None, AZURE + "2023-13-01 00:00:00,1,1\n", 3, "TIMESTAMP",
        "not a timestamp", "2023-11-16",
    ),
    Case(
        "hour 25", None, AZURE + "2023-11-16 25:00:00,1,1\n", 3, "TIMESTAMP", "not a time", "look"
    ),
    Case(
        "year 3000", None, AZURE + "3000-01-01 00:00:00,1,1\n", 3, "TIMESTAMP", "too far", "year"
    ),
    Case("no time", None, AZURE + ",1,1\n", 3, "TIMESTAMP", "missing", "its time"),
    Case(
        "azure, no answer", None, AZURE + "2023-11-16 18:17:04,9,0\n", 3, "GeneratedTokens",
        "no output tokens", "drop_empty",
    ),
    Case("burst failure", None, BURST + "7,GPT-4,0,0,0,API log\n", 3, "Request tokens",
         "no tokens at all (1 of 2", "drop_empty"),
    Case("burst sum", None, BURST + "7,GPT-4,5,5,11,API log\n", 3, "Total tokens",
         "11 is not 5 + 5", "correct the row"),
    Case("vidur, time NaN", None, VIDUR + "nan,1,1\n", 3, "arrived_at", "finite", "seconds"),
    Case("vidur, time inf", None, VIDUR + "inf,1,1\n", 3, "arrived_at", "finite", "seconds"),
    Case("vidur, time < 0", None, VIDUR + "-1,1,1\n", 3, "arrived_at", "negative", "seconds"),
    Case("vidur, huge time", None, VIDUR + "1e999999999,1,1\n", 3, "arrived_at", "large", "sec"),
    Case("vidur, word", None, VIDUR + "soon,1,1\n", 3, "arrived_at", "not a number", "seconds"),
    Case("fraction", None, VIDUR + "1,1.5,1\n", 3, "num_prefill_tokens", "'1.5' is not", "whole"),
    Case("grouped", None, VIDUR + "1,1_000,1\n", 3, "num_prefill_tokens", "'1_000' is not", "who"),
    Case("grouped seconds", None, VIDUR + "1_0.5,1,1\n", 3, "arrived_at", "'1_0.5' is not", "sec"),
    Case("other digits", None, VIDUR + "1,\u0663,1\n", 3, "num_prefill_tokens", "is not", "whole"),
    Case("other digits of seconds", None, VIDUR + "\u0663,1,1\n", 3, "arrived_at", "is not", "sec"),
    Case("negative", None, VIDUR + "1,1,-4\n", 3, "num_decode_tokens", "-4 is negative", "0 or"),
    Case("too long", None, VIDUR + f"1,1,{2**31}\n", 3, "num_decode_tokens", "above", "whole"),
    Case("65 bits", None, VIDUR + f"1,1,{10**30}\n", 3, "num_decode_tokens", "64 bits", "fewer"),
    Case("no tokens", None, VIDUR + "1,,1\n", 3, "num_prefill_tokens", "missing", "whole"),
    Case("NaN tokens", None, PAIRS + "1,NaN,1\n", 3, "prompt_tokens", "'NaN' is not", "whole"),
    Case("id twice", None, PAIRS + "x,1,1\nx,1,1\n", 4, "id", "twice, first in row 3", "unique"),
    Case("no id", None, PAIRS + " ,1,1\n", 3, "id", "missing", "its name"),
    Case("batch", None, SPLIT + "1,2,0,0.2,4,5,5\n", 3, "batch_size", "batch of 4", "of its own"),
    Case("measured", None, MEASURED + "1,x,1,1,0\n", 3, "arrival_s", "'x' is not", "seconds"),
    Case("cut jsonl", None, MOON + '{"timestamp": 1, "inp', 2, None, "not valid JSON at column",
         "cut short"),
    Case("not an object", None, MOON + "7\n", 2, None, "not a JSON object", "one JSON object"),
    Case("json NaN", None, MOON + '{"timestamp": NaN}\n', 2, None, "NaN", "finite number"),
    Case("deep json", None, MOON + "[" * 100_000 + "\n", 2, None, "nested too deeply",
         "inner levels"),
    Case("field missing", None, PLAIN_MOON + '{"timestamp": 1}\n', 2, "input_length",
         "the value is missing", "fill it in"),
    Case("text for number", None, PLAIN_MOON + PLAIN_MOON.replace("600", '"600"'), 2,
         "input_length", '"600" is not a number', "give a number"),
    Case("true for number", None, PLAIN_MOON + PLAIN_MOON.replace("600", "true"), 2,
         "input_length", "true is not a number", "give a number"),
    Case("fraction in json", None, PLAIN_MOON + PLAIN_MOON.replace("600", "6.5"), 2,
         "input_length", "'6.5' is not a whole number", "whole number"),
    Case("negative in json", None, PLAIN_MOON + PLAIN_MOON.replace("600", "-6"), 2,
         "input_length", "-6 is negative", "0 or more"),
    Case("too few blocks", None, MOON + MOON.replace("[0, 1]", "[0]"), 2, "hash_ids",
         "1 blocks of 512 tokens for a prompt of 600", "block_tokens"),
    Case("blocks missing", None, MOON + PLAIN_MOON, 2, "hash_ids", "others none", "for none"),
    Case("blocks later", None, PLAIN_MOON + MOON, 2, "hash_ids", "others none", "for none"),
    Case("blocks are a number", None, MOON + MOON.replace("[0, 1]", "7"), 2, "hash_ids",
         "not a list", "list"),
    Case("block is text", None, MOON + MOON.replace("[0, 1]", '[0, "a"]'), 2, "hash_ids",
         "'a' is not a whole number", "list"),
    Case("run, no time", None, RUN + RUN.replace('"arrival_time"', '"arrived"'), 2, "arrival_time",
         "the value is missing", "fill it in"),
    Case("run, tokens in words", None, RUN + RUN.replace("10,", '"ten",'), 2, "input_toks",
         "is not a number", "give a number"),
    Case("chat, blocks", None, CHAT + CHAT.replace("32", "90"), 2, "hash_ids",
         "2 blocks of 16 tokens for a prompt of 90", "block_tokens"),
    Case("chat, blocks of some", None, CHAT + CHAT.replace(', "hash_ids": [1, 2]', ""), 2,
         "hash_ids", "some requests have blocks", "for every request or for none"),
    Case("chat, time", None, CHAT + CHAT.replace('stamp": 0', 'stamp": -1'), 2, "timestamp",
         "-1 is negative", "0 or more"),
    Case("serving, time < 0", None, SERVING + SERVING.replace('ns": 0', 'ns": -5'), 2,
         "arrival_time_ns", "negative", "0 or more"),
    Case("record, huge time", None, RECORD + RECORD.replace("0.5", "1e300"), 2,
         "arrival_time_ms", "too large", "0 or more"),
    Case("json exponent", None, RECORD + RECORD.replace("0.5", "1e9999999999999999999"), 2, None,
         "1e9999999999999999999 is too large for a number", "finite number"),
    Case("key twice", None, PLAIN_MOON + PLAIN_MOON.replace("{", '{"timestamp": 4, '), 2,
         "timestamp", "appears twice", "keep one"),
    Case("key twice inside", None, MOON + MOON.replace("[0, 1]", '{"a": 1, "a": 2}'), 2,
         "a", "appears twice", "keep one"),
    Case("bench, array twice", None, BENCH + ', "input_lens": [1, 2], "output_lens": [7, 1]}', None,
         "input_lens", "appears twice", "keep one"),
    Case("bench, exponent", None, BENCH + ', "output_lens": [7, 1e9999999999999999999]}', None,
         None, "1e9999999999999999999 is too large", "finite number"),
    Case("bench, no detail", None, BENCH.partition(', "input_lens"')[0] + "}", None, "input_lens",
         "missing", "--save-detailed"),
    Case("bench, lengths differ", None, BENCH + ', "output_lens": [7]}', None, "output_lens",
         "1 values where 2", "one value a request"),
    Case("bench, failure", None, BENCH + ', "output_lens": [7, 0], "errors": ["", "boom"]}', 1,
         "output_lens", "failed (1 of 2", "drop_empty"),
    Case("bench, two results", "vllm-bench", (BENCH + ', "output_lens": [7, 1]}\n') * 2, None, None,
         "not valid JSON at line 2", "--append-result"),
    Case("bench, no array", None, BENCH + ', "output_lens": 7}', None, "output_lens",
         "not an array", ""),
    *OWN_CASES,
    Case("conversations", None, '[{"conversations": []}]', None, None, "not token counts",
         "tokenizer"),
    Case("conversations, lines", None, '{"id": "a", "conversations": []}\n', None, None,
         "not token counts", "tokenizer"),
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
