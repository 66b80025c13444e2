"""The page of `inspect` on one model."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence, Set

from msgspec.structs import replace

from analyzer.account.group.branches import fold_names
from analyzer.documents.inspect import InspectDocument, Model, Tensor, Value
from analyzer.documents.shared import Finding
from analyzer.pages.page import (
    Block,
    Chart,
    Column,
    Detail,
    Fact,
    Facts,
    Figure,
    Formatted,
    Kind,
    LateRows,
    Notes,
    Page,
    Row,
    Table,
    Tone,
)
from analyzer.pages.shared import (
    abbreviate_count,
    count_severities,
    format_exact_bytes,
    format_shares,
    list_findings,
    report_group_rule,
    report_macs,
    report_reuse,
    table_groups,
    title_groups,
)
from analyzer.text import (
    format_bytes,
    format_count,
    format_many,
    format_others,
    format_shape,
    printable_name,
    short_share,
    shorten,
)

TENSORS = "tensors"


def describe_inspection(document: InspectDocument) -> Page:
    """Describe a model: headline, problems, groups; with `-v` also roles, bytes and tensors."""
    totals = document.totals
    errors = [finding for finding in document.findings if finding.severity == "error"]
    blocks: list[Block] = [_ends(document.model), list_findings(_join_absent(document), is_short=True)]
    if wasted := _wasted(document):
        blocks.append(Notes((wasted,), detail=Detail.FIRST))
    blocks += [_components(document)] if document.components else []
    title = title_groups(document.by, document.depth, document.tree)
    groups = table_groups(
        document.tree, document.groups, document.group_balance, document.by, title, totals.parameters
    )
    blocks += [groups, Notes(tuple(_remarks(document))), _chart(document), *_more(document)]
    return Page(
        kind="inspect",
        question="What is in this file?",
        subject=document.model.path,
        about=_about(document),
        answer=f"{count_severities(errors)}: the counts may be incomplete" if errors else "",
        tone=Tone.BAD,
        figures=tuple(_figures(document)),
        blocks=tuple(blocks),
    )


def _about(document: InspectDocument) -> str:
    model = document.model
    parts = [format_many(len(document.components), "component")] if document.components else []
    parts.append(model.producer or "unknown producer")
    used = {each.domain for each in document.operators}
    parts.append(f"opset {_opsets(model, used if used - {''} else set(model.opsets))}")
    parts.append(format_bytes(document.totals.file_bytes))
    if model.remote is not None:
        read, requests = format_bytes(model.remote.bytes_read), format_many(model.remote.requests, "request")
        parts.append(f"{read} of it read in {requests}")
    return " · ".join(parts)


def _opsets(model: Model, used: Set[str]) -> str:
    """Return the version of ONNX's own operator set, and of the other sets that nodes use."""
    own, others = "ai.onnx", sorted(model.opsets.keys() & used - {"ai.onnx"})
    versions = [str(model.opsets[own])] if own in model.opsets else []
    return ", ".join([*versions, *(f"{domain} {model.opsets[domain]}" for domain in others)]) or "none"


def _figures(document: InspectDocument) -> Iterator[Figure]:
    totals, model = document.totals, document.model
    least, most = totals.parameters_at_least, totals.parameters_at_most
    phrase = format_many(totals.parameters, "parameter")
    yield Figure(
        "Parameters",
        format_count(totals.parameters),
        abbreviate_count(totals.parameters),
        phrase,
        totals.parameters,
    )
    hidden = _hidden(document)
    if hidden:
        bound = (
            f"{format_count(least)} or more"
            if most is None
            else f"{format_count(least)} to {format_count(most)}"
        )
        yield Figure("In PyTorch", bound, "", hidden)
    precision = _precision(document)
    if precision:
        first, _, rest = precision.partition(", ")
        schemes = _schemes(document)
        yield Figure("Precision", first, rest, precision)
        if schemes:
            kinds = (_SHORT.get(each.scheme) for each in document.quantization)
            yield Figure("Quantization", ", ".join(dict.fromkeys(filter(None, kinds))), schemes, schemes)
    nodes = format_many(model.nodes, "node")
    operators = _operators(document)
    note = "; ".join(filter(None, [operators, _nested(model)]))
    yield Figure("Nodes", format_count(model.nodes), note, f"{nodes}{': ' if operators else ''}{operators}")
    yield Figure("On disk", format_bytes(totals.file_bytes), _exact(totals.file_bytes))
    stored = f"{format_many(totals.stored_elements, 'element')}, {format_bytes(totals.stored_bytes)}"
    yield Figure("Tensors", format_count(totals.stored_tensors), stored)


