"""What all files of views share: they are of their kind with equal bytes, or are refused."""

import sys

import matplotlib
import pytest

import orsched
from orsched.common.errors import InputError, MissingDependencyError
from orsched.metrics.summary import SLO
from orsched.runner import RunSettings, run
from orsched.views.figures import save_history
from orsched.views.over_time import save_classes
from orsched.views.perfetto import microseconds, write_chrome_trace
from orsched.views.plan_and_run import save_plan_and_run
from orsched.views.records import milliseconds, write_records
from tests.views.samples import every_kind, mixed, slower

MAGIC = {".png": b"\x89PNG\r\n\x1a\n", ".svg": b"<?xml", ".pdf": b"%PDF-1.", ".json": b"{",
         ".csv": b"request_id", ".jsonl": b"{", ".parquet": b"PAR1"}  # fmt: skip


def of_a_latency(instance, schedule, path):
    orsched.save_latency(instance, schedule, path, slo=SLO(ttft_ns=20, tpot_ns=20))


def of_a_run(instance, schedule, path):
    done = run(orsched.load("with-arrivals"), "vllm", RunSettings("virtual"))
    save_plan_and_run(done.instance, done.plan, slower(done.trace), path)


def report_of_one(instance, schedule, path):
    orsched.write_report(instance, [schedule], path)


def searched():
    instance = orsched.load("gate")
    return instance, orsched.solve(instance, "hybrid", iterations=2).schedule


PICTURES = (
    (orsched.save_gantt, every_kind), (orsched.save_usage, every_kind),
    (orsched.save_timeline, every_kind), (of_a_latency, every_kind), (save_classes, mixed),
    (of_a_run, every_kind), (save_history, searched),
)  # fmt: skip
FILES = [(*each, suffix) for each in PICTURES for suffix in (".png", ".svg", ".pdf")]
FILES += [(write_records, mixed, suffix) for suffix in (".csv", ".jsonl", ".parquet")]
FILES += [(write_chrome_trace, mixed, ".json")]


@pytest.mark.parametrize(("save", "case", "suffix"), FILES)
def test_files_are_of_their_kind_and_equal_bytes_come_twice(save, case, suffix, tmp_path):
    instance, schedule = case()
    first, second = tmp_path / f"a{suffix}", tmp_path / f"b{suffix.upper()}"
    save(instance, schedule, first)
    with matplotlib.rc_context({"font.size": 20, "savefig.dpi": 40, "svg.hashsalt": None}):
        save(instance, schedule, second)  # the user's settings change nothing
    assert first.read_bytes().startswith(MAGIC[suffix])
    assert first.read_bytes() == second.read_bytes()
    assert len(first.read_bytes()) > 1000
    assert sorted(p.name for p in tmp_path.iterdir()) == [first.name, second.name]


@pytest.mark.parametrize(("save", "case"), [*PICTURES, (write_records, mixed)])
def test_other_suffixes_are_refused(save, case, tmp_path):
    with pytest.raises(InputError, match="not a suffix"):
        save(*case(), tmp_path / "a.gif")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("module", "save", "name", "remedy"), [
    ("matplotlib", orsched.save_gantt, "a.png", "pip install matplotlib"),
    ("pyarrow", write_records, "a.parquet", r"pip install 'orsched\[parquet\]'"),
    ("plotly.offline", report_of_one, "a.html", "pip install plotly"),
])  # fmt: skip
def test_a_missing_package_says_what_to_install(module, save, name, remedy, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingDependencyError, match=remedy):
        save(*every_kind(), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_times_are_exact():
    assert [microseconds(0), milliseconds(0)] == ["0.000", "0.000000"]
    assert microseconds(1_234_567) == "1234.567"
    assert microseconds(2**62) == "4611686018427387.904"
    assert milliseconds(2**62) == "4611686018427.387904"
