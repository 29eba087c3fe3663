"""The model's files: here, or to be had; and the voices in them."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from livekit_personaplex.doctor.finding import Finding
from livekit_personaplex.errors import CheckpointError, ConfigError, PersonaPlexError
from livekit_personaplex.model.config import PersonaPlexConfig, load_config
from livekit_personaplex.model.hub import check_access, find_files
from livekit_personaplex.model.random_model import parse_random_name
from livekit_personaplex.model.voice_archive import read_archive
from livekit_personaplex.settings import EngineSettings

DOWNLOAD_BYTES = 18_000_000_000
_VOICE_SUFFIXES = (".pt", ".wav")


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """What was found of a model.

    Attributes:
        findings: What to tell.
        config: Its sizes; those of the real model where it is not here.
        weights_bytes: What its weights take; None where they are not here.
    """

    findings: list[Finding]
    config: PersonaPlexConfig
    weights_bytes: int | None


def check_model(settings: EngineSettings) -> ModelFiles:
    """Look for the model that settings name; asks the hub only about files that are missing."""
    config = PersonaPlexConfig()
    if parse_random_name(settings.model) is not None:
        text = f"{settings.model}: weights of the real size are drawn when an engine starts"
        return ModelFiles([Finding("model", "ok", text)], config, None)
    try:
        files = find_files(settings.model)
        folders = {path.parent for path in files.values() if path is not None}
        if folders:
            config = load_config(folders.pop())
    except (CheckpointError, ConfigError) as error:
        advice = "PERSONAPLEX_MODEL is a folder of a checkpoint, or a hub id"
        return ModelFiles([Finding("model", "failure", str(error), advice)], config, None)
    archive = files[config.voices_name]
    if settings.voices_dir is not None:
        files.pop(config.voices_name)
    missing = [name for name, path in files.items() if path is None]
    if missing:
        return ModelFiles([_judge_missing(settings.model, missing)], config, None)
    weights = [files[name] for name in (config.model_name, config.mimi_name)]
    weights_bytes = sum(path.stat().st_size for path in weights if path is not None)
    found = Finding("model", "ok", f"{settings.model}: {weights_bytes / 1e9:.1f} GB of weights")
    return ModelFiles([found, _check_voices(archive, settings.voices_dir)], config, weights_bytes)


def _judge_missing(model: str, missing: list[str]) -> Finding:
    names = ", ".join(missing) if len(missing) <= 2 else f"{len(missing)} files"
    if Path(model).expanduser().is_dir():
        return Finding(
            "model",
            "failure",
            f"{model} has no {names}",
            "copy the whole checkpoint there, or name its hub id in PERSONAPLEX_MODEL",
        )
    try:
        check_access(model)
    except PersonaPlexError as error:
        return Finding("model", "failure", f"{names} of {model} are not here", str(error))
    home = Path.home()
    free_bytes = shutil.disk_usage(home).free
    if free_bytes < DOWNLOAD_BYTES:
        return Finding(
            "model",
            "failure",
            f"{names} of {model} are not here, and {free_bytes / 1e9:.1f} GB of disk are free",
            f"make room for {DOWNLOAD_BYTES / 1e9:.0f} GB, or set HF_HOME to a folder elsewhere",
        )
    return Finding(
        "model",
        "warning",
        f"{names} of {model} are not here, and the hub gives them to you",
        "livekit-personaplex download-files fetches them; an engine would at its first start",
    )


def _check_voices(archive: Path | None, voices_dir: Path | None) -> Finding:
    names: set[str] = set()
    try:
        if archive is not None:
            names |= {name for name, _ in read_archive(archive)}
        if voices_dir is not None:
            names |= {path.name for path in voices_dir.iterdir()}
    except (CheckpointError, OSError) as error:
        advice = "download the checkpoint again; PERSONAPLEX_VOICES is a folder of NAME.wav"
        return Finding("voices", "failure", str(error), advice)
    voices = sorted({Path(name).stem for name in names if name.endswith(_VOICE_SUFFIXES)})
    if not voices:
        return Finding("voices", "failure", "there are none", "put NAME.wav in PERSONAPLEX_VOICES")
    shown = ", ".join(voices[:20]) + (", ..." if len(voices) > 20 else "")
    return Finding("voices", "ok", f"{len(voices)}: {shown}")
