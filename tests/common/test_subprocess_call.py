"""Pipes between processes, and children that are started, spoken to, watched and ended."""

import os
import signal
import socket
import subprocess
import sys
import threading
from time import monotonic, sleep

import pytest

from orsched.common.subprocess_call import Child, Pipe

HERE = "tests.common.test_subprocess_call"


def echo(pipe):
    while True:
        pipe.send(pipe.receive())


def end_in_some_way(pipe):
    way = pipe.receive()
    pipe.send("last words")
    if way == "signal":
        os.kill(os.getpid(), signal.SIGSEGV)
    if way == "status":
        os._exit(3)
    if way == "error":
        raise LookupError("of the function")


def start_a_grandchild(pipe):
    script = "import time; print('up', flush=True); time.sleep(600)"
    fds = [pipe.fileno()]  # it keeps this end open
    own = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, pass_fds=fds, text=True
    )
    own.stdout.readline()
    pipe.send((os.getpid(), own.pid))
    pipe.receive()


def gone(pid, seconds=20.0):
    end = monotonic() + seconds
    while monotonic() < end:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        sleep(0.02)
    return False


@pytest.fixture
def child():
    made = []

    def make(function, **options):
        made.append(Child(f"{HERE}:{function}", **options))
        made[-1].pipe.socket.setblocking(True)  # receive waits
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_long_messages_go_both_ways(child):
    data = list(range(500_000))
    echoing = child("echo")
    echoing.pipe.send(data)
    assert echoing.receive() == data


@pytest.mark.parametrize(("way", "said"), [
    ("signal", "signal SIGSEGV"), ("status", "status 3"), ("error", "status 1"), ("", "status 0"),
])  # fmt: skip
def test_how_it_ended_is_said_and_its_last_words_are_heard(child, tmp_path, way, said):
    with (tmp_path / "output").open("w+b") as output:
        ending = child("end_in_some_way", output=output)
        ending.pipe.send(way)
        assert ending.receive() == "last words"
        with pytest.raises(EOFError):
            ending.receive()
        assert ending.wait() == said
        output.seek(0)
        assert (b"LookupError: of the function" in output.read()) == (way == "error")


def test_those_that_it_started_are_ended_with_it(child):
    own, grandchild = child("start_a_grandchild").receive()
    assert os.getpgid(grandchild) == own


def test_an_end_is_noticed_though_a_grandchild_keeps_the_pipe_open():
    starting = Child(f"{HERE}:start_a_grandchild")
    while (found := starting.receive()) is None:
        sleep(0.01)
    os.kill(found[0], signal.SIGKILL)
    starting.process.wait()
    with pytest.raises(EOFError):
        starting.receive()
    assert starting.close() == "signal SIGKILL"
    assert gone(found[1])


def test_nothing_is_left_open_where_none_can_be_started(monkeypatch):
    def refuse(*arguments, **options):
        raise OSError("too many processes")

    before = set(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(OSError, match="too many"):
        Child(f"{HERE}:echo")
    assert set(os.listdir("/proc/self/fd")) == before


@pytest.fixture
def pipes():
    near, far = socket.socketpair()
    near.setblocking(False)
    both = Pipe(near), Pipe(far)
    yield both
    for one in both:
        one.close()


def test_messages_arrive_whole_and_in_order(pipes):
    near, far = pipes
    assert near.receive() is None
    messages = [("a", 1), list(range(300_000)), "last"]
    sender = threading.Thread(target=lambda: [near.send(message) for message in messages])
    sender.start()  # the long one does not fit into the socket
    assert [far.receive() for _ in messages] == messages
    sender.join()


def test_half_a_message_is_none_and_an_end_is_an_end(pipes):
    near, far = pipes
    far.socket.sendall(b"\0\0\0\0\0\0\0\x09half")
    assert near.receive() is None
    far.close()
    with pytest.raises(EOFError):
        near.receive()
    with pytest.raises(OSError, match="pipe"):
        near.send("anybody?")


def test_nobody_waits_for_ever_for_one_who_does_not_read(pipes):
    with pytest.raises(TimeoutError):
        pipes[0].send(bytes(1 << 24), seconds=0.05)
