"""manifest.json <-> Manifest: the PyTorch side of the account, as data that needs no PyTorch to read.

`docs/reference/manifest-format.md` describes the format. `exporter.census` makes a Manifest from an `nn.Module`; this
module only writes and reads it.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from analyzer.errors import ManifestError
from analyzer.json_files import load_json
from analyzer.model.content import SAMPLES, Array, decode_values, run_starts
from analyzer.model.dtypes import DType
from analyzer.records import Frozen, field
from analyzer.text import format_many

MANIFEST_FILE = "manifest.json"
"""Name that an export gives the file."""

OF_CLASS = "class-program"
"""`Manifest.trace` of a class at hand; the file may be no export of that class: it may lack a head."""

SCHEMA_VERSION = 2
KIND = "onnxledger-manifest"

PROGRAM = "%"
"""Prefix of the names of values in PyTorch's program, as in printed graphs; no parameter name begins with it."""

PRODUCT, FOLDED, FOLDED_BIAS = "product", "folded", "folded_bias"
"""Last parts of the names of values that no call makes, after the name of a call: the product of a layer without its
bias; the weight and the bias of a layer together with the batch normalization behind it."""


class Content(Frozen):
    """Digests and samples of a tensor's elements (`analyzer.model.content`); absent on the meta device."""

    digest: str
    digest_transposed: str | None
    """Digest of a matrix's transpose; None unless the tensor has two dimensions."""
    constant_filled: bool
    samples: str
    """Base64 of the elements at `sample_positions`, little-endian."""
    casts: Mapping[str, str] = field(default_factory=dict)
    """`cast_digest` of a float32 tensor in narrower types, by the type's ONNX name: FLOAT16, BFLOAT16."""


class _TensorFields:
    """Fields that parameters and buffers have in common."""

    __slots__ = ()
    name: str
    shape: tuple[int, ...]
    tied: tuple[str, ...]

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.tied)


class Parameter(_TensorFields, Frozen):
    """One learned tensor, under all the names that PyTorch knows it by."""

    name: str
    """Its first name in `named_parameters()` order."""
    shape: tuple[int, ...]
    dtype: DType
    trainable: bool
    """`requires_grad`."""
    tied: tuple[str, ...] = ()
    """Its other names, in order."""
    read: bool | None = None
    """Whether the exported program reads it; None where no program was traced."""
    content: Content | None = None
    channel_projections: str | None = None
    """Base64 float64 `channel_statistics` of a tensor of three axes or more: a convolution, a stack of experts."""
    channel_norms: str | None = None
    row_digests: str | None = None
    """Base64 uint64 `row_digests` of a table that an export may cut or gather: embeddings, tokens, position tables."""


class Buffer(_TensorFields, Frozen):
    """Tensor that is not learned: an entry of `named_buffers()`."""

    name: str
    shape: tuple[int, ...]
    dtype: DType
    persistent: bool
    """Whether `state_dict()` saves it."""
    tied: tuple[str, ...] = ()
    read: bool | None = None
    content: Content | None = None


class BatchNorm(Frozen):
    """The tensors of one BatchNorm module by name; None for one that it lacks (`affine=False`). `eps` is torch's."""

    module: str
    eps: float
    weight: str | None
    bias: str | None
    running_mean: str | None
    running_var: str | None


class WeightNorm(Frozen):
    """A weight that is a direction times a length for each channel (Salimans and Kingma 2016, equation 2)."""

    weight: str
    """Name that the product would have."""
    length: str
    """The parameter g: `weight_g`, `parametrizations.weight.original0`."""
    direction: str
    """The parameter v."""
    axis: int | None
    """Axis along which lengths differ; None where one length serves all channels."""
    scale: str | None
    """Base64 float64 g / ||v|| of each channel; None on the meta device."""


class Traced(Frozen):
    """A value of PyTorch's own program that depends on no input; an exporter may compute it in advance."""

    name: str
    """`PROGRAM` and the name of its call; unique among these values."""
    expression: str
    """Its formula in Python-like notation, up to layout and type; only a part of a long one."""
    shape: tuple[int, ...]
    dtype: DType
    parameters: tuple[str, ...] = ()
    """First names of the parameters that it depends on."""
    origins: tuple[str, ...] = ()
    """Parameters, and other values of this program, that it is computed from, as far as they depend on parameters."""
    is_read: bool = False
    """Whether a computation that depends on an input reads it."""
    uses: tuple[tuple[str, str], ...] = ()
    """Its readers, each as a module's path and an operator."""
    content: Content | None = None
    """None where values are not kept; the record then says only from which tensors the value is computed."""
    whole: str | None = None
    """Base64 of all elements, where they are few."""
    sums: str | None = None
    """Base64 float64 projections, then norms, of runs of elements, where they are many."""

    @property
    def numel(self) -> int:
        """Elements of the value."""
        return math.prod(self.shape)


