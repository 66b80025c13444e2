"""The bridge as a whole: its sums, verdict, named culprits and lines, and the ledger in PyTorch's terms."""

from __future__ import annotations

import numpy as np
import pytest
from models import (
    audit,
    bridge_of,
    buffer,
    dynamo_like,
    manifest_of,
    parameter,
    ramp,
    reconcile,
    text_model,
    without_values,
)

from analyzer.account.group import group_by
from analyzer.errors import LedgerError
from analyzer.reconciliation import Line, Reconciliation, reconcile_ledger, verdict
from analyzer.reconciliation.lines import MEANINGS, RETYPED, UNBALANCED, name_of


def everything(tmp_path) -> Reconciliation:
    """Reconcile a file that has most kinds of lines."""
    wte, fc, gone = ramp(4, 3), ramp(3, 3, start=20), ramp(2, 2, start=50)
    proto = text_model(
        """
        g (int64[1,4] ids) => (float[1,4,4] y) {
            ["/wte/Gather"] h0 = Gather("wte.weight", ids)
            ["/fc/Gemm"] h1 = Gemm(h0, val_1, "fc.bias")
            ["/out/Gemm"] h2 = Gemm(h1, h1, "fc.bias")
            h3 = Sub(h2, "norm.running_mean")
            h4 = Reshape(h3, shape)
            h5 = MatMul(h4, "extra.weight")
            y = MatMul(h5, head)
        }
        """,
        {
            "wte.weight": wte,
            "val_1": fc.T.copy(),
            "fc.bias": ramp(3),
            "norm.running_mean": ramp(3, start=80),
            "shape": np.array([4, 3]),
            "extra.weight": ramp(3, 3, start=90),
            "head": wte.T.copy(),
        },
    )
    manifest = manifest_of(
        parameter("wte.weight", wte, tied=("head.weight",)),
        parameter("fc.weight", fc, trainable=False),
        parameter("fc.bias", ramp(3)),
        parameter("out.bias", ramp(3)),
        parameter("gone.weight", gone),
        parameter("idle.weight", ramp(7, start=70), read=False),
        buffer("norm.running_mean", ramp(3, start=80)),
        trace="exported-program",
    )
    return reconcile(tmp_path, dynamo_like(proto, folded={"val_1": ["fc.weight"]}), manifest)


def test_every_line_has_its_hand_counted_deltas(tmp_path):
    result = everything(tmp_path)

    # PyTorch: 12 + 9 + 3 + 3 + 4 + 7 = 38
    assert bridge_of(result) == {
        "identical": (2, 15, 0, 0),  # wte.weight, fc.bias
        "transposed": (1, 9, 0, 0),
        "deduplicated": (1, 3, -3, -3),
        "copied": (1, 12, 0, 12),
        "unused": (1, 7, -7, -7),
        "buffer": (1, 3, 0, 3),
        "added": (1, 2, 0, 2),
        "missing": (1, 4, -4, -4),
        "unexpected": (1, 9, 9, 9),
    }


def test_both_sums_lead_from_pytorch_to_the_file(tmp_path):
    result = everything(tmp_path)

    assert (result.manifest.numel, result.onnx_parameters, result.ledger.stored_elements) == (38, 33, 50)
    assert 38 + sum(row.parameter_delta for row in result.bridge) == 33
    assert 38 + sum(row.stored_delta for row in result.bridge) == 50


def test_bytes_of_the_lines_sum_to_the_stored_bytes(tmp_path):
    result = everything(tmp_path)

    assert sum(row.nbytes for row in result.bridge) == result.ledger.stored_nbytes
    assert all(type(row.nbytes) is int for row in result.bridge)


def test_bridge_has_every_line_in_order_also_the_empty_ones(tmp_path):
    assert [row.line for row in everything(tmp_path).bridge] == list(Line)


def test_every_parameter_and_every_entry_has_one_line(tmp_path):
    result = everything(tmp_path)

    assert [p.name for p in result.parameters] == [p.name for p in result.manifest.parameters]
    assert [e.key for e in result.entries] == [e.tensor.key for e in result.ledger.entries]


def test_findings_name_the_culprits(tmp_path):
    found = {finding.id: finding.subjects for finding in everything(tmp_path).findings}

    assert found == {
        "missing": ("gone.weight",),
        "unexpected": ("extra.weight",),
        "untied-weights": ("head = wte.weight (wte.weight, head.weight)",),
    }


def test_what_unbalances_is_an_error_and_what_balances_is_none(tmp_path):
    severities = {finding.id: finding.severity.value for finding in everything(tmp_path).findings}

    assert severities == {"missing": "error", "unexpected": "error", "untied-weights": "warning"}


