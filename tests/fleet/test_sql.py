"""Answers of a lake, and queries that it refuses."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import onnx
import pytest
from commands import run_here
from fleets import add, codes, network, survey, weights
from models import noise, save, text_model

from analyzer.account.audit import audit_model
from analyzer.account.ledger import Ledger, Role
from analyzer.documents.answer import Answer
from analyzer.errors import UsageError
from analyzer.fleet.sql import answer_question, ask_lake, load_questions
from analyzer.formats.lake import answer_as_text

pytestmark = pytest.mark.child


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fleet") / "zoo"
    for number in range(6):
        add(folder, f"m{number}.onnx", weights(number, a=8 * (number + 1)))
    add(folder, "copy.onnx", weights(5, a=48))
    save(folder, codes(weights(1, a=16)), "int8.onnx")
    (folder / "broken.onnx").write_bytes(b"\x08")
    survey(folder, lake=folder.parent / "lake")
    return folder


@pytest.fixture(scope="module")
def lake(zoo: Path) -> Path:
    return zoo.parent / "lake"


@pytest.fixture(scope="module")
def ledgers(zoo: Path) -> dict[str, Ledger]:
    """Independent count: each file audited here, one after the other."""
    return {str(path): audit_model(path) for path in sorted(zoo.glob("*.onnx")) if path.name != "broken.onnx"}


QUESTIONS: dict[str, tuple[str, Any]] = {
    "how many models are there": ("SELECT count(*) FROM models", lambda z: len(z) + 1),
    "how many cannot be read": ("SELECT count(error) FROM models", lambda z: 1),
    "how many parameters are there in all": (
        "SELECT sum(parameters) FROM models",
        lambda z: sum(each.parameters for each in z.values()),
    ),
    "which is the largest on disk": (
        "SELECT arg_max(model, file_bytes) FROM (SELECT * FROM models ORDER BY model DESC)",
        lambda z: max(sorted(z, reverse=True), key=lambda name: z[name].file_nbytes),
    ),
    "how many models have int8 weights": (
        "SELECT count(DISTINCT model) FROM tensors WHERE dtype = 'INT8' AND role = 'parameter'",
        lambda z: sum(
            any(e.tensor.dtype.name == "INT8" and e.role is Role.PARAMETER for e in ledger.entries)
            for ledger in z.values()
        ),
    ),
    "how many use an operator": (
        "SELECT count(*) FROM operators WHERE op_type = 'DequantizeLinear' AND nodes > 0",
        lambda z: sum(
            any(node.op_type == "DequantizeLinear" for node in ledger.model.nodes()) for ledger in z.values()
        ),
    ),
    "how many nodes are of it": (
        "SELECT sum(nodes) FROM operators WHERE op_type = 'MatMul'",
        lambda z: sum(node.op_type == "MatMul" for ledger in z.values() for node in ledger.model.nodes()),
    ),
    "what do copies of whole files cost": (
        "SELECT sum(n * b) - sum(b) FROM (SELECT count(*) n, any_value(bytes) b FROM files GROUP BY sha256)",
        lambda z: _wasted(z),
    ),
    "how many bytes has each role": (
        "SELECT sum(roles.quantization.bytes) FROM models",
        lambda z: sum(
            e.tensor.nbytes for ledger in z.values() for e in ledger.entries if e.role is Role.QUANTIZATION
        ),
    ),
    "how many models have a finding": (
        "SELECT count(DISTINCT model) FROM findings WHERE severity <> 'error'",
        lambda z: sum(any(f.severity != "error" for f in ledger.findings) for ledger in z.values()),
    ),
    "which would fit": (
        "SELECT count(*) FROM models WHERE stored_bytes <= 10000",
        lambda z: sum(ledger.stored_nbytes <= 10000 for ledger in z.values()),
    ),
}


def _wasted(ledgers: dict[str, Ledger]) -> int:
    sizes = {path: Path(path).read_bytes() for path in ledgers}
    counts = Counter(sizes.values())
    return sum((count - 1) * len(content) for content, count in counts.items())


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_in_sql_has_the_answer_of_an_independent_count(
    question: str, lake: Path, ledgers: dict[str, Ledger]
) -> None:
    query, count = QUESTIONS[question]

    assert ask_lake(lake, query).rows == [(count(ledgers),)]


HOSTILE = (
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM '/etc/passwd'",
    "SELECT * FROM glob('/*')",
    "SELECT * FROM sniff_csv('/etc/passwd')",
    "SELECT * FROM read_parquet('{lake}/models/*.parquet')",
    "COPY models TO '{out}'",
    "EXPLAIN ANALYZE COPY models TO '{out}'",
    "EXPORT DATABASE '{out}'",
    "ATTACH '{out}' AS evil",
    "CREATE TABLE evil AS SELECT 1",
    "INSERT INTO models SELECT * FROM models",
    "DROP VIEW models",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET enable_external_access = true",
    "PRAGMA database_list",
    "SELECT 1; SELECT 2",
    "SELECT getenv('HOME')",
    "SELECT * FROM query('COPY models TO ''{out}''')",
    "SELECT * FROM ask",
    "",
    "SELECT",
)


@pytest.mark.parametrize("query", HOSTILE)
def test_a_query_reaches_nothing_but_the_lake(query: str, lake: Path, tmp_path: Path) -> None:
    out = tmp_path / "evil"

    with pytest.raises(UsageError, match=r"^QUERY: "):
        ask_lake(lake, query.format(lake=lake, out=out))

    assert not out.exists()
    assert run_here("sql", lake, query.format(lake=lake, out=out)).returncode == 2


def test_json_is_rows_of_columns(lake: Path) -> None:
    done = run_here(
        "sql", lake, "SELECT count(*) AS n, NULL AS nothing, [1, 2] AS l FROM models", "--format", "json"
    )

    assert json.loads(done.stdout) == {"rows": [{"n": 9, "nothing": None, "l": [1, 2]}]}
    none = run_here("sql", lake, "SELECT 1 AS a WHERE false", "--format", "json")
    assert json.loads(none.stdout) == {"rows": []}


def test_the_answer_is_the_same_in_every_form(lake: Path, tmp_path: Path) -> None:
    from pyarrow import parquet as pq

    files = [tmp_path / f"answer{suffix}" for suffix in (".csv", ".json", ".md", ".parquet", ".txt")]
    options = [part for path in files for part in ("-o", path)]
    query = "SELECT model, parameters, opsets FROM models ORDER BY model"

    done = run_here("sql", lake, query, *options)

    assert done.returncode == 0, done.stderr
    rows = ask_lake(lake, query).rows
    assert [row["parameters"] for row in json.loads(files[1].read_text())["rows"]] == [row[1] for row in rows]
    (_, *found) = csv.reader(io.StringIO(files[0].read_text()))
    assert [row[1] for row in found] == ["" if row[1] is None else str(row[1]) for row in rows]
    assert pq.read_table(files[3])["parameters"].to_pylist() == [row[1] for row in rows]
    assert files[2].read_text().count("\n| ") == len(rows) + 1
    assert files[4].read_text().startswith("9 rows\n")


@pytest.mark.parametrize("name", load_questions())
def test_every_ready_question_has_an_answer(name: str, lake: Path) -> None:
    options = ["--baseline", lake] if name == "growth" else []

    done = run_here("sql", lake, "--question", name, *options)

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(load_questions()[name]["says"][:60])


def test_what_no_order_by_orders_has_one_order_all_the_same(lake: Path) -> None:
    query = "SELECT sha256, list(name) FROM tensors GROUP BY sha256"

    assert len({str(ask_lake(lake, query).rows) for _ in range(5)}) == 1


def test_duplicates_name_the_copies(lake: Path, zoo: Path) -> None:
    (row,) = answer_question(lake, "duplicates").records

    assert (row["copies"], row["files"]) == (2, [str(zoo / "copy.onnx"), str(zoo / "m5.onnx")])
    assert row["wasted_bytes"] == (zoo / "copy.onnx").stat().st_size


def test_links_to_a_file_are_no_copies(tmp_path: Path) -> None:
    first = add(tmp_path / "zoo", "first.onnx", weights(1))
    (tmp_path / "zoo" / "link.onnx").symlink_to("first.onnx")
    (tmp_path / "zoo" / "hard.onnx").hardlink_to(first)
    survey(tmp_path / "zoo", lake=tmp_path / "lake")

    assert answer_question(tmp_path / "lake", "duplicates").records == []


def test_growth_is_reported_where_only_external_data_has_changed(tmp_path: Path) -> None:
    folder = tmp_path / "zoo"
    folder.mkdir()
    proto = network(weights(1))
    onnx.save(proto, folder / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    survey(folder, lake=tmp_path / "old")
    data = bytearray((folder / "m.data").read_bytes())
    data[0] ^= 1
    (folder / "m.data").write_bytes(data)
    survey(folder, lake=tmp_path / "new")

    (row,) = answer_question(tmp_path / "new", "growth", earlier=tmp_path / "old").records

    assert (row["status"], row["change"]) == ("changed", 0)


def test_growth_is_over_an_earlier_lake(zoo: Path, lake: Path, tmp_path: Path) -> None:
    later = tmp_path / "zoo"
    for path in zoo.glob("m*.onnx"):
        add(later, path.name, weights(int(path.stem[1:]), a=8 * (int(path.stem[1:]) + 1)))
    add(later, "m1.onnx", weights(1, a=80))
    survey(zoo, lake=tmp_path / "old")
    (zoo / "later.onnx").write_bytes((later / "m1.onnx").read_bytes())
    try:
        survey(zoo, lake=tmp_path / "new")
    finally:
        (zoo / "later.onnx").unlink()

    (row,) = answer_question(tmp_path / "new", "growth", earlier=tmp_path / "old").records

    assert (row["model"], row["status"]) == (str(zoo / "later.onnx"), "added")
    with pytest.raises(UsageError, match="needs an earlier lake"):
        answer_question(lake, "growth")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["SELECT 1", "--question", "largest"], "give one SELECT"),
        ([], "give one SELECT"),
        (["--question", "largest-first"], "no such question"),
        (["SELECT 1", "-o", "x.pdf"], "no format"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: list[str], reason: str, lake: Path) -> None:
    done = run_here("sql", lake, *arguments)

    assert done.returncode == 2
    assert reason in done.stderr


def test_a_query_that_takes_much_memory_is_refused(lake: Path) -> None:
    done = run_here("sql", lake, "SELECT length(list(range)) FROM range(300000000)")

    assert done.returncode == 2
    assert "Out of Memory" in done.stderr


@pytest.mark.parametrize(
    ("note", "reason"),
    [
        ("[" * 100_000, "cannot be read"),
        ('{"format": 2, "shards": ["a-1", "b-2", "a-1"]}', "names a shard twice"),
    ],
)
def test_a_note_that_no_survey_wrote_is_refused(note: str, reason: str, lake: Path, tmp_path: Path) -> None:
    number = json.loads((lake / "lake.json").read_text())["format"]
    (tmp_path / "lake.json").write_text(note.replace('"format": 2', f'"format": {json.dumps(number)}'))

    done = run_here("sql", tmp_path, "SELECT 1")

    assert done.returncode == 2
    assert reason in done.stderr
    assert "internal error" not in done.stderr


def test_what_is_no_lake_is_refused(tmp_path: Path) -> None:
    done = run_here("sql", tmp_path, "SELECT 1")

    assert done.returncode == 2
    assert "is not a lake" in done.stderr


def test_work_and_memory_of_a_run_are_reported_at_the_sizes_that_a_model_has(tmp_path: Path) -> None:
    """Without sizes, `fits` judges the weights alone; with sizes, it judges a run."""
    (tmp_path / "zoo").mkdir()
    graph = "g (float[batch, 64] x) => (float[batch, 8] y) { y = MatMul(x, w) }"
    save(tmp_path / "zoo", text_model(graph, {"w": noise(64, 8)}), "open.onnx")
    save(tmp_path / "zoo", text_model(graph.replace("batch", "4"), {"w": noise(64, 8)}), "fixed.onnx")
    (tmp_path / "zoo" / "broken.onnx").write_bytes(b"\x08")
    done = run_here("survey", tmp_path / "zoo", "-o", tmp_path / "lake", "--shape", "batch=32,sequence=7")
    assert done.returncode == 0, done.stderr

    rows = ask_lake(tmp_path / "lake", "SELECT model, macs, memory_bytes, sizes FROM models").records
    work = {Path(row["model"]).name: row for row in rows}
    assert {name: (row["macs"], row["sizes"]) for name, row in work.items()} == {
        "open.onnx": (32 * 64 * 8, "batch=32"),
        "fixed.onnx": (4 * 64 * 8, ""),
        "broken.onnx": (None, None),
    }
    least = {"open.onnx": 4 * (64 * 8 + 32 * 64 + 32 * 8), "fixed.onnx": 4 * (64 * 8 + 4 * 64 + 4 * 8)}
    assert all(work[name]["memory_bytes"] >= nbytes for name, nbytes in least.items())
    needed = work["open.onnx"]["memory_bytes"]
    for memory, fits in ((needed, "fits"), (needed - 1, "no")):
        found = answer_question(tmp_path / "lake", "fits", variables={"memory": memory}).records
        assert {Path(row["model"]).name: row["fits"] for row in found} == {
            "open.onnx": fits,
            "fixed.onnx": "fits",
        }
    ranked = [Path(row["model"]).name for row in answer_question(tmp_path / "lake", "work").records]
    assert ranked == ["open.onnx", "fixed.onnx"]
    (tmp_path / "zoo" / "broken.onnx").unlink()
    run_here("survey", tmp_path / "zoo", "-o", tmp_path / "lake", "--shape", "batch=32,sequence=7", "--quiet")
    assert run_here("check", tmp_path / "lake", "--max-parameters", "512").returncode == 0
    assert run_here("check", tmp_path / "lake", "--max-parameters", "511").returncode == 1


def test_a_loop_fits_only_with_what_its_body_can_allocate(tmp_path: Path) -> None:
    (tmp_path / "zoo").mkdir()
    text = """g (float[n, 8] x) => (float[m, n, 8] y) <int64 trip = {100}>
        { z, y = Loop (trip, , x) <body = g (int64 i, bool go, float[n, 8] a)
            => (bool stay, float[n, 8] d, float[n, 8] e) { stay = Identity(go) d = Sin(a) e = Cos(a) }> }"""
    save(tmp_path / "zoo", text_model(text), "loop.onnx")
    done = run_here("survey", tmp_path / "zoo", "-o", tmp_path / "lake", "--shape", "n=1000")
    assert done.returncode == 0, done.stderr

    for memory, fits in ((2_000_000, "no"), (4_000_000, "not known"), (16_000_000, "fits")):
        (row,) = answer_question(tmp_path / "lake", "fits", variables={"memory": memory}).records
        assert row["fits"] == fits


def test_sizes_of_a_sweep_are_refused(tmp_path: Path) -> None:
    done = run_here("survey", tmp_path, "-o", tmp_path / "lake", "--shape", "batch=1:8:x2")

    assert done.returncode == 2
    assert "single size of each axis" in done.stderr
    assert not (tmp_path / "lake").exists()


def test_a_predefined_answer_has_units_and_one_sign_for_no_value(lake: Path) -> None:
    largest = run_here("sql", lake, "--question", "largest", "-n", 2).stdout
    families = run_here("sql", lake, "--question", "families").stdout
    own = run_here("sql", lake, "SELECT model, file_bytes, sha256 AS share FROM models").stdout

    assert re.search(r"^model +file bytes +parameters +stored bytes +wasted bytes +nodes$", largest, re.M)
    assert re.search(r"\d\.\d\d KiB", largest)
    assert re.search(r"100 %", families)
    assert re.search(r" -  +-  +0 B$", families, re.M)
    assert not re.search("[KMG]iB", own)


def test_each_part_of_a_broken_table_has_the_name_of_the_row(lake: Path) -> None:
    found = run_here("sql", lake, "--question", "families").stdout
    heads = [line for line in found.splitlines() if line.startswith("family ")]

    assert len(heads) > 1
    assert all(re.match("family +model +", head) for head in heads)


def test_a_hidden_row_does_not_break_a_table() -> None:
    rows = [(f"m{at}.onnx", 10, 20) for at in range(5)]
    answer = Answer(("model", "nodes", "parameters"), [*rows, ("last.onnx", 10**20, 10**20)], "All.")

    assert "[1 other]" in answer_as_text(answer, 5, 60)
    assert answer_as_text(answer, 5, 60).count("model") == 1
    assert answer_as_text(answer, 0, 60).count("model") == 2