class Program(Frozen):
    """PyTorch's own program, as far as it depends on no input."""

    values: tuple[Traced, ...] = ()
    through: tuple[str, ...] = ()
    """First names of the parameters that it reads through these values only."""
    notes: tuple[str, ...] = ()
    """One sentence for each omission and its reason; or the reason why there is no program."""


class ProgramInput(Frozen):
    """An input of the traced program, with the size of the example."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    numbers: str | None = None
    """Base64 of whole numbers, if they are few; None for others."""
    axes: tuple[str, ...] = ()
    """Name of each axis in the program if other sizes work too; "" for a fixed axis."""


class ProgramConstant(Frozen):
    """A constant of the traced program that is in no state dict."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    numbers: str | None = None
    """Base64 of its numbers, where they are few."""


class Call(Frozen):
    """A call of one of PyTorch's operators in the traced program.

    An argument is a number, a text, None, a list of arguments, or an object with one key: `value` (of a call, or an
    input), `tensor` (a parameter or buffer), `constant`, `dtype`, or `number` (one that JSON cannot write).
    """

    name: str
    """Name of its value; unique in its program."""
    operator: str
    """Operator name without namespace and overload: `linear`, `layer_norm`."""
    module: str
    """The path of the module that calls it."""
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def read(self, kind: Literal["value", "tensor"]) -> Iterator[str]:
        """Yield the names of the values, or of the parameters and buffers, that it takes, each as often as it does."""
        pending: list[Any] = [*self.args, *self.kwargs.values()]
        while pending:
            found = pending.pop()
            if isinstance(found, list):
                pending += found
            elif isinstance(found, dict) and kind in found:
                yield found[kind]


class Calls(Frozen):
    """Calls of a traced program in order, at the sizes of its example inputs."""

    file: str = ""
    """File that was exported from it."""
    inputs: tuple[ProgramInput, ...] = ()
    calls: tuple[Call, ...] = ()
    constants: tuple[ProgramConstant, ...] = ()
    outputs: tuple[str, ...] = ()
    """Names of the values that it returns."""
    results: tuple[str, ...] = ()
    """Names of these values in the file; empty where no file was exported."""
    note: str = ""
    """Reason why there are no calls."""


class Unreached(Frozen):
    """A module that the example inputs of an export leave unused: its parameters are not in the file."""

    module: str
    elements: int
    """Elements of its parameters."""
    inputs: tuple[str, ...] = ()
    """Arguments of forward that were not given and would reach it; empty where none is known."""


class Wired(Frozen):
    """Digests of the computation in which the exported file uses the parameters (`analyzer.model.fingerprint`)."""

    outputs: str
    """Digest of all outputs."""
    scopes: tuple[tuple[str, str], ...]
    """Digest of the nodes of each module, in the order of the file."""
    producer: str
    """Producer that the file names; tools that rewrite the file put their own name there."""
    domains: tuple[str, ...]
    """Domains of its operators."""


