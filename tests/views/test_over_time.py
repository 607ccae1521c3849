"""Charts over time: the areas of the curves are the reported numbers; pictures show them."""

import numpy as np
import pytest
from matplotlib.figure import Figure

import orsched
from orsched.common.errors import InputError
from orsched.data.memory import PrefixCache
from orsched.data.requests import Prefixes
from orsched.metrics.summary import summarise
from orsched.metrics.timeline import Timeline
from orsched.views import curves as module
from orsched.views import style
from orsched.views.curves import Curve, class_curves, client_curves, load_curves, means, sum_of
from orsched.views.gantt import gantt
from orsched.views.over_time import classes, timeline_chart, usage
from tests.metrics.any_schedule import any_schedule
from tests.seeds import seeds
from tests.views import samples
from tests.views.samples import by_hand, every_kind, mixed, random_instance, served, use_of


def pairs(curve):
    return samples.rows_of(curve.time_ns, curve.value)


def area(curve, until):
    return int((np.diff(curve.time_ns, append=until) * curve.value).sum())


def shown(axes, figure=None):
    """What the legends say."""
    legends = figure.legends if figure else [ax.get_legend() for ax in axes]
    return [text.get_text() for legend in legends for text in legend.get_texts()]


def test_curves_of_changes_and_intervals():
    assert pairs(module.curve_of(np.array([5, 2, 5, 2]), np.array([1, 3, -1, 0]))) == [(2, 3)]
    one = module.interval_curve(np.array([0, 4, 6]), np.array([6, 4, 9]), np.array([2, 7, 1]))
    assert pairs(one) == [(0, 2), (6, 1), (9, 0)]
    two = module.interval_curve(np.array([1]), np.array([6]))
    assert pairs(sum_of([one, two])) == [(0, 2), (1, 3), (6, 1), (9, 0)]
    assert pairs(sum_of([])) == []


def test_means_are_areas_by_width():
    curve = Curve(np.array([2, 6]), np.array([3, 0]))
    assert means(curve, np.array([0.0, 4.0, 5.0, 10.0])).tolist() == [1.5, 3.0, 0.6]
    assert means(Curve(np.array([], np.int64), np.array([], np.int64)), np.arange(3.0)).sum() == 0


def test_clients_by_hand():
    found = {name: pairs(curve) for name, curve in client_curves(Timeline(*every_kind())).items()}
    assert found == {
        "prefill": [(0, 3), (20, 1), (42, 0)],
        "decode": [(14, 1), (20, 3), (26, 2), (38, 1), (47, 2), (59, 0)],
        "invalid": [(26, 1), (38, 0)],
        "paused": [(42, 1), (47, 0)],
    }


@pytest.mark.parametrize("seed", seeds(8, 30))
def test_areas_are_the_reported_client_times(seed):
    instance, schedule = any_schedule(seed)
    curves, results = client_curves(Timeline(instance, schedule)), summarise(instance, schedule)
    assert set(curves) == set(style.USES)
    total = {name: area(curve, schedule.makespan_ns) for name, curve in curves.items()}
    assert total["prefill"] + total["decode"] == results["busy_client_ns"]
    assert total["invalid"] == results["bubble_ns"]["invalid"]
    assert total["paused"] >= results["bubble_ns"]["other_prefill"]  # or the worker has no step
    clients = sum(worker.clients for worker in instance.workers)
    assert (sum_of(list(curves.values())).value <= clients).all()
    assert all((curve.value >= 0).all() for curve in curves.values())


def test_uses_are_stacked_up_to_the_clients():
    axes = usage(*every_kind())
    assert len(axes) == 2
    areas = {a.get_gid(): a.get_data() for a in axes[0].patches}
    assert set(areas) == set(style.USES)
    assert areas["decode"].baseline.tolist() == [0] * len(areas["decode"].values)
    assert areas["prefill"].baseline.tolist() == areas["decode"].values.tolist()
    assert areas["paused"].values.max() <= 4
    assert {a.get_gid() for a in axes[1].patches} == {"blocks-0", "blocks-1"}
    limits = [a for a in axes[1].lines if str(a.get_gid()).startswith("limit")]
    assert [a.get_ydata()[0] for a in limits] == [9, 9]


