"""What onnxruntime said when it could not load or run a model -> a sentence with what to do next."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from analyzer.errors import OnnxLedgerError
from analyzer.model import ONNX_DOMAINS, is_runtime_domain
from analyzer.timing.request import Feed, Request
from analyzer.timing.running.exchange import Raised
from analyzer.timing.running.providers import short_name
from analyzer.units import format_bytes, printable, shorten

__all__ = ["cleaned", "refusal"]

_LONGEST = 400
_READ = 4000
"""How much of what was said is looked at: a model's names are part of it, and may have any length."""

_PROTOBUF_MOST = (2 << 30) - 1


@dataclass(frozen=True, slots=True)
class _Failure:
    """An exception, and what was under way."""

    raised: Raised
    stage: str
    request: Request
    nbytes: int | None

    @property
    def runtime(self) -> str:
        return f"onnxruntime {self.raised.version}".strip()


def refusal(request: Request, raised: Raised, stage: str, nbytes: int | None = None) -> str:
    """One sentence or two: the file, what is wrong, what to do next.

    Args:
        request: what was to run.
        raised: what came of it.
        stage: what was under way.
        nbytes: the limit of memory that the process had.
    """
    raised = replace(raised, text=raised.text[:_READ])
    failure = _Failure(raised, stage, request, nbytes)
    for pattern, explain in _RULES:
        found = re.search(pattern, raised.text, re.DOTALL)
        if found:
            return f"{printable(request.name or request.model)}: {explain(failure, found)}"
    said = cleaned(raised.text) or printable(raised.type)
    then = (
        "give other sizes with --shape, or real inputs with --input"
        if _has_run(stage)
        else "export the model again, or try another version of onnxruntime"
    )
    model = printable(request.name or request.model)
    return f"{model}: onnxruntime failed while {stage}: {said}{_shapes(failure)}; {then}"


_NOISE = (
    (r"\[ONNXRuntimeError\] : \d+ : \w+ : ", ""),
    (r"Load model from .*? failed: ?", ""),
    (r"Exception during initialization: ", ""),
    (
        r"(?<!\S)\S{0,80}onnxruntime\S{0,200}\.(?:cc|cpp|cu|cuh|h|hpp):\d+ .{0,1000}?\)(?: const)?"
        r"(?: \[with .{0,1000}?\])? ",
        "",
    ),
    (r"(?<![^\s.])[\w/]{1,80}\.(?:cc|cpp|cu|cuh|h|hpp):\d+ [\w:~<>()]{1,200} ", ""),
    (r"^.{0,200}? was false\. (?=\S)", ""),
    (r"(?<=\): ).{0,200}? was false\. (?=\S)", ""),
)


def cleaned(text: str) -> str:
    r"""The text of onnxruntime without places in its source and what a model has made of it.

    >>> cleaned(
    ...     "[ONNXRuntimeError] : 1 : FAIL : /onnxruntime_src/a/b.cc:1 void f(int, T&) x > 0 was false. No x.\n"
    ... )
    'No x'
    """
    text = text[:_READ]
    for noise, instead in _NOISE:
        text = re.sub(noise, instead, text, flags=re.DOTALL)
    return shorten(printable(" ".join(text.split())).rstrip("."), _LONGEST)


_Explain = Callable[[_Failure, "re.Match[str]"], str]


def _unknown_operator(failure: _Failure, found: re.Match[str]) -> str:
    named = found.groupdict()
    domain, op_type = named.get("domain") or "", named["op_type"]
    node = named.get("node") or _node_of(failure.request.model, domain, op_type)
    operator = printable(f"{domain}:{op_type}" if domain else op_type)
    where = f'node "{printable(node)}": ' if node else ""
    if domain in ONNX_DOMAINS or is_runtime_domain(domain):
        return (
            f"{where}{failure.runtime} has no operator {operator} in the opset that the model imports; give the "
            "library that has it with --custom-ops, or install the onnxruntime that the model was made for"
        )
    return f"{where}{failure.runtime} has no operator {operator}; give its library with --custom-ops"


