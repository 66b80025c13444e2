"""Lines that a name decides, with the content that must go with it."""

from __future__ import annotations

import numpy as np
import pytest
from models import (
    Floats,
    as_it_stands,
    bridge_of,
    buffer,
    dynamo_like,
    lines_of,
    manifest_of,
    parameter,
    ramp,
    reconcile,
    text_model,
)

from analyzer.reconciliation.lines import Piece

FC = ramp(2, 3)


def linear(name: str, stored: np.ndarray, node: str = "n"):
    return text_model(
        f'g (float[1,3] x) => (float[1,2] y) {{ ["{node}"] y = MatMul(x, "{name}") }}', {name: stored}
    )


def folded(stored: np.ndarray, *sources: str):
    return dynamo_like(linear("val_1", stored), folded={"val_1": list(sources)})


def with_one_changed(array: Floats, position: int = 0, by: float = 0.5) -> Floats:
    changed = array.copy()
    changed.reshape(-1)[position] += np.float32(by)
    return changed


@pytest.mark.parametrize("content", ["none", "sampled", "full"])
def test_same_name_and_content_is_identical_and_without_content_named(tmp_path, content):
    result = reconcile(tmp_path, linear("fc.weight", FC), manifest_of(parameter("fc.weight", FC)), content)

    assert bridge_of(result) == {as_it_stands(content): (1, 6, 0, 0)}
    assert result.balanced
    assert result.parameters[0].max_abs_error == (None if content == "none" else 0.0)


def test_rule_says_whether_content_was_compared(tmp_path):
    proto, manifest = linear("fc.weight", FC), manifest_of(parameter("fc.weight", FC))

    assert reconcile(tmp_path, proto, manifest, "full").parameters[0].decided_by == "name+content"
    assert reconcile(tmp_path, proto, manifest, "none").parameters[0].decided_by == "name+shape"


@pytest.mark.parametrize("content", ["none", "sampled", "full"])
def test_other_name_by_the_exporters_note_is_renamed(tmp_path, content):
    result = reconcile(tmp_path, folded(FC, "fc.weight"), manifest_of(parameter("fc.weight", FC)), content)

    assert bridge_of(result) == {"renamed": (1, 6, 0, 0)}


@pytest.mark.parametrize("content", ["none", "sampled", "full"])
@pytest.mark.parametrize("shape", [(2, 3), (3, 3), (100, 7)])
def test_matrix_that_the_exporter_folded_is_transposed(tmp_path, content, shape):
    weight = ramp(*shape)

    result = reconcile(
        tmp_path, folded(weight.T.copy(), "fc.weight"), manifest_of(parameter("fc.weight", weight)), content
    )

    assert bridge_of(result) == {"transposed": (1, weight.size, 0, 0)}
    assert result.balanced


@pytest.mark.parametrize("content", ["none", "sampled", "full"])
def test_same_elements_in_another_shape_are_reshaped(tmp_path, content):
    manifest = manifest_of(parameter("fc.weight", FC.reshape(6)))

    result = reconcile(tmp_path, linear("fc.weight", FC), manifest, content)

    assert bridge_of(result) == {"reshaped": (1, 6, 0, 0)}
    assert result.balanced


@pytest.mark.parametrize("content", ["sampled", "full"])
def test_same_name_with_another_value_is_differing_by_its_error(tmp_path, content):
    result = reconcile(
        tmp_path,
        linear("fc.weight", with_one_changed(FC, by=-0.5)),
        manifest_of(parameter("fc.weight", FC)),
        content,
    )

    assert bridge_of(result) == {"differing": (1, 6, 0, 0)}
    assert not result.balanced
    assert result.parameters[0].max_abs_error == 0.5
    assert [(f.id, f.subjects) for f in result.findings] == [("differing", ("fc.weight",))]


def test_names_alone_do_not_see_another_value(tmp_path):
    result = reconcile(
        tmp_path, linear("fc.weight", with_one_changed(FC)), manifest_of(parameter("fc.weight", FC)), "none"
    )

    assert (result.balanced, result.content) == (True, "none")


@pytest.mark.parametrize(("content", "line"), [("sampled", "identical"), ("full", "differing")])
def test_value_between_the_samples_is_seen_by_whole_contents_only(tmp_path, content, line):
    weight = ramp(100, 90)

    result = reconcile(
        tmp_path,
        linear("fc.weight", with_one_changed(weight, position=1)),
        manifest_of(parameter("fc.weight", weight)),
        content,
    )

    assert lines_of(result) == {"fc.weight": line}


@pytest.mark.parametrize("content", ["none", "sampled", "full"])
@pytest.mark.parametrize(("stored", "delta"), [((2, 4), 2), ((2, 2), -2)])
def test_same_name_with_more_or_fewer_elements_is_differing_by_as_many(tmp_path, content, stored, delta):
    result = reconcile(
        tmp_path, linear("fc.weight", ramp(*stored)), manifest_of(parameter("fc.weight", FC)), content
    )

    assert bridge_of(result) == {"differing": (1, 6, delta, delta)}
    assert result.onnx_parameters == 6 + delta


def test_same_elements_in_another_dtype_are_not_identical(tmp_path):
    result = reconcile(
        tmp_path, linear("fc.weight", FC.astype("f8")), manifest_of(parameter("fc.weight", FC)), "full"
    )

    assert lines_of(result)["fc.weight"] != "identical"