class Manifest(Frozen):
    """PyTorch's account of a model: each parameter and buffer once, with its ties.

    Counts are elements of unique tensors: a tied parameter counts once, as in `named_parameters()`.
    """

    parameters: tuple[Parameter, ...]
    buffers: tuple[Buffer, ...] = ()
    batch_norms: tuple[BatchNorm, ...] = ()
    weight_norms: tuple[WeightNorm, ...] = ()
    values: Mapping[str, str] = field(default_factory=dict)
    """Base64 of whole small tensors, by name; formulas are computed from them."""
    source: Mapping[str, str] = field(default_factory=dict)
    """Origin of the model: SOURCE, class, weights, dtype; for people to read, no rule depends on it."""
    trace: str | None = None
    """Trace that decided `read`: `exported-program`, `function-calls`, `class-program` (never written), or None."""
    lists_all_buffers: bool = True
    """Whether every buffer is here: a state dict lacks those that are not persistent."""
    salt: str = ""
    """Salt that picked the positions of `Content.samples`; "" without content."""
    modules: Mapping[str, str] = field(default_factory=dict)
    """Class names of the modules that own tensors, by their paths; empty where only names are known."""

    wiring: Wired | None = None
    """Digests of the file that was exported with the manifest; None where no file was exported."""
    program: Program | None = None
    """Part of the traced program that depends on no input; None where nothing was traced."""
    unreached: tuple[Unreached, ...] = ()
    """The modules that the example inputs of the export left unused."""
    calls: tuple[Calls, ...] = ()
    """Calls of the traced programs, one record for each file; empty where nothing was traced."""

    def __repr__(self) -> str:
        counts = f"{format_many(len(self.parameters), 'tensor')}, {format_many(len(self.buffers), 'buffer')}"
        return f"<Manifest: {format_many(self.numel, 'parameter')} in {counts}>"

    @property
    def tensors(self) -> tuple[Parameter | Buffer, ...]:
        """Parameters, then buffers, each in PyTorch's order."""
        return (*self.parameters, *self.buffers)

    @property
    def numel(self) -> int:
        """Elements of all parameters."""
        return sum(p.numel for p in self.parameters)

    @property
    def trainable(self) -> int:
        """Elements of the parameters with `requires_grad`."""
        return sum(p.numel for p in self.parameters if p.trainable)

    @property
    def buffer_numel(self) -> int:
        """Elements of all buffers."""
        return sum(b.numel for b in self.buffers)

    @property
    def has_content(self) -> bool:
        """Whether contents are described, so that values can be compared, and not only names."""
        return any(tensor.content is not None for tensor in self.tensors)

    def value(self, name: str) -> Array | None:
        """Return the whole content of a small tensor, in its shape; None if the manifest does not carry it."""
        text = self.values.get(name)
        if text is None:
            return None
        tensor = next(tensor for tensor in self.tensors if name in tensor.names)
        return _decode(text, tensor)


def _decode(text: str, tensor: Parameter | Buffer) -> Array | None:
    element = tensor.dtype.to_numpy()
    return None if element is None else decode_values(text, element).reshape(tensor.shape)


_Tensor = TypeVar("_Tensor", "Parameter", "Buffer")


_PARAMETRIZATIONS = "parametrizations"
"""Submodule in which torch keeps the tensors from which a parametrized tensor is computed."""


def split_name(name: str) -> tuple[str, str]:
    """Return the path of the module that a tensor belongs to, and the tensor's name in it.

    >>> split_name("layer.0.query.weight"), split_name("cls_token")
    (('layer.0.query', 'weight'), ('', 'cls_token'))
    >>> split_name("conv.parametrizations.weight.original0")
    ('conv', 'parametrizations.weight.original0')
    """
    parts = name.split(".")
    length = len(parts) - 1
    if _PARAMETRIZATIONS in parts[:-1]:
        length = parts.index(_PARAMETRIZATIONS)
    return ".".join(parts[:length]), ".".join(parts[length:])


def save_manifest(manifest: Manifest, path: Path | str) -> None:
    """Write `manifest` as sorted, indented JSON; the file appears whole or not at all.

    Raises:
        OSError: the file cannot be written.
    """
    document = {"kind": KIND, "schema_version": SCHEMA_VERSION, **_to_json(manifest)}
    text = json.dumps(document, indent=1, sort_keys=True, ensure_ascii=True) + "\n"
    path = Path(path)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def is_manifest(path: Path) -> bool:
    """Whether a readable file is a manifest, of any schema; a `config.json` is not."""
    try:
        document = load_json(path)
    except (OSError, ValueError, RecursionError):
        return path.name == MANIFEST_FILE  # `load_manifest` reports the mistake
    # A report of onnxledger is no config either: `load_manifest` refuses it with a reason.
    return isinstance(document, dict) and (document.get("kind") == KIND or "schema_version" in document)