def _hidden(document: InspectDocument) -> str:
    """Return how many more parameters PyTorch had than are counted; "" if the file hides none."""
    totals = document.totals
    computed = [t for t in document.tensors if t.hides is not None and t.hides.why == "computed"]
    hides = [tensor.hides for tensor in document.tensors if tensor.hides is not None]
    least = totals.parameters_at_least - totals.parameters
    least -= sum(each.at_least for each in hides if each.why == "computed")
    most = (
        sum(each.at_most or 0 for each in hides if each.why != "computed")
        if totals.parameters_at_most is None
        else totals.parameters_at_most - totals.parameters
    )
    parts = [f"{_format_change(least, most)} in PyTorch"] if (least, most) != (0, 0) else []
    if computed:
        elements = sum(tensor.parameters or tensor.stored_elements for tensor in computed)
        parts.append(f"{format_many(elements, 'element')} computed from an unknown number of parameters")
    return ", ".join(parts)


def _format_change(least: int, most: int) -> str:
    """Return how many more, or fewer, in words."""
    if least == most:
        return f"{format_count(abs(least))} {'more' if least > 0 else 'fewer'}"
    if least >= 0:
        return f"{format_count(least)} to {format_count(most)} more"
    if most <= 0:
        return f"{format_count(-most)} to {format_count(-least)} fewer"
    return f"{format_count(-least)} fewer to {format_count(most)} more"


def _exact(nbytes: int) -> str:
    return format_many(nbytes, "byte") if nbytes >= 1024 else ""


def _nested(model: Model) -> str:
    parts = [format_many(model.functions, "function")] if model.functions else []
    parts += [format_many(model.nested_graphs, "nested graph")] if model.nested_graphs else []
    return ", ".join(parts)


_FEW = 4


def _operators(document: InspectDocument) -> str:
    known = sorted(document.operators, key=lambda each: (-each.nodes, each.op_type))
    shown = [f"{each.nodes} {each.op_type}" for each in known if each.nodes and each.op_type]
    return ", ".join(shown[: _FEW - 1]) + (", ..." if len(shown) >= _FEW else "")


def _precision(document: InspectDocument) -> str:
    """Return the types of learned elements with their shares, the largest first; codes in blocks by their bits."""
    elements: dict[str, int] = defaultdict(int)
    for tensor in document.tensors:
        if tensor.parameters:
            elements[tensor.dtype] += tensor.parameters
    for scheme in document.quantization:
        if scheme.scheme == "block":
            label = f"{scheme.bits} bits" + (
                f" in blocks of {scheme.block_size}" if scheme.block_size else ""
            )
            _recount(elements, label, scheme.parameters)
    return format_shares(list(elements.items()), sum(elements.values()), 3)


_CODES = ("UINT8", "INT8", "UINT4", "INT4", "UINT2", "INT2")


def _recount(elements: dict[str, int], label: str, count: int) -> None:
    """Count elements as codes in blocks, and no longer by the dtype that stores the codes."""
    for dtype in (*_CODES, *[each for each in elements if each not in _CODES]):
        moved = min(elements.get(dtype, 0), count)
        if moved:
            elements[dtype] -= moved
            elements[label] += moved
            count -= moved


_SCHEMES = {
    "qdq": "quantized as QDQ",
    "qoperator": "quantized as QOperator",
    "dynamic": "dynamic quantization",
    "codes": "codes without a known decoder",
}
_SHORT = {"qdq": "QDQ", "qoperator": "QOperator", "dynamic": "dynamic", "codes": "not decoded"}
_AT_RUN_TIME = ("ConvInteger", "DynamicQuantize", "MatMulInteger")


