"""Finds a model: a folder as it is, or a hub id whose files are downloaded once.

The real checkpoint is gated, so most first attempts fail; each way of failing gets one sentence
that says what to do.
"""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from livekit_personaplex.errors import CheckpointError
from livekit_personaplex.model.config import CONFIG_NAME, PersonaPlexConfig, load_config

_Answer = TypeVar("_Answer")

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_HUB_URL = "https://huggingface.co"


def resolve_model(source: str) -> Path:
    """Return the folder of a model, downloading what is not there yet. Blocks, maybe for long.

    Args:
        source: A folder, or a hub id such as ``nvidia/personaplex-7b-v1``.

    Raises:
        CheckpointError: There is no such folder, or the hub does not give the files out.
        ConfigError: The model's ``config.json`` cannot be used.
    """
    folder = Path(source).expanduser()
    if source and folder.is_dir():
        return folder
    _check_hub_id(source)
    return _download(source)


def find_files(source: str) -> dict[str, Path | None]:
    """Say where each file of a model is on this machine, None where it is missing. Asks nobody.

    Args:
        source: A folder or a hub id.

    Raises:
        CheckpointError: It is neither.
        ConfigError: The model's ``config.json`` cannot be used.
    """
    folder = Path(source).expanduser()
    if source and folder.is_dir():
        return {name: _existing(folder / name) for name in _file_names(load_config(folder))}
    _check_hub_id(source)
    from huggingface_hub import try_to_load_from_cache

    def cached(name: str) -> Path | None:
        found = try_to_load_from_cache(source, name)
        return Path(found) if isinstance(found, str) else None

    config_path = cached(CONFIG_NAME)
    config = PersonaPlexConfig() if config_path is None else load_config(config_path.parent)
    return {CONFIG_NAME: config_path} | {name: cached(name) for name in _file_names(config)}


def check_access(repo_id: str) -> None:
    """Ask the hub whether it would give a model's weights out; downloads nothing. Blocks.

    Raises:
        CheckpointError: It would not; the sentence is that of a failed download.
    """
    from huggingface_hub import get_hf_file_metadata, hf_hub_url

    _check_hub_id(repo_id)
    filename = PersonaPlexConfig().model_name
    _ask_hub(repo_id, filename, lambda: get_hf_file_metadata(hf_hub_url(repo_id, filename)))


def _check_hub_id(source: str) -> None:
    if not _HUB_ID.fullmatch(source):
        raise CheckpointError(
            f"expected a model folder or a hub id like nvidia/personaplex-7b-v1, got {source!r}, "
            "which is neither; check the path"
        )


def _file_names(config: PersonaPlexConfig) -> tuple[str, ...]:
    return config.tokenizer_name, config.voices_name, config.mimi_name, config.model_name


def _existing(path: Path) -> Path | None:
    return path if path.is_file() else None


def _download(repo_id: str) -> Path:
    from huggingface_hub import hf_hub_download

    config_path = Path(
        _ask_hub(repo_id, CONFIG_NAME, lambda: hf_hub_download(repo_id, CONFIG_NAME))
    )
    revision = config_path.parent.name
    for name in _file_names(load_config(config_path.parent)):
        _ask_hub(repo_id, name, partial(hf_hub_download, repo_id, name, revision=revision))
    return config_path.parent


def _ask_hub(repo_id: str, filename: str, ask: Callable[[], _Answer]) -> _Answer:
    """Ask the hub about one file; turns each way of failing into one sentence."""
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, LocalEntryNotFoundError

    # Among its bases is the error of the HTTP library, which differs by hub version.
    network_errors: tuple[Any, ...] = (*HfHubHTTPError.__bases__, OSError)
    try:
        return ask()
    except LocalEntryNotFoundError as error:
        raise CheckpointError(_offline_message(repo_id, filename)) from error
    except EntryNotFoundError as error:
        raise CheckpointError(
            f"{_HUB_URL}/{repo_id} has no file {filename}; is it a PersonaPlex checkpoint?"
        ) from error
    except network_errors as error:
        raise CheckpointError(_refusal_message(repo_id, filename, error)) from error


def _refusal_message(repo_id: str, filename: str, error: BaseException) -> str:
    """Say in one sentence why the hub gave nothing, and what to do."""
    from huggingface_hub import get_token
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        LocalTokenNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
    )

    page = f"{_HUB_URL}/{repo_id}"
    has_token = get_token() is not None
    if isinstance(error, LocalTokenNotFoundError) or (
        isinstance(error, GatedRepoError) and not has_token
    ):
        return (
            f"{repo_id} is gated and there is no token: accept its licence at {page}, make a token "
            f"at {_HUB_URL}/settings/tokens and set HF_TOKEN to it"
        )
    if isinstance(error, GatedRepoError):
        return (
            f"the account of this HF_TOKEN has no access to {repo_id}: accept its licence at "
            f"{page} with that account, or use a token of one that did (it must be allowed to read "
            "gated repositories)"
        )
    if isinstance(error, RepositoryNotFoundError):
        return (
            f"there is no model {repo_id} on the hub for "
            f"{'this HF_TOKEN' if has_token else 'visitors without HF_TOKEN'}: check the name at "
            f"{page}, and whether it is private or the token has expired"
        )
    if isinstance(error, OfflineModeIsEnabled):
        return _offline_message(repo_id, filename)
    if isinstance(error, HfHubHTTPError):
        status = error.response.status_code if error.response is not None else "no"
        advice = (
            "the token is not valid: make a new one and set HF_TOKEN to it"
            if status == 401
            else "try again later, or download the files yourself and give their folder"
        )
        return f"the hub answered {filename} of {repo_id} with status {status}; {advice}"
    return (
        f"downloading {filename} of {repo_id} failed ({type(error).__name__}: {error}); check the "
        "network and the free disk space, then start again: what was downloaded is kept"
    )


def _offline_message(repo_id: str, filename: str) -> str:
    return (
        f"{filename} of {repo_id} is not on this machine and the hub cannot be reached: check the "
        "network (and that HF_HUB_OFFLINE is not set), or give the folder of a downloaded copy"
    )