def load_manifest(path: Path | str) -> Manifest:
    """Read a `manifest.json`.

    Raises:
        ManifestError: the file cannot be read, is no manifest, or was written for another schema.
    """
    try:
        document = load_json(path)
    except OSError as error:
        raise ManifestError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"{path}: not JSON ({error}); export the model again to rewrite it") from error
    if not isinstance(document, dict) or document.get("kind") != KIND:
        is_report = isinstance(document, dict) and "command" in document
        advice = "; it is a saved report, which `onnxledger compare` and `show` take" if is_report else ""
        raise ManifestError(f'{path}: not a manifest: it lacks "kind": "{KIND}"{advice}')
    if document.get("schema_version") != SCHEMA_VERSION:
        raise ManifestError(
            f"{path}: schema_version {document.get('schema_version')!r}, this version reads {SCHEMA_VERSION}: "
            "export the model again, or install the onnxledger that wrote it"
        )
    try:
        manifest = Manifest(
            parameters=tuple(_tensor(Parameter, item) for item in document["parameters"]),
            buffers=tuple(_tensor(Buffer, item) for item in document["buffers"]),
            batch_norms=tuple(BatchNorm(**item) for item in document["batch_norms"]),
            weight_norms=tuple(WeightNorm(**item) for item in document.get("weight_norms", ())),
            values=_strings(document["values"]),
            source=_strings(document["source"]),
            trace=document["trace"],
            lists_all_buffers=document.get("lists_all_buffers", True),
            salt=document["salt"],
            modules=_modules(document.get("modules", {})),
            wiring=_wired(document.get("wiring")),
            program=_program(document.get("program")),
            unreached=tuple(map(_unreached, document.get("unreached", ()))),
            calls=tuple(map(_calls, document.get("calls", ()))),
        )
        _check(manifest)
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise ManifestError(f"{path}: not a whole manifest ({error!r}); export the model again") from error
    return manifest


def _check(manifest: Manifest) -> None:
    """Reject a manifest that no census writes, so that no rule meets such data later.

    Raises:
        ValueError: a name appears twice, evidence has the wrong size or is no base64, or a reference names no tensor.
        TypeError: a field is of the wrong type.
    """
    if manifest.trace is not None and not isinstance(manifest.trace, str):
        raise TypeError(f"trace {manifest.trace!r}")
    if not isinstance(manifest.salt, str):
        raise TypeError(f"salt {manifest.salt!r}")
    if type(manifest.lists_all_buffers) is not bool:
        raise TypeError(f"lists_all_buffers {manifest.lists_all_buffers!r}")
    counted = Counter(name for tensor in manifest.tensors for name in tensor.names)
    repeated = [name for name, count in counted.items() if count > 1]
    if repeated:
        raise ValueError(f"name {repeated[0]!r} appears twice")
    by_name = {name: tensor for tensor in manifest.tensors for name in tensor.names}
    for tensor in manifest.tensors:
        if tensor.content is not None:
            _check_content(tensor, tensor.content)
    for parameter in manifest.parameters:
        _check_parameter(parameter)
    for norm in manifest.batch_norms:
        _check_batch_norm(norm, by_name)
    for weight_norm in manifest.weight_norms:
        _check_weight_norm(weight_norm, by_name)
    for name, text in manifest.values.items():
        if name not in by_name:
            raise ValueError(f"values: no tensor {name!r}")
        _decode(text, by_name[name])
    _check_program(manifest.program, {parameter.name: parameter for parameter in manifest.parameters})
    for idle in manifest.unreached:
        if not any(name.startswith(f"{idle.module}.") for name in by_name):
            raise ValueError(f"unreached: no tensor of {idle.module!r}")
    owners = {split_name(name)[0] for name in by_name} if manifest.modules else set()
    for path in manifest.modules:
        if path not in owners:
            raise ValueError(f"modules: no tensor of {path!r}")


def _check_program(program: Program | None, known: Mapping[str, Parameter]) -> None:
    values = () if program is None else program.values
    names = {value.name for value in values}
    if len(names) < len(values) or names & known.keys():
        raise ValueError("program: a name appears twice")
    for value in values:
        for name in (*value.parameters, *value.origins):
            if name not in known and name not in names:
                raise ValueError(f"{value.name}: no tensor {name!r}")
        if value.content is None:
            continue
        element = value.dtype.to_numpy()
        _check_content(value, value.content)
        if value.whole is not None and element is not None:
            decode_values(value.whole, element).reshape(value.shape)
        runs = 0 if value.sums is None else decode_values(value.sums, np.dtype("<f8")).size
        if value.sums is not None and runs != 2 * len(run_starts(value.numel)):
            raise ValueError(f"{value.name}: not two sums for each run")
    for name in () if program is None else program.through:
        if name not in known:
            raise ValueError(f"program: no parameter {name!r}")


