"""Files broken on purpose: the answer to each, and actions and characters that no answer may contain.

The generator of the external cases makes the files. `benchmarks/bench_hostile.py` measures the same answers, each in a
process of its own.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hostile import CANARY, Case, generator, make_corpus, state, unsafe_characters
from samples import WHOLE

import analyzer.read.source
from analyzer.cli import main

pytestmark = pytest.mark.child  # a script makes the corpus

ROOT = Path(__file__).resolve().parent.parent
STYLES = ("json", "text")

OF_MANY = frozenset({"chain_2e5", "inits_1e6", "nodes_1e6", "share_1e5"})
"""Cases whose reports take seconds: only `make whole` prints their text; the text of similar large cases suffices."""

_READ_AGAIN, _READ_AT_LEAST = 4, 1 << 20
"""Limit of bytes read per answer: the larger of this multiple of the files' size and this many bytes."""

_HANG = 60
"""Seconds after which a case counts as hanging: no performance limit, only a way to fail."""


@dataclass(frozen=True, slots=True)
class Counted:
    """Expected answer to a readable file: exit code 0, stored elements, and findings besides `BESIDE`."""

    elements: int
    findings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """Expected answer to an unreadable file: exit code 2, and a sentence with this id in brackets; "" without an id."""

    id: str


BESIDE = {"unattributed", "weightless", "unused-initializer"}
"""Findings about the corpus's toy models, which have tests elsewhere."""


def counted(elements: int, *findings: str) -> Counted:
    return Counted(elements, findings)


