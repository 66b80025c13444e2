"""A command line -> the command, run by a copy of one process that has already imported PyTorch and the exporters.

Run as a program, this is that process, and `CLIENT` is installed on the PATH as `onnxledger`. Each command is still a
separate process, with the streams, the folder and the environment of its caller; only its imports are done.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path

__all__ = ["serve_commands"]

CLIENT = """
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    call = json.dumps([os.getcwd(), sys.argv, dict(os.environ)]).encode()
    socket.send_fds(server, [len(call).to_bytes(8, "big")], [0, 1, 2])
    server.sendall(call)
    code = server.recv(1)
sys.exit(code[0] if code else "onnxledger died")
"""


@contextlib.contextmanager
def serve_commands(program: Path, environment: dict[str, str]) -> Iterator[None]:
    """Write `program`, which runs as `onnxledger` until the context ends."""
    with tempfile.TemporaryDirectory() as folder:  # with a short path, which a socket needs
        address = str(Path(folder, "socket"))
        client = program.with_suffix(".py")
        client.write_text(CLIENT.format(address=address))
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -ISE "{client}" "$@"\n')
        program.chmod(0o755)
        command = [sys.executable, __file__, address]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(command, **pipes, env=environment, text=True) as server:
            assert server.stdout is not None
            assert server.stdout.readline() == "ready\n"
            yield  # then its stdin ends, and so does the server


def serve(address: str) -> None:
    """Answer calls until stdin ends, also because the parent died."""
    sys.path.append(str(Path(__file__).resolve().parents[1]))  # for the package `tools`
    from tools.matrix.isolated import PRELOADED

    for name in PRELOADED:
        with contextlib.suppress(ImportError):  # an extra that is not installed: the command reports it
            importlib.import_module(name)
    gc.freeze()  # so that no command collects, or copies, imported objects
    gc.set_threshold(100_000, 20, 100)  # nor walks objects of tracing as often as by default
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
            caller, _ = listener.accept()
            with caller:
                if os.fork() == 0:
                    listener.close()
                    answer(caller)
            with contextlib.suppress(ChildProcessError):  # there is no child
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass


def answer(caller: socket.socket) -> None:
    """Become the called command; never returns."""
    code = 1
    try:
        length, streams, _, _ = socket.recv_fds(caller, 8, 3)
        with caller.makefile("rb") as rest:
            folder, sys.argv, environment = json.loads(rest.read(int.from_bytes(length, "big")))
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115  the old ones are pipes
        os.chdir(folder)
        sys.path[0] = folder  # as for `python -m`
        os.environ.clear()
        os.environ.update(environment)
        code = run()
    except BaseException:  # noqa: BLE001  it must not go on as the server
        traceback.print_exc()
    finally:
        caller.sendall(bytes([code]))
        os._exit(code)


def run() -> int:
    from analyzer.cli import main

    try:
        main()
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    sys.stdout.flush()
    sys.stderr.flush()
    return code


if __name__ == "__main__":
    serve(sys.argv[1])
