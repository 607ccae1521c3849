"""One input of each format: made from its seed, read, and judged ``accepted`` or ``refused``.

``Finding`` is a wrong verdict; an error that orsched does not raise on purpose is one, too.
"""

import ast
import contextlib
import io
import json
import os
import re
import signal
import sys
import traceback
from importlib.util import find_spec

from orsched import SLO, InfeasibleError, InputError, TimeLimitError, check, files, solve, summarise
from orsched.checker.certificates import bound_violations, bulk_violations
from orsched.cli.commands import run
from orsched.cli.study_command import means_of
from orsched.common.scalars import DEFAULT_BUDGET
from orsched.data.schedule_classes import allowances_of
from orsched.files.instance_document import instance_from_document
from orsched.files.schedule_document import schedule_from_document
from orsched.instances.readers import read
from orsched.models.bounds.bulk_bound import bulk_tokens
from orsched.planning.study.drive import Store, _digest
from orsched.planning.study.plan import key_of, read_settings, read_study
from orsched.planning.study.table import csv_text, rows_of
from orsched.runner.loop.resume import prompts_of_rest
from orsched.runner.policy_source import rest_of
from orsched.runner.worker_pool import RunSettings
from tests.by_the_book import rule_broken_by
from tests.fuzz import mutate
from tests.fuzz.mutate import damaged, json_bytes, mutated, toml_text, without_marks
from tests.fuzz.parquet import mutated_table
from tests.models.test_bulk_bound import attained


class Finding(Exception):
    """A wrong verdict."""


MOST_IN_CHUNKS = 10**6
"""Prompt tokens: a longer prompt takes as many steps as it has chunks, which is no fault."""


def demand(condition, what):
    if not condition:
        raise Finding(what)


