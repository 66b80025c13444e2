"""Surveys of many models: one row each, whatever happens to the others."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from commands import run_here, run_isolated
from models import external, ramp, save, text_model

from analyzer import survey as module
from analyzer.account.audit import audit_model
from analyzer.account.group import group_by
from analyzer.cli import command
from analyzer.documents.saved import load_report
from analyzer.errors import UsageError
from analyzer.formats import render_report, render_saved
from analyzer.formats.json import render_json, to_document
from analyzer.formats.options import RenderOptions
from analyzer.formats.text import render_text
from analyzer.process import workers
from analyzer.reports import Inspection, SurveyReport
from analyzer.schemas import load_schema
from analyzer.survey import Survey, Surveyed, Unreadable, find_models, survey_models

EVIL = ("\x1b[2Jclear.onnx", "new\nline.onnx", os.fsdecode(b"not-utf8-\xff.onnx"), "\u202egpj.onnx")


def linear(rows: int, columns: int = 3, *, spare: bool = False) -> onnx.ModelProto:
    weights = {"fc.weight": ramp(rows, columns)} | ({"spare": np.arange(4)} if spare else {})
    text = f'g (float[1,{rows}] x) => (float[1,{columns}] y) {{ y = MatMul(x, "fc.weight") }}'
    return text_model(text, weights)


def add(path: Path, rows: int = 2, **options: bool) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return save(path.parent, linear(rows, **options), path.name)


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    """Make a folder of three models, an invalid model, and files that a survey ignores."""
    folder = tmp_path / "zoo"
    for name, rows in (("layer.10.onnx", 10), ("layer.2.onnx", 2), ("deep/er/tail.onnx", 4)):
        add(folder / name, rows, spare=name.startswith("deep"))
    (folder / "page.onnx").write_text("<html>not found</html>")
    add(folder / ".hidden" / "model.onnx")
    add(folder / "._layer.2.onnx")
    (folder / "weights.bin").write_bytes(b"none")
    (folder / "folder.onnx").mkdir()
    return folder


NAMES = ["deep/er/tail.onnx", "layer.2.onnx", "layer.10.onnx", "page.onnx"]


def read(*paths: Path | str, **options: Any) -> Survey:
    """Survey in this process, which is faster."""
    return survey_models(paths, processes=1, **options)


def names(survey: Survey, folder: Path) -> list[str]:
    return [os.path.relpath(row.path, folder) for row in survey.rows]


def document(survey: Survey) -> dict[str, Any]:
    found = json.loads(render_json(SurveyReport(survey)))
    jsonschema.validate(found, load_schema("survey"))
    return dict(found)


def text(survey: Survey, **options: Any) -> str:
    return render_text(SurveyReport(survey), RenderOptions(**options))


def die(path: str, **_: object) -> Any:
    """Audit a model, or die first if the path says so."""
    if "killer" in path:
        os.kill(os.getpid(), signal.SIGKILL)
    if "quitter" in path:
        os._exit(3)
    return _READ(path)


_READ = module._read_row


# rows


def test_a_row_has_the_numbers_of_the_report_on_the_model_alone(zoo: Path) -> None:
    ledger = audit_model(zoo / "deep/er/tail.onnx")
    alone = to_document(Inspection(ledger, group_by(ledger)))

    row = document(read(zoo))["models"][0]

    assert {key: row[key] for key in ("totals", "roles", "dtypes")} == {
        key: alone[key] for key in ("totals", "roles", "dtypes")
    }
    assert row["nodes"] == alone["model"]["nodes"] == 1
    assert [(f["id"], f["severity"], f["message"]) for f in row["findings"]] == [
        (f["id"], f["severity"], f["message"]) for f in alone["findings"]
    ]
    assert row["findings"]


def test_a_model_that_cannot_be_read_is_a_row_with_its_sentence(zoo: Path) -> None:
    *readable, page = read(zoo).rows

    assert all(isinstance(row, Surveyed) for row in readable)
    assert isinstance(page, Unreadable)
    assert page.error.startswith(f"{zoo}/page.onnx: [not-onnx] ")


def test_what_is_not_there_is_a_row(zoo: Path) -> None:
    row, _ = read("nowhere.onnx", zoo / "layer.2.onnx").rows

    assert row == Unreadable("nowhere.onnx", "nowhere.onnx: cannot be read: No such file or directory")


def test_totals_are_the_sums_of_the_rows(zoo: Path) -> None:
    survey = read(zoo)

    totals = document(survey)["totals"]

    assert totals == {
        "models": 4,
        "readable": 3,
        "parameters": 3 * (4 + 2 + 10),
        "stored_elements": 3 * (4 + 2 + 10) + 4,
        "stored_bytes": 4 * 3 * (4 + 2 + 10) + 8 * 4,
        "file_bytes": sum((zoo / name).stat().st_size for name in NAMES[:3]),
    }


def test_a_file_that_models_share_is_on_disk_once(tmp_path: Path) -> None:
    (tmp_path / "shared.bin").write_bytes(bytes(range(24)))
    for name in ("a.onnx", "b.onnx"):
        proto = text_model("g (float[1,2] x) => (float[1,3] y) { y = MatMul(x, w) }")
        proto.graph.initializer.append(external("w", [2, 3], location="shared.bin", offset=0, length=24))
        save(tmp_path, proto, name)

    survey = read(tmp_path)

    assert sum(row.file_nbytes for row in survey.readable) == survey.file_nbytes + 24
    assert survey.file_nbytes == sum(path.stat().st_size for path in tmp_path.iterdir())


def test_a_defect_of_ours_costs_one_row(zoo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: str, **_: object) -> None:
        raise (MemoryError if "layer.10" in path else KeyError)("oops")

    monkeypatch.setattr("analyzer.account.audit.audit_model", fail)

    errors = [row.error for row in read(zoo).unreadable]

    assert "internal error: KeyError: 'oops'; inspect it alone" in errors[1]
    assert errors[2] == f"{zoo}/layer.10.onnx: takes more memory than there is"


# processes


@pytest.mark.child
def test_a_process_that_dies_is_a_row_and_the_others_are_answered(
    zoo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(zoo / "killer.onnx")
    add(zoo / "quitter.onnx")
    monkeypatch.setattr(module, "_read_row", die)

    survey = survey_models([zoo], processes=2)

    assert [row.error.partition(" inspect")[0] for row in survey.unreadable if "died" in row.error] == [
        f"{zoo}/killer.onnx: the process that read it died (signal 9);",
        f"{zoo}/quitter.onnx: the process that read it died (exit code 3);",
    ]
    assert len(survey.readable) == 3


@pytest.mark.child
def test_processes_give_the_rows_that_this_process_gives(zoo: Path) -> None:
    steps: list[tuple[int, int]] = []

    apart = survey_models([zoo], progress=lambda done, total: steps.append((done, total)))

    assert apart == read(zoo)
    assert steps == [(done, 4) for done in range(1, 5)]


def test_one_model_is_read_in_this_process(zoo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "call_apart", None)

    assert len(survey_models([zoo / "layer.2.onnx"]).readable) == 1


@pytest.mark.child
def test_the_command_reports_all_others_and_exits_2_where_a_process_died(
    zoo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(zoo / "killer.onnx")
    monkeypatch.setattr(module, "_read_row", die)

    result = CliRunner().invoke(command, ["inspect", str(zoo), "--format", "json"])

    assert result.exit_code == 2
    assert result.stderr == "onnxledger: 2 of 5 cannot be read\n"
    assert json.loads(result.stdout)["totals"]["readable"] == 3


@pytest.mark.child
def test_an_interrupt_of_the_whole_group_ends_it_at_once_with_one_word(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(
        "import signal, sys, time\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # ignored by default in background jobs
        "from pathlib import Path\n"
        "def read(path, **options):\n"
        "    Path(path).with_suffix('.started').touch()\n"
        "    time.sleep(60)\n"
        "if __name__ == '__main__':\n"
        "    import slow\n"
        "    from analyzer import cli, survey\n"
        "    survey._read_row = slow.read\n"
        "    cli.main()\n"
    )
    models = [add(tmp_path / name) for name in ("a.onnx", "b.onnx")]
    line = [sys.executable, tmp_path / "slow.py", "inspect", *models]

    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        while not list(tmp_path.glob("*.started")) and process.poll() is None:
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)
        _, stderr = process.communicate(timeout=30)

    assert process.returncode == 130
    assert stderr.strip() == "interrupted"


# choice of files


def test_a_folder_is_every_model_below_it_in_natural_order(zoo: Path) -> None:
    assert names(read(zoo), zoo) == NAMES


def test_names_that_count_alike_are_in_one_order(tmp_path: Path) -> None:
    for name in ("m2.onnx", "m02.onnx", "m002.onnx"):
        add(tmp_path / name)

    assert names(read(tmp_path), tmp_path) == ["m002.onnx", "m02.onnx", "m2.onnx"]


def test_paths_keep_the_order_in_which_they_are_named(zoo: Path) -> None:
    survey = read(zoo / "layer.10.onnx", zoo)

    assert names(survey, zoo) == ["layer.10.onnx", *[name for name in NAMES if name != "layer.10.onnx"]]


def test_the_same_file_is_one_row_by_whatever_names(zoo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (zoo / "latest.onnx").symlink_to("layer.10.onnx")
    (zoo.parent / "alias").symlink_to("zoo")
    monkeypatch.chdir(zoo)

    survey = read("./layer.2.onnx", "layer.2.onnx", zoo / "layer.2.onnx", "../alias", "deep/../layer.10.onnx")

    assert [row.path for row in survey.rows] == [
        "layer.2.onnx",
        "../alias/deep/er/tail.onnx",
        "../alias/layer.10.onnx",
        "../alias/page.onnx",
    ]


def test_a_link_in_another_folder_is_another_model_as_its_external_data_is_looked_for_there(
    zoo: Path,
) -> None:
    (zoo / "deep" / "linked.onnx").symlink_to(zoo / "layer.2.onnx")

    assert "deep/linked.onnx" in names(read(zoo), zoo)


def test_links_to_folders_are_not_followed_and_those_in_a_circle_do_no_harm(zoo: Path) -> None:
    (zoo / "deep" / "up").symlink_to(zoo)
    (zoo / "self.onnx").symlink_to(zoo / "self.onnx")
    (zoo / "gone.onnx").symlink_to(zoo / "nowhere.onnx")

    survey = read(zoo)

    assert sorted(names(survey, zoo)) == sorted([*NAMES, "self.onnx", "gone.onnx"])
    assert len(survey.unreadable) == 3


def test_a_folder_without_a_model_says_so(tmp_path: Path, zoo: Path) -> None:
    (tmp_path / "empty").mkdir()

    with pytest.raises(UsageError, match=r"empty: the folder has no \.onnx file"):
        read(tmp_path / "empty")
    assert [type(row) for row in read(tmp_path / "empty", zoo / "layer.2.onnx").rows] == [
        Unreadable,
        Surveyed,
    ]


def test_a_folder_that_cannot_be_listed_is_a_row(zoo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scandir = os.scandir

    def refuse(path: str) -> Iterator[os.DirEntry[str]]:
        if str(path).endswith("er"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)

    assert Unreadable(f"{zoo}/deep/er", f"{zoo}/deep/er: cannot be read: Permission denied") in find_models(
        [zoo]
    )


@pytest.mark.child
def test_a_folder_may_be_deeper_than_the_stack(tmp_path: Path) -> None:
    place = "/".join("d" * 1100)
    subprocess.run(["mkdir", "-p", place], cwd=tmp_path, check=True)
    add(tmp_path / "a.onnx").rename(tmp_path / place / "a.onnx")

    found = find_models([tmp_path])
    subprocess.run(["rm", "-rf", "d"], cwd=tmp_path, check=True)  # pytest's cleanup is recursive

    assert found == (f"{tmp_path}/{place}/a.onnx",)


def test_a_url_stays_as_it_is_and_is_no_folder() -> None:
    urls = ["https://host/a//model.onnx", "hf://org/name/model.onnx", "https://host/a//model.onnx"]

    assert find_models(urls) == ("https://host/a//model.onnx", "hf://org/name/model.onnx")


# artifacts


def test_an_export_with_one_model_is_that_model(zoo: Path) -> None:
    (zoo / "deep" / "er" / "export.json").write_text("{}")
    model = zoo / "deep" / "er" / "tail.onnx"

    as_folder = run_here("inspect", model.parent, "--format", "json", "--by", "op", "--digest")
    assert as_folder.stdout == run_here("inspect", model, "--format", "json", "--by", "op", "--digest").stdout
    assert json.loads(as_folder.stdout)["model"]["path"] == str(model)


def test_an_export_with_several_models_is_one_artifact_and_no_survey(zoo: Path) -> None:
    (zoo / "page.onnx").unlink()
    (zoo / "export.json").write_text("{}")

    found = json.loads(run_here("inspect", zoo, "--format", "json").stdout)

    jsonschema.validate(found, load_schema("inspect"))
    assert [row["component"] for row in found["components"]] == ["layer.2", "layer.10"]
    assert names(read(zoo), zoo) == NAMES[:3]  # the library still lists all files below it


def test_a_component_that_cannot_be_read_is_no_row_but_an_error(zoo: Path) -> None:
    (zoo / "export.json").write_text("{}")

    result = run_here("inspect", zoo)

    assert (result.returncode, result.stdout) == (2, "")
    assert f"{zoo}/page.onnx: [not-onnx]" in result.stderr


def test_a_folder_with_an_export_is_a_model_among_others_where_it_is_not_alone(zoo: Path) -> None:
    (zoo / "deep" / "er" / "export.json").write_text("{}")

    survey = read(zoo / "deep" / "er", zoo / "layer.2.onnx")

    assert names(survey, zoo) == ["deep/er/tail.onnx", "layer.2.onnx"]


def test_artifact_says_so_of_any_folder_and_of_nothing_else(zoo: Path) -> None:
    (zoo / "page.onnx").unlink()
    result = run_here("inspect", zoo, "--artifact", "--format", "json", "--by", "dtype")
    refused = [
        run_here(*line, "--artifact")
        for line in (
            ["inspect", zoo, zoo],
            ["inspect", zoo / "layer.2.onnx"],
            ["reconcile", zoo / "layer.2.onnx"],
        )
    ]

    assert len(json.loads(result.stdout)["components"]) == 2
    assert [(r.returncode, "--artifact: describes a single folder" in r.stderr) for r in refused] == [
        (2, True),
        (2, True),
        (2, True),
    ]


# the command


@pytest.mark.child
def test_the_command_writes_json_that_is_valid_and_the_same_on_a_second_run(zoo: Path) -> None:
    first, second = (run_isolated("inspect", zoo, "--format", "json") for _ in range(2))

    jsonschema.validate(json.loads(first.stdout), load_schema("survey"))
    assert first.stdout == second.stdout
    assert first.returncode == 2
    assert first.stderr == "onnxledger: 1 of 4 cannot be read\n"


@pytest.mark.child
def test_several_models_are_a_survey_and_one_is_not(zoo: Path) -> None:
    several = run_here("inspect", zoo / "layer.2.onnx", zoo / "layer.10.onnx", "--format", "json", "--stamp")
    one = run_here("inspect", zoo / "layer.2.onnx", "--format", "json")

    jsonschema.validate(json.loads(several.stdout), load_schema("survey"))
    jsonschema.validate(json.loads(one.stdout), load_schema("inspect"))
    assert json.loads(several.stdout)["generated_at"]
    assert several.returncode == one.returncode == 0


@pytest.mark.child
def test_strict_judges_the_findings_of_all_models_and_ignore_takes_them_back(zoo: Path) -> None:
    (zoo / "page.onnx").unlink()
    ignored = ("--ignore", "unused-initializer", "--ignore", "unattributed")

    assert run_here("inspect", zoo).returncode == 0
    assert run_here("inspect", zoo, "--strict").returncode == 1
    assert run_here("inspect", zoo, "--strict", *ignored).returncode == 0


@pytest.mark.child
def test_what_cannot_be_read_outweighs_a_finding(zoo: Path) -> None:
    assert run_here("inspect", zoo, "--strict", "--quiet").returncode == 2


@pytest.mark.parametrize("option", ["--by=scope", "--depth=2", "--group=a=b", "--digest"])
def test_options_that_need_one_model_are_refused_by_name(zoo: Path, option: str) -> None:
    result = run_here("inspect", zoo, option)

    assert (result.returncode, result.stdout) == (2, "")
    assert f"{option.partition('=')[0]}: applies to a single model" in result.stderr


@pytest.mark.child
def test_outputs_are_written_by_suffix_and_never_over_an_input(zoo: Path) -> None:
    data = zoo / "weights.json"
    data.write_bytes(bytes(24))
    proto = text_model("g (float[1,2] x) => (float[1,3] y) { y = MatMul(x, w) }")
    proto.graph.initializer.append(external("w", [2, 3], location="weights.json", offset=0, length=24))
    save(zoo, proto, "external.onnx")

    written = run_here("inspect", zoo, "-o", zoo / "all.json", "-o", zoo / "all.txt")
    refused = [run_here("inspect", zoo, "-o", path) for path in (data, zoo / "layer.2.onnx")]

    assert (zoo / "all.txt").read_text() == written.stdout
    assert json.loads((zoo / "all.json").read_text())["totals"]["models"] == 5
    assert [result.returncode for result in refused] == [2, 2]
    assert data.read_bytes() == bytes(24)


def test_compare_refuses_a_report_on_many_models(zoo: Path, tmp_path: Path) -> None:
    (tmp_path / "all.json").write_text(render_json(SurveyReport(read(zoo))))

    with pytest.raises(UsageError, match="a report on several models"):
        load_report(tmp_path / "all.json")


@pytest.mark.child
@pytest.mark.parametrize("redirection", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_do_not_keep_processes_from_starting(zoo: Path, redirection: str) -> None:
    (zoo / "page.onnx").unlink()
    line = f'"{sys.executable}" -m analyzer inspect "{zoo}" -o "{zoo}/all.json" {redirection}'

    result = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)

    assert result.returncode == 0
    assert json.loads((zoo / "all.json").read_text())["totals"]["readable"] == 3


# text


def many(count: int) -> Survey:
    rows = read_rows(count)
    return Survey(tuple(rows))


def read_rows(count: int) -> Iterator[Surveyed | Unreadable]:
    for i in range(count):
        path = f"zoo/{'a-very-long-name-of-a-model-' * (i % 4)}{i}.onnx"
        if i % 10 == 9:
            yield Unreadable(path, f"{path}: [not-onnx] is no model")
        else:
            least = most = i * 10**7
            yield Surveyed(path, (), 1, i * 10**7, least, most, 0, 1, i * 10**7, i, 0, {}, (), (), ())


def test_a_thousand_models_fit_80_columns_and_few_rows() -> None:
    lines = text(many(1000)).splitlines()

    assert max(map(len, lines)) <= 80
    assert len(lines) < 40
    assert any(line.startswith("[980 others]") for line in lines)
    assert any(line.startswith("ERROR 100 models: [not-onnx] is no model: ") for line in lines)


def test_all_rows_are_shown_on_request_those_that_cannot_be_read_first_then_the_largest() -> None:
    found = re.findall(r"^(\d+)\.onnx ", text(many(41), rows=0), re.MULTILINE)

    ordered = sorted(range(0, 41, 4), key=lambda i: (i % 10 != 9, -i))
    assert found == [str(i) for i in ordered]


def test_what_many_models_cannot_be_read_for_is_reported_once() -> None:
    lost = tuple(Unreadable(f"zoo/{i}.onnx", f"zoo/{i}.onnx: [not-onnx] is no model") for i in range(9))

    shown = text(Survey(lost))

    assert shown.count("is no model") == 1
    assert "ERROR 9 models: [not-onnx] is no model: 0.onnx, 1.onnx, 2.onnx, ... [unreadable]" in shown
    assert "    8.onnx\n" in text(Survey(lost), verbose=True)


def test_a_saved_survey_has_the_page_of_the_survey(zoo: Path) -> None:
    report = SurveyReport(read(zoo))

    assert render_saved(to_document(report)) == render_report(report, "html")


def test_an_invalid_row_of_a_saved_survey_is_refused_by_its_place(zoo: Path) -> None:
    document = to_document(SurveyReport(read(zoo)))
    del document["models"][0]["nodes"]

    with pytest.raises(UsageError, match=r"not a whole report.*nodes"):
        render_saved(document)


def test_the_largest_are_shown_the_others_summed_and_the_total_exact() -> None:
    lines = text(many(5), rows=2, width=140).splitlines()
    table = {line.split("  ")[0]: re.split(r" {2,}", line)[1:3] for line in lines if "0" in line}

    assert table["[3 others]"] == ["30,000,000", "30,000,000"]
    assert table["total"] == ["100,000,000", "100,000,000"]


def test_findings_are_counted_by_severity_in_words_where_there_is_room(zoo: Path) -> None:
    survey = read(zoo)

    assert "2 warnings" in text(survey, width=120)
    assert re.search(
        r"^WARN .* elements? that no rule explains: .* \[unattributed\]$", text(survey, width=200), re.M
    )


def test_names_are_shown_below_the_folder_that_all_are_in(zoo: Path) -> None:
    lines = text(read(zoo), width=200).splitlines()

    assert lines[:2] == [str(zoo), "4 models, 1 unreadable"]
    assert any(line.startswith("deep/er/tail.onnx  ") for line in lines)


def test_models_of_no_common_folder_keep_their_names(zoo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(zoo)

    lines = text(read("layer.2.onnx", "deep")).splitlines()

    assert lines[0] == "2 models"
    assert any(line.startswith("deep/er/tail.onnx  ") for line in lines)


@pytest.mark.child
def test_hostile_names_of_files_reach_neither_terminal_nor_json_as_they_are(tmp_path: Path) -> None:
    for name in EVIL:
        add(tmp_path / "zoo" / name)
        (tmp_path / "zoo" / f"bad-{name}").write_text("<html>")

    shown = run_here("inspect", tmp_path / "zoo")
    written = run_here("inspect", tmp_path / "zoo", "--format", "json").stdout

    assert not set(re.sub(r"[ -~\n─…]", "", shown.stdout + shown.stderr))
    assert "\\x1b[2Jclear.onnx" in shown.stdout
    assert "new\\nline.onnx" in shown.stdout
    assert written.isascii()
    paths = [Path(row["path"]).name for row in json.loads(written)["models"]]
    assert "not-utf8-\\xff.onnx" in paths
    assert "".join(paths).encode()  # no lone surrogate


def read_terminal(ours: int) -> str:
    """Read a terminal's output until its writer closes it; some unread KiB would block the writer."""
    shown = b""
    with open(ours, "rb", buffering=0) as terminal, contextlib.suppress(OSError):  # EIO is its end on Linux
        while piece := terminal.read(1 << 12):
            shown += piece
    return shown.decode()


