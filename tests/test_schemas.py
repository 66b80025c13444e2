"""Every JSON document matches its schema, and every key of a schema has a description."""

from __future__ import annotations

import copy
import functools
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import jsonschema
import msgspec
import numpy as np
import pytest
from reports import (
    CORNERS,
    NET,
    ONE_OF_EACH,
    REPORTS,
    comparison,
    empty_inspection,
    inspection,
    make_manifest,
    parameter,
    plain_inspection,
    read,
    reconciliation,
    recovery,
    survey,
    sweep_comparison,
    timing_comparison,
)

from analyzer.account.findings.catalog import EXPLANATIONS
from analyzer.account.group import group_by
from analyzer.account.group.keys import ACCOUNTS, KEYS
from analyzer.account.ledger import Blocks, Member, Role, Run
from analyzer.budget.measuring import METRICS
from analyzer.comparison import compare_ledgers
from analyzer.comparison.record import Status
from analyzer.documents import compare as compare_records
from analyzer.documents import inspect
from analyzer.documents import reconcile as reconcile_records
from analyzer.documents.base import LimitKind, Record
from analyzer.documents.kinds import DOCUMENTS
from analyzer.formats.json import render_json, to_document, write_json
from analyzer.manifest import (
    Manifest,
    Parameter,
    load_manifest,
    save_manifest,
)
from analyzer.model.dtypes import DType
from analyzer.reconciliation import Line
from analyzer.reconciliation.lines import UNBALANCED, WHY, Why
from analyzer.reports import Inspection, Report
from analyzer.schemas import SCHEMAS, load_schema, schema_name
from tools.schemas.generate import generate
from tools.schemas.page import TABLES, keys_of
from tools.schemas.page import rewrite as rewrite_page

DOCS = Path(__file__).parents[1] / "docs"
PAGES = {"manifest": "reference/manifest-format.md"}
KINDS = tuple(name for name in SCHEMAS if name not in ("explain", "graph", "lake", "manifest"))

MAPS = frozenset(
    {
        "against",
        "casts",
        "clocks",
        "modules",
        "opsets",
        "precision",
        "provider_options",
        "source",
        "values",
        "versions",
    }
)
"""Keys whose objects have user-defined keys, so that no key is unknown there."""

OPTIONAL = frozenset(
    {
        "generated_at",
        "sha256",
        "trainable",
        "frozen",
        "first_node",
        "macs",
        "nodes_without_macs",
        "device_ms",
        "macs_per_second",
        "file_notes",
        "sequence",
    }
)

# jsonschema accepts 1.0 as an integer, as JSON does, but a writer of 1.0 has counted in floats
EXACT = jsonschema.Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int)
Validator = jsonschema.validators.extend(jsonschema.Draft202012Validator, type_checker=EXACT)


def document_of(report: Report) -> dict[str, Any]:
    """Return the document as a reader gets it; JSON has no NaN."""
    document: dict[str, Any] = json.loads(render_json(report), parse_constant=pytest.fail)
    return document


def validate(document: dict[str, Any], name: str) -> None:
    Validator(load_schema(name)).validate(document)


def manifest_document(folder: Path) -> dict[str, Any]:
    save_manifest(make_manifest(), folder / "manifest.json")
    document: dict[str, Any] = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    return document


# the schemas themselves


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_valid_and_stands_alone(name: str) -> None:
    schema = load_schema(name)

    jsonschema.Draft202012Validator.check_schema(schema)

    assert schema["$schema"] == jsonschema.Draft202012Validator.META_SCHEMA["$id"]
    assert schema["$id"] == f"onnxledger:{name}:{schema['properties']['schema_version']['const']}"
    references = re.findall(r'"\$ref": "([^"]+)"', json.dumps(schema))
    assert {reference.rpartition("/")[0] for reference in references} == {"#/$defs"}
    assert {reference.rpartition("/")[2] for reference in references} == schema["$defs"].keys()


def test_the_names_of_the_schemas_are_those_of_the_files() -> None:
    folder = Path(__file__).parents[1] / "analyzer" / "schemas"

    assert [path.name for path in sorted(folder.glob("*.json"))] == [
        f"{name}.schema.json" for name in SCHEMAS
    ]