def _node_of(model: str, domain: str, op_type: str) -> str:
    from analyzer.read import read_model

    with suppress(OnnxLedgerError):
        for node in read_model(model).nodes():
            if (node.domain, node.op_type) == (domain, op_type):
                return node.name
    return ""


def _no_import(failure: _Failure, found: re.Match[str]) -> str:
    return (
        f'node "{printable(found["node"])}" is of the domain {printable(found["domain"])}, for which the model '
        "imports no opset: it is not a valid model, export it again"
    )


def _no_kernel(failure: _Failure, found: re.Match[str]) -> str:
    node = f'node "{printable(found["node"])}": ' if found["node"] else ""
    kernel = f"{printable(found['op_type'])} (since opset {found['since']})"
    return (
        f"{node}{failure.runtime} has no kernel of {kernel} for the types of its inputs on "
        f"{short_name(failure.request.provider)}; export the model in another precision or opset, or give a library "
        "that has it with --custom-ops"
    )


def _wrong_type(failure: _Failure, found: re.Match[str]) -> str:
    return (
        f'node "{printable(found["node"])}": the operator {printable(found["op_type"])} does not take '
        f"{printable(found['type'])} in the opset that the model imports; export it with a newer opset, or in another "
        "precision"
    )


def _new_opset(failure: _Failure, found: re.Match[str]) -> str:
    return (
        f"it imports opset {found['opset']} of {printable(found['domain'])}, and {failure.runtime} knows up to "
        f"{found['most']}: pip install --upgrade onnxruntime, or export the model with an older opset"
    )


def _new_ir(failure: _Failure, found: re.Match[str]) -> str:
    return (
        f"it is of IR version {found['ir']}, and {failure.runtime} knows up to {found['most']}: "
        "pip install --upgrade onnxruntime, or save the model with an older IR version"
    )


def _external(failure: _Failure, found: re.Match[str]) -> str:
    return (
        f"its external data cannot be read: {cleaned(failure.raised.text)}; put the file with the weights beside the "
        "model, whole, and under the name that it was exported with"
    )


def _protobuf(failure: _Failure, found: re.Match[str]) -> str:
    path = Path(failure.request.model)
    with suppress(OSError):
        nbytes = path.stat().st_size
        if nbytes > _PROTOBUF_MOST:
            return (
                f"it has {format_bytes(nbytes)} in one file, and onnxruntime reads at most 2 GiB of it: save it with "
                "its weights as external data (onnx.save(..., save_as_external_data=True))"
            )
    return (
        "onnxruntime cannot parse it: it is no ONNX model, or damaged, or nested deeper than protobuf allows; export "
        "it, or fetch it, again"
    )


def _no_file(failure: _Failure, found: re.Match[str]) -> str:
    return "the file is gone, or cannot be opened"


def _library(failure: _Failure, found: re.Match[str]) -> str:
    given = [path for path in failure.request.libraries if path in failure.raised.text]
    why = "it has no function RegisterCustomOps" if "symbol" in found[0] else cleaned(found["why"])
    return (
        f"the library of custom operators {printable(', '.join(given))} cannot be loaded: {why}; --custom-ops takes "
        "one that was built for onnxruntime and for this system"
    )


def _memory(failure: _Failure, found: re.Match[str]) -> str:
    asked = re.search(r"buffer of size (\d+)", failure.raised.text)
    node = re.search(_RUNNING, failure.raised.text, re.DOTALL)
    numbers = [f"it asked for {format_bytes(int(asked[1]))} more"] if asked else []
    if failure.nbytes is not None:
        numbers.append(f"{format_bytes(failure.nbytes)} in all are the limit")
    told = f" ({'; '.join(numbers)})" if numbers else ""
    return (
        f"{f'{_place(node)}: ' if node else ''}out of memory while {failure.stage}"
        f"{told}{_shapes(failure)}; give smaller sizes with --shape, or run "
        "it on a machine with more memory"
    )


def _ids(failure: _Failure, found: re.Match[str]) -> str:
    which, then = "values that were made for an input", "give real ones with --input"
    if failure.request.npz is not None:
        which, then = "values of an input", "give others with --input"
    return f"{_place(found)}: {cleaned(found['why'])}: the {which} are out of its range{_shapes(failure)}; {then}"


