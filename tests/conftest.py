"""Options and fixtures for all tests: golden files, and the folder of external cases."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import re
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import documents
import kept
import numpy.testing  # noqa: F401 - else importing numpy 1 would start a process during a test
import pytest
from exports import Exports
from forked import Forking
from hypothesis import HealthCheck, settings

TESTS = Path(__file__).parent

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # else official wheels of onnxruntime report each session

# Tests run in parallel, and their models are tiny: threads of PyTorch and NumPy that wait for each other take three
# times what they save. A value that is set already stays.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# The time of an example depends on how busy the machine is.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

# The same for everyone: a test of annotations sets this itself.
os.environ.pop("GITHUB_ACTIONS", None)

# Files that share costly session fixtures, the clean process that `tools.matrix.isolated` copies, or the modules of a
# hundred models: each set runs in one process, whatever the number of processes. So does a file whose tests share a
# fixture.
collect_ignore = ["conftest.py"]  # as a module with doctests: tests/browser has one of the same name

TOGETHER = {
    "test_docs.py": "documents",
    "test_full_size.py": "documents",
    "test_exports_in_browser.py": "documents",
    "test_page_in_browser.py": "pages",
    "test_hostile_names_in_browser.py": "pages",
    "test_inquiries.py": "pages",
    "test_hostile.py": "hostile",
    "test_tamper.py": "suites",
    "test_rewrites.py": "suites",
    "test_faults.py": "suites",
    "test_matrix.py": "suites",
    "test_matrix_wide.py": "suites",
    "test_subgraphs.py": "suites",
    "test_families.py": "modules",
    "test_published.py": "modules",
}

# Tests of exports of one model run in one process, so that none waits for an export that another makes.
OF_EXPORTS = re.compile(
    r"\btest_(?:against|export|formula_exports|oracle|presets|reconcile_exports|recover_exports|scope_truth|truth)\.py::"
)
MODEL = re.compile(r"[\[-](bert|gpt2|llama|t5|whisper|vit|resnet|factory)\b")

# The quick lane, which plain `pytest` runs: tests with none of these marks. An explicit selection (`-m`, a file) runs
# as given, and `--all`, as in `make test`, runs everything.
SLOW_LANES = ("browser", "child", "export", "gpu", "network", "slow", "time")
QUICK = f"not ({' or '.join(SLOW_LANES)})"

# Number of new objects, and of younger collections, before Python collects; its own defaults are 700, 10 and 10.
FEW_COLLECTIONS = (100_000, 20, 100)

# Three numbers, as in 1.23.2, 2.13.0+cpu or 0.2.0.dev1; not a part of a dotted name such as layers.0.1.2.weight
VERSION = re.compile(
    r"(?<![\w.]) \d+\.\d+\.\d+ (?:\.?(?:a|b|rc|dev|post)\d+)* (?:\+\w+(?:\.\w+)*)? (?!\.?\w)", re.VERBOSE
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite tests/golden and what documents print, and run only the tests of these; refused where CI is set",
    )
    parser.addoption(
        "--all",
        action="store_true",
        help="run every lane; plain pytest leaves out what is marked as slow, child, ...",
    )


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # a process of xdist gets the lane from the one that started it
        is_plain = config.args_source is not pytest.Config.ArgsSource.ARGS
        if config.getoption("--all") and config.option.markexpr:
            raise pytest.UsageError("--all runs every lane, and -m only some: leave one out")
        if is_plain and not config.getoption("--all") and not config.option.markexpr:
            config.option.markexpr = QUICK
    else:
        config.option.markexpr = config.workerinput["lane"]
    if config.getoption("--update-golden") and os.environ.get("CI"):
        raise pytest.UsageError("--update-golden is refused where CI is set, as nobody would read the diff")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Pass the lane to each process of xdist, which parses the options by itself."""
    node.workerinput["lane"] = node.config.option.markexpr


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Schedule tests one by one to the next free process; tests that share something go together."""
    from scheduling import Scheduling

    def unit_of(test: str) -> str:
        if OF_EXPORTS.search(test) and (model := MODEL.search(test)):
            return f"exports of {model[1]}"
        file = test.partition("::")[0]
        return TOGETHER.get(Path(file).name, file if shares_fixtures(config.rootpath / file) else test)

    return Scheduling(config, log, unit_of)


@functools.cache
def shares_fixtures(file: Path) -> bool:
    """Whether tests of a file use fixtures that are made once for all of them in a process."""
    return bool(re.search(r"fixture\(.*scope=\"(?:module|session)\"", file.read_text("utf-8")))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip importing files without a test of the quick lane, because PyTorch alone takes seconds to import."""
    if (
        config.option.markexpr != QUICK
        or collection_path.suffix != ".py"
        or TESTS not in collection_path.parents
    ):
        return None
    marks = re.findall(
        r"^pytestmark = \[?(?:\s*pytest\.mark\.\w+,?)+", collection_path.read_text("utf-8"), re.MULTILINE
    )
    return True if any(f"mark.{lane}" in mark for mark in marks for lane in SLOW_LANES) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):  # slow tests come first, so that no process ends long after the others
        items.sort(key=lambda item: not any(map(item.get_closest_marker, SLOW_LANES)))
    if config.getoption("--update-golden"):
        others = [
            item
            for item in items
            if not {"counted", "drawn", "golden", "printed"} & set(getattr(item, "fixturenames", ()))
        ]
        items[:] = [item for item in items if item not in others]
        config.hook.pytest_deselected(items=others)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Exclude the thousands of collected tests from garbage collection, also when a measurement asks for one.

    Collect less often, too: libraries and PyTorch's tracing hold most objects, and walking them as often as Python does
    by default takes a fifth of an export.
    """
    if "torch" in sys.modules and any(item.get_closest_marker("export") for item in session.items):
        from tools.matrix.registries import remember_registries

        remember_registries()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*FEW_COLLECTIONS)
    if "COVERAGE_PROCESS_CONFIG" in os.environ:
        _let_children_end()


def _let_children_end() -> None:
    """Give processes that are no longer needed a moment to end by themselves: one that is killed records nothing."""
    from analyzer.process.child import Child

    end_at_once = Child.end

    def end(child: Child, seconds: float = 0.0) -> int:
        process = child._process
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()  # no question follows
        return end_at_once(child, max(seconds, SECONDS_TO_END))

    setattr(Child, "end", end)  # noqa: B010 - a type checker forbids the assignment of a method


# Longest wait for a process that records its coverage.
SECONDS_TO_END = 2.0

# The running test of the quick lane, if there is one.
_quick: list[str] = []


def _enforce_lane(event: str, words: tuple[object, ...]) -> None:
    """Fail tests of the quick lane that start a process or import PyTorch: they need a mark."""
    if not _quick:
        return
    if event == "subprocess.Popen" and words[0] != "fc-list":  # matplotlib lists a machine's fonts once
        raise RuntimeError(f"{_quick[-1]} starts a process: mark it with pytest.mark.child")
    if event == "import" and words[0] in ("torch", "transformers"):
        raise RuntimeError(f"{_quick[-1]} imports {words[0]}: mark it with pytest.mark.export")


sys.addaudithook(_enforce_lane)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Note whether the test is quick. Shared fixtures may do anything, if each test that uses them is marked."""
    is_quick = not any(item.get_closest_marker(lane) for lane in SLOW_LANES)
    if is_quick:
        _quick.append(item.nodeid)
    try:
        return (yield)
    finally:
        if is_quick:
            _quick.pop()


