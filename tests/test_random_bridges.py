"""Properties of every bridge: random parameters that random changes put into a file, intact or tampered with."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import Values as AtHand
from models import audit, manifest_of, noise, packed, parameter, quantized, without_values
from onnx import helper, numpy_helper
from samples import drawn

from analyzer.manifest import Manifest
from analyzer.model.content import Array
from analyzer.reconciliation import ContentMode, Line, Reconciliation, reconcile_ledger

pytestmark = pytest.mark.slow  # draws random models

steady = settings(derandomize=True, deadline=None, database=None, max_examples=drawn(60))

both = pytest.mark.parametrize("at_hand", [False, True], ids=["manifest", "weights"])

WAYS = [
    "named",
    "turned",
    "reshaped",
    "concatenated",
    "split",
    "copied",
    "tied",
    "tied twice",
    "deduplicated",
]
STORED = ["f4", "f4", "f2", "i1", "u1", "4 bits"]
HARMS = ["drop", "change", "zero", "scale", "cut", "turn rows"]
WIDTH = 16
"""Columns of every matrix: a block of four-bit codes."""


@dataclass
class World:
    """PyTorch's parameters, and the file made from them."""

    arrays: dict[str, Array] = field(default_factory=dict)
    tied: dict[str, str] = field(default_factory=dict)
    groups: list[list[onnx.NodeProto]] = field(default_factory=list)
    """Nodes that belong together, in this order."""
    stored: dict[str, Array] = field(default_factory=dict)
    culprits: list[set[str]] = field(default_factory=list)
    """Names that may identify each harm."""

    @property
    def numel(self) -> int:
        return sum(array.size for array in self.arrays.values())

    @property
    def manifest(self) -> Manifest:
        return manifest_of(
            *(
                parameter(name, array, tied=(self.tied[name],) if name in self.tied else ())
                for name, array in self.arrays.items()
            )
        )

    def proto(self, chance: random.Random | None = None) -> onnx.ModelProto:
        groups, stored = (
            list(self.groups),
            [numpy_helper.from_array(a, name) for name, a in self.stored.items()],
        )
        if chance is not None:
            chance.shuffle(groups)
            chance.shuffle(stored)
        nodes = [node for group in groups for node in group]
        outputs = [
            helper.make_empty_tensor_value_info(node.output[0]) for group in self.groups for node in group
        ]
        graph = helper.make_graph(nodes, "g", [], outputs, stored)
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets)

    def read(self, name: str, module: str, array: Array, stored: str = "f4") -> None:
        """Store a matrix, or its transpose in four bits, and add a product with it in a module."""
        node, output = f"/{module.replace('.', '/')}/MatMul", f"y{len(self.groups)}"
        if stored == "4 bits":
            self.stored |= packed(name, array.T)
            how = {"K": len(array), "N": array.shape[1], "bits": 4, "block_size": WIDTH}
            inputs = ["x", f"{name}_Q4", f"{name}_scales"]
            made = [helper.make_node("MatMulNBits", inputs, [output], node, domain="com.microsoft", **how)]
        elif stored in ("i1", "u1"):
            codes = quantized(name, array, dtype=stored, zero=stored == "u1")
            self.stored |= codes
            made = [
                helper.make_node("DequantizeLinear", list(codes), [f"{name}_dq"], f"{node}_dq"),
                helper.make_node("MatMul", ["x", f"{name}_dq"], [output], node),
            ]
        else:
            self.stored[name] = np.ascontiguousarray(array.astype(stored))
            made = [helper.make_node("MatMul", ["x", name], [output], node)]
        self.groups.append(made)


