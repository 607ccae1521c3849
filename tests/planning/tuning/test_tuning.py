"""``tune`` from start to end: the best setting, its rivals, budgets, bounds, rates and refusals."""

import json
from fractions import Fraction

import pytest

import orsched
from orsched.cli.tune_command import document_of, flag_lines
from orsched.common.errors import PolicyError, TimeLimitError
from orsched.instances.arrivals import with_arrivals
from orsched.planning.capacity import proof_violations
from orsched.views import planning_charts as pictures
from orsched.views.planning_charts import knob_effects, save_tuning
from tests.planning.capacity.test_capacity import heavy
from tests.planning.pictures import drawn, require_on_page
from tests.refusals import refusal

LIMITS = {"slo_ttft": 0.5, "slo_tpot": 0.05}
SEARCH = {
    "clients": [2, 4, 8],
    "max_num_batched_tokens": [16, 64, 256],
    "long_prefill_token_threshold": [0, 32],
}


def tuned(case=None, search=SEARCH, **options):
    given = {"jobs": 1, **LIMITS, **options}
    return orsched.tune(heavy(40) if case is None else case, search=search, **given)


def kept_alone(clients, **parameters):
    """Return the attained share and the mean JCT of a setting, by ``solve`` and its figures."""
    case = heavy(40, clients=clients)
    slo = orsched.SLO(ttft_s=0.5, tpot_s=0.05)
    run = orsched.solve(case, "vllm", parameters=parameters, slo=slo)
    flat = run.figures
    return flat["slo_attainment"], -flat["jct_mean_s"]


@pytest.fixture(scope="module")
def whole():
    return tuned(runs=100)


def test_with_runs_for_all_the_best_is_that_of_the_grid(whole):
    everything = {
        (clients, budget, threshold): kept_alone(
            clients, max_num_batched_tokens=budget, long_prefill_token_threshold=threshold
        )
        for clients in SEARCH["clients"]
        for budget in SEARCH["max_num_batched_tokens"]
        for threshold in SEARCH["long_prefill_token_threshold"]
        if clients <= budget
    }
    assert whole.grid == len(everything) == 18
    most = max(everything.values())
    assert everything[tuple(dict(whole.best.setting.values).values())] == pytest.approx(most)
    assert (whole.best.value, whole.best.figures["attainment"]) == (most[0], most[0])
    assert 12 <= len(whole.trials) <= 18
    assert whole.best.low <= whole.best.value <= whole.best.high


def test_rivals_are_those_that_no_paired_interval_tells_apart(whole):
    values = {trial.setting.values: trial.value for trial in whole.trials}
    rivals = {trial.setting.values for trial in whole.rivals}
    equal = {v for v, value in values.items() if value == whole.best.value}
    assert equal - {whole.best.setting.values} <= rivals
    worst = min(values, key=values.get)
    assert values[worst] < 0.2 < whole.best.value
    assert worst not in rivals
    assert whole.gain.low <= whole.gain.mean <= whole.gain.high
    assert whole.gain.mean == pytest.approx(whole.best.value - whole.default.value)


def test_no_setting_exceeds_the_bound_and_its_certificate_holds():
    found = tuned(heavy(60, gap_ns=15 * 10**6), runs=8)
    assert found.best.value <= found.bound < 1
    kinds = [heavy(1, clients=n).worker for n in SEARCH["clients"]]
    case = heavy(60, gap_ns=15 * 10**6)
    assert proof_violations(case, found.certificate, kinds) == []
    forged = {**found.certificate, "attainment": "1/100"}
    assert proof_violations(case, forged, kinds)


def test_goodput_counts_gpus_and_stays_below_its_bound():
    machines = {"one": (heavy().worker, 1.0), "two": (heavy(clients=8).worker, 2.0)}
    search = {"workers": [1, 2], "clients": [4, 8], "max_num_batched_tokens": [256]}
    found = tuned(search=search, machines=machines, maximise="goodput", runs=40)
    gpus = {t.setting.values: t.setting.price for t in found.trials}
    assert sorted(set(gpus.values())) == [1.0, 2.0, 4.0]
    for trial in found.trials:
        per_s = trial.figures["goodput_per_s"]
        assert trial.value == pytest.approx(per_s / gpus[trial.setting.values])
        assert trial.figures["goodput_per_gpu_hour"] == pytest.approx(3600 * trial.value)
    assert found.best.value <= found.bound


def test_a_budget_is_kept_and_processes_and_folders_change_nothing(tmp_path):
    options = {"arrivals": "poisson:rate=12", "replications": 3, "runs": 20, "folder": tmp_path}
    first, again = tuned(**options), tuned(**{**options, "jobs": 2})
    assert 0 < first.runs <= 20
    assert first.ran > 0 == again.ran
    apart = tuned(**{**options, "folder": None, "jobs": 2})
    for other in (again, apart):
        plain = [json.dumps({**document_of(each), "ran": 0}) for each in (first, other)]
        assert plain[0] == plain[1]


