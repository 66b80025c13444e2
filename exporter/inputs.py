"""nn.Module -> example inputs that its forward accepts, with the axes that may vary when it is served."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from analyzer.errors import ExportError
from exporter.classes import first_line
from exporter.quiet import quiet

Axes = Mapping[str, Mapping[int, str]]

BATCH = 2
# Lengths that differ from every size of the model and from each other: a tracer takes equal sizes for one axis.
_LENGTHS = (11, 7, 13, 17, 19, 23, 5, 3)
_CHOICES = 3


@dataclass(frozen=True, slots=True)
class ExampleInputs:
    """Arguments for one call of forward."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    axes: Axes = field(default_factory=dict)
    """Axes that may vary, per argument; by the names of `kwargs`, or one for each of `args`, in order.

    Axes that may differ from each other have different names.
    """


def forward_names(model: nn.Module) -> tuple[str, ...]:
    """Return the named arguments of `model.forward`, in order."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = inspect.signature(model.forward).parameters.values()
    return tuple(p.name for p in parameters if p.kind in kinds)


def example_inputs(
    model: nn.Module, config: Any | None = None, given: tuple[Any, ...] | Mapping[str, Any] | None = None
) -> ExampleInputs:
    """Return inputs on which `model` ran once: the given ones, else built from its config, else its `dummy_inputs`.

    Raises:
        ExportError: no inputs could be made, or forward fails on them.
    """
    if given is not None:
        inputs = _from_given(model, given)
        _require_run(model, inputs)
        return inputs
    if config is None:
        raise ExportError(
            f"{type(model).__name__}: no example inputs; let the factory return (module, inputs), "
            "inputs being a tuple or dict of tensors"
        )
    built = _build(model, config)
    error = _run_error(model, built)
    if error is None:
        return built
    for layout in _sound_layouts(built):
        other = _build(model, config, layout)
        if _run_error(model, other) is None:
            return other
    dummy = _from_dummy(model)
    if dummy is not None and _run_error(model, dummy) is None:
        return dummy
    raise ExportError(
        f"{type(model).__name__}: no example inputs are known for it; forward({', '.join(forward_names(model))}) "
        f"failed on {', '.join(built.kwargs) or 'nothing'}: {first_line(error)}; "
        "write a factory that returns (module, inputs) and give it as SOURCE"
    ) from error


def untried_inputs(
    model: nn.Module,
    config: Any | None = None,
    given: tuple[Any, ...] | Mapping[str, Any] | None = None,
    has_images: bool = True,
) -> ExampleInputs:
    """Return the inputs that `example_inputs` would try first, without running the model if its type decides.

    `has_images` is False for text alone, if the model takes images and its prompts have a token for them.

    Raises:
        ExportError: there are none.
    """
    if given is not None:
        return _from_given(model, given)
    if config is None:
        raise ExportError(f"{type(model).__name__}: no example inputs")
    return _build(model, config, has_images=has_images)


def _require_run(model: nn.Module, inputs: ExampleInputs) -> None:
    error = _run_error(model, inputs)
    if error is not None:
        raise ExportError(
            f"{type(model).__name__}: forward fails on the factory's example inputs: {first_line(error)}"
        ) from error


def _run_error(model: nn.Module, inputs: ExampleInputs) -> Exception | None:
    try:
        with torch.no_grad(), quiet():
            model(*inputs.args, **inputs.kwargs)
    except Exception as error:  # noqa: BLE001  a model's forward may raise anything; the caller reports it
        return error
    return None


def _from_given(model: nn.Module, given: tuple[Any, ...] | Mapping[str, Any]) -> ExampleInputs:
    """Return the factory's inputs. Axis 0 of each tensor varies, and axis 1 of integer tensors, which are sequences.

    Inputs of floating point get the type of the parameters. If these have several types, the inputs stay as they are,
    unless forward fails on them.
    """
    dtypes = {p.dtype: None for p in model.parameters() if p.is_floating_point()}
    cast = _with_dtype(model, given, next(iter(dtypes), torch.float32))
    if len(dtypes) < 2:
        return cast
    plain = _with_dtype(model, given, None)
    return cast if _run_error(model, plain) is not None and _run_error(model, cast) is None else plain


def _with_dtype(
    model: nn.Module, given: tuple[Any, ...] | Mapping[str, Any], dtype: torch.dtype | None
) -> ExampleInputs:
    if isinstance(given, Mapping):
        kwargs = {name: _to_dtype(value, dtype) for name, value in given.items()}
        return ExampleInputs(kwargs=kwargs, axes=_default_axes(kwargs))
    args = tuple(_to_dtype(value, dtype) for value in given)
    names = (*forward_names(model), *(f"input_{i}" for i in range(len(args))))  # forward(*args) names none
    return ExampleInputs(args=args, axes=_default_axes(dict(zip(names, args, strict=False))))


def _default_axes(values: Mapping[str, Any]) -> Axes:
    axes: dict[str, dict[int, str]] = {name: {} for name in values}
    for name, tensor in values.items():
        if isinstance(tensor, torch.Tensor) and tensor.ndim:
            axes[name][0] = f"{name}_batch"
            if tensor.ndim > 1 and not tensor.is_floating_point():
                axes[name][1] = f"{name}_sequence"
    return axes


def widen_batch(model: nn.Module, inputs: ExampleInputs) -> ExampleInputs:
    """Repeat the inputs along the batch if each tensor has a batch of one, because a tracer takes 1 for a constant."""
    values = [*inputs.args, *inputs.kwargs.values()]
    if not all(isinstance(v, torch.Tensor) and v.ndim and v.shape[0] == 1 for v in values):
        return inputs
    wide = ExampleInputs(
        args=tuple(torch.cat([v, v]) for v in inputs.args),
        kwargs={name: torch.cat([v, v]) for name, v in inputs.kwargs.items()},
        axes=inputs.axes,
    )
    return inputs if _run_error(model, wide) else wide


def _from_dummy(model: nn.Module) -> ExampleInputs | None:
    try:
        dummy = dict(model.dummy_inputs)  # type: ignore[arg-type]
    except Exception:  # noqa: BLE001  a property that some classes define and others break
        return None
    kwargs = {name: _to_dtype(value, _float_dtype(model)) for name, value in dummy.items()}
    return ExampleInputs(kwargs=kwargs, axes=_default_axes(kwargs))


def _float_dtype(model: nn.Module) -> torch.dtype:
    return next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)


def _to_dtype(value: Any, dtype: torch.dtype | None) -> Any:
    """Return a tensor of floating point in a type, and all else, and all if it is None, unchanged."""
    is_cast = dtype is not None and isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.to(dtype) if is_cast else value


def _build(model: nn.Module, config: Any, layout: str = "", *, has_images: bool = True) -> ExampleInputs:
    """Build a tensor for each argument that a served model takes, by name; sound has the given layout."""
    builder = _Builder(model, config, layout)
    inputs = builder.build()
    if not has_images or not builder.takes_images_in_prompt or (count := _image_tokens(model, builder)) < 1:
        return inputs
    builder.add_image_prompt(count)
    pictured = ExampleInputs(kwargs=builder.kwargs, axes=builder.axes)
    return inputs if _run_error(model, pictured) is not None else pictured


def _image_tokens(model: nn.Module, builder: _Builder) -> int:
    """Return the number of tokens per image in a prompt (LLaVA), from the model's image features; 0 if it has none."""
    pixels = builder.pixels()
    try:
        with torch.no_grad(), quiet():
            found: Any = model.get_image_features(pixel_values=pixels)  # type: ignore[operator]
        found = getattr(found, "pooler_output", found)
        rows = [found] if isinstance(found, torch.Tensor) else list(found)
        return sum(each.numel() // each.shape[-1] for each in rows) // BATCH
    except Exception:  # noqa: BLE001  each family fails in its own way; then the example is text alone
        return 0


_SPECTRA, _WAVES = ("frames", "bins", "positions", "image"), ("channels",)
"""Layouts of sound: frames x bins, bins x frames, two frames per position, one channel's image; samples by channel."""


def _sound_layouts(inputs: ExampleInputs) -> tuple[str, ...]:
    """Return the other layouts to try for the model's sound input: configs do not say which one it takes."""
    if "input_features" in inputs.kwargs:
        return _SPECTRA
    return _WAVES if "input_values" in inputs.kwargs else ()


class _Builder:
    """Collects inputs for one model. An argument's name and the config decide its meaning."""

    def __init__(self, model: nn.Module, config: Any, layout: str = "") -> None:
        self.layout = layout
        self.names = forward_names(model)
        self.main = str(getattr(model, "main_input_name", "input_ids"))
        kinds: Any = getattr(model, "input_modalities", None) or ()
        self.modalities = frozenset((kinds,) if isinstance(kinds, str) else kinds)
        self.class_name = type(model).__name__
        self.config = config
        self.text = _sub_config(config, "get_text_config")
        self.dtype = _float_dtype(model)
        self.generator = torch.Generator().manual_seed(0)
        self.kwargs: dict[str, torch.Tensor] = {}
        self.axes: dict[str, dict[int, str]] = {}
        taken = _sizes(config)
        free = [n for n in _LENGTHS if n not in taken and n < _max_positions(self.text)]
        self.lengths = free if len(free) > 1 else [5, 3]

    def build(self) -> ExampleInputs:
        is_pair = self._pairs_image_and_text()
        takes_pixels = self.main == "pixel_values" or {"pixel_values", "task_inputs"} <= set(self.names)
        mixes = "pixel_values" in self.names and not self._prompts_with_images()
        if takes_pixels or is_pair or (mixes and {"image", "text"} <= self.modalities):
            self._add_pixels()
        if self.main == "flattened_patches":
            self._add_patches()
        takes_audio = "input_features" in self.names and getattr(self.config, "audio_token_id", None) is None
        if self.main == "input_features" or (takes_audio and {"audio", "text"} <= self.modalities):
            self._add_features()
        if self.main == "input_values" or (self.main == "inputs" and "input_values" in self.names):
            self._add_waveform()
        if "input_ids" in self.names and (self.main == "input_ids" or is_pair or self._prompts_with_images()):
            self._add_text("input_ids", "attention_mask", self.lengths[0], "sequence")
            self._add_token_types()
        if self.main == "pixel_values" and self._prompts_with_images():
            self._add_image_tokens()
        self._add_regions()
        if "task_inputs" in self.names:
            self._add_task()
        if "past_values" in self.names:
            self._add_series()
        if "decoder_input_values" in self.names and "decoder_input_ids" not in self.names:
            self._add_spectrogram()
        if "decoder_input_ids" in self.names and not self._prompts_with_images():
            self._add_text("decoder_input_ids", None, self.lengths[-1], "decoder_sequence")
        return ExampleInputs(kwargs=self.kwargs, axes=self.axes)

    def _pairs_image_and_text(self) -> bool:
        """Whether the model takes images and text apart: CLIP's two towers, or GIT's images before a text."""
        is_pair = hasattr(self.config, "vision_config") and not self._prompts_with_images()
        return is_pair and {"input_ids", "pixel_values"} <= set(self.names)

    def _prompts_with_images(self) -> bool:
        """Whether images replace a special token of the text."""
        return getattr(self.config, "image_token_id", None) is not None and "input_ids" in self.names

    @property
    def takes_images_in_prompt(self) -> bool:
        """Whether a text may have images in it, and the inputs built so far have none."""
        return (
            self.main == "input_ids"
            and self._prompts_with_images()
            and "pixel_values" in self.names
            and {"input_ids", "pixel_values"} - self.kwargs.keys() == {"pixel_values"}
        )

    def pixels(self) -> torch.Tensor:
        """Return images of the model's size, shaped (batch, channels, height, width), for video with a frames axis."""
        generator, self.generator = self.generator, torch.Generator().manual_seed(1)
        kwargs, axes = dict(self.kwargs), dict(self.axes)
        self._add_pixels()
        self.generator = generator
        found = self.kwargs["pixel_values"]
        self.kwargs, self.axes = kwargs, axes
        return found

    def add_image_prompt(self, count: int) -> None:
        """Add an image for each text, and insert its tokens after the first token of the text."""
        ids = self.kwargs["input_ids"]
        tokens = torch.full((BATCH, count), int(self.config.image_token_id), dtype=ids.dtype)
        self.kwargs["input_ids"] = torch.cat([ids[:, :1], tokens, ids[:, 1:]], 1)
        for name in ("attention_mask", "token_type_ids"):
            if name in self.kwargs:
                value = self.kwargs[name]
                filled = value[:, :1].expand(BATCH, count)
                self.kwargs[name] = torch.cat([value[:, :1], filled, value[:, 1:]], 1)
        self._add("pixel_values", self.pixels())

    def _add_image_tokens(self) -> None:
        """Prepend as many image tokens to the text as a querying transformer makes of an image (BLIP-2)."""
        count = int(getattr(self.config, "num_query_tokens", 0) or 0)
        ids, mask = self.kwargs["input_ids"], self.kwargs.get("attention_mask")
        tokens = torch.full((BATCH, count), int(self.config.image_token_id))
        self.kwargs["input_ids"] = torch.cat([tokens, ids], 1)
        if mask is not None:
            self.kwargs["attention_mask"] = torch.cat([torch.ones_like(tokens), mask], 1)

    def _add_patches(self) -> None:
        """Add patches for Pix2Struct: as many as fit, each with its row and column before its pixels."""
        config = self.config.vision_config
        count, width = int(config.seq_len), int(config.patch_embed_hidden_size)
        patches = self._floats((BATCH, count, 2 + width))
        patches[..., 0] = torch.arange(count) // 4 + 1
        patches[..., 1] = torch.arange(count) % 4 + 1
        self.kwargs["flattened_patches"] = patches
        self.axes["flattened_patches"] = {0: "batch"}
        self.kwargs["attention_mask"] = torch.ones(BATCH, count)
        self.axes["attention_mask"] = {0: "batch"}

    def _add_regions(self) -> None:
        """Add features of image regions, as a detector returns them, and the place of each word on its page."""
        width = getattr(self.config, "visual_feat_dim", None) or getattr(
            self.config, "visual_embedding_dim", None
        )
        regions = self.lengths[1]
        for name in ("visual_feats", "visual_embeds"):
            if name in self.names and width:
                self._add(name, self._floats((BATCH, regions, int(width))))
        if "visual_pos" in self.names and "visual_feats" in self.kwargs:
            corners = int(getattr(self.config, "visual_pos_dim", 4))
            self._add("visual_pos", self._floats((BATCH, regions, corners)).abs())
        largest = getattr(self.config, "max_2d_position_embeddings", None)
        if "bbox" in self.names and "input_ids" in self.kwargs and largest:
            shape = self.kwargs["input_ids"].shape
            limit = min(int(largest), 1000) // 2
            starts = torch.randint(limit, (*shape, 2), generator=self.generator)
            sizes = torch.randint(1, limit, (*shape, 2), generator=self.generator)
            self.kwargs["bbox"] = torch.cat([starts, starts + sizes], -1)
            self.axes["bbox"] = dict(self.axes["input_ids"])

    def _add_task(self) -> None:
        """Add OneFormer's task: a text of fixed length."""
        shape = (BATCH, int(getattr(self.config, "task_seq_len", 77)))
        self.kwargs["task_inputs"] = torch.randint(1, 90, shape, generator=self.generator)
        self.axes["task_inputs"] = {0: "batch"}

    def _add_spectrogram(self) -> None:
        """Add the spectrogram that SpeechT5 decodes, and the embedding of a speaker's voice."""
        self._add(
            "decoder_input_values", self._floats((BATCH, self.lengths[-1], int(self.config.num_mel_bins)))
        )
        self.axes["decoder_input_values"][1] = "frames"
        if "speaker_embeddings" in self.names and getattr(self.config, "speaker_embedding_dim", None):
            self._add("speaker_embeddings", self._floats((BATCH, int(self.config.speaker_embedding_dim))))

    def _add_series(self) -> None:
        """Add past values of time series. Decoders also get future values, and the features of all times."""
        config = self.config
        channels = getattr(config, "num_input_channels", None)
        length = int(getattr(config, "context_length", 0) or 32)
        if channels is not None:  # PatchTST and similar models
            self._add("past_values", self._floats((BATCH, length, int(channels))))
            return
        past = length + max(getattr(config, "lags_sequence", None) or [0])
        future = int(getattr(config, "prediction_length", 0) or 1)
        size = int(getattr(config, "input_size", 1) or 1)
        width = () if size == 1 else (size,)
        features = _count(config, "num_time_features") + int(getattr(config, "num_dynamic_real_features", 0))
        self._add("past_values", self._floats((BATCH, past, *width)))
        if "past_time_features" in self.names:
            self._add("past_time_features", self._floats((BATCH, past, features)))
        if "past_observed_mask" in self.names:
            self._add("past_observed_mask", torch.ones(BATCH, past, *width))
        sizes = list(getattr(config, "cardinality", None) or [])
        if "static_categorical_features" in self.names and _count(config, "num_static_categorical_features"):
            columns = [torch.randint(int(count), (BATCH,), generator=self.generator) for count in sizes]
            self._add("static_categorical_features", torch.stack(columns, 1))
        if "static_real_features" in self.names and _count(config, "num_static_real_features"):
            self._add("static_real_features", self._floats((BATCH, int(config.num_static_real_features))))
        if "future_values" in self.names and getattr(config, "is_encoder_decoder", False):  # else the loss's
            self._add("future_values", self._floats((BATCH, future, *width)))
        if "future_time_features" in self.names:
            self._add("future_time_features", self._floats((BATCH, future, features)))

    def _add(self, name: str, value: torch.Tensor) -> None:
        self.kwargs[name] = value
        self.axes[name] = {0: "batch"}

    def _add_text(self, ids: str, mask: str | None, length: int, axis: str) -> None:
        shape: tuple[int, ...] = (BATCH, length)
        axes = {0: "batch", 1: axis}
        if self.class_name.endswith("MultipleChoice"):
            shape, axes = (BATCH, _CHOICES, length), {0: "batch", 1: "choices", 2: axis}
        self.kwargs[ids] = self._token_ids(shape)
        self.axes[ids] = axes
        if mask is not None and mask in self.names:
            attended = torch.ones(shape, dtype=torch.long)
            attended[-1, ..., -2:] = 0  # padding, so that a tracer does not take the mask for a constant
            self.kwargs[mask] = attended
            self.axes[mask] = dict(axes)

    def _token_ids(self, shape: tuple[int, ...]) -> torch.Tensor:
        """Return random ids without special tokens. The last is the end token, which classifiers like BART's count."""
        vocabulary = int(getattr(self.text, "vocab_size", 0) or 100)
        special = {v for k, v in vars(self.text).items() if k.endswith("_token_id") and isinstance(v, int)}
        usable = torch.tensor([i for i in range(min(vocabulary, 1000)) if i not in special] or [0])
        ids = usable[torch.randint(len(usable), shape, generator=self.generator)]
        end = getattr(self.text, "eos_token_id", None)
        if (
            isinstance(end, int)
            and 0 <= end < vocabulary
            and getattr(self.config, "is_encoder_decoder", False)
        ):
            ids[..., -1] = end
        return ids

    def _add_token_types(self) -> None:
        if "token_type_ids" in self.names and (getattr(self.text, "type_vocab_size", 0) or 0) > 1:
            ids = self.kwargs["input_ids"]
            self.kwargs["token_type_ids"] = torch.zeros_like(ids)
            self.kwargs["token_type_ids"][..., ids.shape[-1] // 2 :] = 1
            self.axes["token_type_ids"] = dict(self.axes["input_ids"])

    def _add_pixels(self) -> None:
        config = getattr(self.config, "vision_config", None) or getattr(self.config, "encoder", None)
        config = self.config if config is None or isinstance(config, Mapping) else config
        channels = int(getattr(config, "num_channels", 3) or 3)
        height, width = _image_size(config)
        frames = getattr(config, "num_frames", None)
        shape = (BATCH, int(frames), channels, height, width) if frames else (BATCH, channels, height, width)
        self.kwargs["pixel_values"] = self._floats(shape)
        batch = "image_batch" if self._pairs_image_and_text() else "batch"
        self.axes["pixel_values"] = {0: batch}

    def _add_features(self) -> None:
        """Add a spectrogram: for Whisper, mel bins x frames, two frames per encoder position; else frames x bins."""
        config = getattr(self.config, "audio_config", None) or self.config
        bins = int(getattr(config, "num_mel_bins", 0) or getattr(config, "input_feat_per_channel", 0) or 80)
        spectrum = getattr(config, "spec_size", None)
        if self.layout == "frames":
            shape: tuple[int, ...] = (BATCH, 100, bins)
        elif self.layout == "bins":
            shape = (BATCH, bins, 100)
        elif self.layout == "image" or (spectrum is not None and not self.layout):
            shape = (BATCH, 1, int(spectrum or 64) * max(1, int(spectrum or 64) // bins), bins)
        elif hasattr(config, "max_source_positions") and (
            self.layout == "positions" or "decoder_input_ids" in self.names
        ):
            shape = (BATCH, bins, 2 * int(config.max_source_positions))
        else:
            shape = (BATCH, 100, int(getattr(config, "feature_projection_input_dim", bins)))
        self.kwargs["input_features"] = self._floats(shape)
        self.axes["input_features"] = {0: "batch"}

    def _add_waveform(self) -> None:
        """Add sound: samples for wav2vec 2.0, frames x mel bins for the audio spectrogram transformer."""
        if hasattr(self.config, "num_mel_bins") and hasattr(self.config, "max_length"):
            shape: tuple[int, ...] = (BATCH, int(self.config.max_length), int(self.config.num_mel_bins))
            axes = {0: "batch"}
        elif self.layout == "channels":
            shape = (BATCH, int(getattr(self.config, "audio_channels", 1)), 8237)
            axes = {0: "batch", 2: "samples"}
        else:
            shape, axes = (BATCH, 8237), {0: "batch", 1: "samples"}
        self.kwargs["input_values"] = self._floats(shape)
        self.axes["input_values"] = axes

    def _floats(self, shape: tuple[int, ...]) -> torch.Tensor:
        return torch.randn(shape, generator=self.generator).to(self.dtype)


def _sub_config(config: Any, method: str) -> Any:
    try:
        return getattr(config, method)()
    except (AttributeError, ValueError):  # configs with several text towers refuse to choose
        return getattr(config, "text_config", config)


def _count(config: Any, name: str) -> int:
    return int(getattr(config, name, None) or 0)


def _sizes(config: Any) -> set[int]:
    """Return every integer of a config: an example length must not equal any of these sizes."""
    return {v for v in vars(config).values() if isinstance(v, int) and not isinstance(v, bool)}


def _max_positions(config: Any) -> int:
    names = ("max_position_embeddings", "n_positions", "max_target_positions")
    limits = [getattr(config, name, None) for name in names]
    return min([n for n in limits if isinstance(n, int) and n > 0], default=1 << 30)


def _image_size(config: Any) -> tuple[int, int]:
    size = getattr(config, "image_size", None) or 224
    if isinstance(size, Mapping):
        size = (size.get("height", 224), size.get("width", 224))
    if isinstance(size, (tuple, list)):
        return int(size[0]), int(size[-1])
    return int(size), int(size)
