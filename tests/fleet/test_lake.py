"""A lake: which files are read, which rows are kept, and its state after its writer is killed at any time."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from commands import run_here
from fleets import add, content, network, survey, weights
from models import external, save, text_model
from samples import WHOLE

from analyzer.account.audit import audit_model
from analyzer.account.group import group_by
from analyzer.errors import UsageError
from analyzer.fleet.lake import open_lake
from analyzer.fleet.sql import ask_lake
from analyzer.formats.json import to_document
from analyzer.reports import Inspection
from analyzer.schemas import load_schema

pytestmark = pytest.mark.child


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    folder = tmp_path / "zoo"
    for number in range(20):
        add(folder / f"part{number % 3}", f"m{number}.onnx", weights(number))
    (folder / "page.onnx").write_text("<html>not found</html>")
    os.mkfifo(folder / "pipe.onnx")
    return folder


def test_every_table_has_the_keys_of_inspect(zoo: Path, tmp_path: Path) -> None:
    survey(zoo, lake=tmp_path / "lake")
    model = str(zoo / "part0" / "m0.onnx")
    ledger = audit_model(model)
    document = to_document(Inspection(ledger, group_by(ledger)))
    expected = {**document, **document["model"], **document["totals"]}

    (row,) = ask_lake(tmp_path / "lake", f"SELECT * FROM models WHERE model = '{model}'").records

    assert {key: row[key] for key in ("parameters", "stored_bytes", "file_bytes", "nodes", "producer")} == {
        key: expected[key] for key in ("parameters", "stored_bytes", "file_bytes", "nodes", "producer")
    }
    assert row["roles"] == expected["roles"]
    assert row["accounts"] == expected["accounts"]
    assert row["opsets"] == expected["opsets"]
    assert not document["findings"]
    for table in ("tensors", "groups", "operators"):
        rows = ask_lake(tmp_path / "lake", f"SELECT * FROM {table} WHERE model = '{model}'").records
        keys = [key for key in document[table][0] if key not in ("trainable", "frozen")]
        assert [{key: each[key] for key in keys} for each in rows] == [
            {key: each[key] for key in keys} for each in document[table]
        ]
        assert {each["sha256"] for each in rows} == {row["sha256"]}


def test_what_cannot_be_read_is_a_row_with_its_error(zoo: Path, tmp_path: Path) -> None:
    done = survey(zoo, zoo / "nowhere.onnx", lake=tmp_path / "lake")

    rows = ask_lake(
        tmp_path / "lake", "SELECT model, error FROM models WHERE error IS NOT NULL ORDER BY model"
    ).rows

    assert done.unreadable == 3
    assert [Path(model).name for model, _ in rows] == ["nowhere.onnx", "page.onnx", "pipe.onnx"]
    assert all(error.startswith(f"{model}: ") for model, error in rows)


def test_a_second_run_reads_nothing_and_writes_nothing(zoo: Path, tmp_path: Path) -> None:
    (zoo / "pipe.onnx").unlink()
    first = survey(zoo, lake=tmp_path / "lake")
    before = content(tmp_path / "lake")

    second = survey(zoo, lake=tmp_path / "lake")

    assert (first.read, first.kept) == (21, 0)
    assert (second.read, second.kept, second.written) == (0, 21, 0)
    assert content(tmp_path / "lake") == before


@pytest.mark.parametrize("table", ["models", "files", "tensors", "findings"])
def test_a_lake_that_lost_a_table_is_repaired_by_the_next_run(zoo: Path, tmp_path: Path, table: str) -> None:
    (zoo / "pipe.onnx").unlink()
    survey(zoo, lake=tmp_path / "lake")
    before = content(tmp_path / "lake")
    next((tmp_path / "lake" / table).iterdir()).unlink()

    if table != "models":
        with pytest.raises(UsageError, match="cannot be read"):
            ask_lake(tmp_path / "lake", f"SELECT count(*) FROM {table}")
    again = survey(zoo, lake=tmp_path / "lake")

    assert again.read > 0
    assert content(tmp_path / "lake") == before


@pytest.mark.parametrize("table", ["models", "groups"])
@pytest.mark.parametrize("kept", [0, 0.5])
def test_a_lake_whose_table_was_cut_off_is_repaired_by_the_next_run(
    zoo: Path, tmp_path: Path, table: str, kept: float
) -> None:
    (zoo / "pipe.onnx").unlink()
    survey(zoo, lake=tmp_path / "lake")
    before = content(tmp_path / "lake")
    place = next((tmp_path / "lake" / table).iterdir())
    table_bytes = place.read_bytes()
    place.write_bytes(table_bytes[: int(kept * len(table_bytes))])

    with pytest.raises(UsageError, match="survey again"):
        ask_lake(tmp_path / "lake", f"SELECT count(*) FROM {table}")
    again = survey(zoo, lake=tmp_path / "lake")

    assert again.read > 0
    assert content(tmp_path / "lake") == before


def test_only_what_changed_is_read_again_and_the_lake_is_as_if_made_at_once(
    zoo: Path, tmp_path: Path
) -> None:
    (zoo / "pipe.onnx").unlink()
    survey(zoo, lake=tmp_path / "lake")
    add(zoo / "part1", "m1.onnx", weights(99))
    add(zoo / "part1", "new.onnx", weights(98))
    (zoo / "part2" / "m2.onnx").unlink()
    os.utime(zoo / "part0" / "m0.onnx", ns=(1, 1))

    again = survey(zoo, lake=tmp_path / "lake")
    survey(zoo, lake=tmp_path / "anew")

    assert (again.read, again.kept) == (3, 18)
    assert content(tmp_path / "lake") == content(tmp_path / "anew")


def test_a_file_that_was_only_touched_is_known_by_its_digest(zoo: Path, tmp_path: Path) -> None:
    survey(zoo / "part0", lake=tmp_path / "lake")
    touched = zoo / "part0" / "m0.onnx"
    os.utime(touched, ns=(1, 1))

    survey(zoo / "part0", lake=tmp_path / "lake")

    query = f"SELECT mtime_ns FROM files WHERE model = '{touched}'"
    assert ask_lake(tmp_path / "lake", query).rows == [(1,)]
    survey(zoo / "part0", lake=tmp_path / "anew")
    assert content(tmp_path / "lake") == content(tmp_path / "anew")


def test_external_data_that_changes_or_comes_is_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "zoo"
    folder.mkdir()
    proto = text_model('g (float[1,8] x) => (float[1,8] y) { y = MatMul(x, "w") }')
    proto.graph.initializer.append(external("w", [8, 8], location="w.bin", length=256))
    save(folder, proto)
    survey(folder, lake=tmp_path / "lake")
    lacking = ask_lake(tmp_path / "lake", "SELECT count(*) FROM findings WHERE id = 'external-missing'").rows

    (folder / "w.bin").write_bytes(np.arange(64, dtype=np.float32).tobytes())
    survey(folder, lake=tmp_path / "lake")
    (folder / "w.bin").write_bytes(np.ones(64, dtype=np.float32).tobytes())
    os.utime(folder / "w.bin", ns=(5, 5))
    third = survey(folder, lake=tmp_path / "lake")
    fourth = survey(folder, lake=tmp_path / "lake")

    assert lacking == [(1,)]
    assert ask_lake(
        tmp_path / "lake", "SELECT count(*) FROM findings WHERE id = 'external-missing'"
    ).rows == [(0,)]
    assert (third.read, fourth.read) == (1, 0)
    survey(folder, lake=tmp_path / "anew")
    assert content(tmp_path / "lake") == content(tmp_path / "anew")


def test_another_way_of_reading_reads_all_again(zoo: Path, tmp_path: Path) -> None:
    survey(zoo / "part0", lake=tmp_path / "lake")

    done = survey(zoo / "part0", lake=tmp_path / "lake", content="none")

    assert done.kept == 0
    assert ask_lake(tmp_path / "lake", "SELECT count(digest) FROM tensors").rows == [(0,)]


HANG = """
import sys, time
import analyzer.fleet.reading as reading

