"""Reports of formulas, made by hand or from configs: one of each kind, and one with hostile names."""

from __future__ import annotations

from typing import Any

from analyzer.formulas.counting import count_config
from analyzer.formulas.record import (
    Certainty,
    Checked,
    Formula,
    FormulaReport,
    Kind,
    PartCount,
    Reason,
    Side,
    TermCount,
)

BERT = {"model_type": "bert", "architectures": ["BertForMaskedLM"], "vocab_size": 21128}
"""Config of bert-base-chinese."""

HOSTILE = "a|b $x$ \\input{f}_<i>`c`*\x1b[31m\u202e\n& # ~^%"
"""Text that would end a cell, begin mathematics, be a command or a tag, or control the terminal."""


def count(config: dict[str, Any], **options: Any) -> Formula:
    """Return the closed form of a config."""
    found = count_config(config, **options)
    assert found is not None
    return found


def bert(**options: Any) -> Formula:
    """Return the masked language model of bert-base-chinese."""
    return count(BERT, **{"source": "bert-base-chinese", **options})


def plain() -> FormulaReport:
    """Return a closed form alone."""
    return FormulaReport(Checked(bert()))


def symbolic() -> FormulaReport:
    """Return the same without numbers."""
    return FormulaReport(Checked(bert()), is_symbolic=True)


def compared() -> FormulaReport:
    """Return the same beside PyTorch and a file that has a pooler, a padded vocabulary and an unknown tensor."""
    formula = bert()
    counts = {part.key: part.value for part in formula.parts}
    more = {
        "pooler/pooler": 590_592,
        "embeddings/word embeddings": counts["embeddings/word embeddings"] + 6_144,
    }
    census = Side("BertForMaskedLM", "census", counts, {}, {})
    model = Side("model.onnx", "model", counts | more, {}, {"extra.weight": 77})
    reasons = (
        Reason("embeddings/word embeddings", 6_144, "the vocabulary is padded from 21,128 to 21,136"),
        Reason("pooler/pooler", 590_592, "present, as in BertModel"),
        Reason("[no term]", 77, "a tensor whose names match no term", Certainty.UNEXPLAINED),
    )
    return FormulaReport(Checked(formula, census, model, reasons), stamp="2025-01-31T12:00:00+00:00")


def agreeing() -> FormulaReport:
    """Return the same beside a census with equal counts."""
    formula = bert()
    counts = {part.key: part.value for part in formula.parts}
    return FormulaReport(Checked(formula, Side("BertForMaskedLM", "census", counts, {}, {})))


def what_if() -> FormulaReport:
    """Return the same with half the layers, cross-attention and an untied output matrix."""
    changes = {"num_hidden_layers": 6, "add_cross_attention": True, "tie_word_embeddings": False}
    return FormulaReport(Checked(bert(changes=changes)), before=bert())


def experts() -> FormulaReport:
    """Return a decoder of which a token uses a part, and whose cache has a window."""
    config = {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "sliding_window": 4096}
    return FormulaReport(Checked(count(config, source="mixtral")), tokens=8192)


def shared() -> FormulaReport:
    """Return one layer that is applied twelve times."""
    config = {"model_type": "albert", "architectures": ["AlbertModel"], "hidden_size": 768}
    sizes = {"intermediate_size": 3072, "num_attention_heads": 12}
    return FormulaReport(Checked(count(config | sizes, source="albert-base-v2")))


def two_stacks() -> FormulaReport:
    """Return an encoder and a decoder with a cache for both."""
    config = {"model_type": "whisper", "architectures": ["WhisperForConditionalGeneration"]}
    return FormulaReport(Checked(count(config, source="whisper-tiny")))


def derived(terms: int = 3, parts: int = 4, name: str = "") -> FormulaReport:
    """Return derived terms, whose names come from a file."""
    made = [
        TermCount(
            f"Linear {size}x{size} + {size}{name}",
            tuple(
                _found(f"{name}stage.{number}.*.dense", f"Linear {size}x{size} + {size}{name}", size)
                for number in range(parts)
            ),
        )
        for size in range(8, 8 + terms)
    ]
    formula = Formula(
        source=name or "somewhere/config.json",
        kind=Kind.DERIVED,
        family=name or "resnet",
        class_name=name or "ResNetModel",
        fields=(),
        terms=tuple(made),
        notes=(f"derived, not a closed form: from the meta device's census of {name or 'ResNetModel'}",),
    )
    counts = {part.key: part.value for part in formula.parts}
    model = Side(name or "model.onnx", "model", counts, {}, {f"{name}extra": 5})
    reason = Reason(f"{name}extra", 5, f"belongs to no term {name}", Certainty.UNEXPLAINED)
    return FormulaReport(Checked(formula, None, model, (reason,)))


def _found(name: str, term: str, size: int) -> PartCount:
    each = size * size + size
    shown = f"3*({size}*{size} + {size})"
    return PartCount(name, term, 3, each, size, 3 * each, f"the census of {name}", f"{name}\\Z", shown=shown)


def hostile() -> FormulaReport:
    """Return the same with hostile names."""
    return derived(name=HOSTILE)


REPORTS = (plain, symbolic, compared, agreeing, what_if, experts, shared, two_stacks, derived, hostile)
