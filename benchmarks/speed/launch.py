"""Run one command; print its exit code, wall and CPU seconds and peak memory as JSON.

A process of its own, started without site packages: Linux lets a new process inherit the peak
of the one that starts it, so whoever measures memory must be small.

    python -I -S launch.py STDOUT-FILE STDERR-FILE COMMAND [ARGUMENT ...]
"""

import json
import os
import sys
from time import perf_counter


def main() -> None:
    """Start the command, wait for it, and print what it used."""
    out, err, *command = sys.argv[1:]
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    to_files = [(os.POSIX_SPAWN_OPEN, fd, p, flags, 0o644) for fd, p in ((1, out), (2, err))]
    begin = perf_counter()
    pid = os.posix_spawn(command[0], command, os.environ, file_actions=to_files)
    _, status, used = os.wait4(pid, 0)
    wall = perf_counter() - begin
    unit = 2**20 if sys.platform == "darwin" else 2**10  # bytes there, KiB on Linux
    figures = {
        "exit_code": os.waitstatus_to_exitcode(status),
        "wall_s": wall,
        "cpu_s": used.ru_utime + used.ru_stime,
        "peak_mib": used.ru_maxrss / unit,
    }
    sys.stdout.write(json.dumps(figures))


if __name__ == "__main__":
    main()