def test_parameter_folded_twice_is_held_once_and_copied_once(tmp_path):
    proto = text_model(
        "g (float[1,3] x) => (float[1,2] y) { a = MatMul(x, val_1) y = MatMul(x, val_2) }",
        {"val_1": FC.T.copy(), "val_2": FC.T.copy()},
    )
    proto = dynamo_like(proto, folded={"val_1": ["fc.weight"], "val_2": ["fc.weight"]})

    result = reconcile(tmp_path, proto, manifest_of(parameter("fc.weight", FC)))

    assert bridge_of(result) == {"transposed": (1, 6, 0, 0), "copied": (1, 6, 0, 6)}
    assert result.parameters[0].chain == ("transposed", "copied")
    assert (result.onnx_parameters, result.ledger.stored_elements) == (6, 12)


def test_tensor_stored_as_pytorch_has_it_is_the_original_of_its_transposed_copy(tmp_path):
    proto = text_model(
        'g (float[1,3] x) => (float[1,2] y) { a = MatMul(x, val_1) y = Gather("fc.weight", a) }',
        {"val_1": FC.T.copy(), "fc.weight": FC},
    )

    result = reconcile(
        tmp_path, dynamo_like(proto, folded={"val_1": ["fc.weight"]}), manifest_of(parameter("fc.weight", FC))
    )

    assert bridge_of(result) == {"identical": (1, 6, 0, 0), "copied": (1, 6, 0, 6)}
    assert result.parameters[0].entries == (((), "fc.weight"), ((), "val_1"))


def test_copy_of_other_content_is_differing(tmp_path):
    proto = text_model(
        'g (float[1,3] x) => (float[1,2] y) { a = MatMul(x, val_1) y = Gather("fc.weight", a) }',
        {"val_1": with_one_changed(FC).T.copy(), "fc.weight": FC},
    )

    result = reconcile(
        tmp_path, dynamo_like(proto, folded={"val_1": ["fc.weight"]}), manifest_of(parameter("fc.weight", FC))
    )

    assert bridge_of(result)["differing"] == (1, 6, 0, 6)
    assert not result.balanced


# buffers


def running_mean(stored: np.ndarray, known: np.ndarray, tmp_path, content="full"):
    proto = text_model(
        'g (float[3] x) => (float[3] y) { y = Sub(x, "bn.running_mean") }', {"bn.running_mean": stored}
    )
    return reconcile(tmp_path, proto, manifest_of(buffer("bn.running_mean", known)), content)


@pytest.mark.parametrize("content", ["none", "sampled", "full"])
def test_buffer_is_stored_and_no_parameter(tmp_path, content):
    result = running_mean(ramp(3), ramp(3), tmp_path, content)

    assert bridge_of(result) == {"buffer": (1, 3, 0, 3)}
    assert result.balanced
    assert [line.piece for line in result.entries] == [Piece(((), "bn.running_mean"), (3,), (0,))]


def test_buffer_of_other_content_under_its_own_name_is_differing(tmp_path):
    result = running_mean(ramp(3, start=9), ramp(3), tmp_path)

    assert bridge_of(result) == {"differing": (1, 3, 0, 3)}
    assert not result.balanced


def test_buffer_that_was_cut_while_folding_is_a_buffer(tmp_path):
    proto = text_model("g (float[2] x) => (float[2] y) { y = Add(x, val_1) }", {"val_1": ramp(2)})
    proto = dynamo_like(proto, folded={"val_1": ["rotary.inv_freq"]})

    result = reconcile(tmp_path, proto, manifest_of(buffer("rotary.inv_freq", ramp(3))))

    assert bridge_of(result) == {"buffer": (1, 2, 0, 2)}
    assert [(line.decided_by, line.piece) for line in result.entries] == [("provenance+derived", None)]


# ties


@pytest.mark.parametrize("stored_as", ["wte.weight", "head.weight"])
def test_tied_parameter_stored_once_is_tied_whatever_its_name(tmp_path, stored_as):
    manifest = manifest_of(parameter("wte.weight", FC, tied=("head.weight",)))

    result = reconcile(tmp_path, linear(stored_as, FC), manifest)

    assert bridge_of(result) == {"tied": (1, 6, 0, 0)}
    assert result.parameters[0].chain == ("identical", "tied")
    assert result.parameters[0].name == "wte.weight"


def test_tied_parameter_stored_under_both_names_is_copied(tmp_path):
    proto = text_model(
        'g (float[1,3] x) => (float[1,3] y) { h = Gather("wte.weight", x) y = Gather("head.weight", h) }',
        {"wte.weight": FC, "head.weight": FC},
    )

    result = reconcile(tmp_path, proto, manifest_of(parameter("wte.weight", FC, tied=("head.weight",))))

    assert bridge_of(result) == {"identical": (1, 6, 0, 0), "copied": (1, 6, 0, 6)}
    assert result.balanced


@pytest.mark.parametrize("content", ["full", "sampled"])
def test_content_that_cannot_be_read_proves_nothing(tmp_path, content):
    proto = text_model("g (float[2] x) => (float[3] y) { y = MatMul(x, fcw) }", {"fcw": ramp(2, 3)})
    proto.graph.initializer[0].raw_data = b"short"

    result = reconcile(tmp_path, proto, manifest_of(parameter("fcw", ramp(2, 3))), content)

    assert not result.balanced
    assert (result.parameters[0].line.value, result.parameters[0].decided_by) == (
        "differing",
        "none:unreadable",
    )


def test_another_dtype_is_a_cast_where_contents_are_not_compared(tmp_path):
    proto = text_model(
        "g (float[2] x) => (float[3] y) { y = MatMul(x, fcw) }", {"fcw": ramp(2, 3).astype("f2")}
    )

    result = reconcile(tmp_path, proto, manifest_of(parameter("fcw", ramp(2, 3))), "none")

    assert result.parameters[0].line.value == "cast"