def _at_run(failure: _Failure, found: re.Match[str]) -> str:
    return (
        f"{_place(found)}: {cleaned(found['why'])}{_shapes(failure)}; give sizes that fit with --shape, or "
        "real inputs with --input"
    )


def _place(found: re.Match[str]) -> str:
    if not found["node"]:
        return f"a node of {printable(found['op_type'])}, which has no name"
    return f'node "{printable(found["node"])}" ({printable(found["op_type"])})'


def _inputs(failure: _Failure, found: re.Match[str]) -> str:
    return (
        f"onnxruntime does not take the inputs: {cleaned(found[0])}{_shapes(failure)}; give sizes that fit "
        "with --shape, or real inputs with --input"
    )


def _has_run(stage: str) -> bool:
    return stage not in {"loading", "starting onnxruntime"}


def _shapes(failure: _Failure) -> str:
    """The inputs that were given, where runs had begun."""
    if not failure.request.points or not _has_run(failure.stage):
        return ""
    number = re.search(r"point (\d+)", failure.stage)
    feeds = failure.request.points[int(number[1]) - 1 if number else 0]
    listed = ", ".join(_shape(feed) for feed in feeds[:8])
    return f" (inputs: {listed}{', ...' if len(feeds) > 8 else ''})" if feeds else ""


def _shape(feed: Feed) -> str:
    return f"{printable(feed.name)} {feed.dtype} [{', '.join(map(str, feed.shape))}]"


_RUNNING = r"while running (?P<op_type>\S+) node\. Name:'(?P<node>.*?)' Status Message: (?P<why>.*)"
_RULES: tuple[tuple[str, _Explain], ...] = (
    (r"Failed to load library (?P<path>.*?) with error: (?P<why>.*)", _library),
    (r"Failed to get symbol RegisterCustomOps\w* with error: (?P<why>.*)", _library),
    (
        r"Failed to allocate memory|bad_alloc|[Oo]ut of memory|ALLOC_FAILED|Unable to allocate|MemoryError",
        _memory,
    ),
    (r"Fatal error: (?P<domain>[^\s:]*):(?P<op_type>\S+?)\(-?\d+\) is not a registered", _unknown_operator),
    (
        r'In Node, \("(?P<node>.*?)", (?P<op_type>\S+), "(?P<domain>.*?)", .* No Op registered for',
        _unknown_operator,
    ),
    (r"In Node, \(\"(?P<node>.*?)\", .* No opset import for domain '(?P<domain>.*?)'", _no_import),
    (r"implementation for (?P<op_type>\S+?)\((?P<since>\d+)\) node with name '(?P<node>.*?)'", _no_kernel),
    (
        r"Type Error: Type '(?P<type>.*?)' of input parameter \(.*?\) of operator \((?P<op_type>.*?)\) "
        r"in node \((?P<node>.*?)\) is invalid",
        _wrong_type,
    ),
    (
        r"Opset (?P<opset>\d+) is under development.*domain (?P<domain>\S+) is till opset (?P<most>\d+)",
        _new_opset,
    ),
    (r"Unsupported model IR version: (?P<ir>\d+), max supported IR version: (?P<most>\d+)", _new_ir),
    (r"[Ee]xternal (?:data|initializer)|External data path|external_data", _external),
    (r"Protobuf parsing failed|No graph was found in the protobuf|INVALID_PROTOBUF", _protobuf),
    (r"NO_SUCHFILE|File doesn't exist", _no_file),
    (_RUNNING.replace("(?P<why>.*)", r"(?P<why>.*out of (?:data )?bounds.*)"), _ids),
    (_RUNNING, _at_run),
    (r"Got invalid dimensions for input.*?(?= Please|$)", _inputs),
    (
        r"Unexpected input data type.*|Required inputs .* are missing.*|Invalid input name.*|"
        r"Invalid rank for input.*?(?= Please|$)",
        _inputs,
    ),
)
