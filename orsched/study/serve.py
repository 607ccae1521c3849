"""A worker process of a study: cells come in on standard input, records go out on a pipe."""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from typing import IO


def serve(writing: int) -> None:
    """Run cells, one JSON line each, until standard input ends; answer on a file descriptor.

    Standard input ends with the parent, however that ends: then this process ends at once, in the
    middle of a cell if need be, and nothing is left running.
    """
    from orsched.study.cell import execute

    tasks: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, tasks), daemon=True).start()
    while True:
        record = execute(json.loads(tasks.get()))
        data = memoryview(json.dumps(record).encode() + b"\n")
        while data:
            data = data[os.write(writing, data) :]


def _listen(source: IO[bytes], tasks: queue.SimpleQueue[bytes]) -> None:
    for line in source:
        tasks.put(line)
    os._exit(0)