@pytest.mark.child
@pytest.mark.parametrize("is_folder", [True, False])
def test_a_terminal_gets_a_bar_without_the_escapes_of_a_name(tmp_path: Path, is_folder: bool) -> None:
    model = add(tmp_path / "\x1b[2J[bold]evil.onnx")
    add(tmp_path / "b.onnx")
    ours, theirs = pty.openpty()
    line = [sys.executable, "-m", "analyzer", "inspect", tmp_path if is_folder else model]

    with subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=theirs) as process:
        os.close(theirs)
        shown = read_terminal(ours)

    assert process.returncode == 0
    assert ("reading models" if is_folder else "reading \\x1b[2J[bold]evil.onnx") in shown
    assert "\x1b[2J" not in shown


# third-party files


@pytest.mark.child
def test_the_models_of_others_sum_to_what_they_are_alone(shared: Path) -> None:
    if not (shared / "models").is_dir():
        pytest.skip(f"no models in {shared}")

    survey = survey_models([shared / "models"])

    alone = [audit_model(row.path) for row in survey.readable]
    assert len(survey.rows) == len(list((shared / "models").rglob("*.onnx")))
    assert survey.stored_elements == sum(ledger.stored_elements for ledger in alone)
    assert survey.parameters == sum(ledger.parameters for ledger in alone)
    assert survey.file_nbytes <= sum(ledger.file_nbytes for ledger in alone)
    jsonschema.validate(to_document(SurveyReport(survey)), load_schema("survey"))


def test_of_a_folder_without_a_readable_model_no_total_is_0(tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"no model")

    shown = run_here("inspect", tmp_path).stdout

    assert "1 model, 1 unreadable" in shown
    assert "0 parameters" not in shown
    assert "total" not in shown
