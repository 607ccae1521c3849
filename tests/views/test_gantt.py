"""The Gantt chart, by its structure: numbers, extents and words, not pixels."""

from dataclasses import replace
from time import perf_counter
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.image import imread

import orsched
from orsched.data.instance import Instance
from orsched.data.requests import Requests
from orsched.data.schedule import PREFILL
from orsched.data.workers import Worker
from orsched.metrics.summary import summarise
from orsched.metrics.timeline import Timeline
from orsched.views import gantt as module
from orsched.views import style
from orsched.views.gantt import gantt, save_gantt
from orsched.views.gantt_frame import last_request
from orsched.views.spans import lanes_of, rank_in_lane
from tests.decoding import decoding
from tests.in_order import in_order
from tests.views import samples
from tests.views.samples import alike, by_hand, every_kind, random_instance, served, use_of


@pytest.fixture(scope="module")
def sample():
    instance = random_instance(n=60, name="sample")
    return instance, served(instance)


def parts(axes):
    return {a.get_gid(): a for a in axes.get_children() if a.get_gid()}


def words(axes):
    """What the legend says."""
    return [t.get_text() for t in axes.get_legend().get_texts()]


def extents(collection):
    """Corners (left, bottom, right, top) of the rectangles, exactly as drawn."""
    assert isinstance(collection, PolyCollection)
    corners = np.array([p.vertices[:4] for p in collection.get_paths()]).reshape(-1, 4, 2)
    return np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)


def middles(boxes):
    return (boxes[:, 1] + boxes[:, 3]) / 2


def last_from(boxes, spans):
    """Whether boxes begin and end as spans do, exactly."""
    return np.array_equal(boxes[:, 0], spans.start_ns / 10**9) and np.array_equal(
        boxes[:, 2], spans.end_ns / 10**9
    )


@pytest.mark.parametrize("gid", ["decode", "prefill"])
def test_each_request_is_one_bar_with_its_times(sample, gid):
    expected = getattr(use_of(*sample), gid)
    boxes = extents(parts(gantt(*sample))[gid])
    assert len(boxes) == len(sample[0])
    assert last_from(boxes, expected)
    assert np.allclose(middles(boxes), expected.lane)
    assert (boxes[:, 3] - boxes[:, 1] < 1).all()


def test_prefill_stages_are_stripes_over_all_clients(sample):
    steps = sample[1].steps
    boxes = extents(parts(gantt(*sample))["stages"])
    chosen = steps.phase == PREFILL
    assert np.array_equal(boxes[:, 0], steps.start_ns[chosen] / 10**9)
    assert np.array_equal(boxes[:, 2], steps.end_ns[chosen] / 10**9)
    assert {tuple(b) for b in boxes[:, [1, 3]].tolist()} == {(-0.5, 5.5)}


def test_bubbles_show_the_tint_of_the_whole_client_time(sample):
    box = parts(gantt(*sample))["idle"]
    assert box.get_bbox().bounds == (0, -0.5, sample[1].makespan_ns / 10**9, 6)


def test_successive_requests_of_a_client_differ_in_lightness(sample):
    colours = [to_hex(c) for c in parts(gantt(*sample))["decode"].get_facecolors()]
    ranks = rank_in_lane(use_of(*sample).decode)
    assert colours == [style.DECODE_COLOURS[r % 2].lower() for r in ranks.tolist()]


def test_bound_makespan_and_utilization_are_marked(sample):
    instance, schedule = sample
    found = parts(gantt(instance, schedule))
    results = summarise(instance, schedule)
    assert set(found["bound"].get_xdata()) == {schedule.bound["value_ns"] / 10**9}
    assert set(found["makespan"].get_xdata()) == {schedule.makespan_ns / 10**9}
    facts = found["facts"].get_text()
    assert style.percent(results["slot_utilization"]) in facts
    assert style.gap_text(results["gap"]) in facts
    assert style.seconds(schedule.makespan_ns) in facts
    found = parts(gantt(instance, schedule.replace(bound=None)))
    assert "bound" not in found
    assert "gap" not in found["facts"].get_text()


def test_it_draws_on_the_axes_that_it_is_given(sample):
    axes = Figure().add_subplot()
    assert gantt(*sample, axes, title="mine", show_legend=False) is axes
    assert axes.get_title(loc="left") == "mine"
    assert axes.get_legend() is None


def test_workers_are_stacked_with_their_names():
    axes = gantt(*by_hand())
    assert [t.get_text() for t in axes.get_yticklabels()] == ["big", "small"]
    assert axes.get_ylim() == (2.5, -0.5)
    stripes = extents(parts(axes)["stages"])
    assert {tuple(b) for b in stripes[:, [1, 3]].tolist()} == {(-0.5, 1.5), (1.5, 2.5)}


