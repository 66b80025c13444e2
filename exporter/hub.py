"""Hub id -> whether the Hugging Face hub, or its cache on this machine, can serve it, found out in seconds."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

from exporter.classes import first_line

__all__ = ["HubAnswer", "Reach", "ask_hub", "is_hub_id"]

_TIMEOUT_SECONDS = 5.0
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?\Z")


class Reach(enum.Enum):
    """Where a hub id can be loaded from."""

    ONLINE = "the hub has it"
    CACHED = "the hub cannot be reached, the cache has it"
    ABSENT = "the hub answers that it has no such model"
    UNREACHABLE = "the hub cannot be reached and the cache does not have it"


@dataclass(frozen=True, slots=True)
class HubAnswer:
    """Where the model is, and in words why the hub was not used."""

    reach: Reach
    reason: str = ""


def is_hub_id(source: str) -> bool:
    """Whether it has the form of a hub id: `name` or `organisation/name`.

    >>> is_hub_id("google-bert/bert-base-uncased"), is_hub_id("./model")
    (True, False)
    """
    return _HUB_ID.match(source) is not None


def ask_hub(hub_id: str) -> HubAnswer:
    """One request with a short timeout. `from_pretrained` itself would retry for half a minute without a network."""
    import huggingface_hub
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    try:
        huggingface_hub.HfApi().model_info(hub_id, timeout=_TIMEOUT_SECONDS)
    except GatedRepoError as error:
        return HubAnswer(Reach.ABSENT, f"it is gated: {first_line(error)}")
    except RepositoryNotFoundError:
        return HubAnswer(
            Reach.ABSENT, "the hub has no such model, or it is private and needs `hf auth login`"
        )
    except Exception as error:  # noqa: BLE001  the HTTP client's error classes change from release to release
        cached = huggingface_hub.try_to_load_from_cache(hub_id, "config.json")
        reach = Reach.CACHED if isinstance(cached, str) else Reach.UNREACHABLE
        return HubAnswer(reach, f"the hub cannot be reached ({first_line(error)})")
    return HubAnswer(Reach.ONLINE)