def test_an_unknown_schema_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"check, compare, .*, inspect, .*, reconcile, .*, time"):
        load_schema("../inspect")


def subschemas(schema: object) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield schema
    for value in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from subschemas(value)


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_object_is_closed_and_every_key_described(name: str) -> None:
    for schema in subschemas(load_schema(name)):
        if schema.get("type") == "object":
            assert "additionalProperties" in schema
        if isinstance(schema.get("properties"), dict) and "type" in schema:
            assert schema["additionalProperties"] is False
            assert set(schema["properties"]) - set(schema["required"]) <= OPTIONAL
            assert all(value["description"].endswith(".") for value in schema["properties"].values())


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_schema_is_that_of_its_record(name: str) -> None:
    """`make files` writes the schemas."""
    assert load_schema(name) == generate(name)


def test_the_manifest_has_the_types_that_the_code_has() -> None:
    assert load_schema("manifest")["$defs"]["dtype"]["enum"] == [dtype.name for dtype in DType]


def test_what_a_record_says_of_values_that_the_code_has_is_so() -> None:
    key = f"({'|'.join(KEYS)})"
    for record in (
        inspect.InspectDocument,
        reconcile_records.ReconcileDocument,
        compare_records.CompareDocument,
    ):
        schema = generate(next(name for name, each in DOCUMENTS.items() if each is record))
        assert schema["properties"]["by"]["pattern"] == f"^({key}(,{key})*|{ACCOUNTS}|group)$"
    assert set(get_args(LimitKind)) == {metric.kind for metric in METRICS.values()}
    assert set(get_args(Why)) == WHY.keys()
    assert {line.value for line in UNBALANCED} <= EXPLANATIONS.keys()
    assert {*compare_records.Statuses.__struct_fields__} == {*Status}


# the pages


