"""A kind of fault -> words in a report that name its cause."""

from __future__ import annotations

import re
from collections.abc import Sequence

_WEIGHT = r"weight|bias|\.gamma|its values in the file|it is read in place|does not hold|table|PyTorch has"
_PLANTED = r"which (PyTorch|the other file) does not have|nothing in PyTorch"
_WORDS: Sequence[tuple[str, str]] = (
    (r"epsilon", r"epsilon|eps"),
    (r"dropout", r"random numbers"),
    (
        r"skip connection|late activation",
        r"it reads the result|residual|skipped|no output depends|" + _WEIGHT,
    ),
    (r"bypassed|term left out", r"left out|without its|skipped|no output depends|" + _WEIGHT),
    (r"axis|mean over another", r"axis|mean"),
    (
        r"activation (replaced|negated)|every activation",
        r"Relu|Gelu|Silu|Tanh|Sigmoid|Elu|Neg|-1 times|Erf|Cos|operator|left out",
    ),
    (r"Gelu's", r"Gelu"),
    (r"slope", r"alpha|slope"),
    (r"mask", r"mask|Where|factor"),
    (
        r"residual|branch|stack|layer|skip connection",
        r"residual|skipped|twice|layer|term|Sub|Mul|factor|block|stages|half|h\.",
    ),
    (r"bias|C of|beta", r"bias|weight|Sub|term|scale|factor|" + _WEIGHT),
    (r"factor|scores scaled|alpha|sign|constant", r"scale|factor|constant|by|Neg|times|" + _WEIGHT),
    (
        r"perm|heads|order|Concat|rotary|exchanged|keys",
        r"transposed|order|exchanged|input|Concat|key|query|" + _WEIGHT,
    ),
    (
        r"pads|dilations|kernel|pool|padding",
        r"pads|dilations|kernel|Pool|pool|Reduce|padding|count|maximum|mean|transposed|flipped|" + _WEIGHT,
    ),
    (r"output", r"output|scale|Softmax|which PyTorch|Cast|nothing in PyTorch"),
    (r"position|words|table|Gather", r"ids|table|rows|weight|index|" + _WEIGHT),
)
_GROUPS = {
    "quantizers": r"is rounded to codes",
    "planted": _PLANTED + r"|an extra \w+, and no",
    "content": _WEIGHT,
    "orientation": _WEIGHT + r"|transposed|flipped",
    "hollow": _WEIGHT + "|" + _PLANTED,
    "folded-factor": _WEIGHT + r"|scale|times",
    "tables": _WEIGHT + r"|ids|output|rows|" + _PLANTED,
    "forged": _WEIGHT + "|" + _PLANTED + r"|an extra \w+, and no",
}


def is_named(kind: str, reason: str, kinds: Sequence[str]) -> bool:
    """Whether the report names a cause, and the cause is the kind's own."""
    if not kinds:
        return False
    group, _, title = kind.partition("/")
    words = _GROUPS.get(group)
    if words is None:
        words = next(
            (pattern for title_pattern, pattern in _WORDS if re.search(title_pattern, title)),
            _WEIGHT + r"|input|operator",
        )
    return re.search(words, reason) is not None