def command(*arguments):
    """Run the command line; what it prints has no control characters. Returns code and output."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run([str(argument) for argument in arguments])
    shown = out.getvalue() + err.getvalue()
    demand(code in (0, 1, 2, 3), f"exit code {code}: {shown[-300:]}")
    bad = [line for line in shown.split("\n") if not line.isprintable()]
    demand(not bad, f"control characters on the terminal: {bad[:1]!r}")
    return code, shown


def instance(dice, place, samples):
    path = place / "input.json"
    path.write_bytes(json_bytes(mutated(dice.choice(samples["instance"]), dice), dice))
    return _instance(path, dice)


def instance_parquet(dice, place, samples):
    path = place / "input.parquet"
    files.save_instance(instance_from_document(dice.choice(samples["instance"])), path)
    path.write_bytes(mutated_table(path.read_bytes(), dice))
    return _instance(path, dice)


def _instance(path, dice):
    found = files.load_instance(path)
    other = path.with_name("again" + path.suffix)
    files.save_instance(found, other)
    demand(files.load_instance(other) == found, "not what was written")
    longest = max(found.requests.prompt_tokens.tolist(), default=0)
    if dice.random() < 0.1 or (found.link is not None and longest > MOST_IN_CHUNKS):
        command("bound", path)
    elif len(found) < 50:
        with contextlib.suppress(InputError, InfeasibleError):
            method = "fcfs" if found.link is None else "disaggregated"
            result = solve(found, method)  # of the requests that fit some worker
            demand(check(result.instance, result.schedule) == [], f"{method} is not valid")
    return "accepted"


def schedule(dice, place, samples, suffix=".json"):
    pair = dice.choice([p for p in samples["schedule"] if p["schedule"]["bound"] is not None])
    return _schedule(pair, dice, place, suffix)


def trace(dice, place, samples, suffix=".json"):
    kinds = [p for p in samples["schedule"] if p["schedule"]["format"] == "orsched/trace"]
    return _schedule(dice.choice(kinds), dice, place, suffix)


def _schedule(pair, dice, place, suffix):
    path = place / f"input{suffix}"
    problem = instance_from_document(pair["instance"])
    if suffix == ".json":
        path.write_bytes(json_bytes(_timeline_first(pair["schedule"], dice), dice))
    else:
        files.save_schedule(schedule_from_document(pair["schedule"]), path)
        path.write_bytes(mutated_table(path.read_bytes(), dice))
    found = files.load_schedule(path)
    other = path.with_name("again" + path.suffix)
    files.save_schedule(found, other)
    demand(files.load_schedule(other) == found, "not what was written")
    times = "measured" if found.is_measured else "model"
    faults = check(problem, found, times=times)
    if not faults and times == "model":
        rule = rule_broken_by(problem, found)
        demand(rule is None, f"accepted, but by the book: {rule}")
    if dice.random() < 0.1:
        files.save_instance(problem, place / "problem.json")
        code, shown = command("check", place / "problem.json", path, "--times", times)
        demand((code == 0) <= (not faults), f"check says {code}: {shown[-300:]}")
    return "refused" if faults else "accepted"


def _timeline_first(document, dice):
    """Change the timeline most of the time, without what is reported of it."""
    if dice.random() < 0.3:
        return mutated(document, dice)
    bare = {**document, "results": {}, "bound": None}
    changed = {name: document[name] for name in ("steps", "work")}
    return {**bare, **mutated(changed, dice)}


def result(dice, place, samples):
    """Change reported numbers only: what is accepted must be what is recomputed."""
    pair = dice.choice([p for p in samples["schedule"] if p["schedule"]["results"]])
    problem = instance_from_document(pair["instance"])
    changed = without_marks(mutated(pair["schedule"]["results"], dice))
    document = {**pair["schedule"], "results": changed}
    (place / "input.json").write_text(json.dumps({**pair, "schedule": document}))
    found = schedule_from_document(document)
    if check(problem, found):
        return "refused"
    slo = found.results.get("slo")
    text = ",".join(f"{name}<=0" for name in (slo or {}).get("limits", {}))
    figures = (
        ()
        if not text
        else tuple(
            each._replace(limit_ns=slo["limits"][each.name]["limit_ns"])
            for each in SLO(text).figures
        )
    )
    limits = None if slo is None else SLO(figures, ttft_ns=slo["ttft_ns"], tpot_ns=slo["tpot_ns"])
    right = {} if not found.results else summarise(problem, found, limits)
    if found.results and "stall_ns" not in found.results:  # as in files of older versions
        right["itl_ns"] = right.pop("stall_ns")
    for name in {"itl_ns", "overloaded"} - set(found.results) if found.results else ():
        del right[name]
    if slo is not None and "goodput_per_s" not in slo:
        del right["slo"]["goodput_per_s"]
    demand(found.results == right, "other numbers than those recomputed are accepted")
    return "accepted"


def bound(dice, place, samples):
    """Change the bound of a valid schedule: what is accepted is not above a feasible value."""
    pair = dice.choice([p for p in samples["schedule"] if p["schedule"]["bound"] is not None])
    problem = instance_from_document(pair["instance"])
    changed = without_marks(mutated(pair["schedule"]["bound"], dice))
    document = {**pair["schedule"], "bound": changed, "results": {}}
    (place / "input.json").write_text(json.dumps({**pair, "schedule": document}))
    found = schedule_from_document(document)
    if check(problem, found):
        return "refused"
    least = int(found.makespan_ns)
    demand(found.bound is None or found.bound["value_ns"] <= least, "a bound above the makespan")
    return "accepted"


def certificate(dice, place, samples):
    """Change a certificate, and what follows from the change: its value must stay below all."""
    sample = dice.choice(samples["certificate"])
    problem = instance_from_document(sample["instance"])
    claim = without_marks(mutated(sample["bound"], dice))
    for budget in (DEFAULT_BUDGET, *[DEFAULT_BUDGET // 20] * 7):
        (place / "input.json").write_text(json.dumps({**sample, "bound": claim}))
        found = bound_violations(problem, claim, sample["objective"], budget)
        if not found:
            value = claim["value_ns"]
            demand(value <= sample["least"], f"{value} is proven, {sample['least']} is feasible")
            return "accepted"
        repaired = _repaired(claim, found)
        if repaired == claim:
            return "refused"
        claim = repaired
    return "refused"


_DERIVED = re.compile(r"(\w+) is .*, re-derived (.*)", re.DOTALL)


def _repaired(claim, faults):
    """Return the claim with what the checker derives from its choices: a consistent forgery."""
    if not isinstance(claim, dict) or not isinstance(claim.get("certificate"), dict):
        return claim
    claim = {**claim, "certificate": dict(claim["certificate"])}
    for fault in faults:
        match = _DERIVED.fullmatch(fault)
        try:
            value = ast.literal_eval(match[2]) if match else None
        except (ValueError, SyntaxError, MemoryError):
            continue
        if match and (match[1] in claim["certificate"] or match[1] not in claim):
            claim["certificate"][match[1]] = value
        if match and match[1] == "value_ns":
            claim["value_ns"] = value
    return claim


def bulk(dice, place, samples):
    """Change a bound on bulk work: what it proves must still be no less than a schedule does."""
    sample = dice.choice(samples["bulk"])
    problem = instance_from_document(sample["instance"])
    plan = schedule_from_document(sample["schedule"])
    claim = without_marks(mutated(sample["bound"], dice))
    for _ in range(4):
        (place / "input.json").write_text(json.dumps({**sample, "bound": claim}))
        found = bulk_violations(problem, claim)
        if not found:
            _no_less_than(problem, plan, claim["certificate"])
            return "accepted"
        match = _DERIVED.fullmatch(found[0])
        if match is None or match[1] != "value":
            return "refused"
        value = int(match[2])
        claim = {**claim, "certificate": {**claim["certificate"], "value": value}}
        claim["value"] = value if claim["certificate"]["bound"] == "bulk" else 0
    return "refused"


def _no_less_than(problem, plan, claim):
    """Demand that a proven bound is kept by a schedule, where it is one for such schedules."""
    evicted = int((plan.work.stay > 0).sum())
    if not allowances_of(problem, plan) <= set(claim.get("allows", ())):
        return
    if evicted > claim.get("restarts", evicted):
        return
    met = attained(problem, plan, claim["measure"])
    if claim["bound"] == "attained":
        demand(met <= claim["value"], f"{claim['value']} at most are proven, {met} meet limits")
    elif met >= claim["needed"]:
        how = claim["windows"][-1], *claim["weights"], claim["credit"]
        done = bulk_tokens(problem, plan, *how)
        demand(done <= claim["value"], f"{claim['value']} at most is proven, {done} is done")


def cost(dice, place, samples):
    path = place / "input.json"
    path.write_bytes(json_bytes(mutated(dice.choice(samples["cost"]), dice), dice))
    found = files.load_cost(path)
    files.save_cost(found, place / "again.json")
    demand(files.load_cost(place / "again.json") == found, "not what was written")
    with contextlib.suppress(InputError):
        found.prefill_ns([1, 2**31 - 1])
        found.round_ns(3, 2**40, 2**31)
    return "accepted"


def requests_csv(dice, place, samples):
    path = place / "input.csv"
    path.write_bytes(damaged(samples["csv"].encode(), dice))
    found = files.read_requests_csv(path)
    files.write_requests_csv(found, place / "again.csv")
    demand(files.read_requests_csv(place / "again.csv") == found, "not what was written")
    return "accepted"


def foreign(dice, place, samples):
    path = place / "input"
    name = dice.choice(list(samples["traces"]))
    text = samples["traces"][name]
    if text.startswith("{") and dice.random() < 0.7:
        lines = [json.loads(line) for line in text.splitlines()] if "\n{" in text else None
        whole = lines or [json.loads(text)]
        path.write_bytes(b"\n".join(json_bytes(item, dice) for item in mutated(whole, dice)))
    else:
        path.write_bytes(damaged(text.encode(), dice))
    found = read(path, dice.choice((None, name)), drop_empty=dice.random() < 0.5)
    demand(len(found.requests) == found.report.kept > 0, "another number of requests")
    return "accepted"


def own_requests(dice, place, samples):
    """Requests under people's names, in any separator, as JSON lines or as a spreadsheet."""
    kind = dice.choice(("csv", "csv", "jsonl", "xlsx" if find_spec("openpyxl") else "csv"))
    path = place / f"input.{kind}"
    head, *rows = mutate.own_rows(dice)
    if kind == "jsonl":
        lines = [json.dumps(dict(zip(head, row, strict=False))) for row in rows]
        raw = "\n".join(lines).encode()
    elif kind == "csv":
        mark = dice.choice((",", ";", "\t"))
        raw = "\n".join(mark.join(map(str, row)) for row in [head, *rows]).encode()
    else:
        raw = mutate.sheet_of([head, *rows])
    path.write_bytes(damaged(raw, dice) if dice.random() < 0.5 else raw)
    found = read(path, dice.choice((None, "requests")), drop_empty=dice.random() < 0.5)
    demand(len(found.requests) == found.report.kept > 0, "another number of requests")
    demand(found.requests.arrival_ns.min() >= 0, "an arrival before the start")
    if dice.random() < 0.2:
        command("info", path, "--clients", dice.choice((0, 1, 64)))
    return "accepted"


