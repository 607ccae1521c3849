"""The setting of SSJF's authors: their rules literally beside the policies, heads, claims."""

import re
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from benchmarks import pages, proxy_latency
from benchmarks.reproductions import ssjf_authors, ssjf_authors_runs, ssjf_heads
from benchmarks.reproductions.ssjf import PAPER
from benchmarks.reproductions.ssjf_authors_policies import AuthorsFcfs, AuthorsShortestFirst
from benchmarks.reproductions.ssjf_authors_runs import FCFS, KINDS, MODES, ORACLE, Case, Figures
from orsched import AffineCost, Instance, Requests, Worker, check
from orsched.instances.datasets import VARIABLE
from orsched.simulator import simulate_policy
from tests.in_order import in_order
from tests.refusals import refused

PAGE = Path(__file__).parents[2] / "docs" / "ssjf.md"
S = 10**9


@pytest.fixture(autouse=True)
def _shipped(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)


def by_the_book_fcfs(arrival, length, size, continuous, wait):
    """Completion times by the loop of ``fcfs.py`` and ``fcfs_dynamic.py``, in whole numbers."""
    queue, left, done, now = list(range(len(arrival))), list(length), {}, 0
    while queue:
        now = max(now, arrival[queue[0]])
        batch = []
        while queue and len(batch) < size and arrival[queue[0]] <= now + wait:
            batch.append(queue.pop(0))
        now = max(now, arrival[batch[-1]]) if len(batch) == size else now + wait
        spent = (min if continuous else max)(left[job] for job in batch)
        now += spent
        for job in batch:
            left[job] -= spent if continuous else left[job]
            if left[job] == 0:
                done[job] = now
            else:
                queue.insert(0, job)
    return done


def by_the_book_sjf(arrival, length, size, continuous, predicted=None):
    """The same of ``sjf.py`` and ``sjf_dynamic.py``; the last job may never be served."""
    queue, left, done, now, before, coming = [], list(length), {}, 0, 0, 0
    waited = [0] * len(arrival)
    while coming < len(arrival) - 1 or queue:
        if not queue:
            now = max(now, arrival[coming])
        while coming < len(arrival) and arrival[coming] <= now:
            queue.append(coming)
            coming += 1
        by_wait = sorted(queue, key=lambda job: -waited[job])
        first = by_wait[0]
        if waited[first] > 100 * S or waited[first] > 10 * left[first]:
            queue = by_wait
        else:
            queue = sorted(queue, key=lambda job: (left if predicted is None else predicted)[job])
        batch, queue = queue[:size], queue[size:]
        spent = (min if continuous else max)(left[job] for job in batch)
        now += spent
        while coming < len(arrival) and arrival[coming] <= now:
            queue.append(coming)
            coming += 1
        for job in batch:
            left[job] -= spent if continuous else left[job]
            if left[job] == 0:
                done[job] = now
            else:
                queue.append(job)
        for job in queue:
            waited[job] += now - before
        before = now
    return done


POINTS = [("rates", 1), ("rates", 9), ("burstiness", 1), ("burstiness", 3)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("kind", "value"), POINTS)
@pytest.mark.parametrize("scheduler", [FCFS, ORACLE, "classes"])
def test_schedules_are_those_of_the_authors_rules(mode, kind, value, scheduler):
    for size, run in product((2, 4), range(2)):
        case = Case(mode, kind, size)
        predictor = "classes" if scheduler == "classes" else "oracle"
        instance = ssjf_authors_runs.workload(case, value, run, predictor)
        policy = ssjf_authors_runs._policy(case, scheduler, instance)
        schedule = simulate_policy(instance, policy).schedule
        assert check(instance, schedule) == []
        requests = instance.requests
        lengths = (requests.output_tokens * ssjf_authors_runs.TOKEN_NS).tolist()
        batch = 1 if mode == "none" else size, mode == "continuous"
        inputs = requests.arrival_ns.tolist(), lengths, *batch
        if scheduler == FCFS:
            expected = by_the_book_fcfs(*inputs, 10 * S)
        else:
            told = requests.predicted_tokens.tolist() if scheduler == "classes" else None
            expected = by_the_book_sjf(*inputs, told)
        found = schedule.request_times(instance)["finish_ns"].tolist()
        assert {job: found[job] for job in expected} == expected
        forgotten = set(range(len(found))) - set(expected)
        late = scheduler != FCFS and requests.arrival_ns[-1] > max(found[:-1])
        assert forgotten == ({len(found) - 1} if late else set())