def _schemes(document: InspectDocument) -> str:
    """Return how the codes outside blocks are decoded."""
    texts = {scheme.scheme: _SCHEMES.get(scheme.scheme, "") for scheme in document.quantization}
    if "dynamic" in texts:
        computing = [each for each in document.operators if each.op_type.startswith(_AT_RUN_TIME)]
        nodes = ", ".join(f"{format_count(each.nodes)} {each.op_type}" for each in computing[:2])
        texts["dynamic"] += f": {nodes}" if nodes else ""
    if len(texts) > 1:
        tensors = Counter[str]()
        for scheme in document.quantization:
            tensors[scheme.scheme] += scheme.tensors
        texts = {
            key: f"{text} ({format_many(tensors[key], 'tensor')})" for key, text in texts.items() if text
        }
    return "; ".join(filter(None, texts.values()))


def _ends(model: Model) -> Facts:
    """List inputs and outputs, those of one dtype and shape together."""
    ends = {"in": _values(model.inputs), "out": _values(model.outputs)}
    facts = [Fact(label, "; ".join(pieces), pieces) for label, pieces in ends.items() if pieces]
    return Facts(tuple(facts), detail=Detail.FIRST)


_MOST, _MANY = 6, 12


def _values(values: Sequence[Value]) -> tuple[str, ...]:
    """Return names with dtype and shape; names of one dtype and shape stand together."""
    alike: dict[str, list[str]] = {}
    for value in values:
        alike.setdefault(format_value(value), []).append(value.name)
    lines = []
    for kind, names in alike.items():
        folded = _fold_numbers(names)
        shown = folded if len(folded) <= _MOST - 2 else [*folded[:3], format_others(len(folded) - 3)]
        lines.append(f"{', '.join(shown)} {kind}")
    if len(lines) > _MANY:
        lines = [*lines[:_MANY], f"[{len(lines) - _MANY} other kinds]"]
    return tuple(lines)


def _fold_numbers(names: Sequence[str]) -> list[str]:
    """Fold names with consecutive numbers into one name.

    >>> (
    ...     _fold_numbers(["past_0", "past_1", "past_2", "ids"]),
    ...     _fold_numbers(["a.0.key", "a.0.value", "a.1.key"]),
    ... )
    (['past_0-2', 'ids'], ['a.0-1.key', 'a.0.value'])
    """
    runs: dict[tuple[str, str], list[int]] = {}
    order: dict[tuple[str, str], str] = {}
    for name in names:
        match = _NUMBERED.fullmatch(name)
        key = (match[1], match[3]) if match else (name, "")
        order.setdefault(key, name)
        runs.setdefault(key, []).extend([int(match[2])] if match else [])
    folded = []
    for (before, after), numbers in runs.items():
        is_run = len(numbers) > 1 and numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        run = [f"{before}{numbers[0]}-{numbers[-1]}{after}"] if is_run else []
        folded += run or [f"{before}{number}{after}" for number in numbers] or [order[before, after]]
    return folded


_NUMBERED = re.compile(r"(.*?[._/])(\d{1,6})(\D*)")


_MADE_UP = re.compile(r".+_dim_\d+|.+_dynamic_axes_\d+|unk__\d+|[su]\d+|dim_?\d*|-\d+|\?")
"""Names of axes that tell nothing: TorchScript's and TensorFlow's counters, PyTorch's own symbols, negative sizes."""
_AXIS = 28


def format_value(value: Value) -> str:
    """Return the dtype and the shape of an input or output; `?` for a size without a meaningful name."""
    dtype = "" if value.dtype == "UNDEFINED" else f"{value.dtype} "
    if value.shape is None:
        return f"{dtype}of any rank"
    return f"{dtype}{format_dims(value.shape) or 'scalar'}"


def format_dims(dims: Sequence[int | str | None]) -> str:
    """Return a shape; `?` for a size without a meaningful name.

    >>> format_dims(("batch", 3, None)), format_dims(("unk__7", "s18"))
    ('batch x 3 x ?', '? x ?')
    """
    return " x ".join(map(_format_dim, dims))


def _format_dim(dim: int | str | None) -> str:
    text = "?" if dim is None else str(dim)
    return "?" if _MADE_UP.fullmatch(text) else shorten(text.rpartition(".")[2] or text, _AXIS)