def store(draw: st.DrawFn, world: World, module: str, way: str) -> str:
    """Store one to three new parameters of a module in the given way, and return the name of the first one's tensor."""
    seed = 10 * len(world.arrays)
    rows = draw(st.integers(2, 6))
    stored = draw(st.sampled_from(STORED))
    weight, nameless = f"{module}.weight", f"val_{len(world.stored)}"
    count = draw(st.integers(2, 3))
    if way == "concatenated":
        parts = {
            f"{module}.{part}.weight": noise(rows, WIDTH, seed=seed + i)
            for i, part in enumerate("qkv"[:count])
        }
        world.arrays |= parts
        world.read(nameless, module, np.concatenate([part.T for part in parts.values()], axis=1), stored)
        return nameless
    if way == "split":
        experts = world.arrays[weight] = noise(count, WIDTH, rows, seed=seed)
        for index, expert in enumerate(experts):
            world.read(f"{nameless}_{index}", module, expert, stored)
        return f"{nameless}_0"
    array = world.arrays[weight] = noise(rows, WIDTH, seed=seed)
    if way == "named":
        world.read(weight, module, array.T, stored)
        return weight
    if way == "reshaped":
        world.read(weight, module, array[None], draw(st.sampled_from(["f4", "f2"])))
        return weight
    world.read(nameless, module, array.T, stored)
    if way == "copied":
        world.read(f"{nameless}_copy", module, array.T, stored)
    elif way.startswith("tied"):
        world.tied[weight] = f"{module}_head.weight"
        if way == "tied twice":
            world.read(
                f"{nameless}_twice", f"{module}_head", array, stored if stored in ("f4", "f2") else "f4"
            )
    elif way == "deduplicated":
        world.arrays[f"{module}_twin.weight"] = array
        again = world.groups[-1][-1]
        node = helper.make_node(
            again.op_type, again.input, ["twin"], f"/{module}_twin/MatMul", domain=again.domain
        )
        node.attribute.extend(again.attribute)
        world.groups[-1].append(node)
        node.output[0] = f"twin_{len(world.groups)}"
    return nameless


def harm(draw: st.DrawFn, world: World, module: str, holder: str, way: str) -> None:
    """Change one stored tensor so that it no longer holds PyTorch's values."""
    name = next(name for name in (holder, f"{holder}_quantized", f"{holder}_Q4") if name in world.stored)
    array = world.stored[name].copy()
    kinds = (
        HARMS if way not in ("copied", "tied twice") else HARMS[1:]
    )  # dropping one of two copies does no harm
    kind = draw(st.sampled_from(kinds))
    world.culprits.append({name, *(known for known in world.arrays if known.startswith(module))})
    is_coded = name != holder
    if kind == "drop":
        del world.stored[name]
        return
    if kind == "zero":
        array[...] = (
            world.stored[f"{holder}_zero_point"]
            if is_coded and not name.endswith("_Q4")
            else 0x88
            if is_coded
            else 0
        )
    elif kind == "scale" and is_coded:
        scale = f"{holder}_scales" if name.endswith("_Q4") else f"{holder}_scale"
        world.stored[scale] = world.stored[scale] * np.float32(3)
    elif kind == "scale":
        array = array * array.dtype.type(2)
    elif kind == "cut" and not name.endswith("_Q4"):
        array = np.ascontiguousarray(array[..., :-1])
    elif kind == "turn rows":
        array = np.ascontiguousarray(array[..., ::-1])
    else:
        flat = array.reshape(-1)
        flat[0] = (
            flat[0] ^ 0x77
            if is_coded and name.endswith("_Q4")
            else flat[0] ^ 0x3F
            if is_coded
            else flat[0] + 1
        )
    world.stored[name] = array


@st.composite
def worlds(draw: st.DrawFn, *, harmed: bool = False) -> World:
    """Draw up to five modules, an exporter's constants, and perhaps harm to the file."""
    world = World()
    for index in range(draw(st.integers(1, 5))):
        module, way = f"layer{index}", draw(st.sampled_from(WAYS))
        holder = store(draw, world, module, way)
        if harmed and draw(st.booleans()):
            harm(draw, world, module, holder, way)
        if draw(st.booleans()):
            shape = f"shape_{index}"
            world.stored[shape] = np.array([1, -1, index])
            world.groups.append([helper.make_node("Reshape", ["x", shape], [f"r{index}"])])
    if harmed and (not world.culprits or draw(st.booleans())):
        name = draw(st.sampled_from(["extra.weight", "onnx::MatMul_99"]))
        world.read(name, "extra", noise(WIDTH, 7, seed=999))
        world.culprits.append({name})
    return world