EXPECTED: dict[str, Counted | Refused] = {
    # control
    "valid_base": counted(1_056, "nan-or-inf"),
    # notmodel
    "zero_byte": Refused("empty-model"),
    "one_byte": Refused("not-onnx"),
    "trunc_0_3": Refused("truncated"),
    "trunc_1_17": Refused("truncated"),
    "trunc_2_436": Refused("truncated"),
    "trunc_3_2183": Refused("truncated"),
    "trunc_4_3929": Refused("truncated"),
    "trunc_5_4365": Refused("truncated"),
    "trunc_clean_boundary": counted(1_056, "nan-or-inf", "no-opset"),
    "random_bytes": Refused("not-onnx"),
    "text_file": Refused("not-onnx"),
    "json_file": Refused("not-onnx"),
    "prototxt_named_onnx": Refused("not-onnx"),
    "html_404": Refused("not-onnx"),
    "lfs_pointer": Refused("not-onnx"),
    "gzip": Refused("not-onnx"),
    "zip_pth": Refused("not-onnx"),
    "pickle": Refused("not-onnx"),
    "directory": Refused(""),
    "missing": Refused(""),
    # sizes
    "dims_2pow62": counted(4_611_686_018_427_387_904, "payload-mismatch"),
    "dims_negative": counted(0, "invalid-dims"),
    "dims_neg_pair": counted(0, "invalid-dims"),
    "dims_overflow_zero": counted(18_446_744_073_709_551_616, "payload-mismatch"),
    "dims_overflow_match": counted(18_446_744_073_709_551_620, "payload-mismatch"),
    "dims_zero_times_huge": counted(0),
    "dims_1e6": counted(1),
    "raw_short": counted(1_048_576, "payload-mismatch"),
    "raw_long": counted(2, "payload-mismatch"),
    "raw_absent": counted(1_000_000, "payload-mismatch"),
    "raw_and_float_data": counted(4, "payload-mismatch"),
    "raw_and_external": counted(4, "external-missing", "payload-mismatch"),
    "int4_odd": counted(3, "payload-mismatch"),
    "sparse_dense_bomb": counted(1),
    "sparse_idx_oob": counted(2, "payload-mismatch"),
    "constantofshape_bomb": counted(1),
    "range_expand_bomb": counted(4),
    "string_tensor_raw": counted(2, "payload-mismatch"),
    "dtype_999": counted(4, "unknown-dtype"),
    "dtype_0": counted(4, "unknown-dtype"),
    "dtype_neg": counted(4, "unknown-dtype"),
    "segment": counted(4, "payload-mismatch"),
    # external
    "ext_ok": counted(4),
    "ext_etc_passwd": counted(4, "external-escapes"),
    "ext_canary": counted(4, "external-escapes"),
    "ext_canary_mid": counted(4, "external-escapes"),
    "ext_absolute": counted(4, "external-escapes"),
    "ext_proc_self": counted(4, "external-escapes"),
    "ext_backslash": counted(4, "external-escapes"),
    "ext_drive": counted(4, "external-escapes"),
    "ext_unc": counted(4, "external-escapes"),
    "ext_url": counted(4, "external-escapes"),
    "ext_nul": counted(4, "external-escapes"),
    "ext_empty_loc": counted(4, "external-escapes"),
    "ext_no_loc": counted(4, "external-escapes"),
    "ext_dot": counted(4, "external-escapes"),
    "ext_self": counted(4, "external-escapes"),
    "ext_missing": counted(4, "external-missing"),
    "ext_short": counted(4, "external-short"),
    "ext_offset_beyond": counted(4, "external-orphaned", "external-short"),
    "ext_neg_offset": counted(4, "external-orphaned", "external-short"),
    "ext_neg_length": counted(4, "external-orphaned", "external-short"),
    "ext_huge_length": counted(4, "external-short"),
    "ext_huge_dims": counted(1_152_921_504_606_846_976, "external-short"),
    "ext_len_ne_dims": counted(4, "external-orphaned", "external-short"),
    "ext_nonnumeric": counted(4, "external-orphaned", "external-short"),
    "ext_bignum": counted(4, "external-orphaned", "external-short"),
    "ext_unicode_digits": counted(4, "external-orphaned", "external-short"),
    "ext_unknown_key": counted(4, "unknown-fields"),
    "ext_two_locations": counted(4, "external-escapes"),
    "ext_overlap": counted(8, "external-orphaned", "external-overlap"),
    "ext_symlink_final": counted(4, "external-escapes"),
    "ext_symlink_dir": counted(4, "external-escapes"),
    "ext_symlink_inside": counted(4),
    "ext_hf_cache": counted(4),
    "ext_in_subgraph_const": counted(5, "external-escapes"),
    "ext_sparse_init": counted(4, "external-escapes"),
    "ext_sparse_const": counted(4, "external-escapes"),
    "ext_ort_mem_addr": counted(4, "external-missing"),
    # structure
    "nest_10": counted(1),
    "nest_29": counted(1),
    "nest_33": counted(1, "deep-nesting"),
    "nest_100": Refused("deep-nesting"),
    "nest_1000": Refused("deep-nesting"),
    "nest_10000": Refused("deep-nesting"),
    "type_nest_100": Refused("not-onnx"),
    "type_nest_20000": Refused("not-onnx"),
    "fn_self": counted(0, "recursive-function"),
    "fn_mutual": counted(0, "recursive-function"),
    "fn_billion_laughs": counted(0),
    "fn_chain_5000": counted(0),
    "fn_duplicate": counted(0, "duplicate-function"),
    "cycle": counted(4, "not-sorted"),
    "self_loop": counted(4, "not-sorted"),
    "not_topological": counted(4, "not-sorted"),
    "dup_node_names": counted(4),
    "dup_init_names": counted(8, "duplicate-name"),
    "dup_outputs": counted(4, "duplicate-output"),
    "undefined_input": counted(4, "undefined-input"),
    "unnamed_everything": counted(8, "duplicate-name"),
    "init_is_output": counted(4),
    "ref_attr_outside_fn": counted(4, "undefined-input"),
    "no_opset": counted(4, "no-opset"),
    "dup_opset": counted(4, "invalid-version"),
    "opset_2pow62": counted(4, "invalid-version"),
    "opset_neg": counted(4, "invalid-version"),
    "no_graph": Refused("empty-model"),
    "no_ir": counted(4, "invalid-version"),
    "ir_0": counted(4, "invalid-version"),
    "ir_999": counted(4, "invalid-version"),
    "ir_neg1": counted(4, "invalid-version"),
    "unknown_domain": counted(4, "custom-domain"),
    "unknown_op": counted(4, "unknown-operator"),
    # names
    "name_ansi": counted(4, "control-characters"),
    "name_html": counted(4),
    "name_html_json": counted(4, "control-characters"),
    "name_md": counted(4, "control-characters"),
    "name_csv": counted(4),
    "name_ci_command": counted(4, "control-characters"),
    "name_bidi": counted(4, "control-characters"),
    "name_nonutf8": counted(4, "non-utf8-name"),
    "name_nonutf8_init": counted(4, "non-utf8-name"),
    "name_nul": counted(4, "control-characters"),
    "name_1mb": counted(4),
    "name_deep_scope": counted(4),
    "name_deep_dots": counted(4),
    "name_proto": counted(12),
    "name_path": counted(4),
    # volume
    "nodes_1e6": Refused(""),
    "inits_1e6": Refused(""),
    "attrs_1e6": Refused("not-onnx"),
    "chain_2e5": counted(0),
    "diamond_60": counted(4),
    "many_opsets": counted(4),
    "metadata_1e5": counted(4),
    "share_1e5": counted(4),
    # wire
    "varint_11": Refused("not-onnx"),
    "varint_overlong": counted(4),
    "varint_unterminated": Refused("not-onnx"),
    "group": counted(4, "unknown-fields"),
    "group_unclosed": Refused("not-onnx"),
    "group_deep": Refused("not-onnx"),
    "field_0": Refused("not-onnx"),
    "wire_6": Refused("not-onnx"),
    "unknown_fields": counted(4, "unknown-fields"),
    "len_gt_parent": Refused("truncated"),
    "len_2pow63": Refused("truncated"),
    "len_neg": Refused("truncated"),
    "len_2gb_short": Refused("truncated"),
    "wrong_wire": Refused("empty-model"),
    "graph_twice": counted(8, "undefined-input"),
    "packed_dims": counted(4),
    "appended_garbage": Refused("not-onnx"),
    "appended_zip": Refused("not-onnx"),
    # file
    "symlink": counted(1_056, "nan-or-inf"),
    "symlink_loop": Refused(""),
    "unreadable": counted(1_056, "nan-or-inf"),
    "fifo": Refused("not-onnx"),
    "dev_zero": Refused("not-onnx"),
    "dev_random": Refused("not-onnx"),
    # external
    "ext_fifo": counted(4, "external-escapes"),
    "ext_dev_zero": counted(4, "external-escapes"),
    "ext_hardlink": counted(4, "external-orphaned"),
}