def _join_absent(document: InspectDocument) -> list[Finding]:
    """Return the findings, with those on missing external files joined into one."""
    absent = [finding for finding in document.findings if finding.id == "external-missing"]
    names = [match[1] for finding in absent if (match := _ABSENT.match(finding.message))]
    if not absent or len(names) < len(absent):
        return document.findings
    missing = {each for finding in absent for each in finding.subjects}
    tensors = [
        tensor
        for tensor in document.tensors
        if (f"{tensor.graph_path}/{tensor.name}" if tensor.graph_path else tensor.name) in missing
    ]
    nbytes = format_bytes(sum(tensor.logical_bytes for tensor in tensors))
    what = f"{format_many(len(missing), 'tensor')}, {nbytes}"
    if len(absent) == 1:
        joined = replace(absent[0], message=f"{names[0]} is missing: {what}", subjects=sorted(missing))
    else:
        message = f"{format_count(len(absent))} external files are missing ({what})"
        joined = replace(absent[0], message=message, subjects=names)
    rest = [finding for finding in document.findings if finding.id != "external-missing"]
    return [joined, *rest]


_ABSENT = re.compile(r"'(.+)' is not there \(")


def _wasted(document: InspectDocument) -> str:
    totals = document.totals
    if not totals.wasted_bytes or not totals.file_bytes:
        return ""
    known = [
        (_WASTES.get(finding.id, finding.id), finding.bytes)
        for finding in document.findings
        if finding.bytes and finding.id in _WASTES
    ]
    if len(known) == 1 and known[0][1] == totals.wasted_bytes and _is_little_wasted(document):
        return ""  # the finding already says it
    if not known and totals.wasted_bytes < _NEGLIGIBLE * totals.file_bytes:
        return ""
    share = short_share(totals.wasted_bytes / totals.file_bytes)
    parts = "" if len(known) == 1 else ", ".join(f"{word} {format_bytes(nbytes)}" for word, nbytes in known)
    return f"wasted {format_bytes(totals.wasted_bytes)} ({share} of the file){': ' if parts else ''}{parts}"


_WASTES = {
    "duplicate-content": "copies",
    "transposed-copy": "transposed copies",
    "unused-initializer": "unused tensors",
    "strippable-metadata": "notes on nodes",
    "unknown-fields": "unknown fields",
    "external-orphaned": "orphaned bytes",
}


def _is_little_wasted(document: InspectDocument) -> bool:
    """Whether so little is wasted that the finding alone is enough."""
    totals = document.totals
    return totals.wasted_bytes < _LITTLE * totals.file_bytes


_LITTLE, _NEGLIGIBLE = 0.1, 0.01


def _remarks(document: InspectDocument) -> Iterator[str]:
    """List remarks on groups and counts."""
    totals = document.totals
    yield from report_macs(document.macs)
    yield from report_group_rule(document.match, document.groups_from)
    if "stage" in document.by.split(",") and not document.stages:
        yield "no stages: the model has no convolutional trunk with falling resolution"
    if document.by in ("scope", "block", "stage", "op") and document.tensors and not _has_scopes(document):
        others = [key for key in ("block", "stage", "op", "dtype") if key != document.by]
        others = [key for key in others if key != "stage" or document.stages]
        yield f"the file has no names of modules; other groups: --by {', '.join(others)}"
    if totals.parameters_unsettled and (totals.parameters_at_least, totals.parameters_at_most) != (
        totals.parameters,
        totals.parameters,
    ):
        first, *others = totals.parameters_unsettled
        # The other reasons go without their tensors: findings name those.
        reasons = "; ".join([first, *dict.fromkeys(each.partition(": ")[0] for each in others)][:3])
        more = f"; {format_many(len(others) - 2, 'other reason')}" if len(others) > 2 else ""
        yield f"PyTorch's count is uncertain: {reasons}{more}"
    if document.content == "none":
        names = " under other names" if document.components else ""
        yield f"Contents were not read, so copies{names} count separately (--content sampled)"
    if document.overlap or document.ungrouped:
        yield (
            f"Overlap of groups: {format_count(document.overlap)} stored elements; in no group: "
            f"{format_count(document.ungrouped)}"
        )
    if "block" in document.by.split(","):
        yield from _blocks(document)
    yield from report_reuse(document.groups)


def _has_scopes(document: InspectDocument) -> bool:
    return any(tensor.scope is not None for tensor in document.tensors)