def reconciled(
    world: World, *, at_hand: bool, content: ContentMode = "full", chance: random.Random | None = None
) -> Reconciliation:
    manifest, weights = world.manifest, None
    if at_hand:
        manifest, weights = without_values(manifest), AtHand(world.arrays)
    with TemporaryDirectory() as folder:
        return reconcile_ledger(audit(Path(folder), world.proto(chance)), manifest, content, weights=weights)


def lines(result: Reconciliation) -> dict[str, Any]:
    return {
        line.name: (line.line, line.chain, line.decided_by, line.max_abs_error) for line in result.parameters
    }


def check_sums(world: World, result: Reconciliation) -> None:
    """Check the identities of the contract, counted independently."""
    assert result.manifest.numel == world.numel
    assert world.numel + sum(row.parameter_delta for row in result.bridge) == result.onnx_parameters
    assert world.numel + sum(row.stored_delta for row in result.bridge) == result.ledger.stored_elements
    assert sum(array.size for array in world.stored.values()) == result.ledger.stored_elements
    assert sum(row.nbytes for row in result.bridge) == sum(array.nbytes for array in world.stored.values())
    assert sum(line.learned for line in result.entries) == result.onnx_parameters
    assert {line.name for line in result.parameters} == set(world.arrays)
    assert {line.key[1] for line in result.entries} == set(world.stored)
    # Each line has the elements of its parameters, and of entries that hold no parameter.
    again = {Line.COPIED, Line.DUPLICATED_FILE}
    line_of = {line.key: line.line for line in result.entries}
    counted = {key for line in result.parameters for key in line.entries if line_of[key] not in again}
    expected: Counter[Line] = Counter()
    for parameter_line in result.parameters:
        expected[parameter_line.line] += world.arrays[parameter_line.name].size
    for entry in result.entries:
        if entry.key not in counted:
            expected[entry.line] += world.stored[entry.key[1]].size
    assert {row.line: row.elements for row in result.bridge if row.elements} == {
        k: v for k, v in expected.items() if v
    }


@both
@pytest.mark.parametrize("content", ["sampled", "full"])
@steady
@given(world=worlds())
def test_what_nobody_touched_balances_and_adds_up(content, at_hand, world):
    result = reconciled(world, at_hand=at_hand, content=content)

    assert result.balanced, (result.findings, lines(result))
    check_sums(world, result)


@both
@pytest.mark.parametrize("content", ["sampled", "full"])
@steady
@given(world=worlds(harmed=True))
def test_whatever_was_done_to_a_file_unbalances_it_and_is_named(content, at_hand, world):
    result = reconciled(world, at_hand=at_hand, content=content)

    reported = {subject for finding in result.findings for subject in finding.subjects}
    assert not result.balanced
    assert all(reported & names for names in world.culprits), (reported, world.culprits)
    check_sums(world, result)


@steady
@given(world=worlds(harmed=True))
def test_sums_are_right_where_no_values_are_compared(world):
    check_sums(world, reconciled(world, at_hand=False, content="none"))


@both
@steady
@given(world=worlds(harmed=True), chance=st.randoms(use_true_random=False))
def test_order_of_initializers_and_nodes_decides_nothing(at_hand, world, chance: random.Random):
    before = reconciled(world, at_hand=at_hand)
    after = reconciled(world, at_hand=at_hand, chance=chance)

    assert after.bridge == before.bridge
    assert lines(after) == lines(before)


@both
@steady
@given(world=worlds())
def test_parameters_that_the_file_holds_are_counted_once(at_hand, world):
    result = reconciled(world, at_hand=at_hand)

    twins = sum(array.size for name, array in world.arrays.items() if name.endswith("_twin.weight"))
    assert result.onnx_parameters == world.numel - twins