def schema_items(schema: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the keys of one table: `a`, `a.b`, `a[].b`; definitions under `$defs` have tables of their own."""
    for key, value in schema.get("properties", {}).items():
        yield prefix + key, value
        yield from schema_items(value, f"{prefix}{key}.")
        if isinstance(value.get("items"), dict):
            yield from schema_items(value["items"], f"{prefix}{key}[].")


def documented_keys(page: str) -> dict[str, list[tuple[str, str, str]]]:
    """Return key, type and unit of each row of each table of keys, by the name in its heading; "" before the first.

    A row "keys of `name`" stands for all rows of that table.
    """
    tables = written_tables(page)

    def rows(table: str) -> Iterator[tuple[str, str, str]]:
        for key, shown, unit in tables[table]:
            yield from (
                rows(key.removeprefix("keys of ")) if key.startswith("keys of ") else [(key, shown, unit)]
            )

    return {table: list(rows(table)) for table in tables}


def written_tables(page: str) -> dict[str, list[tuple[str, str, str]]]:
    """Return the rows as written on the page."""
    tables: dict[str, list[tuple[str, str, str]]] = {}
    heading, in_keys = "", False
    for line in (DOCS / page).read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            found = re.fullmatch(r"#+ `(\w+)`", line)
            heading = found.group(1) if found else "" if line.startswith("# ") else heading
        in_keys = line.startswith("| key |") or (in_keys and line.startswith("|"))
        row = re.match(r"\| `([^`]+)` \| ([^|]*) \| ([^|]*)\|", line)
        whole = re.match(r"\| keys of \[`(\w+)`\]\(#\1\) \|", line)
        if in_keys and row:
            tables.setdefault(heading, []).append((row[1], row[2], row[3].strip()))
        elif in_keys and whole:
            tables.setdefault(heading, []).append((f"keys of {whole[1]}", "", ""))
    return tables


def tables_of(name: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the parts of a schema that have a table of keys, with its heading."""
    schema = load_schema(name)
    rows = ((row, part) for row, part in schema["$defs"].items() if row not in ("argument", "dtype"))
    return [("" if name == "manifest" else name, schema), *rows]


def test_every_key_of_the_manifest_is_documented_and_no_other() -> None:
    documented = documented_keys(PAGES["manifest"])

    for table, schema in tables_of("manifest"):
        assert [key for key, _, _ in documented[table]] == [key for key, _ in schema_items(schema)]


@pytest.mark.parametrize("page", TABLES)
def test_a_page_says_of_each_key_what_its_record_says(page: str) -> None:
    """`make files` writes the texts and the units."""
    path = DOCS / page

    assert path.read_text(encoding="utf-8") == rewrite_page(path)


PARTIAL = frozenset({"head", "totals", "dtypes", "grouping"})
"""Tables of keys that several documents share in part."""


@pytest.mark.parametrize("page", TABLES)
def test_a_page_has_every_key_of_a_record_and_no_other(page: str) -> None:
    documented = documented_keys(page)

    assert TABLES[page].keys() <= documented.keys(), "a kind of report has a section with a table of its keys"
    for table, record in TABLES[page].items():
        shown = [key for key, _, _ in documented[table]]
        assert len(set(shown)) == len(shown)
        known = {key for key, _ in keys_of(record, apart=frozenset(TABLES[page].values()))}
        assert set(shown) <= known if table in PARTIAL else set(shown) == known, table


@pytest.mark.parametrize("page", TABLES)
def test_values_that_a_page_lists_are_those_of_the_record(page: str) -> None:
    documented = documented_keys(page)

    for table, record in TABLES[page].items():
        values = dict(values_of(record))
        for key, shown, _ in documented.get(table, ()):
            listed = set(re.findall(r"`([^`]+)`", shown)) - TABLES[page].keys()
            assert not listed or key not in values or listed == values[key], (table, key)


def values_of(record: type[Record], prefix: str = "") -> Iterator[tuple[str, set[str]]]:
    """Yield the keys with a fixed set of values, and that set."""
    for field in msgspec.structs.fields(record):
        found = set(listed_in(msgspec.inspect.type_info(field.type)))
        if found:
            yield f"{prefix}{field.encode_name}", found


def listed_in(info: msgspec.inspect.Type) -> Iterator[str]:
    match info:
        case msgspec.inspect.EnumType(cls=cls):
            yield from (each.value for each in cls)
        case msgspec.inspect.LiteralType(values=values):
            yield from (value for value in values if isinstance(value, str))
        case msgspec.inspect.UnionType(types=types):
            for each in types:
                yield from listed_in(each)
        case msgspec.inspect.Metadata(type=inner):
            yield from listed_in(inner)


UNITLESS = frozenset(
    {
        "blocks[].first",
        "components[].ir_version",
        "high",
        "low",
        "model.ir_version",
        "position",
        "ratio",
        "scale",
        "settings.seed",
    }
)
"""Numbers that are no counts: versions, positions, ratios, values of inputs."""


def test_every_number_on_the_report_page_has_a_unit() -> None:
    rows = [row for rows in written_tables("reference/report-format.md").values() for row in rows]

    bare = {
        key
        for key, shown, unit in rows
        if re.match(r"(integer|number)(?!, boolean)|`(ms_)?pair`", shown) and not unit
    }
    assert bare == UNITLESS


def test_the_report_page_leads_to_each_of_its_sections() -> None:
    contents, *sections = re.split(
        r"^## ", (DOCS / "reference" / "report-format.md").read_text(encoding="utf-8"), flags=re.MULTILINE
    )

    titles = [section.partition("\n")[0].strip("`") for section in sections]
    linked = set(re.findall(r"\]\(#([^)]+)\)", contents))
    assert {title.lower().replace(" ", "-") for title in titles} - linked == {
        "keys-that-several-reports-share"
    }


def test_the_page_lists_every_line_and_every_finding_of_a_file_that_can_be_read() -> None:
    page = (DOCS / "reference" / "report-format.md").read_text(encoding="utf-8")

    (section,) = re.findall(r"^### The lines of the bridge$(.*?)^#", page, re.MULTILINE | re.DOTALL)
    assert re.findall(r"^\| `([\w-]+)` \|", section, re.MULTILINE) == [line.value for line in Line]
    findings = dict(re.findall(r"^\| `([\w-]+)` \| (note|warning|error) \|", page, re.MULTILINE))
    assert {line.value for line in UNBALANCED} <= findings.keys()
    assert findings == {
        id_: explanation.severities[0]
        for id_, explanation in EXPLANATIONS.items()
        if id_ not in ("not-onnx", "truncated")
    }


@pytest.mark.parametrize("report", REPORTS)
def test_the_python_of_the_report_page_runs_on_a_report(
    report: Callable[[Path], Report], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = render_json(report(tmp_path))
    (tmp_path / "report.json").write_text(written, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    validating, summing = python_of("reference/report-format.md")

    exec(validating, {})
    if schema_name(json.loads(written)) == "inspect":
        exec(summing, {})


def test_the_python_of_the_manifest_page_writes_a_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (program,) = python_of("reference/manifest-format.md")

    exec(program, {})

    validate(json.loads((tmp_path / "manifest.json").read_text(encoding="utf-8")), "manifest")
    (found,) = load_manifest(tmp_path / "manifest.json").parameters
    assert found == parameter("fc.weight", np.arange(200, dtype="<f4").reshape(10, 20))


def python_of(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)


# documents that the program writes


@pytest.mark.parametrize("report", REPORTS)
def test_a_report_matches_the_schema_of_its_command(report: Callable[[Path], Report], tmp_path: Path) -> None:
    document = document_of(report(tmp_path))

    validate(document, schema_name(document))


def test_the_reports_of_these_tests_cover_every_kind(tmp_path: Path) -> None:
    kinds = {schema_name(to_document(report(tmp_path))) for report in REPORTS}

    assert kinds == set(KINDS), "tests/reports.py makes one of each kind"


@pytest.mark.parametrize("report", REPORTS)
def test_a_second_run_writes_the_same_bytes(report: Callable[[Path], Report], tmp_path: Path) -> None:
    first = render_json(report(tmp_path))

    second = render_json(report(tmp_path))

    assert first == second
    assert list(json.loads(first)) == sorted(json.loads(first))
    assert first.isascii()
    assert first.endswith("}\n")


def test_a_row_of_a_list_is_one_line(tmp_path: Path) -> None:
    report = inspection(tmp_path)

    lines = [line.strip().rstrip(",") for line in render_json(report).splitlines()]

    for entry in document_of(report)["tensors"]:
        assert json.dumps(entry, sort_keys=True) in lines


@pytest.mark.parametrize("by", [*KEYS, ACCOUNTS, "scope,dtype", "dtype,block", "op,role,scope"])
def test_a_report_by_any_key_matches_its_schema(by: str, tmp_path: Path) -> None:
    ledger = read(tmp_path, CORNERS)
    grouping = group_by(ledger, by)

    document = document_of(Inspection(ledger, grouping))
    compared = document_of(compare_ledgers(ledger, ledger, grouping, grouping))

    validate(document, "inspect")
    validate(compared, "compare")
    assert document["by"] == compared["by"] == by
    assert all(
        len(group["keys"]) == by.count(",") + 1 for group in (*document["groups"], *compared["groups"])
    )


@pytest.mark.parametrize("by", ["", "scope,", "scope dtype", "scope,bytes", "group,scope", "name"])
def test_an_unknown_key_is_refused(by: str, tmp_path: Path) -> None:
    document = document_of(inspection(tmp_path))

    assert is_refused({**document, "by": by}, "inspect")


def test_the_tree_of_a_report_adds_up_and_its_leaves_are_the_groups(tmp_path: Path) -> None:
    ledger = read(tmp_path, CORNERS)

    document = document_of(Inspection(ledger, group_by(ledger, "op,dtype")))

    outermost = [row for row in document["tree"] if not row["level"]]
    for row_key, group_key in (
        ("total_parameters", "parameters"),
        ("stored_elements", "stored_elements"),
        ("bytes", "bytes"),
        ("tensors", "tensors"),
    ):
        assert sum(row[row_key] for row in outermost) == sum(g[group_key] for g in document["groups"])
    assert {g["group"] for g in document["groups"]} <= {row["group"] for row in document["tree"]}


def test_blocks_are_in_a_report_where_they_are_known_and_null_where_not(tmp_path: Path) -> None:
    ledger = read(tmp_path, CORNERS)
    keys = [entry.tensor.key for entry in ledger.entries]
    learned = [entry.tensor.key for entry in ledger.entries if entry.role is Role.PARAMETER]
    blocks = Blocks(
        runs=(Run(0, 2, ("layer.0", "layer.1"), "name:modules"),),
        entries=dict.fromkeys(keys, Member("block.1", "attention")),
        nodes={},
        roles=dict.fromkeys(learned, "attention"),
    )
    with_blocks, without_blocks = (
        document_of(Inspection(replace(ledger, blocks=found), group_by(ledger, "op")))
        for found in (blocks, None)
    )

    validate(with_blocks, "inspect")
    validate(without_blocks, "inspect")
    assert with_blocks["blocks"] == [
        {"first": 0, "count": 2, "modules": ["layer.0", "layer.1"], "decided_by": "name:modules"}
    ]
    assert {(t["block"], t["part"]) for t in with_blocks["tensors"]} == {("block.1", "attention")}
    assert {t["layer_role"] for t in with_blocks["tensors"] if t["role"] == "parameter"} == {"attention"}
    assert {t["layer_role"] for t in with_blocks["tensors"] if t["role"] != "parameter"} == {None}
    assert without_blocks["blocks"] is None
    assert {(t["block"], t["part"], t["layer_role"]) for t in without_blocks["tensors"]} == {
        (None, None, None)
    }


def test_the_corners_of_the_format_are_in_the_inspection(tmp_path: Path) -> None:
    document = document_of(inspection(tmp_path))

    assert document["model"]["nested_graphs"] == 4
    assert {tensor["carrier"] for tensor in document["tensors"]} == {
        "initializer",
        "constant",
        "constant_list",
    }
    assert {"INT8", "STRING", "FLOAT", "INT64"} == {row["dtype"] for row in document["dtypes"]}
    assert [tensor["graph_path"] for tensor in document["tensors"] if tensor["name"] == "v"] == [
        "If_8.else_branch",
        "If_8.then_branch",
        "If_8.then_branch/If_0.then_branch",
    ]
    assert [tensor["copy_of"] for tensor in document["tensors"] if tensor["copy_of"]] == ["w"]
    assert all(file["sha256"] for file in document["model"]["files"])


def test_what_has_nothing_below_the_line_is_null(tmp_path: Path) -> None:
    empty, compared = document_of(empty_inspection(tmp_path)), document_of(comparison(tmp_path))

    assert empty["totals"]["parameters"] == 0
    assert empty["group_balance"]["overlap"]["share"] is None
    assert compared["totals"]["parameters"]["ratio"] is None
    assert compared["totals"]["parameters"]["difference"] == compared["totals"]["parameters"]["a"] > 0


def test_optional_keys_are_there_only_on_request(tmp_path: Path) -> None:
    full, plain = document_of(inspection(tmp_path)), document_of(plain_inspection(tmp_path))

    assert full["generated_at"] == "2025-01-31T12:00:00+00:00"
    assert "generated_at" not in plain
    assert plain["model"]["files"] == [
        {"path": "model.onnx", "bytes": (tmp_path / "model.onnx").stat().st_size}
    ]


def test_the_bridge_of_a_report_leads_from_one_side_to_the_other(tmp_path: Path) -> None:
    document = document_of(reconciliation(tmp_path))
    pytorch, onnx_side, bridge = document["pytorch"], document["onnx"], document["bridge"]
    balance = document["group_balance"]

    assert [row["line"] for row in bridge] == [line.value for line in Line]
    lines = {row["line"] for row in bridge if row["tensors"]}
    assert {"tied", "transposed", "buffer", "unused", "missing", "differing"} <= lines
    assert pytorch["parameters"] + sum(r["parameter_delta"] for r in bridge) == onnx_side["parameters"]
    assert pytorch["parameters"] + sum(r["stored_delta"] for r in bridge) == onnx_side["stored_elements"]
    assert sum(p["elements"] for p in document["parameters"]) == pytorch["parameters"]
    assert sum(p["elements"] for p in document["parameters"] if p["trainable"]) == pytorch["trainable"]
    assert sum(row["bytes"] for row in bridge) == read(tmp_path, NET).stored_nbytes
    for key in ("parameters", "stored_elements"):
        grouped = sum(group[key] for group in document["groups"])
        assert grouped - balance["overlap"][key] + balance["ungrouped"][key] == onnx_side[key]
    assert document["balanced"] is False
    assert pytorch["tied"] == [["weight", "alias"]]


def test_the_totals_of_a_survey_are_sums_over_the_readable_models(tmp_path: Path) -> None:
    document = document_of(survey(tmp_path))
    readable = [model["totals"] for model in document["models"] if model["readable"]]

    for key in ("parameters", "stored_elements", "stored_bytes", "file_bytes"):
        assert document["totals"][key] == sum(totals[key] for totals in readable)
    assert (document["totals"]["models"], document["totals"]["readable"]) == (4, len(readable))


def test_the_rows_of_a_recovery_are_what_is_recovered(tmp_path: Path) -> None:
    document = document_of(recovery(tmp_path))
    rows = [*document["parameters"], *document["buffers"]]

    assert document["recovered"]["tensors"] == len(rows)
    assert document["recovered"]["elements"] == sum(math.prod(row["shape"]) for row in rows)


def test_the_times_of_two_reports_sum_to_their_profiled_runs(tmp_path: Path) -> None:
    document = document_of(timing_comparison(tmp_path))

    for side in ("a", "b", "difference"):
        groups = sum(group["ms"][side] for group in document["groups"])
        rest = sum(document[f"{key}_ms"][side] for key in ("ungrouped", "unattributed", "overhead"))
        whole = document["totals"]["profiled_latency_ms"][side]
        assert groups - document["overlap_ms"][side] + rest == pytest.approx(whole)


# documents that a schema refuses


def objects(document: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the paths of all objects, but only the first object of each array."""
    if isinstance(document, dict):
        yield path
        for key, value in document.items():
            yield from objects(value, (*path, key))
    elif isinstance(document, list) and document:
        yield from objects(document[0], (*path, 0))


def at(document: Any, path: tuple[str | int, ...]) -> Any:
    for key in path:
        document = document[key]
    return document


def is_refused(document: dict[str, Any], name: str) -> bool:
    return not validator(name).is_valid(document)


@functools.cache
def validator(name: str) -> Validator:
    return Validator(load_schema(name))


def documents(folder: Path) -> list[tuple[str, dict[str, Any]]]:
    reports = [
        (schema_name(document), document) for r in ONE_OF_EACH for document in (document_of(r(folder)),)
    ]
    return [*reports, ("manifest", manifest_document(folder))]


def test_an_unknown_key_is_refused_wherever_the_keys_are_ours(tmp_path: Path) -> None:
    for name, document in documents(tmp_path):
        for path in objects(document):
            changed = copy.deepcopy(document)
            at(changed, path)["surprise"] = {}

            assert is_refused(changed, name), (name, path)


@pytest.mark.slow
def test_a_missing_key_is_refused_unless_it_is_optional(tmp_path: Path) -> None:
    for name, document in documents(tmp_path):
        for path in objects(document):
            if path and path[-1] in MAPS:
                continue
            holder = at(document, path)
            for key, value in list(holder.items()):
                del holder[key]

                alone = key in OPTIONAL - {"trainable", "frozen"}  # these two occur together
                assert is_refused(document, name) is not alone, (name, path, key)
                holder[key] = value


def numbers(document: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    items = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in items:
        if isinstance(value, dict | list):
            yield from numbers(value, (*path, key))
        elif type(value) is int:
            yield (*path, key)


MEASURES = frozenset(
    {
        "eps",
        "max_abs_error",
        "noise_db",
        "ratio",
        "share",
        "before_db",
        "codes_db",
        "drift_db",
        "signal_to_error_db",
        "weights_db",
    }
)

SIDES = frozenset({"a", "b", "change", "difference"})
"""Keys of counts that are times in a comparison of two timings."""

TIMES = frozenset(
    {
        "byte_share",
        "constant",
        "error_ms",
        "first",
        "first_token_ms",
        "FLOAT",
        "high",
        "last",
        "linear",
        "load_ms",
        "low",
        "mean",
        "median",
        "min",
        "ms",
        "overhead_ms",
        "overlap_ms",
        "p90",
        "p99",
        "parameter_share",
        "precision",
        "profiling_ms",
        "quadratic",
        "r2",
        "scale",
        "scaled_ms",
        "seconds",
        "tokens_per_second",
        "total_ms",
        "unattributed_ms",
        "ungrouped_ms",
    }
)


@pytest.mark.slow
def test_a_float_is_refused_where_an_integer_is_promised(tmp_path: Path) -> None:
    for name, document in documents(tmp_path):
        for path in one_of_each(numbers(document)):
            if path[-1] in TIMES:
                continue
            holder, value = at(document, path[:-1]), at(document, path)
            holder[path[-1]] = value + 0.5
            assert is_refused(document, name), (name, path)
            holder[path[-1]] = value


def one_of_each(paths: Iterable[tuple[str | int, ...]]) -> list[tuple[str | int, ...]]:
    """Return the first of all paths that differ only in list indices, as all items of a list have one schema."""
    first: dict[tuple[str | int, ...], tuple[str | int, ...]] = {}
    for path in paths:
        first.setdefault(tuple("" if isinstance(step, int) else step for step in path), path)
    return [*first.values()]


@pytest.mark.parametrize("report", REPORTS)
def test_no_float_is_where_an_integer_is_promised(report: Callable[[Path], Report], tmp_path: Path) -> None:
    pairs: list[tuple[str, Any]] = []

    json.loads(
        render_json(report(tmp_path)), object_pairs_hook=lambda found: pairs.extend(found) or dict(found)
    )

    found = {key for key, value in pairs if isinstance(value, float)}
    timed = report in (timing_comparison, sweep_comparison)
    assert found <= MEASURES | TIMES | (SIDES if timed else frozenset())


def test_a_value_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    document = document_of(inspection(tmp_path))
    for path, value in (
        (("schema_version",), 2),
        (("command",), "reconcile"),
        (("tensors", 0, "role"), "weight"),
        (("tensors", 0, "decided_by"), "guess:largest"),
        (("tensors", 0, "bytes"), -1),
        (("tensors", 0, "uses"), True),
        (("findings", 0, "id"), "odd"),
        (("findings", 0, "severity"), "fatal"),
        (("roles", "weight"), copy.deepcopy(document["roles"]["buffer"])),
        (("model", "files", 0, "sha256"), "0"),
        (("generated_at",), "yesterday"),
    ):
        changed = copy.deepcopy(document)
        at(changed, path[:-1])[path[-1]] = value

        assert is_refused(changed, "inspect"), path


# manifest.json


def test_a_manifest_matches_its_schema_and_reads_back_equal(tmp_path: Path) -> None:
    document = manifest_document(tmp_path)

    validate(document, "manifest")
    assert load_manifest(tmp_path / "manifest.json") == make_manifest()


def test_a_manifest_without_content_matches_its_schema(tmp_path: Path) -> None:
    bare = Manifest(parameters=(Parameter("w", (2, 3), DType.UNDEFINED, trainable=True),))
    save_manifest(bare, tmp_path / "manifest.json")

    validate(json.loads((tmp_path / "manifest.json").read_text(encoding="utf-8")), "manifest")


def test_saving_a_manifest_twice_writes_the_same_bytes(tmp_path: Path) -> None:
    save_manifest(make_manifest(), tmp_path / "a.json")
    save_manifest(load_manifest(tmp_path / "a.json"), tmp_path / "b.json")

    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


@pytest.mark.parametrize("report", REPORTS)
def test_a_record_is_written_as_its_document_is(report, tmp_path):
    made = report(tmp_path)

    assert render_json(made) == write_json(to_document(made))