def _blocks(document: InspectDocument) -> Iterator[str]:
    """Tell which modules the blocks are."""
    if document.blocks is None:
        return
    if not document.blocks:
        yield "no repeated structure found"
        return
    shares: dict[str, float] = defaultdict(float)
    place = document.by.split(",").index("block")
    for group in document.groups:
        shares[group.keys[place] if place < len(group.keys) else ""] += group.share or 0
    name = max(shares, key=lambda each: shares[each], default="")
    if name and not name.startswith("block.") and shares[name] > _NEARLY_ALL:
        yield f"no repeated structure: {name} holds {short_share(shares[name])} of the parameters"
    for run in document.blocks:
        modules = tuple(dict.fromkeys(run.modules))
        if modules:
            last = run.first + run.count - 1
            verb = "is" if run.count == 1 else "are all" if len(modules) == 1 else "are"
            numbers = f"{run.first}-{last}" if run.count > 1 else f"{run.first}"
            yield f"block.{numbers} {verb} {', '.join(fold_names(modules))}"


_NEARLY_ALL = 0.9


def _components(document: InspectDocument) -> Table:
    columns = (
        Column("component", Kind.NAME),
        Column("file", Kind.NAME, room=0),
        Column("parameters", Kind.COUNT, room=9),
        Column("stored elements", Kind.COUNT, room=2),
        Column("duplicated", Kind.BYTES, room=3),
        Column("on disk", Kind.BYTES, room=4),
    )
    rows = tuple(
        Row(
            (
                row.component,
                row.path,
                row.parameters,
                row.stored_elements,
                row.duplicated_bytes,
                row.file_bytes,
            )
        )
        for row in document.components
    )
    totals = document.totals
    total = (
        "all, each once",
        "",
        totals.parameters,
        totals.stored_elements,
        totals.duplicated_bytes,
        totals.file_bytes,
    )
    return Table(columns, rows, total=total, is_whole=True)


def _more(document: InspectDocument) -> Iterator[Block]:
    """Yield what `-v` adds: accounts of bytes, roles, types, evidence, every tensor."""
    totals, model = document.totals, document.model
    if document.by != "bytes":
        yield _accounts(document)
    keys = ("parameters", "stored_elements", "tensors", "bytes")
    kinds = (Kind.COUNT, Kind.COUNT, Kind.COUNT, Kind.BYTES)
    columns = tuple(
        Column(key.replace("_", " "), kind, room=5) for key, kind in zip(keys, kinds, strict=True)
    )
    roles = tuple(
        Row((role, *(getattr(row, key) for key in keys)))
        for role, row in sorted(document.roles.items(), key=lambda item: _ROLES.index(item[0]))
    )
    yield Table((Column("role"), *columns), roles, detail=Detail.MORE, is_whole=True, title="roles")
    dtypes = tuple(Row((row.dtype, row.stored_elements, row.tensors, row.bytes)) for row in document.dtypes)
    yield Table((Column("dtype"), *columns[1:]), dtypes, detail=Detail.MORE, is_whole=True, title="types")
    yield _tensors(document)
    basis = [(evidence, count) for evidence, count in document.totals.basis.items() if count]
    decided_by = (
        format_shares([(str(each), count) for each, count in basis], totals.stored_elements, 9) or "nothing"
    )
    facts = [
        Fact("Producer", model.producer or "unknown"),
        Fact("IR version", str(model.ir_version)),
        Fact("Opsets", ", ".join(f"{domain} {version}" for domain, version in sorted(model.opsets.items()))),
        *(Fact(file.path, format_exact_bytes(file.bytes, format_bytes(file.bytes))) for file in model.files),
        *(
            Fact(f"SHA-256 of {file.path}", file.sha256)
            for file in model.files
            if isinstance(file.sha256, str)
        ),
        *_call_facts(document),
        Fact("Elements decided by", decided_by),
    ]
    yield Facts(tuple(facts), title="About the file", detail=Detail.MORE)


_ROLES = ("parameter", "buffer", "quantization", "constant", "unattributed")


def _call_facts(document: InspectDocument) -> Iterator[Fact]:
    for call in document.model.calls[:_MOST]:
        yield Fact(
            f"Function {printable_name(call.function)}", f"called by {format_many(call.sites, 'node')}"
        )
    if len(document.model.calls) > _MOST:
        yield Fact("Functions", format_others(len(document.model.calls) - _MOST))