def _check_parameter(parameter: Parameter) -> None:
    if type(parameter.trainable) is not bool:
        raise TypeError(f"{parameter.name}: trainable {parameter.trainable!r}")
    if parameter.read not in (True, False, None):
        raise TypeError(f"{parameter.name}: read {parameter.read!r}")
    for text in (parameter.channel_projections, parameter.channel_norms):
        if text is not None and decode_values(text, np.dtype("<f8")).shape != parameter.shape[:1]:
            raise ValueError(f"{parameter.name}: not one channel statistic for each of {parameter.shape[:1]}")
    if parameter.row_digests is not None and parameter.shape:
        rows = parameter.numel // max(1, parameter.shape[-1])
        if decode_values(parameter.row_digests, np.dtype("<u8")).size != rows:
            raise ValueError(f"{parameter.name}: not one digest for each of {rows} rows")


def _check_batch_norm(norm: BatchNorm, by_name: Mapping[str, Parameter | Buffer]) -> None:
    if type(norm.eps) not in (int, float) or not math.isfinite(norm.eps):
        raise TypeError(f"{norm.module}: eps {norm.eps!r}")
    for name in (norm.weight, norm.bias, norm.running_mean, norm.running_var):
        if name is not None and name not in by_name:
            raise ValueError(f"{norm.module}: no tensor {name!r}")


def _check_weight_norm(norm: WeightNorm, by_name: Mapping[str, Parameter | Buffer]) -> None:
    for name in (norm.length, norm.direction):
        if name not in by_name:
            raise ValueError(f"{norm.weight}: no tensor {name!r}")
    shape = by_name[norm.direction].shape
    if norm.axis is not None and (type(norm.axis) is not int or not 0 <= norm.axis < len(shape)):
        raise ValueError(f"{norm.weight}: axis {norm.axis!r} of {shape}")
    channels = 1 if norm.axis is None else shape[norm.axis]
    if norm.scale is not None and decode_values(norm.scale, np.dtype("<f8")).size != channels:
        raise ValueError(f"{norm.weight}: not one factor for each of {channels} channels")


def _check_content(tensor: Parameter | Buffer | Traced, content: Content) -> None:
    element = tensor.dtype.to_numpy()
    if type(content.constant_filled) is not bool:
        raise TypeError(f"{tensor.name}: constant_filled {content.constant_filled!r}")
    for digest in (content.digest, *content.casts.values()):
        if not digest.startswith("sha256:"):
            raise ValueError(f"{tensor.name}: digest {digest!r}")
    if element is not None and decode_values(content.samples, element).size != min(tensor.numel, SAMPLES):
        raise ValueError(f"{tensor.name}: not one sample for each position")


def _to_json(manifest: Manifest) -> dict[str, Any]:
    document = dataclasses.asdict(manifest)
    traced = () if document["program"] is None else document["program"]["values"]
    examples = [each for calls in document["calls"] for each in (*calls["inputs"], *calls["constants"])]
    for tensor in (*document["parameters"], *document["buffers"], *traced, *examples):
        tensor["dtype"] = tensor["dtype"].name
    return document


def _tensor(kind: type[_Tensor], item: Mapping[str, Any]) -> _Tensor:
    fields: dict[str, Any] = dict(item)
    if any(type(dim) is not int or dim < 0 for dim in fields["shape"]):
        raise ValueError(f"{fields['name']}: shape {fields['shape']}")
    if not all(isinstance(name, str) for name in (fields["name"], *fields["tied"])):
        raise TypeError(f"{fields['name']!r}: a name that is not a string")
    fields["shape"] = tuple(fields["shape"])
    fields["tied"] = tuple(fields["tied"])
    fields["dtype"] = DType[fields["dtype"]]
    if fields["content"] is not None:
        fields["content"] = Content(**fields["content"])
    return kind(**fields)


def _modules(item: Mapping[str, Any]) -> dict[str, str]:
    if not isinstance(item, dict) or not all(isinstance(name, str) and name for name in item.values()):
        raise TypeError("modules: not a map of class names")
    return dict(item)


def _wired(item: Mapping[str, Any] | None) -> Wired | None:
    if item is None:
        return None
    scopes = tuple((scope, digest) for scope, digest in item["scopes"])
    texts = (item["outputs"], item["producer"], *item["domains"], *(word for pair in scopes for word in pair))
    if not isinstance(item["domains"], list) or not all(isinstance(word, str) for word in texts):
        raise TypeError(f"wiring {item!r}")
    return Wired(item["outputs"], scopes, item["producer"], tuple(item["domains"]))


def _program(item: Mapping[str, Any] | None) -> Program | None:
    if item is None:
        return None
    for texts in (item["through"], item["notes"]):
        _check_texts(texts)
    return Program(tuple(map(_traced, item["values"])), tuple(item["through"]), tuple(item["notes"]))


