"""`assay` for shell commands that run many: each is a fork of one process, which has imported it once.

`folder()` starts that process and gives a folder for the PATH. The program `assay` there hands its arguments, its environment,
its directory and its three streams to the process, and ends as the fork ends. What starts there is not a new Python: a test of
how a command starts and ends should not use it, nor should a command in a network of its own.
"""

from __future__ import annotations

import atexit
import functools
import gc
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SECONDS = 120
"""For the process to answer: it imports much, and the machine may be busy."""
PROGRAM = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as there:
    there.connect({place!r})
    order = json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]).encode()
    socket.send_fds(there, [len(order).to_bytes(8, "big")], [0, 1, 2])
    there.sendall(order)
    answer = there.recv(1)
os._exit(answer[0] if answer else 1)
"""


@functools.cache
def folder() -> Path:
    """The folder that has the program; the process ends with ours."""
    scratch = tempfile.TemporaryDirectory(prefix="assay-forks-")
    place = Path(scratch.name)
    program = place / "assay"
    program.write_text(PROGRAM.format(python=sys.executable, place=str(place / "socket")), encoding="utf-8")
    program.chmod(0o755)
    process = subprocess.Popen([sys.executable, __file__, str(place / "socket")], stdin=subprocess.PIPE)

    def end() -> None:
        process.communicate()
        scratch.cleanup()

    atexit.register(end)
    until = time.monotonic() + SECONDS
    while not (place / "socket").exists():
        if process.poll() is not None or time.monotonic() > until:
            raise OSError(f"{__file__} does not serve")
        time.sleep(0.02)
    return place


def serve(place: str) -> None:
    """Fork for each order at the socket, until standard input is closed."""
    import assay.competition
    import assay.ledger.audit
    import assay.ledger.verify
    import assay.uncertainty  # noqa: F401  (for the forks)
    from assay.cli import main

    gc.freeze()  # a collection in a fork would copy every page of what was imported
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks
    with socket.socket(socket.AF_UNIX) as listener, selectors.DefaultSelector() as selector:
        listener.bind(f"{place}.new")
        listener.listen(16)
        os.rename(f"{place}.new", place)
        for one in (listener, sys.stdin):
            selector.register(one, selectors.EVENT_READ)
        while all(key.fileobj is listener for key, _ in selector.select()):
            asked, _ = listener.accept()
            with asked:
                if os.fork() == 0:
                    listener.close()
                    _carry_out(asked, main)


def _carry_out(asked: socket.socket, main: Any) -> None:
    """Run one order in this process, which is its own, and say with what it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    code: object = 1
    try:
        head, streams, _, _ = socket.recv_fds(asked, 8, 3)
        size, order = int.from_bytes(head, "big"), b""
        while len(order) < size:
            order += asked.recv(size - len(order))
        words, environment, folder = json.loads(order)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        sys.argv = ["assay", *words]
        code = main()
    except SystemExit as error:
        code = error.code
    except BaseException:  # noqa: BLE001  (as the interpreter shows it)
        traceback.print_exc()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        code = 120  # as the interpreter ends
    asked.sendall(bytes([code if isinstance(code, int) else code is not None]))
    os._exit(0)


if __name__ == "__main__":
    serve(sys.argv[1])
