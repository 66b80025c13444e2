"""Known causes of cells that do not balance."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from tools.matrix.wide.account import Outcome

_STATE_ALONE = (
    "a state dict does not say what forward computes of its parameters, nor which of them it reads: the class does, "
    "or the manifest of an export"
)
_CAUSES: tuple[tuple[str, str], ...] = (
    (
        "lstm_projected/*",
        "the exporter cuts an LSTM with a projection: 12 of 28 rows of each gate are in the file, which computes "
        "something else",
    ),
    ("rnn_cells/*/ort-all", "biases repeated for each example; the order of the gates in them is not proved"),
    ("norm_zoo/*/ort-all", "a BatchNorm of blocked channels, its statistics folded into gain and bias"),
    (
        "rotary_shifted/*/ort-extended",
        "the factor and another number together became the attribute alpha of a FusedMatMul",
    ),
    ("clip/*/qdq", "codes of a class token, repeated for two examples"),
    ("timm_xcit/dynamo/*", "what the program computes for one example is stored for two"),
    (
        "window_attention/dynamo-raw/*",
        "the exporter gave two values one name, `index`: onnxruntime refuses the file",
    ),
    (
        "llama-yarn/genai-*",
        "the builder writes frequencies without YaRN's scaling: the file computes something else",
    ),
    (
        "torchvision_detector/*/qoperator",
        "five convolutions share one bias of codes, which has one scale in the file",
    ),
    ("torchvision_inception/*/qdq", "the BatchNorms' eps of 1e-3 is not solved from codes"),
    (
        "torchvision_swin_v2/dynamo/*",
        "positions of the windows that the program computes with are worked out by nobody",
    ),
    ("detr/*/ort-basic", "a query of a value of the program is stored times the root of attention's scale"),
    ("detr/*", "the decoder's first queries are zeros, which the program of free sizes does not say"),
    ("speecht5/legacy-raw/*", "a LayerNorm's codes, and positions that an older manifest does not have"),
    (
        "fourier_field/*/onnxslim",
        "a factor of the activations was multiplied into the layer's weight and bias",
    ),
    *(
        (
            f"{architecture}/*/onnxsim",
            "attention of one position: its softmax is 1, and the tool takes queries, keys and biases away with it",
        )
        for architecture in ("levit", "mobilevit")
    ),
    (
        "phi/legacy-raw/fp16",
        "cosines and sines times one, in half precision, at a length that the manifest has not",
    ),
    (
        "beit/legacy-raw/*",
        "places of a fixed window, worked out at run time of numbers that the manifest has not",
    ),
    ("maskformer/legacy-raw/*", "positions of a fixed grid of 2 x 2, made of one and two"),
    ("diffusers_transformer/*/ort-*", "a table of positions that is a buffer, which no state dict has"),
    ("informer/*", "the attention draws its samples at random when the model runs"),
)


_BROKEN = ("lstm_projected/*", "llama-yarn/genai-*", "window_attention/dynamo-raw/*")
"""Files that the exporter broke: they do not run, or compute something else than PyTorch, and need not balance."""


def is_broken(outcome: Outcome) -> bool:
    """Whether the file differs from PyTorch's computation, so that it must not balance."""
    return any(fnmatchcase(outcome.cell.name, pattern) for pattern in _BROKEN)


def cause_of(outcome: Outcome, sides: Sequence[str]) -> str:
    """Return the cause, or a note that it is not known yet."""
    balanced = {side.side for side in outcome.sides if side.balanced}
    if [*sides] == ["state"] and balanced:
        return _STATE_ALONE
    return next(
        (cause for pattern, cause in _CAUSES if fnmatchcase(outcome.cell.name, pattern)), "not known yet"
    )