def _unreached(item: Mapping[str, Any]) -> Unreached:
    module, elements, inputs = item["module"], item["elements"], item["inputs"]
    if not isinstance(module, str) or type(elements) is not int or elements < 0:
        raise TypeError(f"unreached {item!r}")
    if not isinstance(inputs, list) or not all(isinstance(name, str) for name in inputs):
        raise TypeError(f"unreached {item!r}")
    return Unreached(module, elements, tuple(inputs))


def _traced(item: Mapping[str, Any]) -> Traced:
    fields: dict[str, Any] = dict(item)
    _check_texts([fields["name"], fields["expression"]])
    if any(type(dim) is not int or dim < 0 for dim in fields["shape"]):
        raise ValueError(f"{fields['name']}: shape {fields['shape']}")
    for key in ("parameters", "origins"):
        _check_texts(fields[key])
        fields[key] = tuple(fields[key])
    for use in fields["uses"]:
        _check_texts(use)
    if type(fields["is_read"]) is not bool:
        raise TypeError(f"{fields['name']}: is_read {fields['is_read']!r}")
    fields["shape"] = tuple(fields["shape"])
    fields["uses"] = tuple((module, operator) for module, operator in fields["uses"])
    fields["dtype"] = DType[fields["dtype"]]
    if fields["content"] is not None:
        fields["content"] = Content(**fields["content"])
    return Traced(**fields)


def _calls(item: Mapping[str, Any]) -> Calls:
    _check_texts([item["file"], item["note"], *item["outputs"], *item["results"]])
    calls = tuple(map(_call, item["calls"]))
    inputs = tuple(map(_program_input, item["inputs"]))
    constants = tuple(ProgramConstant(*_example(each)) for each in item["constants"])
    names = [name for records in (inputs, constants, calls) for name in (each.name for each in records)]
    if len(set(names)) < len(names):
        raise ValueError("calls: a name appears twice")
    return Calls(
        item["file"], inputs, calls, constants, tuple(item["outputs"]), tuple(item["results"]), item["note"]
    )


def _call(item: Mapping[str, Any]) -> Call:
    _check_texts([item["name"], item["operator"], item["module"]])
    for argument in (*item["args"], *item["kwargs"].values()):
        _check_argument(argument)
    return Call(item["name"], item["operator"], item["module"], tuple(item["args"]), dict(item["kwargs"]))


_ARGUMENTS = frozenset({"value", "tensor", "constant", "dtype", "number"})


def _check_argument(argument: Any) -> None:
    if isinstance(argument, list):
        for each in argument:
            _check_argument(each)
    elif isinstance(argument, dict):
        ((kind, text),) = argument.items()
        if kind not in _ARGUMENTS or not isinstance(text, str):
            raise TypeError(f"argument {argument!r}")
        if kind == "dtype":
            DType[text]
        elif kind == "number":
            float(text)


def _program_input(item: Mapping[str, Any]) -> ProgramInput:
    name, dtype, shape, numbers = _example(item)
    _check_texts(item["axes"])
    if len(item["axes"]) not in (0, len(shape)):
        raise ValueError(f"{name}: {len(item['axes'])} axes of {len(shape)}")
    return ProgramInput(name, dtype, shape, numbers, tuple(item["axes"]))


def _example(item: Mapping[str, Any]) -> tuple[str, DType, tuple[int, ...], str | None]:
    _check_texts([item["name"]])
    shape, numbers, dtype = tuple(item["shape"]), item["numbers"], DType[item["dtype"]]
    if any(type(dim) is not int or dim < 0 for dim in shape):
        raise ValueError(f"{item['name']}: shape {shape}")
    element = np.dtype("<f4") if dtype is DType.BFLOAT16 else dtype.to_numpy()
    if numbers is not None:
        if element is None:
            raise ValueError(f"{item['name']}: numbers of {dtype.name}")
        decode_values(numbers, element).reshape(shape)
    return item["name"], dtype, shape, numbers


def _check_texts(item: Any) -> None:
    if not isinstance(item, list) or not all(isinstance(text, str) for text in item):
        raise TypeError(f"{item!r}: not a list of texts")


def _strings(item: Mapping[str, Any]) -> dict[str, str]:
    if not isinstance(item, dict):
        raise TypeError(f"{item!r}: not a map of strings")
    return {str(key): str(value) for key, value in item.items()}
