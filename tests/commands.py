"""Arguments -> the output of `onnxledger`, run in this process: starting another takes half a second each time."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from analyzer.cli import main

__all__ = ["run_here", "run_isolated"]


def run_here(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Return the exit code, stdout and stderr of a command, as `run_isolated` does."""
    line = ["onnxledger", *map(str, arguments)]
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        patch.delenv("COLUMNS", raising=False)
        patch.setattr(sys, "argv", line)
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(err))
        stack.enter_context(contextlib.chdir(cwd or Path.cwd()))
        left = stack.enter_context(pytest.raises(SystemExit))
        main()
    code = left.value.code
    return subprocess.CompletedProcess(line, code if isinstance(code, int) else 0, _text(out), _text(err))


def _text(stream: io.TextIOWrapper) -> str:
    """Return the written text, with line ends translated to those of Python."""
    stream.flush()
    stream.buffer.seek(0)
    return stream.read()


def run_isolated(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Do the same in a separate process, to test hash seeds, imports, signals and inherited streams."""
    command = [sys.executable, "-m", "analyzer", *map(str, arguments)]
    environment = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=cwd)