def test_a_request_alone_takes_what_the_authors_give_it():
    instance = ssjf_authors_runs.workload(Case("none", "burstiness"), 1, 0, "oracle")
    schedule = simulate_policy(instance, AuthorsFcfs(1, False, 0)).schedule
    last = len(instance) - 1  # after the largest gap
    tokens = int(instance.requests.output_tokens[last]) - ssjf_authors_runs.OFFSET_TOKENS
    taken = schedule.request_times(instance)["finish_ns"][last] - instance.requests.arrival_ns[last]
    assert taken == S // 10 + tokens * S // 50


def test_throughput_is_that_of_the_first_quarter_and_the_last_may_be_forgotten():
    finish, arrival = np.arange(1.0, 51.0), np.zeros(50)
    assert ssjf_authors_runs.figures(finish, arrival, True) == Figures(25.5, 12 / 13, 1.0)
    arrival[-1] = 49.5
    assert ssjf_authors_runs.figures(finish, arrival, True) == Figures(25.0, 12 / 13, 1.0)
    assert ssjf_authors_runs.figures(finish, arrival, False).jct_s == pytest.approx(24.51)


def test_poisson_arrivals_come_in_whole_seconds_and_gamma_gaps_grow():
    draws = np.random.default_rng(0)
    arrivals = ssjf_authors_runs.arrivals_s(Case("none", "rates"), 3, draws)
    assert len(arrivals) == 50
    assert (arrivals == arrivals.astype(int)).all()
    assert 10 < arrivals[-1] < 25
    gaps = np.diff(ssjf_authors_runs.arrivals_s(Case("none", "burstiness"), 2, draws))
    assert (gaps > 0).all()
    assert (np.diff(gaps) > -1e-9).all()


def finishes(policy, arrival_s, tokens):
    """Completion times in seconds of requests of so many tokens of 20 ms, one after the other."""
    requests = Requests([1] * len(tokens), tokens, arrival_s=arrival_s)
    worker = Worker(len(tokens), in_order(AffineCost, 0, 0, ssjf_authors_runs.TOKEN_NS, 0))
    instance = Instance(requests, worker, first_token="decode")
    schedule = simulate_policy(instance, policy).schedule
    assert check(instance, schedule) == []
    return [time / S for time in schedule.request_times(instance)["finish_ns"].tolist()]


def test_first_come_first_served_waits_for_a_pair_and_shortest_first_does_not():
    arrival_s, tokens = [0, 4, 100], [100, 50, 50]
    assert finishes(AuthorsFcfs(2, False, 10 * S), arrival_s, tokens) == [6, 6, 111]
    assert finishes(AuthorsFcfs(2, True, 10 * S), arrival_s, tokens) == [16, 5, 111]
    assert finishes(AuthorsShortestFirst(2, False), arrival_s, tokens) == [2, 5, 101]


def test_continuous_batches_leave_longer_ones_out_and_held_ones_do_not():
    """At 1 s, when the second is done, two shorter ones have come: the first has to wait."""
    arrival_s, tokens = [0, 0, 0.5, 0.5], [500, 50, 100, 100]
    held, kept = AuthorsShortestFirst(2, False), AuthorsShortestFirst(2, True)
    assert finishes(held, arrival_s, tokens) == [10, 10, 12, 12]
    assert finishes(kept, arrival_s, tokens) == [12, 1, 3, 3]


def test_who_has_waited_ten_lengths_is_rescued():
    """The request of 1 s has waited for 12 s when the shorter ones have come."""
    arrival_s, tokens = [0, 0.5, 11.5, 11.5], [600, 50, 10, 10]
    assert finishes(AuthorsShortestFirst(1, False), arrival_s, tokens)[1] == 13
    never = AuthorsShortestFirst(1, False, rescue=False)
    assert finishes(never, arrival_s, tokens) == [12, 13.4, 12.2, 12.4]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", MODES)