@pytest.mark.parametrize("requested", [None, "none", "sampled", "full"])
def test_verdict_says_how_far_values_were_compared(tmp_path, requested):
    proto = text_model(
        'g (float[1,3] x) => (float[1,2] y) { y = MatMul(x, "fc.weight") }', {"fc.weight": ramp(3, 2)}
    )
    manifest = manifest_of(parameter("fc.weight", ramp(3, 2)))

    described = reconcile(tmp_path, proto, manifest, requested)
    at_hand = reconcile(tmp_path, proto, manifest, requested, {"fc.weight": ramp(3, 2)})
    bare = reconcile(tmp_path, proto, without_values(manifest), requested if requested == "none" else None)

    assert (described.content, at_hand.content, bare.content) == (
        requested or "full",
        requested or "full",
        "none",
    )


@pytest.mark.parametrize(
    ("content", "compared"),
    [
        ("none", {"whole": 0, "sampled": 0, "none": 10}),
        ("sampled", {"whole": 0, "sampled": 6, "none": 4}),
        ("full", {"whole": 6, "sampled": 0, "none": 4}),
    ],
)
def test_elements_are_counted_by_how_far_their_values_were_compared(tmp_path, content, compared):
    proto = text_model(
        'g (float[1,3] x) => (float[1,2] y) { y = MatMul(x, "fc.weight") }', {"fc.weight": ramp(3, 2)}
    )
    manifest = manifest_of(parameter("fc.weight", ramp(3, 2)), parameter("gone.weight", ramp(2, 2, start=50)))

    assert reconcile(tmp_path, proto, manifest, content).compared == compared


def test_model_against_an_empty_manifest_is_unexpected(tmp_path):
    proto = text_model("g (float[1,3] x) => (float[1,2] y) { y = MatMul(x, w) }", {"w": ramp(3, 2)})

    result = reconcile(tmp_path, proto, manifest_of())

    assert bridge_of(result) == {"unexpected": (1, 6, 6, 6)}


def test_empty_model_against_an_empty_manifest_balances(tmp_path):
    assert reconcile(tmp_path, text_model("g () => () { }"), manifest_of()).balanced


def test_bridge_that_leads_nowhere_is_a_defect_and_no_result(tmp_path, monkeypatch):
    monkeypatch.setattr(verdict, "_count_parameters", lambda books: 999)
    proto = text_model(
        'g (float[1,3] x) => (float[1,2] y) { y = MatMul(x, "fc.weight") }', {"fc.weight": ramp(3, 2)}
    )

    with pytest.raises(LedgerError, match=r"the bridge leads to 6 parameters .* the file has 999"):
        reconcile(tmp_path, proto, manifest_of(parameter("fc.weight", ramp(3, 2))))


def test_name_stored_twice_in_one_graph_still_adds_up(tmp_path):
    proto = text_model(
        'g (float[1,3] x) => (float[1,2] y) { y = MatMul(x, "fc.weight") }', {"fc.weight": ramp(3, 2)}
    )
    proto.graph.initializer.append(proto.graph.initializer[0])

    result = reconcile(tmp_path, proto, manifest_of(parameter("fc.weight", ramp(3, 2))))

    assert result.manifest.numel + sum(row.stored_delta for row in result.bridge) == 12


def test_groups_in_pytorchs_terms_count_what_pytorch_counts(tmp_path):
    result = everything(tmp_path)

    grouping = group_by(result.in_pytorch_terms(), depth=1, known=result.trainability)

    groups = {part.name: (part.parameters, part.trainable, part.frozen) for part in grouping.groups}
    assert groups["wte"] == (12, 12, 0)
    assert groups["fc"] == (12, 3, 9)
    assert sum(part.parameters for part in grouping.groups) == result.onnx_parameters


def test_four_bit_weights_are_counted_logically_on_both_sides(tmp_path):
    proto = text_model(
        "g (float[1,64] x) => (float[1,4] y) { y = com.microsoft.MatMulNBits<K = 64, N = 4>(x, q, s) }",
        {"q": np.arange(128, dtype="u1").reshape(4, 2, 16), "s": ramp(8)},
    )
    ledger = audit(tmp_path, proto)

    result = reconcile_ledger(ledger, manifest_of(parameter("fc.weight", ramp(4, 64))))

    assert ledger.parameters == 256
    assert result.onnx_parameters == ledger.parameters


