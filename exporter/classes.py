"""Names and config files -> transformers classes and configs."""

from __future__ import annotations

import difflib
import importlib.util
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from analyzer.checkpoints.checkpoint import CONFIG_FILE
from analyzer.errors import MissingExtraError, SourceError
from analyzer.json_files import LARGEST_CONFIG
from exporter.quiet import quiet

_PURPOSE = "building a transformers model"
_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def require_transformers() -> None:
    """Check that transformers is installed.

    Raises:
        MissingExtraError: it is not installed.
    """
    if importlib.util.find_spec("transformers") is None:
        raise MissingExtraError("export", "transformers", _PURPOSE)


def load_config(where: str | Path | Mapping[str, Any], *, trust_remote_code: bool, local_only: bool) -> Any:
    """Return the transformers config of a folder, a config file or a hub id, or of a preset's content.

    Raises:
        SourceError: it cannot be read, or has a model type that the installed transformers does not know.
        MissingExtraError: transformers is not installed.
    """
    require_transformers()
    from transformers import AutoConfig

    if not isinstance(where, Mapping):
        _refuse_large(where)
    try:
        with quiet():
            if isinstance(where, Mapping):
                fields = dict(where)
                return AutoConfig.for_model(fields.pop("model_type"), **fields)
            return AutoConfig.from_pretrained(
                str(where), trust_remote_code=trust_remote_code, local_files_only=local_only
            )
    except Exception as error:
        raise SourceError(_config_message(where, error)) from error


def _refuse_large(where: str | Path) -> None:
    """Refuse a config that is too large, because transformers reads the whole file whatever its size.

    Raises:
        SourceError: the file is too large for a config, or is a device or a pipe.
    """
    path = Path(where)
    with suppress(OSError, ValueError):  # the later read reports a path that cannot be examined
        path = path / CONFIG_FILE if path.is_dir() else path
        if path.is_file() and path.stat().st_size > LARGEST_CONFIG:
            raise SourceError(f"{path}: the config cannot be used: it has more than {LARGEST_CONFIG:,} bytes")
        if path.exists() and not path.is_file():
            raise SourceError(f"{path}: the config cannot be used: it is not a regular file")


def read_fields(where: str | Path, *, local_only: bool) -> dict[str, Any]:
    """Return the fields of the `config.json` of a folder or hub id, or of a config file, for any model type.

    Raises:
        SourceError: it cannot be read, or is no JSON object.
        MissingExtraError: transformers is not installed.
    """
    require_transformers()
    from transformers import PreTrainedConfig

    _refuse_large(where)
    fields: Any
    try:
        with quiet():
            fields, _ = PreTrainedConfig.get_config_dict(str(where), local_files_only=local_only)
    except Exception as error:
        raise SourceError(_config_message(where, error)) from error
    if not isinstance(fields, dict) or not fields:
        raise SourceError(f"{where}: the config cannot be used: it is not a JSON object with fields")
    return dict(fields)


def field_names(config: Mapping[str, Any]) -> list[str]:
    """Return the fields of a config's class; a `config.json` need not name all of them.

    Raises:
        SourceError: transformers does not know its model type.
        MissingExtraError: transformers is not installed.
    """
    return list(load_config(config, trust_remote_code=False, local_only=True).to_dict())


def _config_message(where: object, error: Exception) -> str:
    what = "the preset" if isinstance(where, Mapping) else str(where)
    message = f"{what}: the config cannot be used: {first_line(error)}"
    if "trust_remote_code" in str(error):
        return message + "; pass --trust-remote-code if you trust the code in it"
    return message


def find_class(model_class: str | None, config: Any, *, trust_remote_code: bool) -> type[Any]:
    """Return the class to build: the requested one, else the architecture that the config names, else AutoModel.

    Raises:
        SourceError: transformers has no such class, or it is for another kind of model.
    """
    import transformers

    architecture = (getattr(config, "architectures", None) or [None])[0]
    wanted = model_class or architecture or "AutoModel"
    found: Any = getattr(transformers, wanted, None) if wanted.isidentifier() else None
    if found is None and model_class is None and trust_remote_code:
        return _remote_class(config, wanted)
    if not _is_model_class(found):
        origin = "--class" if model_class else "the config's `architectures`"
        raise SourceError(f"{origin} names {wanted!r}, which transformers does not have{_near(wanted)}")
    _check_fits(found, config)
    return found  # type: ignore[no-any-return]


def _remote_class(config: Any, wanted: str) -> type[Any]:
    """Return the Auto class that loads the architecture from remote code."""
    import transformers

    for auto_name, reference in (getattr(config, "auto_map", None) or {}).items():
        if auto_name.startswith("AutoModel") and str(reference).endswith("." + wanted):
            return getattr(transformers, auto_name)  # type: ignore[no-any-return]
    return transformers.AutoModel


def _is_model_class(candidate: object) -> bool:
    import transformers

    if not isinstance(candidate, type):
        return False
    if candidate.__name__.startswith("AutoModel"):
        return hasattr(candidate, "from_config")
    return issubclass(candidate, transformers.PreTrainedModel)


def _check_fits(found: Any, config: Any) -> None:
    expected = getattr(found, "config_class", None)
    if expected is not None and not isinstance(config, expected):
        raise SourceError(
            f"{found.__name__} takes a {expected.__name__}, but this config is a {type(config).__name__}: "
            f"pass --class AutoModel, or a class for {config.model_type}"
        )


def _near(wanted: str) -> str:
    """Return `; did you mean ...?` with the closest class names, or else a hint to use AutoModel."""
    import transformers

    names = [name for name in dir(transformers) if "Model" in name or "For" in name]
    close = difflib.get_close_matches(wanted, names, n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(close)}?" if close else "; pass --class AutoModel for the bare model"


def first_line(error: BaseException) -> str:
    """Return the first line of the root cause, for a one-sentence message; the rest stays in the chained cause."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in _ESCAPES.sub("", str(error)).splitlines() if line.strip()]
    return lines[0].rstrip(".") if lines else type(error).__name__
