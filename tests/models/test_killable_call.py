"""Children: they stream, are ended in time, and never outlive or trouble their parent."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from orsched.common.errors import InputError
from orsched.models.killable_call import run_in_child


def count(payload, send):
    for number in range(payload):
        send(number)
    return "counted"


def stall(payload, send):
    send(os.getpid())
    while True:
        time.sleep(0.01)


def stall_after_a_flood(payload, send):
    send(os.getpid())
    for _ in range(3):
        send(b"x" * 300_000)
    time.sleep(60)


def refuse(payload, send):
    raise InputError("no such thing", field="payload", row=3)


def break_down(payload, send):
    return 1 / payload


def die(payload, send):
    send("last words")
    os.kill(os.getpid(), signal.SIGKILL)


def chatter(payload, send):
    print("noise")
    os.write(1, b"noise")
    return "quiet"


def gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_messages_arrive_in_order_then_the_value():
    seen = []
    outcome = run_in_child(count, 1000, 60, seen.append)
    assert seen == list(range(1000))
    assert (outcome.reason, outcome.value) == ("finished", "counted")


def test_a_child_that_does_not_stop_is_ended_with_what_it_sent():
    seen = []
    outcome = run_in_child(stall_after_a_flood, None, 2.5, seen.append)
    assert outcome.reason == "deadline"
    assert [len(m) for m in seen[1:]] == [300_000] * 3
    assert gone(seen[0])


def test_a_message_can_stop_the_child():
    seen = []
    outcome = run_in_child(stall, None, None, lambda pid: seen.append(pid) or True)
    assert outcome.reason == "stopped"
    assert gone(seen[0])


def test_errors_of_the_library_arrive_whole_and_others_with_their_traceback():
    with pytest.raises(InputError, match="row 3, field 'payload': no such thing") as caught:
        run_in_child(refuse, None, 60)
    assert (caught.value.row, caught.value.field) == (3, "payload")
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        run_in_child(break_down, 0, 60)


def test_a_child_that_dies_is_reported_not_raised():
    seen = []
    outcome = run_in_child(die, None, 60, seen.append)
    assert seen == ["last words"]
    assert outcome.reason == "died"
    assert "SIGKILL" in outcome.detail


def test_what_on_message_raises_ends_the_child():
    seen = []

    def fail(pid):
        seen.append(pid)
        raise LookupError("from the caller")

    with pytest.raises(LookupError):
        run_in_child(stall, None, 60, fail)
    assert gone(seen[0])


def test_ctrl_c_ends_the_child_and_returns():
    seen = []

    def interrupt(pid):
        seen.append(pid)
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()

    # A solver of an earlier test may have left another handler behind.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        outcome = run_in_child(stall, None, 60, interrupt)
    finally:
        signal.signal(signal.SIGINT, before)
    assert outcome.reason == "interrupted"
    assert gone(seen[0])


def test_nothing_reaches_standard_output(capfd):
    assert run_in_child(chatter, None, 60).value == "quiet"
    assert capfd.readouterr().out == ""


def test_a_script_without_a_guard_can_use_children(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from operator import eq\n"
        "from orsched.models.killable_call import run_in_child\n"
        "print(run_in_child(eq, 3, 60).reason)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert done.stdout == "finished\n"


def test_a_child_follows_its_parent(tmp_path):
    """A parent that is killed cannot end its child: the child notices the closed pipe."""
    script = tmp_path / "parent.py"
    script.write_text(
        "from orsched.models.killable_call import run_in_child\n"
        "import tests.models.test_killable_call as t\n"
        "run_in_child(t.stall, None, None, lambda pid: print(pid, flush=True))\n"
    )
    paths = os.pathsep.join(p or "." for p in sys.path)
    parent = subprocess.Popen(
        [sys.executable, script],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    for _ in range(200):
        if gone(pid):
            break
        time.sleep(0.05)
    assert gone(pid)