@dataclass(frozen=True, slots=True)
class Answer:
    code: int
    out: str
    err: str


@dataclass
class Watch:
    """Records opened files and the number of bytes read while it is on."""

    is_on: bool = False
    opened: set[str] | None = None
    nbytes: int = 0

    def __enter__(self) -> Watch:
        self.is_on, self.opened, self.nbytes = True, set(), 0
        return self

    def __exit__(self, *_: object) -> None:
        self.is_on = False

    def note(self, event: str, args: tuple[Any, ...]) -> None:
        """Record an audit event, which Python raises before it opens a file or connection."""
        if not self.is_on or self.opened is None:
            return
        if event == "open" and isinstance(args[0], (str, bytes, os.PathLike)):
            self.opened.add(os.fsdecode(args[0]))
        elif event in ("socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.system", "os.exec"):
            self.opened.add(f"{event}{args}")


@pytest.fixture(scope="session")
def watch() -> Watch:
    """Return the only watch of the session, because an audit hook cannot be removed."""
    found = Watch()
    sys.addaudithook(found.note)
    return found


@pytest.fixture(scope="session")
def whole_corpus(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    if generator() is None:
        pytest.skip("no hostile/make.py; set ONNXLEDGER_CASES to the folder of external cases")
    return {case.id: case for case in make_corpus(tmp_path_factory.mktemp("hostile") / "corpus", big=True)}


@pytest.fixture
def corpus(whole_corpus: dict[str, Case]) -> dict[str, Case]:
    return {id_: case for id_, case in whole_corpus.items() if not case.is_big}


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    def stop(*_: object) -> None:
        pytest.fail(f"no answer after {_HANG} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(_HANG)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def inspect_file(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], watch: Watch) -> Any:
    """`inspect_file(path, style)`: the answer of `onnxledger inspect`, in this process."""
    pread = os.pread

    def counting(descriptor: int, length: int, offset: int) -> bytes:
        content = pread(descriptor, length, offset)
        watch.nbytes += len(content)
        return content

    monkeypatch.setattr(analyzer.read.source.os, "pread", counting)

    def inspect(path: Path, style: str) -> Answer:
        monkeypatch.setattr(sys, "argv", ["onnxledger", "inspect", str(path), "--format", style])
        with watch, pytest.raises(SystemExit) as left:
            main()
        printed = capsys.readouterr()
        return Answer(int(left.value.code or 0), printed.out, printed.err)

    return inspect


def outcome(answer: Answer) -> Counted | Refused:
    """Return the outcome in a JSON answer."""
    if answer.code == 2:
        _, bracket, rest = answer.err.partition(": [")
        return Refused(rest.partition("]")[0] if bracket else "")
    report = json.loads(answer.out)
    ids = {finding["id"] for finding in report["findings"]} - BESIDE
    return Counted(report["totals"]["stored_elements"], tuple(sorted(ids)))


CONFIG_NAMES = ("onnxledger.toml", "pyproject.toml")


def is_ours(path: str) -> bool:
    """Whether a path is Python's own file, which a late import may open, or a settings file of the user."""
    if path in CONFIG_NAMES:
        return True
    own = (sys.prefix, sys.base_prefix, str(ROOT / "analyzer"), os.devnull)
    return not path.endswith((".onnx", ".bin")) and path.startswith(own)


def may_open(path: str, case: Case) -> bool:
    """Whether a path is in the model's folder; a hub cache's snapshot may also lead to its blobs."""
    real = Path(path).resolve()
    if case.id in ("ext_hf_cache", "symlink"):
        return real.is_relative_to(case.path.parent.parent.parent)
    return real.is_relative_to(case.path.parent.resolve())


@pytest.mark.parametrize("id_", EXPECTED)
def test_answer_is_the_expected_one_and_nothing_outside_the_model_s_folder_is_opened(
    corpus: dict[str, Case], inspect_file: Any, watch: Watch, id_: str
) -> None:
    case = corpus[id_]
    folder = corpus["valid_base"].path.parent if id_ == "directory" else case.path.parent
    before = state(folder)

    answers = {}
    for style in STYLES if WHOLE or id_ not in OF_MANY else ("json",):
        answers[style] = inspect_file(case.path, style)
        assert watch.opened is not None
        assert [path for path in watch.opened if not is_ours(path) and not may_open(path, case)] == []
        assert watch.nbytes <= max(_READ_AGAIN * size_of(case), _READ_AT_LEAST)

    assert outcome(answers["json"]) == EXPECTED[id_]
    assert len({answer.code for answer in answers.values()}) == 1
    for answer in answers.values():
        printed = answer.out + answer.err
        assert not unsafe_characters(printed)
        assert "Traceback" not in printed
        assert "internal error" not in printed
        assert CANARY.decode() not in printed
        assert bool(answer.out) is (answer.code != 2)
    assert state(folder) == before


def size_of(case: Case) -> int:
    """Return the bytes of the model and of the files beside it."""
    return sum(path.stat().st_size for path in case.path.parent.glob("*") if path.is_file())


def test_every_case_of_the_generator_is_expected(corpus: dict[str, Case]) -> None:
    assert corpus.keys() == EXPECTED.keys()


def test_nothing_that_the_corpus_would_plant_is_there(corpus: dict[str, Case], inspect_file: Any) -> None:
    planted = Path(tempfile.gettempdir(), "ONNX_AUDIT_PWNED")

    inspect_file(corpus["pickle"].path, "json")

    assert not planted.exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("id_", "expected"),
    [
        ("sparse_100gb", counted(26_843_545_600)),
        ("ext_sparse_100gb", counted(26_843_545_600)),
        ("nodes_1e7", Refused("")),
    ],
)
def test_large_file_is_answered_by_a_few_reads(
    whole_corpus: dict[str, Case], inspect_file: Any, watch: Watch, id_: str, expected: Counted | Refused
) -> None:
    answer = inspect_file(whole_corpus[id_].path, "json")

    assert outcome(answer) == expected
    assert watch.nbytes <= 32 * _READ_AT_LEAST