@pytest.mark.parametrize("case", [by_hand, samples.empty])
def test_without_memory_it_has_no_row(case):
    assert len(usage(*case())) == 1
    assert len(timeline_chart(*case())) == 2


def test_many_changes_are_drawn_as_means(monkeypatch):
    monkeypatch.setattr(module, "STRETCHES", 20)
    instance = random_instance(n=60)
    schedule = served(instance)
    area = next(a for a in usage(instance, schedule)[0].patches if a.get_gid() == "decode")
    assert len(area.get_data().values) == 20
    curve = client_curves(Timeline(instance, schedule))["decode"]
    exact = module.borders_of([curve], schedule.makespan_ns, 10**6)
    assert len(exact) == len(np.unique([0, schedule.makespan_ns, *curve.time_ns]))
    now = np.searchsorted(curve.time_ns, exact[:-1], side="right") - 1
    expected = np.where(now >= 0, curve.value[np.maximum(now, 0)], 0)
    assert means(curve, exact) == pytest.approx(expected, abs=1e-3)


def test_the_blocks_of_many_workers_are_added_up(monkeypatch):
    line = Timeline(*every_kind())
    single = module.named_blocks(line)
    monkeypatch.setattr(module, "MAX_WORKERS", 1)
    ((name, curve, limit),) = module.named_blocks(line)
    assert (name, limit) == ("2 workers", 18)
    assert pairs(curve) == pairs(sum_of([c for _, c, _ in single]))


def at(curve, moment):
    place = np.searchsorted(curve.time_ns, moment, side="right") - 1
    return int(curve.value[place]) if place >= 0 else 0