def test_long_traces_race_on_windows():
    axes = {"max_num_batched_tokens": [16, 32, 64, 128, 256], "clients": [4]}
    found = tuned(heavy(240), {**axes, "long_prefill_token_threshold": [0]}, runs=5)
    assert found.runs <= 5
    assert found.runs % 1 == 0.25  # five values on a quarter, and the whole for some
    assert found.best.value >= found.default.value
    behind = [row for row in knob_effects(found) if row["value"] is None]
    assert behind
    assert sum(row["best"] for row in knob_effects(found)) == 1


def test_the_rate_found_is_kept_and_the_next_is_not():
    search = {"clients": [2, 4], "max_num_batched_tokens": [256]}
    found = tuned(search=search, maximise="rate", runs=60, attainment=0.95)
    kept, lost = found.rate["kept_per_s"], found.rate["lost_per_s"]
    assert found.bound >= lost  # no setting keeps it, by proof
    assert float(Fraction(found.certificate["attainment"])) <= 0.95
    assert document_of(found)["bound"]["gap"] == 1 - kept / found.bound
    assert kept < lost < 1.03 * kept
    shares = []
    for rate in (kept, lost):
        case = heavy(40, clients=dict(found.best.setting.values)["clients"])
        run = orsched.solve(
            with_arrivals(case, f"replay:rate={rate!r}"), "vllm",
            parameters={"max_num_batched_tokens": 256}, slo=orsched.SLO(ttft_s=0.5, tpot_s=0.05),
        )  # fmt: skip
        shares.append(run.figures["slo_attainment"])
    assert shares[1] < 0.95 <= shares[0]
    assert found.runs <= 60


def test_splits_take_a_policy_for_roles_and_lines_have_flags():
    search = {"workers": [2, "1P1D:free"], "clients": [4], "max_num_batched_tokens": [64, 256]}
    search |= {"dispatch": ["soonest"], "long_prefill_token_threshold": [0]}
    found = tuned(search=search, runs=30)
    ran = {dict(t.setting.values)["workers"]: t.setting for t in found.trials}
    assert ran["1P1D:free"].question.policy["name"] == "disaggregated"
    assert ran["1P1D:free"].fleet == (1, 1)
    assert ran[2].question.policy["name"] == "vllm"
    flags = flag_lines(found.best.setting)
    assert flags["copies"] == 2
    assert flags["vllm"].startswith("vllm serve MODEL --max-num-seqs 4 --max-num-batched-tokens ")
    assert "--max-running-requests 4 --chunked-prefill-size " in flags["sglang"]


def test_settings_that_fail_are_said_and_the_others_go_on():
    case = heavy(20).replace(requests=orsched.Requests([100] * 20, [20] * 20))
    search = {"max_num_batched_tokens": [50, 256], "chunked_prefill": [False]}
    found = tuned(case, {**search, "clients": [4]}, runs=9)
    assert found.failed
    assert all("max_num_batched_tokens 50" in setting for setting in found.failed)
    assert dict(found.best.setting.values)["max_num_batched_tokens"] == 256
    with pytest.raises(PolicyError):
        tuned(case, {**search, "max_num_batched_tokens": [50], "clients": [4]}, runs=9)


def test_a_time_limit_without_a_setting_is_said():
    with pytest.raises(TimeLimitError, match="before a setting was done"):
        tuned(time_limit=1e-3)


def test_each_knob_is_drawn_on_the_page(whole, tmp_path, monkeypatch):
    figures = drawn(pictures, monkeypatch)
    save_tuning(whole, tmp_path / "a.svg")
    (figure,) = figures
    assert [ax.get_title() for ax in figure.axes] == list(SEARCH)
    for ax in figure.axes:
        require_on_page(ax.title.get_window_extent(), figure)
    assert "no knob" in str(refusal(save_tuning, tuned(search={
        "clients": [4], "max_num_batched_tokens": [256], "long_prefill_token_threshold": [0],
    }, runs=2), tmp_path / "b.svg"))  # fmt: skip


@pytest.mark.parametrize(("options", "field", "says"), [
    ({"search": {"seats": [1]}}, "search", "unknown knob 'seats'"),
    ({"search": {"clients": []}}, "search.clients", "no values"),
    ({"search": {"clients": [0]}}, "search.clients", ""),
    ({"search": {"clients": [512], "max_num_batched_tokens": [256]}}, "search", "no setting"),
    ({"search": {"max_num_batched_tokens": ["x"]}}, "parameters.max_num_batched_tokens", ""),
    ({"search": {"workers": [0]}}, "workers", ""),
    ({"maximise": "luck"}, "maximise", "unknown objective 'luck'"), ({"runs": 0}, "runs", ""),
    ({"policies": []}, "policies", "no policy"), ({"policies": "no-such"}, "policy", ""),
    ({"maximise": "rate", "arrivals": "at_once"}, "arrivals", "no rate"), ({"slo": 1}, "slo", ""),
    ({"slo_ttft": None, "slo_tpot": None}, "slo_ttft", "no limit"),
])  # fmt: skip
def test_wrong_arguments_are_named(options, field, says):
    error = refusal(tuned, **options)
    assert (error.field, says in str(error)) == (field, True)
