"""What all pictures share: files of their kind with equal bytes, whatever the user's settings."""

from __future__ import annotations

import matplotlib
import pytest

import orsched
from orsched.common.errors import InputError
from orsched.metrics.summary import SLO
from orsched.runner import RunSettings, run
from orsched.views.over_time import save_classes
from orsched.views.plan_and_run import save_plan_and_run
from tests.views.samples import every_kind, mixed, slower

MAGIC = {".png": b"\x89PNG\r\n\x1a\n", ".svg": b"<?xml", ".pdf": b"%PDF-1."}


def of_a_latency(instance, schedule, path):
    orsched.save_latency(instance, schedule, path, slo=SLO(ttft_ns=20, tpot_ns=20))


def of_a_run(instance, schedule, path):
    done = run(orsched.load("with-arrivals"), "vllm", RunSettings("virtual"))
    save_plan_and_run(done.instance, done.plan, slower(done.trace), path)


PICTURES = (
    (orsched.save_gantt, every_kind),
    (orsched.save_usage, every_kind),
    (orsched.save_timeline, every_kind),
    (of_a_latency, every_kind),
    (save_classes, mixed),
    (of_a_run, every_kind),
)


@pytest.mark.parametrize("suffix", sorted(MAGIC))
@pytest.mark.parametrize(("save", "case"), PICTURES)
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


@pytest.mark.parametrize(("save", "case"), PICTURES)
def test_other_suffixes_are_refused(save, case, tmp_path):
    with pytest.raises(InputError, match="not a suffix"):
        save(*case(), tmp_path / "a.gif")
    assert list(tmp_path.iterdir()) == []