def test_the_request_that_ends_last_in_a_fleet_is_framed_with_what_its_time_went_to():
    """Request 2 waits on a for the 7 rounds of request 0; rounds take 2 s, prefills 1 s."""
    cost = in_order(orsched.AffineCost, 10**9, 0, 2 * 10**9, 0)
    workers = (Worker(1, cost, name="a"), Worker(1, cost, name="b"))
    instance = decoding([1, 1, 1], [7, 4, 5], workers)
    schedule = orsched.simulate(instance, "fcfs").schedule
    last = last_request(Timeline(instance, schedule))
    assert tuple(last) == (2, 0, 15 * 10**9, 10**9, 5, 10 * 10**9, 0)
    found = parts(gantt(instance, schedule))
    assert found["last"].get_xdata().tolist()[:3] == [15, 15, 26]
    words_of = "ends last: request 2 on a: waited 15.00 s, prefill 1.000 s, 5 rounds 10.00 s"
    assert found["last-words"].get_text() == words_of
    alone = decoding([1], [1], workers[:1])
    assert "last" not in parts(gantt(alone, orsched.simulate(alone, "fcfs").schedule))


def test_invalid_tokens_pauses_and_mixed_steps_are_drawn():
    case = every_kind()
    axes, use = gantt(*case), use_of(*case)
    found = parts(axes)
    for gid, spans in (("invalid", use.invalid), ("paused", use.paused)):
        assert last_from(extents(found[gid]), spans)
    assert found["invalid"].get_hatch() == style.INVALID_HATCH
    assert extents(found["mixed"])[:, [0, 2]].tolist() == [[14e-9, 29e-9], [29e-9, 42e-9]]
    assert {"invalid tokens", "paused", "mixed step"} <= set(words(axes))
    assert "restart" not in words(axes)
    assert "2 mixed steps   2 invalid tokens" in found["facts"].get_text()


def test_a_restart_has_a_mark():
    axes = gantt(*by_hand())
    marks = parts(axes)["restarts"]
    assert list(zip(*marks.get_data(), strict=True)) == [(24e-9, 0)]
    assert "restart" in words(axes)
    assert "1 restart" in parts(axes)["facts"].get_text()


def test_what_does_not_occur_is_not_explained(sample):
    axes = gantt(*sample)
    assert not {"invalid", "paused", "mixed", "restarts", "bulk"} & parts(axes).keys()
    said = {"invalid tokens", "paused", "mixed step", "restart", "decode of a bulk request"}
    assert not said & set(words(axes))


def test_transfers_are_drawn():
    axes = gantt(*samples.transferred(2))
    assert "transfers" in parts(axes)
    assert "cache on its way" in words(axes)
    assert "restart" not in words(axes)