def _accounts(document: InspectDocument) -> Table:
    whole = document.totals.file_bytes
    rows = tuple(
        Row((row.account, row.bytes, row.bytes / whole if whole else None)) for row in document.accounts
    )
    return Table(
        (
            Column("account", Kind.NAME),
            Column("bytes", Kind.COUNT, room=9),
            Column("share", Kind.SHARE, room=5, is_bar=True),
        ),
        rows,
        title="every byte on disk",
        total=("total", sum(row.bytes for row in document.accounts), 1.0 if whole else None),
        detail=Detail.MORE,
        is_whole=True,
    )


_TENSORS = (
    Column("tensor", Kind.NAME),
    Column("dtype", room=6),
    Column("shape", room=7),
    Column("role", room=3),
    Column("parameters", Kind.COUNT, room=2),
    Column("elements", Kind.COUNT, room=9),
    Column("bytes", Kind.BYTES, room=1),
    Column("scope", Kind.NAME, room=0),
    Column("stored as", Kind.NAME, room=1),
    Column("copy of", Kind.NAME, room=4),
    Column("decided by", room=0),
    Column("block", is_hidden=True),
    Column("read by", is_hidden=True),
    Column("layer role", is_hidden=True),
)


def _tensors(document: InspectDocument) -> Table:
    totals = document.totals
    sums = (totals.parameters, totals.stored_elements, totals.stored_bytes)

    def rows() -> Iterator[Row]:
        return map(
            _tensor, sorted(document.tensors, key=lambda t: (-t.stored_elements, t.graph_path, t.name))
        )

    return Table(
        _TENSORS,
        LateRows(len(document.tensors), rows),
        title="tensors",
        total=("total", "", "", "", *sums, "", "", "", "", "", "", ""),
        detail=Detail.MORE,
        is_long=True,
        key=TENSORS,
    )


def _tensor(tensor: Tensor) -> Row:
    """Return the row of a tensor, under its PyTorch name if the file tells it."""
    own = f"{tensor.graph_path}/{tensor.name}" if tensor.graph_path else tensor.name
    known = ", ".join(tensor.sources)
    size: Formatted | int = tensor.bytes
    if not tensor.bytes and tensor.logical_bytes:
        size = Formatted(0, f"0 B of {format_bytes(tensor.logical_bytes)}")
    return Row(
        (
            known or own,
            tensor.dtype,
            format_shape(tuple(tensor.shape)),
            str(tensor.role),
            tensor.parameters,
            tensor.stored_elements,
            size,
            "[unscoped]" if tensor.scope is None else tensor.scope or "[root]",
            own if known and known != own else "",
            tensor.copy_of or "",
            tensor.decided_by,
            tensor.block or "",
            tensor.read_by,
            tensor.layer_role or "",
        )
    )


_AT = {column.title: number for number, column in enumerate(_TENSORS)}


def _chart(document: InspectDocument) -> Chart:
    """Make a treemap of tensors within their scopes, or grouped by another column."""
    arrangements: list[tuple[str, int, str]] = [
        ("scope", _AT["scope"], "."),
        ("block", _AT["block"], ""),
        ("operator", _AT["read by"], ""),
        ("layer role", _AT["layer role"], ""),
        ("role", _AT["role"], ""),
        ("dtype", _AT["dtype"], ""),
    ]
    has_scopes = any(tensor.scope for tensor in document.tensors)
    has_blocks = any(tensor.block for tensor in document.tensors)
    chosen = [each for each in arrangements if each[0] not in ("block", "layer role") or has_blocks]
    first = document.by if document.by in [each[0] for each in chosen] else "scope" if has_scopes else "block"
    chosen.sort(key=lambda each: each[0] != first)
    data = {
        "name": 0,
        "arrangements": [[name, [column], between] for name, column, between in chosen],
        "measures": [
            ["parameters", _AT["parameters"]],
            ["bytes", _AT["bytes"]],
            ["stored elements", _AT["elements"]],
        ],
        "colours": [["role", _AT["role"]], ["dtype", _AT["dtype"]]],
    }
    summary = "A treemap: each rectangle is a group or a tensor, as large as its share."
    return Chart(TENSORS, "Where the parameters and bytes are", "tree", data, summary)