@pytest.mark.parametrize("seed", seeds(8, 30))
def test_running_and_waiting_are_counted(seed):
    instance, schedule = any_schedule(seed)
    curves = load_curves(Timeline(instance, schedule))
    spans = use_of(instance, schedule).stays
    finish = {}
    for request, end in zip(spans.request.tolist(), spans.end_ns.tolist(), strict=True):
        finish[request] = max(finish.get(request, 0), end)
    for moment in range(-1, schedule.makespan_ns + 2, max(1, schedule.makespan_ns // 97)):
        runs = ((spans.start_ns <= moment) & (moment < spans.end_ns)).sum()
        there = sum(
            arrival <= moment < finish[request]
            for request, arrival in enumerate(instance.requests.arrival_ns.tolist())
        )
        assert at(curves["running"], moment) == runs
        assert at(curves["waiting"], moment) == there - runs


@pytest.mark.parametrize("seed", [1, 2, 9])
def test_a_request_whose_cache_is_on_its_way_waits_once(seed):
    waiting = load_curves(Timeline(*samples.transferred(seed)))["waiting"]
    assert waiting.value.min() >= 0
    assert waiting.value[-1] == 0


def test_rows_are_running_waiting_and_memory():
    instance, schedule = every_kind()
    axes = timeline_chart(instance, schedule)
    labels = [ax.get_ylabel() for ax in axes]
    assert labels == ["running requests", "waiting requests", "KV blocks (%)"]
    assert axes[-1].get_xlabel() == "time (s)"
    (blocks,) = (p.get_data() for ax in axes for p in ax.patches if p.get_gid() == "blocks-0")
    total = (blocks.values * np.diff(blocks.edges)).sum() * 18 / 100
    assert total >= summarise(instance, schedule)["kv_blocks"]["block_ns"] / 1e9 * (1 - 1e-9)


def test_several_schedules_are_lines_with_a_legend_inside_the_picture():
    instance = random_instance(n=40, latest_ns=10**10)
    schedule, figure = served(instance), Figure(figsize=(10, 6.8), layout="constrained")
    names = [f"method {k} with a long name of its own" for k in range(9)]
    axes = timeline_chart(instance, [schedule] * 9, figure, names=names)
    assert {f"waiting-{k}" for k in range(9)} <= {p.get_gid() for ax in axes for p in ax.patches}
    figure.canvas.draw()
    box, page = figure.legends[0].get_window_extent(), figure.bbox
    assert page.x0 <= box.x0 <= box.x1 <= page.x1
    assert shown(axes, figure) == names


@pytest.mark.parametrize("seed", range(3))
def test_areas_of_the_curves_are_the_reported_numbers(seed):
    instance, schedule = mixed(seed)
    results, curves = summarise(instance, schedule), class_curves(Timeline(instance, schedule))
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


def summed_prefills(instance, schedule):
    work = schedule.work
    return work.tokens[(work.phase == 0) & instance.bulk[work.request]].sum()


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
    results, curves = summarise(instance, schedule), class_curves(Timeline(instance, schedule))
    width = np.diff(curves.borders_ns)
    owners = dict(curves.owners)
    assert list(owners) == ["interactive", "bulk", "cached"]
    running = ((owners["interactive"] + owners["bulk"]) * width).sum()
    assert running == pytest.approx(results["kv_blocks"]["block_ns"], rel=1e-9)
    assert (sum(owners.values()) <= curves.blocks + 1e-6).all()
    assert results["hit_tokens"] > 0
    for name in ("hit_tokens", "recomputed_tokens"):
        assert sum(part[name] for part in results["classes"].values()) == results[name]
    hits = curves.hits[~np.isnan(curves.hits)]
    assert hits.min() <= results["hit_rate"] <= hits.max()
    words = shown(classes(instance, schedule, Figure()))
    assert {"cached, free", "prompt tokens found in the cache"} <= set(words)


def test_without_classes_and_tenants_there_is_nothing_to_show():
    instance = random_instance()
    assert not module.has_class_curves(instance)
    with pytest.raises(InputError, match="neither classes with limits nor tenants"):
        classes(instance, served(instance))


def test_rows_are_those_that_have_something_to_show():
    instance, schedule = mixed()
    axes = classes(instance, schedule, Figure())
    assert [ax.get_ylabel() for ax in axes] == [
        "share (%)", "KV blocks", "tokens/s", "service\n(weighted tokens)"
    ]  # fmt: skip
    found = {child.get_gid(): child for ax in axes for child in ax.get_children()}
    assert {"attainment", "owner-interactive", "owner-bulk", "bulk", "tenant-0"} <= set(found)
    words = {"tokens in time", "interactive running", "bulk running", "tenant ada"}
    assert words <= set(shown(axes))
    assert found["owner-bulk"].get_hatch() == style.BULK_HATCH
    requests = instance.requests.replace(tenant=None, tenants=None)
    alone = instance.replace(requests=requests, workers=orsched.Worker(8))
    axes = classes(alone, orsched.simulate(alone, "vllm").schedule, Figure())
    assert [ax.get_ylabel() for ax in axes] == ["share (%)", "tokens/s"]


def test_the_gantt_chart_tells_bulk_requests_apart():
    instance, schedule = mixed(limits=())
    assert module.tells_classes_apart(instance)
    ax = gantt(instance, schedule, Figure().add_subplot())
    found = {each.get_gid(): each for each in ax.collections}
    bars, bulk = (len(found[name].get_paths()) for name in ("decode", "bulk"))
    decodes = schedule.work.phase == 1
    assert bars + bulk == decodes.sum()
    assert bulk == (instance.bulk[schedule.work.request] & decodes).sum()
    assert found["bulk"].get_hatch() == style.BULK_HATCH
    assert found["decode"].get_hatch() is None
    assert "decode of a bulk request" in shown([ax])


@pytest.mark.parametrize("pair", [style.DECODE_COLOURS, style.BULK_COLOURS])
def test_colours_differ_in_lightness_where_hatching_is_not_seen(pair):
    def lightness(colour):
        red, green, blue = (int(colour[k : k + 2], 16) for k in (1, 3, 5))
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    assert abs(lightness(pair[0]) - lightness(pair[1])) > 40
