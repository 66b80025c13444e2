"""Architectures, their exports and their rewriting tools: a fixed list, so that two runs make the same files.

No architecture is exported and rewritten in every way. Exports and tools rotate, so that each of them meets each kind
of architecture, and each architecture meets half of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import zip_longest

from tools.matrix.wide.configs import CONFIGS

PLAIN = (
    "lstm_tagger", "lstm_projected", "gru_seq2seq", "rnn_cells", "spectral_discriminator", "weightnorm_vocoder",
    "weightnorm_tcn", "weight_standardized", "unet_groupnorm", "bilinear_match", "attention_kdim",
    "attention_memory", "shared_tables", "transformer_encoder", "transformer_seq2seq", "yolo", "conv_autoencoder",
    "separable_gated", "norm_zoo", "rotary_shifted", "soft_experts", "tied_autoencoder", "recommender", "conv_lstm",
    "graph_net", "fourier_field", "video_conv3d", "character_highway", "normalizing_flow", "siamese_cosine",
    "deep_speech", "token_mixer", "window_attention", "state_space",
)  # fmt: skip
ZOO = (
    "torchvision_resnet", "torchvision_detector", "torchvision_densenet", "torchvision_inception",
    "torchvision_mobilenet_v3", "torchvision_efficientnet", "torchvision_regnet", "torchvision_mnasnet",
    "torchvision_vit", "torchvision_swin_v2", "torchvision_maxvit", "torchvision_convnext", "torchvision_lraspp",
    "timm_vit", "timm_nfnet", "timm_efficientnet_evos", "timm_repvgg", "timm_eva", "timm_xcit", "timm_ghostnet",
    "diffusers_unet_condition", "diffusers_autoencoder", "diffusers_decoder", "diffusers_transformer",
    "diffusers_controlnet",
)  # fmt: skip
FRESH = frozenset({
    "squeezebert", "rembert", "xmod", "codegen", "biogpt", "phi3", "starcoder2", "persimmon", "cvt", "regnet",
    "mobilenet-v2", "glpn", "ijepa", "vit-msn", "unispeech-sat", "hgnet-v2",
})  # fmt: skip
"""Architectures that were added after all rules were written, and run once."""

HELD_OUT = FRESH | frozenset({
    "nystromformer", "m2m-100", "focalnet", "sew", "patchtsmixer", "video_conv3d", "normalizing_flow", "deep_speech",
    "diffusers_controlnet", "gptj", "gpt-neo", "cohere", "olmo2", "granite", "electra", "roformer", "convnextv2",
    "poolformer", "pvt-v2", "data2vec-audio",
})  # fmt: skip
"""Architectures that were chosen before any of their files was examined. No rule may be written for one of them: their
rate shows how the rules work on unseen models. Remove an architecture from this list when a file of it is examined."""

LIBRARIES = ("transformers", "torchvision", "timm", "diffusers", "torch")

OWN, OWN_LEGACY = "own", "own-legacy"
EXPORTS: Mapping[str, str] = {
    OWN: "`onnxledger export`",
    OWN_LEGACY: "`onnxledger export --via torchscript`",
    "dynamo": "torch.onnx.export, dynamo",
    "dynamo-raw": "the same, `optimize=False`",
    "legacy": "torch.onnx.export, TorchScript, dynamic batch, opset 17",
    "legacy-raw": "the same without constant folding, static, opset 14",
    "optimum": "optimum's exporter",
    "genai-fp32": "onnxruntime-genai's builder, fp32",
    "genai-int4": "onnxruntime-genai's builder, int4",
}
AS_EXPORTED = "exported"
TOOLS: Mapping[str, str] = {
    AS_EXPORTED: "as exported",
    "ort-basic": "onnxruntime, basic optimizations",
    "ort-extended": "onnxruntime, extended optimizations",
    "ort-all": "onnxruntime, all optimizations",
    "ort-fusion": "onnxruntime.transformers.optimizer",
    "onnxsim": "onnxsim",
    "onnxslim": "onnxslim",
    "surgeon": "onnx-graphsurgeon, constants folded",
    "int8": "onnxruntime, dynamic int8",
    "qdq": "onnxruntime, static int8, QDQ per channel",
    "qoperator": "onnxruntime, static int8, QOperator",
    "nbits": "onnxruntime, MatMulNBits of 4 bits",
    "fp16": "onnxconverter-common, float16",
    "merge": "onnx.compose, with prefixes",
}
_REWRITES = tuple(tool for tool in TOOLS if tool != AS_EXPORTED)
_FILES = 4  # number of rewritten files of one architecture
_BUILT = frozenset({"llama-rope3", "llama-yarn", "qwen2", "gemma2"})
"""Architectures that onnxruntime-genai has builders for."""
OPTIMUM_TASKS: Mapping[str, str] = {
    **dict.fromkeys(("bloom", "gpt-neox", "qwen2", "opt-postnorm"), "text-generation"),
    **dict.fromkeys(("deberta", "mobilebert"), "fill-mask"),
    **dict.fromkeys(("convnext", "swin", "beit"), "image-classification"),
    "marian": "text2text-generation",
    "clip": "zero-shot-image-classification",
    "wav2vec2": "automatic-speech-recognition",
    "segformer": "semantic-segmentation",
    "detr": "object-detection",
    "vit-gpt2-captioning": "image-to-text",
}
"""Task to pass to optimum for each architecture that it has an export configuration for."""

SIDES = ("state", "config", "manifest")
"""PyTorch's side as users have it: a state dict alone, one with its config.json, or the manifest of an export."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """A model, and the source of its module."""

    name: str
    library: str
    source: str | None
    """`module:factory`; None for a config of `CONFIGS`."""
    place: int
    """Position in the list, which determines the architecture's exports and tools."""

    @property
    def is_held_out(self) -> bool:
        return self.name in HELD_OUT

    @property
    def exports(self) -> tuple[str, ...]:
        """Kinds of export of the architecture; the first is onnxledger's own, whose manifest serves for all."""
        n = self.place
        plain = (
            (OWN, OWN_LEGACY)[n % 2],
            ("dynamo", "dynamo-raw")[n // 2 % 2],
            ("legacy", "legacy-raw")[(n + n // 2) % 2],
        )
        built = (("genai-fp32", "genai-int4")[n % 2],) if self.name in _BUILT else ()
        return (*plain, *built, *(("optimum",) if self.name in OPTIMUM_TASKS else ()))


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """One file: an architecture, an export and a tool."""

    architecture: str
    export: str
    tool: str

    @property
    def name(self) -> str:
        return f"{self.architecture}/{self.export}/{self.tool}"


def _architectures() -> Iterator[Architecture]:
    kinds: tuple[list[tuple[str, str, str | None]], ...] = (
        [(name, "transformers", None) for name in CONFIGS],
        [(name, "torch", f"tools.matrix.wide.nets:{name}") for name in PLAIN],
        [(name, name.partition("_")[0], f"tools.matrix.wide.zoo:{name}") for name in ZOO],
    )
    mixed = (
        made for row in zip_longest(*kinds) for made in row if made
    )  # an interrupted run has some of each
    for place, (name, library, source) in enumerate(mixed):
        yield Architecture(name, library, source, place)


ARCHITECTURES: Mapping[str, Architecture] = {found.name: found for found in _architectures()}


def cells_of(patterns: tuple[str, ...] = ()) -> tuple[Cell, ...]:
    """Return the cells whose names match any of the patterns, all without patterns; grouped by architecture.

    >>> [cell.name for cell in cells_of(("lstm_tagger/*/exported",))]
    ['lstm_tagger/own-legacy/exported', 'lstm_tagger/dynamo/exported', 'lstm_tagger/legacy-raw/exported']
    """
    return tuple(
        cell
        for architecture in ARCHITECTURES.values()
        for cell in _cells(architecture)
        if not patterns or any(fnmatchcase(cell.name, pattern) for pattern in patterns)
    )


def _cells(architecture: Architecture) -> Iterator[Cell]:
    for export in architecture.exports:
        yield Cell(architecture.name, export, AS_EXPORTED)
    for turn in range(_FILES):  # tools and the three plain exports rotate
        tool = _REWRITES[(architecture.place * _FILES + turn) % len(_REWRITES)]
        yield Cell(architecture.name, architecture.exports[(architecture.place + turn) % 3], tool)
