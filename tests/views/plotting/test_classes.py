"""What classes get over time: areas of the curves are the reported numbers; pictures show them."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure

import orsched
from orsched.common.errors import InputError
from orsched.data.memory import PrefixCache
from orsched.data.requests import Prefixes
from orsched.metrics.summary import summarise
from orsched.views import style
from orsched.views.class_curves import class_curves, has_class_curves, tells_classes_apart
from orsched.views.classes import classes, save_classes
from orsched.views.gantt import gantt
from tests.views.plotting.samples import by_hand, random_instance, served


def mixed(seed=0, policy="vllm", limits=("interactive:ttft=2,tpot=0.05",)):
    """Interactive requests that arrive beside bulk ones, of three tenants, with paged memory."""
    draw = np.random.default_rng(seed)
    kind = draw.integers(0, 2, 40)
    requests = orsched.Requests(
        np.where(kind == 0, draw.integers(50, 400, 40), draw.integers(500, 2000, 40)),
        draw.integers(10, 200, 40),
        arrival_ns=np.where(kind == 0, draw.integers(0, 20 * 10**9, 40), 0),
        service_class=kind,
        tenant=[["ada", "bob", "cy"][k] for k in draw.integers(0, 3, 40)],
    )
    memory = orsched.BlockMemory(500, 16, allocation="paged")
    worker = orsched.Worker(8, orsched.AffineCost(), memory=memory)
    instance = orsched.Instance(requests, worker, first_token="prefill", name="mixed")
    instance = instance.with_classes(*limits) if limits else instance
    return instance, orsched.simulate(instance, policy).schedule


@pytest.mark.parametrize("seed", range(3))
def test_areas_of_the_curves_are_the_reported_numbers(seed):
    instance, schedule = mixed(seed)
    results, curves = summarise(instance, schedule), class_curves(instance, schedule)
    width = np.diff(curves.borders_ns)
    batch, interactive = results["classes"]["batch"], results["classes"]["interactive"]
    again = int(summed_prefills(instance, schedule)) - batch["prompt_tokens"]
    assert (again > 0) == (batch["recomputed_tokens"] > 0)
    done = batch["prompt_tokens"] + again + batch["output_tokens"]
    assert (curves.bulk * width).sum() / 1e9 == pytest.approx(done, rel=1e-9)
    held = sum((values * width).sum() for _, values in curves.owners)
    assert held == pytest.approx(results["kv_blocks"]["block_ns"], rel=1e-9)
    assert [name for name, _ in curves.owners] == ["interactive", "bulk"]
    share = interactive["slo"]["token_attainment"]
    there = curves.attainment[~np.isnan(curves.attainment)]
    assert there.min() <= share <= there.max()
    assert (share == 1) == (there == 1).all()
    for name, values in curves.service:
        part = results["tenants"][name]
        assert values[-1] == part["prompt_tokens"] + 2 * part["output_tokens"]
    assert curves.hits is None


def test_blocks_of_prefix_caches_are_those_of_running_requests_and_cached_ones():
    draw = np.random.default_rng(3)
    kind = draw.integers(0, 2, 40)
    prompts = draw.integers(200, 600, 40)
    requests = orsched.Requests(
        prompts,
        draw.integers(10, 80, 40),
        arrival_ns=np.where(kind == 0, draw.integers(0, 9 * 10**9, 40), 0),
        service_class=kind,
        prefixes=Prefixes.from_documents(draw.integers(0, 4, 40), np.full(40, 192), 16),
    )
    memory = orsched.BlockMemory(150, 16, "paged", prefix_cache=PrefixCache())
    worker = orsched.Worker(6, orsched.AffineCost(), memory=memory)
    instance = orsched.Instance(requests, worker, first_token="prefill")
    instance = instance.with_classes("interactive:ttft=2,tpot=0.05")
    schedule = orsched.simulate(instance, "vllm").schedule
    results, curves = summarise(instance, schedule), class_curves(instance, schedule)
    width = np.diff(curves.borders_ns)
    owners = dict(curves.owners)
    assert list(owners) == ["interactive", "bulk", "cached"]
    running = ((owners["interactive"] + owners["bulk"]) * width).sum()
    assert running == pytest.approx(results["kv_blocks"]["block_ns"], rel=1e-9)
    assert (sum(owners.values()) <= curves.blocks + 1e-6).all()
    assert results["hit_tokens"] > 0
    by_class = results["classes"].values()
    assert sum(part["hit_tokens"] for part in by_class) == results["hit_tokens"]
    assert sum(part["recomputed_tokens"] for part in by_class) == results["recomputed_tokens"]
    hits = curves.hits[~np.isnan(curves.hits)]
    assert hits.min() <= results["hit_rate"] <= hits.max()
    axes = classes(instance, schedule, Figure())
    words = {text.get_text() for ax in axes for text in ax.get_legend().get_texts()}
    assert {"cached, free", "prompt tokens found in the cache"} <= words


def summed_prefills(instance, schedule):
    work = schedule.work
    return work.tokens[(work.phase == 0) & instance.bulk[work.request]].sum()


def test_without_classes_and_tenants_there_is_nothing_to_show():
    instance = random_instance()
    assert not has_class_curves(instance)
    with pytest.raises(InputError, match="neither classes with limits nor tenants"):
        classes(instance, served(instance))


def test_rows_are_those_that_have_something_to_show():
    instance, schedule = mixed()
    axes = classes(instance, schedule, Figure())
    assert [ax.get_ylabel() for ax in axes] == [
        "share (%)", "KV blocks", "tokens/s", "service\n(weighted tokens)"
    ]  # fmt: skip
    gids = {child.get_gid() for ax in axes for child in ax.get_children()}
    assert {"attainment", "owner-interactive", "owner-bulk", "bulk", "tenant-0"} <= gids
    words = {text.get_text() for ax in axes for text in ax.get_legend().get_texts()}
    assert {"tokens in time", "interactive running", "bulk running", "tenant ada"} <= words
    (bulk,) = [c for c in axes[1].get_children() if c.get_gid() == "owner-bulk"]
    assert bulk.get_hatch() == style.BULK_HATCH
    alone = instance.replace(
        requests=instance.requests.replace(tenant=None, tenants=None),
        workers=orsched.Worker(8),
    )
    axes = classes(alone, orsched.simulate(alone, "vllm").schedule, Figure())
    assert [ax.get_ylabel() for ax in axes] == ["share (%)", "tokens/s"]


def test_equal_input_gives_equal_bytes_and_wrong_suffixes_are_refused(tmp_path):
    instance, schedule = mixed()
    for name in ("a.png", "b.png"):
        save_classes(instance, schedule, tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(InputError, match="is not a suffix"):
        save_classes(instance, schedule, tmp_path / "a.gif")


def collections(ax):
    return {each.get_gid(): each for each in ax.collections}


def test_the_gantt_chart_tells_bulk_requests_apart():
    instance, schedule = mixed(limits=())
    assert tells_classes_apart(instance)
    ax = gantt(instance, schedule, Figure().add_subplot())
    found = collections(ax)
    bars = len(found["decode"].get_paths()) + len(found["bulk"].get_paths())
    bulk = instance.bulk[schedule.work.request] & (schedule.work.phase == 1)
    assert bars == (schedule.work.phase == 1).sum()
    assert len(found["bulk"].get_paths()) == bulk.sum()
    assert found["bulk"].get_hatch() == style.BULK_HATCH
    assert found["decode"].get_hatch() is None
    assert "decode of a bulk request" in [t.get_text() for t in ax.get_legend().get_texts()]


def test_charts_of_one_class_are_what_they_were():
    ax = gantt(*by_hand(), Figure().add_subplot())
    assert "bulk" not in collections(ax)
    assert "decode of a bulk request" not in [t.get_text() for t in ax.get_legend().get_texts()]


def test_colours_differ_in_lightness_where_hatching_is_not_seen():
    def lightness(colour):
        red, green, blue = (int(colour[k : k + 2], 16) for k in (1, 3, 5))
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    for pair in (style.DECODE_COLOURS, style.BULK_COLOURS):
        assert abs(lightness(pair[0]) - lightness(pair[1])) > 40
