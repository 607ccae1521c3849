"""The program beside DistServe's first figure finds rates that keep the limits, and no larger."""

from __future__ import annotations

import pytest

from benchmarks.reproductions import disaggregation as program

ONE, TWO = program.ROWS[0], program.ROWS[3]


def test_the_rate_found_keeps_the_limits_and_a_larger_one_does_not():
    rate = program.goodput(ONE, 0, 150, (True, True))
    for factor, kept in ((1.0, True), (1.5, False)):
        instance = program.instance_of(ONE, rate * factor, 0, 150)
        ttft, tpot = program.latencies_ns(instance, program.run(ONE, instance))
        assert (ttft <= program.TTFT_NS and tpot <= program.TPOT_NS) == kept


def test_one_limit_allows_no_smaller_rate_than_both():
    both = program.goodput(ONE, 0, 150, (True, True))
    for limits in ((True, False), (False, True)):
        assert program.goodput(ONE, 0, 150, limits) >= both


@pytest.mark.full
def test_tables_have_a_line_for_each_split(capsys):
    program.main(["--requests", "60", "--seeds", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + len(program.ROWS) + 1 + 2 + 4
    assert [line.split(" | ")[0] for line in lines[2 : 2 + len(program.ROWS)]] == [
        f"| {row.split}" for row in program.ROWS
    ]


def test_a_token_takes_the_bytes_of_the_model():
    """Llama 2 13B: 800 KiB a token, as the catalogue has it."""
    assert program.KV_BYTES == 800 * 1024
    assert program.LINKS[TWO.link].ns_per_token == 2731
