"""The process that judges inputs within limits; JSON lines say begin and verdict of each."""

import json
import logging
import os
import random
import resource
import signal
import sys
import tempfile
from pathlib import Path
from time import process_time


def main():
    """Judge inputs ``start`` to ``end`` of a format."""
    form, seed, start, end, folder, seconds, megabytes = sys.argv[1:]
    talk = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    from tests.fuzz.judge import JUDGES, outcome

    logging.disable(logging.CRITICAL)
    samples = json.loads(Path(folder, "samples.json").read_text())
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        if form in JUDGES:
            outcome(form, random.Random(f"warm:{form}"), Path(place), samples)  # imports
        limit = (_kib("VmSize") << 10) + 2 * (int(megabytes) << 20)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        signal.signal(signal.SIGPROF, _late)
        for index in range(int(start), int(end)):
            _judge(form, seed, index, Path(folder), samples, float(seconds), int(megabytes), talk)


def _judge(form, seed, index, folder, samples, seconds, megabytes, talk):
    from tests.fuzz.judge import outcome

    place = folder / "current"
    for path in place.glob("*.*"):
        path.unlink()
    print(json.dumps({"index": index}), file=talk)
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak
    before, begin = _kib("VmRSS"), process_time()
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        what, found = outcome(form, random.Random(f"{seed}:{form}:{index}"), place, samples)
    except _LateError:
        what, found = "time", f"not done in {seconds} s"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    took, grown = process_time() - begin, max(0, _kib("VmHWM") - before) / 1024
    if found is None and grown > megabytes:
        what, found = "memory", f"{grown:.0f} MB"
    record = {"index": index, "outcome": what, "found": found, "s": took, "mb": grown}
    print(json.dumps(record), file=talk)


class _LateError(BaseException):
    """The time of an input is over."""


def _late(number, frame):
    raise _LateError


def _kib(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field + ":"))


if __name__ == "__main__":
    main()