def study(dice, place, samples):
    path, before = _written_toml(samples["study"], dice, place), set(sys.modules)
    found = read_study(path)
    demand("this" not in sys.modules, f"imported {set(sys.modules) - before}")
    if len(found.seeds) * len(found.instances) * len(found.policies) < 2000:
        found.cells()
        if dice.random() < 0.2:
            command("study", path, "--list")
    return "accepted"


def _written_toml(tables, dice, place):
    """Write mutated tables; return the path."""
    path = place / "input.toml"
    text = toml_text(mutated(tables, dice)).encode("utf-8", "surrogatepass")
    path.write_bytes(damaged(text, dice) if dice.random() < 0.15 else text)
    return path


def config(dice, place, samples):
    read_settings(_written_toml(samples["config"], dice, place))
    demand("this" not in sys.modules, "imported a module")
    return "accepted"


def cell(dice, place, samples):
    """Change the record of a cell, most of the time with a digest that fits."""
    (one,) = read_study({"instances": ["two-by-two"], "policies": ["fcfs"]}).cells()
    results = dice.choice(samples["schedule"])["schedule"]["results"]
    record = {
        "format": "orsched/cell", "version": 2, "key": one.key, "cell": one.content,
        "status": "ok", "error": None, "traceback": None, "information": "none",
        "parameters": {}, "results": results, "run": {"solve_s": 1.5},
    }  # fmt: skip
    if dice.random() < 0.9:
        changed = without_marks(mutated(record, dice))
        with contextlib.suppress(ValueError, TypeError, KeyError):
            if dice.random() < 0.2:
                changed = {**changed, "key": key_of(changed["cell"])}
            changed["digest"] = _digest(changed)
        content = json.dumps(changed).encode()
    else:
        content = json_bytes(mutated({**record, "digest": _digest(record)}, dice), dice)
    with Store(place / "store") as store:
        path = store.path(one.key)
        path.write_bytes(content)
        (place / "input.json").write_bytes(content)
        rows = rows_of([one], store.load([one.key]))
    csv_text(rows).encode()
    means_of(rows)
    return "accepted"