@pytest.mark.parametrize("name", ["$\\frac{\n{a}$", "漢字"])
def test_names_that_look_like_formulas_or_that_the_font_lacks_stay_text(tmp_path, name):
    instance = random_instance(ids=[f"${k}^" for k in range(30)], name=name)
    save_gantt(instance, served(instance), tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 1000


def test_labels_stay_inside_their_bars():
    instance = random_instance(n=12, clients=3)
    axes = gantt(instance, served(instance))
    axes.figure.canvas.draw()
    boxes = extents(parts(axes)["decode"])
    texts = [t for t in axes.texts if t.get_gid() != "facts"]
    assert texts
    for item in texts:
        drawn = item.get_window_extent().transformed(axes.transData.inverted())
        assert any(b[0] <= drawn.x0 and drawn.x1 <= b[2] for b in boxes)


def with_long_names():
    instance, schedule = by_hand()
    named = (replace(w, name=f"a worker with a long name {w.name}") for w in instance.workers)
    return instance.replace(workers=tuple(named)), schedule


def all_at_once():
    """Everything that the legend and the facts can say."""
    instance, schedule = every_kind()
    work = schedule.work
    again = replace(work, stay=np.where((work.request == 0) & (work.first_step == 4), 1, 0))
    bound = {"name": "a bound", "value_ns": 40, "certificate": {}}
    return instance, schedule.replace(work=again, bound=bound)


@pytest.mark.parametrize("case", [None, with_long_names, all_at_once])
def test_no_words_overlap(sample, case):
    axes = gantt(*(case() if case else sample))
    axes.figure.canvas.draw()
    bars = [t for t in axes.texts if t.get_gid() != "facts"]
    items = [axes.xaxis.label, axes.yaxis.label, axes.get_legend(), parts(axes)["facts"], *bars]
    items.append(axes._left_title)
    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        items += [t.label1 for t in axis.get_major_ticks() if low <= t.get_loc() <= high]
    boxes = [i.get_window_extent() for i in items]
    page = axes.figure.bbox
    for k, box in enumerate(boxes):
        assert page.x0 <= box.x0 <= box.x1 <= page.x1
        assert page.y0 <= box.y0 <= box.y1 <= page.y1
        assert not any(box.overlaps(other) for other in boxes[:k])


def test_large_schedules_become_an_image(sample, monkeypatch):
    monkeypatch.setattr(module, "MAX_BARS", 59)
    found = parts(gantt(*sample))
    assert "density" in found
    assert "decode" not in found
    assert found["density"].get_extent() == [0, sample[1].makespan_ns / 10**9, 5.5, -0.5]


def test_an_empty_schedule_is_drawn():
    found = parts(gantt(*samples.empty()))
    assert "makespan 0" in found["facts"].get_text()
    assert len(found["decode"].get_paths()) == 0


def test_svg_keeps_one_path_a_request_and_readable_words(sample, tmp_path):
    save_gantt(*sample, tmp_path / "a.svg")
    tree = ElementTree.parse(tmp_path / "a.svg")
    name = "{http://www.w3.org/2000/svg}"
    group = next(g for g in tree.iter(f"{name}g") if g.get("id") == "decode")
    assert len(list(group.iter(f"{name}path"))) == len(sample[0])
    assert any("slot utilization" in (t.text or "") for t in tree.iter(f"{name}text"))


def many_served(instance):
    """Continuous batching on several workers."""
    return orsched.simulate(instance, "vllm").schedule


def test_clients_without_a_request_are_folded_into_a_strip_that_counts_them():
    instance = alike(12, 50, 20, [40, 40], gap_ns=10**9)
    schedule = many_served(instance)
    spans = use_of(instance, schedule).decode
    lanes = lanes_of(instance, use_of(instance, schedule).stays)
    used = set(zip(*np.divmod(spans.lane, 40), strict=True))
    assert lanes.shown.tolist() == [sum(w == k for w, _ in used) for k in (0, 1)]
    assert (lanes.shown + lanes.folded).tolist() == [40, 40]
    assert sorted(set(lanes.numbers.tolist())) == sorted({-1, *(int(c) for _, c in used)})
    axes = gantt(instance, schedule)
    texts = [text for text in axes.texts if text.get_gid() == "folded-words"]
    assert [text.get_text() for text in texts] == [
        f"{count} clients without a request" for count in lanes.folded
    ]
    assert axes.get_ylim() == (lanes.rows - 0.5, -0.5)
    boxes, strips = extents(parts(axes)["decode"]), extents(parts(axes)["folded"])
    assert np.allclose(middles(boxes), lanes.row[spans.lane])
    assert not any(low < y < high for y in lanes.row[spans.lane] for _, low, _, high in strips)
    axes.figure.canvas.draw()
    for text in texts:
        height = text.get_window_extent().transformed(axes.transData.inverted()).height
        assert abs(height) <= (strips[0][3] - strips[0][1])


def test_two_empty_clients_are_shown_and_numbers_stay_those_of_the_clients():
    instance = alike(2, 5, 3, [4])
    lanes = lanes_of(instance, use_of(instance, served(instance, bound=False)).stays)
    assert (lanes.rows, lanes.folded.tolist()) == (4, [0])
    instance = alike(2, 5, 3, [9])
    schedule = served(instance, bound=False)
    schedule = schedule.replace(work=replace(schedule.work, client=schedule.work.client + 6))
    formatter = gantt(instance, schedule).yaxis.get_major_formatter()
    assert [formatter(row) for row in (0, 1, 2)] == ["6", "7", ""]


def test_clients_are_separated_by_white_and_not_by_the_colour_of_bubbles(sample, tmp_path):
    found = parts(gantt(*sample))
    borders = found["borders"]
    assert to_hex(borders.get_facecolors()[0]) == "#ffffff"
    assert borders.get_zorder() > found["stages"].get_zorder()
    assert np.allclose(middles(extents(borders)), np.arange(5) + 0.5)
    save_gantt(*sample, tmp_path / "a.png")
    image = imread(tmp_path / "a.png")[:, :, :3]
    # Along a column of pixels through the axes there is white between any two clients.
    white = (image[:, image.shape[1] // 3] > 0.99).all(axis=1)
    assert np.count_nonzero(np.diff(white.astype(int)) == 1) >= 6


@pytest.mark.parametrize(
    "instance",
    [alike(4000, 1, 2, [3], gap_ns=10**9), random_instance(n=1500, clients=1200)],
    ids=["short and far apart", "of very many clients"],
)
def test_bars_thinner_than_a_pixel_become_an_image(instance):
    assert "density" in parts(gantt(instance, served(instance, bound=False)))


@pytest.mark.parametrize("workers", [1, 5, 20, 60])
def test_many_workers_keep_the_picture_in_bounds(workers, tmp_path):
    instance = alike(3, 10, 3, [8] * workers)
    schedule = many_served(instance)
    lanes = lanes_of(instance, use_of(instance, schedule).stays)
    assert 120 <= lanes.height_pixels() <= 2000
    save_gantt(instance, schedule, tmp_path / "a.png")


@pytest.mark.full
def test_a_hundred_thousand_requests_are_drawn_in_seconds(tmp_path):
    n = 100_000
    draw = np.random.default_rng(0)
    prompts, outputs = draw.integers(5, 50, n), draw.integers(1, 30, n)
    requests = Requests(prompts, outputs, arrival_ns=np.arange(n) * 10**8)
    instance = Instance(requests, (Worker(64),) * 4, name="large", first_token="decode")
    schedule = many_served(instance)
    begin = perf_counter()
    for save in (save_gantt, orsched.save_latency, orsched.save_timeline):
        save(instance, schedule, tmp_path / f"{save.__name__}.svg")
        assert (tmp_path / f"{save.__name__}.svg").stat().st_size < 2_000_000
    assert perf_counter() - begin < 30  # some seconds where nothing else runs
