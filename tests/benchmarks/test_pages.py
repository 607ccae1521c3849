"""The tables of the pages are what the commands on them print."""

import os

import pytest

import orsched
from benchmarks.pages import PARTS, Part, numbers, printed, said, stray, strays, tables
from orsched.calibration.candidates import calibrate
from orsched.calibration.fit import fit
from orsched.calibration.observed import averaged, observed
from orsched.instances.datasets import VARIABLE

PAGE = """
## One

| method | makespan s | K | Pang |
| --- | ---: | ---: | --- |
| fcfs | 199.06 | 1,724 | 201.00 s |
| **GPT-2** | +0.3 ± 0.1 % | 5 | |
| paper | 3 | 4 | |

## Two

| a |
| --- |
| 7 |
"""
PRINTED = ["method  information  seeds", "fcfs  none  10  199.06  1,724.40  5 us", "x 0.30 ±0.12 5"]


def test_the_tables_of_a_section_are_its_own():
    assert [len(table) for table in tables(PAGE, "One")] == [4]
    assert (tables(PAGE, "Two"), tables(PAGE, "Three")) == ([[["a"], ["7"]]], [])


def test_tables_that_stand_as_they_are_printed_are_tables():
    text = """
## One

```console
$ program  # not a heading of two  cells
```

```text
== seeds 0 to 4

policy           mean s  p99 over sjf, %
gittins, no aging  8.30  -4.7 [-9.9, +0.6]

risk  mean s
0     6.53
```

## Two
"""
    first, second = tables(text, "One")
    assert second == [["risk", "mean s"], ["0", "6.53"]]
    assert stray(first, ["gittins, no aging  x  8.30  -4.7 [-9.9, +0.6]"]) == []
    assert stray(first, ["gittins, no aging  x  8.30  -4.7 [-9.8, +0.6]"]) == [
        "8.30 | -4.7 [-9.9, +0.6]"
    ]
    assert tables(text, "Two") == []


@pytest.mark.parametrize(
    ("old", "new"), [("199.06", "199.07"), ("1,724", "1,725"), ("+0.3", "-0.3"), ("| 5", "| 6")]
)
def test_a_number_that_is_not_printed_is_found(old, new):
    assert stray(tables(PAGE, "One")[0], PRINTED) == []
    (row,) = stray(tables(PAGE.replace(old, new), "One")[0], PRINTED)
    assert new.strip("| ") in row


def test_numbers_are_rounded_as_the_page_has_them_and_never_the_other_way():
    assert said(["1724"], ["1724.4"])
    assert said(["+1.4"], ["1.41"])
    assert not said(["1724.4"], ["1724"])
    assert not said(["2", "1"], ["1", "2"])
    # names are no numbers
    assert numbers("GPT-2, p95, LLaMA2, -3.5 % and 1,024..2,048") == ["-3.5", "1024", "2048"]


def test_the_commands_and_sections_are_on_the_pages(repo_root):
    for part in PARTS:
        text = (repo_root / "docs" / part.page).read_text()
        for heading in part.headings:
            assert tables(text, heading), f"{part.page}: {heading}"


@pytest.mark.full
@pytest.mark.parametrize("part", PARTS, ids=lambda part: f"{part.page} {part.headings[0]}")
def test_the_page_has_what_its_command_prints(part):
    if part.data and not os.environ.get(VARIABLE):
        pytest.skip(f"{VARIABLE} does not name the data sets")
    assert strays(part) == []


def test_what_the_page_on_calibration_says_of_the_fit_is_so(repo_root):
    instance = orsched.load("pang-100x20")
    steps = observed(instance, orsched.solve(instance, "online").schedule)
    cost = calibrate(averaged(steps)).candidate("affine").cost
    text = (repo_root / "docs" / "calibrate.md").read_text()
    words = f"{cost.prefill_fixed_ns / 1e6:.3f} ms and\n{cost.prefill_token_ns / 1e3:.1f} µs"
    assert words in text
    assert fit("affine", steps.measurements()).cost == instance.workers[0].cost
    assert (cost.round_fixed_ns, cost.round_client_ns) == (29_000_000, 210_000)


@pytest.mark.parametrize("data", [False, True])
def test_commands_see_the_data_sets_only_where_the_page_does(data, monkeypatch):
    monkeypatch.setenv(VARIABLE, "a folder")
    words = f"python -c 'import os; print(os.environ.get(\"{VARIABLE}\"))'"
    assert printed(Part("page.md", words, (), data=data)) == ["a folder" if data else "None"]