def resume(dice, place, samples):
    """Change what a run that was stopped noted, or anything in its trace."""
    pair = dice.choice(samples["partial"])
    document = dict(pair["schedule"])
    if dice.random() < 0.7:
        document["run"] = without_marks(mutated(document["run"], dice)) | {"complete": False}
    else:
        document = without_marks(mutated(document, dice))
    (place / "input.json").write_text(json.dumps({**pair, "schedule": document}))
    problem = instance_from_document(pair["instance"])
    found = schedule_from_document(document)
    rest = rest_of(problem, found, "fcfs", RunSettings(worker="virtual"))
    prompts_of_rest(rest.rest, found, rest.seed, 1000)
    rest.merged(solve(rest.instance, "fcfs").schedule)
    return "accepted"


JUDGES = {
    "instance.json": instance, "instance.parquet": instance_parquet, "schedule.json": schedule,
    "schedule.parquet": lambda dice, place, samples: schedule(dice, place, samples, ".parquet"),
    "trace.json": trace,
    "trace.parquet": lambda dice, place, samples: trace(dice, place, samples, ".parquet"),
    "cost.json": cost, "result": result, "bound": bound, "certificate": certificate, "bulk": bulk,
    "requests.csv": requests_csv, "foreign": foreign, "own": own_requests, "study.toml": study,
    "config.toml": config, "cell.json": cell, "resume": resume,
}  # fmt: skip


def _slow(dice, place, samples):
    while True:
        pass


def _hangs(dice, place, samples):
    signal.setitimer(signal.ITIMER_PROF, 0)
    _slow(dice, place, samples)


FAILING = {
    "crash": lambda dice, place, samples: 1 // 0,
    "wrong verdict": lambda dice, place, samples: demand(False, "wrong"), "time": _slow,
    "memory": lambda dice, place, samples: "accepted" if bytearray(40 << 20) else "",
    "memory at once": lambda dice, place, samples: "accepted" if bytearray(1 << 40) else "",
    "died": lambda dice, place, samples: os._exit(1), "hangs": _hangs,
}  # fmt: skip
"""Judges that fail, each in its way: they show that findings are found."""


def outcome(form, dice, place, samples):
    """Judge one input; returns (outcome, what was found or None)."""
    try:
        return {**FAILING, **JUDGES}[form](dice, place, samples), None
    except Finding as found:
        return "wrong verdict", str(found)
    except (InputError, InfeasibleError, TimeLimitError):
        return "refused", None
    except MemoryError:
        return "memory", "MemoryError"
    except (Exception, SystemExit) as error:
        what = f"{type(error).__name__}: {error!s:.300}"
        return "crash", f"{what}\n{traceback.format_exc()[-1500:]}"