def scrub(text: str, folders: tuple[Path, ...]) -> str:
    """Replace texts that differ between machines: temporary folders and versions."""
    for folder in sorted(folders, key=lambda path: len(str(path)), reverse=True):
        text = text.replace(str(folder), "<tmp>")
    return VERSION.sub("<version>", text)


@pytest.fixture
def golden(
    request: pytest.FixtureRequest, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str], None]:
    """`golden(name, text)` compares a report with tests/golden/<name>.txt, which `make golden` rewrites."""

    def compare(name: str, text: str) -> None:
        path = TESTS / "golden" / f"{name}.txt"
        found = scrub(text, (tmp_path, tmp_path_factory.getbasetemp()))
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(found.encode())
        elif not path.is_file():
            pytest.fail(f"no {path.relative_to(TESTS.parent)}: make golden writes it")
        expected = path.read_bytes().decode()
        assert found == expected, f"{path.name} differs; if the change is meant: make golden"

    return compare


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder of external cases: third-party files that the tests read if the folder exists."""
    folder = Path(os.environ.get("ONNXLEDGER_CASES", TESTS.parent.parent / "shared"))
    if not folder.is_dir():
        pytest.skip(f"no external cases at {folder}; set ONNXLEDGER_CASES to their folder")
    return folder


@pytest.fixture(scope="session")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield a folder with the exports of `make demo`, where the documents' commands are run."""
    with documents.prepared(tmp_path_factory.mktemp("workplace")) as folder:
        yield folder


@pytest.fixture(scope="session")
def printed(workplace: Path) -> dict[Path, list[documents.Step]]:
    """Return every command of the documents, run once and in order."""
    return {document: list(documents.steps(document, workplace)) for document in documents.DOCUMENTS}


@pytest.fixture(scope="session")
def exported() -> Exports:
    """`exported(name, dtype, via)`: a tiny model's export, which other tests read, too."""
    return Exports()


@pytest.fixture(scope="session")
def honest() -> Path:
    """Return the folder for the honest files of the tamper and rewrite suites, or `$ONNXLEDGER_SUITES`."""
    configured = os.environ.get("ONNXLEDGER_SUITES")
    return (
        Path(configured).resolve()
        if configured
        else kept.home("tools.suite.bases", "tools.matrix.transforms")
    )


@pytest.fixture(scope="session")
def forking() -> Iterator[Forking]:
    """Yield the server that copies processes; it starts at the first request."""
    forking = Forking()
    yield forking
    forking.end()


@pytest.fixture
def forked_children(forking: Forking, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make child processes copies of one with its imports done; only on Linux."""
    if sys.platform.startswith("linux"):
        monkeypatch.setattr("analyzer.process.child.subprocess", forking)


@pytest.fixture(scope="session")
def newer_runtime() -> None:
    """Skip older runtimes, whose profiles lack the bytes of each node, and whose QMoE takes no zero points."""
    installed = tuple(map(int, version("onnxruntime").split(".")[:2]))
    if installed < (1, 28):
        pytest.skip("onnxruntime is older than 1.28")


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Make the hub unreachable, and return the list of ids that are requested from it."""
    from exporter import location

    requested: list[str] = []

    def record(hub_id: str) -> location.HubAnswer:
        requested.append(hub_id)
        return location.HubAnswer(location.Reach.UNREACHABLE, "the hub cannot be reached (no network)")

    monkeypatch.setattr(location, "query_hub", record)
    return requested