whole = reading.read_rows

def read_rows(wanted, settings):
    if wanted.model.endswith("hangs.onnx"):
        time.sleep(60)
    if wanted.model.endswith("kills.onnx"):
        import os
        os.kill(os.getpid(), 11)
    if wanted.model.endswith("eats.onnx"):
        held = bytearray(400 << 20)
        held[::4096] = b"x" * len(held[::4096])
        time.sleep(60)
    return whole(wanted, settings)

reading.read_rows = read_rows
reading.serve()
"""


@pytest.mark.parametrize("shard", [1, 64])
def test_a_model_that_hangs_eats_or_kills_its_reader_is_a_row_and_the_others_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shard: int
) -> None:
    from analyzer.fleet import reading

    folder = tmp_path / "zoo"
    for name in ("a", "eats", "hangs", "kills", "z"):
        add(folder, f"{name}.onnx", weights(1))
    monkeypatch.setattr(reading, "_SERVE", f"exec({HANG!r})")

    limits = {"shard": shard, "seconds": 5, "nbytes": 350 << 20}
    done = survey(folder, lake=tmp_path / "lake", **limits)

    errors = dict(ask_lake(tmp_path / "lake", "SELECT model, error FROM models").rows)
    error_of = {Path(model).stem: error for model, error in errors.items()}
    assert done.unreadable == 3
    assert (error_of["a"], error_of["z"]) == (None, None)
    assert "it took more than 5 s" in error_of["hangs"]
    assert "signal 11" in error_of["kills"]
    assert "bytes of memory" in error_of["eats"]

    monkeypatch.undo()
    again = survey(folder, lake=tmp_path / "lake", **limits)
    longer = survey(folder, lake=tmp_path / "lake", **limits | {"seconds": 60})
    larger = survey(folder, lake=tmp_path / "lake", **limits | {"seconds": 60, "nbytes": 400 << 20})
    os.utime(folder / "kills.onnx", ns=(5, 5))
    changed = survey(folder, lake=tmp_path / "lake", **limits)

    assert (again.read, again.unreadable) == (0, 3)
    assert (longer.read, longer.unreadable) == (1, 2)
    assert (larger.read, larger.unreadable) == (1, 1)
    assert (changed.read, changed.unreadable) == (1, 0)


def test_a_name_may_be_any_bytes_and_an_error_has_its_id(tmp_path: Path) -> None:
    folder = tmp_path / "zoo"
    whole = add(folder, "m.onnx", weights(1)).read_bytes()
    Path(os.fsdecode(os.fsencode(folder / "model") + b"\xe9.onnx")).write_bytes(whole)
    (folder / "cut.onnx").write_bytes(whole[: len(whole) // 2])

    done = survey(folder, lake=tmp_path / "lake")

    assert (done.models, done.unreadable) == (3, 1)
    found = ask_lake(tmp_path / "lake", "SELECT id FROM findings WHERE severity = 'error'").records
    assert found == [{"id": "truncated"}]


def test_two_surveys_do_not_write_one_lake(zoo: Path, tmp_path: Path) -> None:
    from analyzer.fleet.lake import Lake

    with Lake(tmp_path / "lake").written(), pytest.raises(UsageError, match="another survey writes"):
        survey(zoo, lake=tmp_path / "lake")


def test_a_folder_of_something_else_is_no_lake(zoo: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="neither an empty folder nor a lake"):
        survey(zoo, lake=zoo)
    with pytest.raises(UsageError, match="is not a lake"):
        open_lake(zoo)
    (tmp_path / "empty.txt").write_text("# nothing\n")
    with pytest.raises(UsageError, match="no model found"):
        survey(tmp_path / "empty.txt", lake=tmp_path / "lake")


@pytest.mark.slow
def test_killed_at_random_moments_the_lake_is_as_if_made_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "zoo"
    for number in range(120):
        add(folder, f"m{number}.onnx", weights(number))
    lake = tmp_path / "lake"
    line = [
        sys.executable,
        "-m",
        "analyzer",
        "survey",
        str(folder),
        "-o",
        str(lake),
        "--shard",
        "4",
        "--quiet",
    ]
    chance = random.Random(4)
    for _ in range(10 if WHOLE else 3):
        process = subprocess.Popen(line)
        time.sleep(chance.uniform(0.3, 2.5))
        process.send_signal(signal.SIGKILL)
        process.wait()
    done = subprocess.run(line, check=True)

    survey(folder, lake=tmp_path / "anew", shard=4)

    assert done.returncode == 0
    assert content(lake) == content(tmp_path / "anew")


def test_the_command_says_what_it_did_and_its_json_is_as_its_schema_says(zoo: Path, tmp_path: Path) -> None:
    import jsonschema

    lake = tmp_path / "lake"
    done = run_here("survey", zoo, "-o", lake, "-o", tmp_path / "done.json", "--jobs", 1)
    again = run_here("survey", zoo, "-o", lake, "--format", "json", "--jobs", 1)

    assert done.returncode == 0, done.stderr
    assert "22 models: 20 read, 2 unreadable\n" in done.stdout
    assert "WARN first of these errors: " in done.stdout
    document = json.loads(again.stdout)
    jsonschema.validate(document, load_schema("lake"))
    jsonschema.validate(json.loads((tmp_path / "done.json").read_text()), load_schema("lake"))
    assert {row["table"]: row["rows"] for row in document["tables"]}["models"] == 22
    assert f"onnxledger sql {lake} --question errors" in " ".join(done.stdout.split())
    assert run_here("survey", zoo).returncode == 2
    assert run_here("survey", "", "-o", lake).returncode == 2
    assert run_here("survey", zoo, "-o", lake, "--address", "localhost:1").returncode == 2


def test_a_lake_none_of_whose_models_can_be_read_is_no_answer(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    done = run_here("survey", tmp_path / "broken.onnx", "-o", lake, "--jobs", 1)

    assert done.returncode == 2
    assert "1 model: 0 read, 1 unreadable\nWARN " in done.stdout
    assert "[not-onnx]" in done.stdout
    assert "none of 1 model can be read" in done.stderr


@pytest.mark.parametrize("name", ["nowhere.onnx", "nowhere", "no*where/*.onnx"])
def test_a_source_that_does_not_exist_is_refused_before_anything_is_written(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "there.onnx").write_bytes(b"no model")
    done = run_here("survey", tmp_path / "there.onnx", tmp_path / name, "-o", tmp_path / "lake", "--jobs", 1)

    assert done.returncode == 2
    assert f"SOURCE: {tmp_path / name}: " in done.stderr
    assert not (tmp_path / "lake").exists()


def test_questions_are_listed_in_whole_sentences(zoo: Path, tmp_path: Path) -> None:
    run_here("survey", zoo, "-o", tmp_path / "lake", "--jobs", 1)
    listed = run_here("sql", tmp_path / "lake", "--question", "list").stdout

    assert "Files that are on disk more than once, byte for byte, and the bytes of the copies." in " ".join(
        listed.split()
    )


def test_answers_are_as_wide_as_the_terminal_and_in_its_characters(zoo: Path, tmp_path: Path) -> None:
    lake, environment = tmp_path / "lake", {**os.environ, "COLUMNS": "40", "PYTHONIOENCODING": "ascii"}
    for line in (
        ("survey", zoo, "-o", lake, "--jobs", 1),
        ("sql", lake, "--question", "largest", "-o", tmp_path / "a.txt"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "analyzer", *map(str, line)],
            capture_output=True,
            env=environment,
            cwd=Path(__file__).parents[2],
        )

        assert done.returncode == 0, done.stderr
        assert max(map(len, done.stdout.decode("ascii").splitlines())) <= 40
    assert max(map(len, (tmp_path / "a.txt").read_text(encoding="utf-8").splitlines())) > 40


def test_a_person_sees_how_many_are_done_at_which_rate_and_the_time_left(zoo: Path, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    line = [
        sys.executable,
        "-m",
        "analyzer",
        "survey",
        str(zoo),
        "-o",
        str(tmp_path / "lake"),
        "--shard",
        "4",
    ]
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    output = b""
    with contextlib.suppress(OSError):  # Linux raises it once no writer is left
        while part := os.read(ours, 1 << 16):
            output += part
    os.close(ours)

    assert process.wait() == 0
    assert b"reading models" in output
    assert b"/22" in output
    assert re.search(rb"[0-9]+/s.*left", output)


def test_a_table_is_plain_parquet(zoo: Path, tmp_path: Path) -> None:
    from pyarrow import parquet as pq

    survey(zoo, lake=tmp_path / "lake")

    assert pq.read_table(tmp_path / "lake" / "models").num_rows == 22
    assert sorted(path.name for path in (tmp_path / "lake").iterdir() if not path.name.startswith(".")) == [
        *("files", "findings", "groups", "lake.json", "models", "operators", "tensors")
    ]


def test_numbers_that_no_table_has_room_for_are_null(tmp_path: Path) -> None:
    folder = tmp_path / "zoo"
    proto = network(weights(1))
    proto.graph.initializer[0].dims[:] = [2**62, 2**62]
    folder.mkdir()
    save(folder, proto)
    add(folder, "fine.onnx", weights(2))

    survey(folder, lake=tmp_path / "lake")

    rows = dict(ask_lake(tmp_path / "lake", "SELECT model, stored_elements FROM models").rows)
    assert rows == {str(folder / "fine.onnx"): 24 * 40 + 40 + 40 * 16, str(folder / "model.onnx"): None}


def test_hostile_names_are_shown_as_they_are_safe(tmp_path: Path) -> None:
    folder = tmp_path / "zoo"
    for name in ("\x1b[2Jclear.onnx", "new\nline.onnx", os.fsdecode(b"not-utf8-\xff.onnx"), "\u202egpj.onnx"):
        add(folder, name, weights(1))
    lake = tmp_path / "lake"

    survey(folder, lake=lake)
    second = survey(folder, lake=lake)

    assert second.kept == 4
    for style in ("text", "csv", "markdown", "json"):
        text = run_here("sql", lake, "SELECT model FROM models", "--format", style).stdout
        assert "\x1b" not in text
        assert "\u202e" not in text
    shutil.rmtree(lake)