def test_the_oracle_comes_near_the_papers_figures(kind, mode):
    """Over few runs of the outer points alone, hence with more room than the command gives it."""
    _, jct, _, throughput = PAPER[kind][mode]
    found = ssjf_authors_runs.gain(Case(mode, kind), ORACLE, 8)
    assert abs(found.jct - jct) < 5
    assert abs(found.throughput / throughput - 1) < 0.25


def test_scores_of_the_measured_classes_and_batches_of_four():
    found = ssjf_authors_runs.gain(Case("continuous", "rates", 4), ORACLE, 8)
    assert found.throughput < 0.75 * PAPER["rates"]["continuous"][3]  # not the paper's
    accuracy, f1 = ssjf_authors.scores(5)
    assert accuracy == pytest.approx(0.599, abs=5e-4)
    assert 0.55 < f1 < accuracy + 0.01
    assert ssjf_authors.scores(3)[0] == pytest.approx(0.806, abs=5e-4)


def test_what_does_not_hold_is_counted(monkeypatch, capsys):
    wrong = {kind: dict.fromkeys(MODES, (-1.0, -2.0, 9.0, 10.0)) for kind in KINDS}
    monkeypatch.setattr(ssjf_authors, "PAPER", wrong)
    report = ssjf_authors.Report(1)
    ssjf_authors._compare(report, Case("none", "rates"))
    assert report.misses == 2
    verdicts = re.findall("^(FAILS|HOLDS)", capsys.readouterr().out, re.M)
    assert sorted(verdicts) == ["FAILS", "FAILS", "HOLDS"]


BRACKETS = re.compile(r"(-?[\d.]+) ±[\d.]+ \((-?[\d.]+)\)")


def cells_of_the_page():
    """(arrivals, scheduler) -> (ours, the paper's) by column of the page's first table."""
    (table,) = pages.tables(PAGE.read_text().replace("\N{MINUS SIGN}", "-"), "Figs. 4 to 7")
    found = {}
    for label, *cells in table[1:]:
        name, _, kind = label.rpartition(", ")
        pairs = [BRACKETS.fullmatch(cell).groups() for cell in cells]
        found[kind, name] = [(float(ours), float(theirs)) for ours, theirs in pairs]
    return found


def test_the_page_has_the_rows_and_the_papers_figures_that_the_command_prints(capsys):
    ssjf_authors.main(["--figures", "--predictors", "--runs", "1"])
    printed = capsys.readouterr().out
    for (kind, name), pairs in cells_of_the_page().items():
        line = next(row for row in printed.splitlines() if row.startswith(f"{name}, {kind}  "))
        assert [float(text) for _, text in BRACKETS.findall(line)] == [b for _, b in pairs]
    (table,) = pages.tables(PAGE.read_text().replace("\N{MINUS SIGN}", "-"), "Table 2")
    for label, accuracy, f1, *_, paper in table[1:]:
        line = next(row for row in printed.splitlines() if row.startswith(f"{label}  "))
        assert accuracy in line
        assert f1 in line
        assert line.endswith(paper)


def test_what_the_page_says_of_its_figures_holds():
    """Within 1 point and 4 %, and the paper's SSJF between two rows; pages.py has the figures."""
    found = cells_of_the_page()
    assert len(found) == 6
    for kind in KINDS:
        oracle = found[kind, "oracle"]
        assert max(abs(ours - theirs) for ours, theirs in oracle[::2]) <= 1
        assert max(abs(ours / theirs - 1) for ours, theirs in oracle[1::2]) <= 0.04
        classes, normal = found[kind, "SSJF, 5 classes"], found[kind, "SSJF, log-normal"]
        for (worse, theirs), (better, _) in zip(classes, normal, strict=True):
            assert abs(worse) <= abs(theirs) <= abs(better)


def test_no_runs_are_refused_in_words(capsys):
    refused("2", ssjf_authors.main, ["--runs", "0"], kind=SystemExit)
    assert "--runs 0: at least one run is needed" in capsys.readouterr().err


def test_predictions_come_back_from_their_file(tmp_path):
    rounds, truth, *told = (np.array(each) for each in ([1, 2], [30, 40], [3, 4], [5, 6]))
    kept = ssjf_heads.Predictions(rounds, truth, dict(zip("ab", told, strict=True)))
    ssjf_heads.save({"one": kept, "two": kept}, tmp_path / "f.csv")
    back = ssjf_heads.kept("two", tmp_path / "f.csv")
    assert (back.rounds.tolist(), back.truth.tolist()) == ([1, 2], [30, 40])
    assert {name: told.tolist() for name, told in back.told.items()} == {"a": [3, 4], "b": [5, 6]}