def test_reconciling_leaves_the_ledger_as_it_was(tmp_path):
    proto = text_model(
        'g (float[1,3] x) => (float[1,2] y) { y = MatMul(x, "fc.weight") }', {"fc.weight": ramp(3, 2)}
    )
    ledger = audit(tmp_path, proto)
    before = ledger.entries

    reconcile_ledger(ledger, manifest_of(parameter("fc.weight", ramp(3, 2))))

    assert ledger.entries == before


def test_progress_reports_the_bytes_read_out_of_all_that_are_stored(tmp_path):
    weight = ramp(20, 30)
    proto = text_model('g (float[1,30] x) => (float[1,20] y) { y = MatMul(x, "w") }', {"w": weight.T.copy()})
    steps: list[tuple[int, int]] = []

    reconcile_ledger(
        audit(tmp_path, proto),
        manifest_of(parameter("fc.weight", weight)),
        progress=lambda *step: steps.append(step),
    )

    assert steps
    assert steps[-1] == (2400, 2400)


# explanations of the bridge's lines: each has every field, once

everyone = pytest.mark.parametrize("line", Line)


def test_every_line_has_a_meaning_in_the_order_of_the_report() -> None:
    assert list(MEANINGS) == list(Line)


@everyone
def test_a_line_that_changes_values_names_what_was_moved_and_copied_besides(line: Line) -> None:
    chain = (Line.TRANSPOSED, line, Line.COPIED)

    assert name_of(chain) is (line if MEANINGS[line].changes_values else Line.COPIED)


@everyone
def test_lines_that_do_not_balance_have_a_sentence_for_one_and_for_many(
    line: Line,
) -> None:
    assert len(set(MEANINGS[line].unbalanced)) == (2 if line in UNBALANCED else 0)


@everyone
def test_what_is_wrong_explains_no_formula(line: Line) -> None:
    assert not (MEANINGS[line].unbalanced and MEANINGS[line].in_formula)


@everyone
def test_a_table_that_is_cut_is_explained_to_a_formula(line: Line) -> None:
    assert MEANINGS[line].in_formula or not MEANINGS[line].is_cut


@everyone
def test_what_is_not_stored_is_explained_to_a_formula_or_is_missing(line: Line) -> None:
    meaning = MEANINGS[line]

    assert meaning.has_tensor or meaning.in_formula or line is Line.MISSING


@pytest.mark.parametrize(
    "name",
    ["folded-batchnorm", "folded-weightnorm", "folded-pointwise", "cast", "quantized", "block-quantized"],
)
def test_what_is_computed_rounded_or_coded_changes_values(name: str) -> None:
    assert MEANINGS[Line(name)].changes_values
    assert (Line(name) in RETYPED) is not name.startswith("folded")


def test_the_lines_that_keep_an_account_from_balancing_are_these() -> None:
    assert [line.value for line in UNBALANCED] == [
        *("differing", "missing", "unexpected", "unexplained"),
        *("misplaced", "dead", "opaque", "not-compared"),
    ]


@pytest.mark.parametrize(
    ("values", "names"),
    [
        (
            "kept",
            "identical named renamed transposed reshaped sliced gathered broadcast concatenated tied deduplicated "
            "copied duplicated-file",
        ),
        ("cast", "cast"),
        ("coded", "quantized block-quantized"),
        ("computed", "folded-batchnorm folded-weightnorm folded-pointwise evaluated"),
        (
            "none",
            "removed-zero unused outside buffer added quantization differing missing unexpected unexplained "
            "misplaced dead opaque not-compared",
        ),
    ],
)
def test_lines_are_grouped_by_what_became_of_their_values(values: str, names: str) -> None:
    assert [line.value for line, meaning in MEANINGS.items() if meaning.values == values] == names.split()


def test_the_lines_of_a_cut_table_and_of_what_has_no_tensor_are_these() -> None:
    cut = [line.value for line, meaning in MEANINGS.items() if meaning.is_cut is not False]
    bare = [line.value for line, meaning in MEANINGS.items() if meaning.has_tensor is not True]

    assert cut == ["sliced", "gathered", "broadcast"]
    assert bare == ["deduplicated", "removed-zero", "unused", "outside", "missing"]


@everyone
def test_booleans_are_printed_as_yes_and_no_and_sentences_begin_and_end_with_a_word(line: Line) -> None:
    meaning = MEANINGS[line]

    assert {type(meaning.is_cut), type(meaning.has_tensor)} == {bool}
    for sentence in (*meaning.unbalanced, meaning.lost, meaning.in_formula):
        assert not {sentence[:1], sentence[-1:]} & set(" .X")