def test_scores_are_those_of_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(0)
    truth, told, edges = random.integers(1, 99, 300), random.integers(1, 99, 300), [20, 50, 80]
    wanted, found = np.searchsorted(edges, truth), np.searchsorted(edges, told)
    accuracy, f1 = ssjf_heads.scored(truth, told, edges)
    assert accuracy == pytest.approx(metrics.accuracy_score(wanted, found))
    assert f1 == pytest.approx(metrics.f1_score(wanted, found, average="weighted"))


@pytest.mark.parametrize("source", ssjf_heads.SOURCES)
def test_every_head_is_kept_and_classes_are_few(source):
    found = ssjf_heads.kept(source)
    assert {*ssjf_authors.HEADS, "ranks", *ssjf_heads.SIMPLER} == set(found.told)
    assert len(found.truth) > 1000
    assert min(told.min() for told in found.told.values()) >= 1
    assert len(np.unique(found.told["classes"])) <= 5
    assert len(np.unique(found.told["binary"])) == 2
    assert (found.rounds == 1).all() == (source == "bodies")


def test_requests_have_published_lengths_in_the_order_of_the_source():
    case = Case("none", "rates", rows=("chat", 1, 99))
    told = ssjf_authors_runs.workload(case, 1, 3, "regression_l1").requests
    true = ssjf_authors_runs.workload(case, 1, 3, ORACLE).requests
    assert told.output_tokens.tolist() == true.output_tokens.tolist()
    assert told.arrival_ns.tolist() == true.arrival_ns.tolist()
    offset = ssjf_authors_runs.OFFSET_TOKENS
    assert told.output_tokens.min() - offset >= 2
    assert told.output_tokens.max() - offset <= 511
    # The same rows by hand: predictions and lengths are mapped by one order.
    place = 3
    draws = ssjf_authors_runs.stream("ssjf/authors/heads", place)
    found = ssjf_heads.kept("chat")
    rows = draws.integers(0, len(found.truth), ssjf_authors_runs.JOBS)
    predicted = told.predicted_tokens, found.told["regression_l1"]
    for ours, theirs in ((told.output_tokens, found.truth), predicted):
        above = theirs[rows][:, None] > theirs[rows][None, :]
        assert not (ours[:, None] < ours[None, :])[above].any()
    # As many are predicted below half of the requests' lengths as on the source.
    assert np.corrcoef(told.predicted_tokens, told.output_tokens)[0, 1] > 0.4


def test_rounds_are_kept_apart():
    case = Case("none", "rates", rows=("chat", 3, 99))
    found = ssjf_heads.kept("chat")
    requests = ssjf_authors_runs.workload(case, 1, 0, ORACLE).requests
    assert len(requests) == ssjf_authors_runs.JOBS
    assert 50 < (found.rounds >= 3).sum() < len(found.truth) / 2


def test_the_page_has_the_scores_that_the_command_prints(repo_root, capsys):
    ssjf_authors.main(["--heads", "--runs", "1"])
    printed = [" ".join(row.split()) for row in capsys.readouterr().out.splitlines()]
    text = (repo_root / "docs" / "ssjf.md").read_text().replace("\N{MINUS SIGN}", "-")
    tables = pages.tables(text, "Predictors trained here")
    assert len(tables) == len(ssjf_heads.SOURCES)
    for table in tables:
        assert (len(table), table[-1][0]) == (1 + 6 + 3 + 1, "oracle")
        for name, *scores, _, _, paper in table[1:-1]:
            line = " ".join((name, *(cell for cell in scores if cell)))
            (row,) = [each for each in printed if each.startswith(f"{line} ")]
            assert row.endswith(paper)


def test_a_full_size_model_is_timed_by_the_same_program():
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    found = proxy_latency.rows("small", "cpu", 0.0, long=False, sizes=(1,))
    assert [row["model"] for row in found] == list(proxy_latency.KINDS)
    assert all(row["median ms"] > 0 and row["calls"] == 1 for row in found)
