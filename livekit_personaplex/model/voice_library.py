"""Reads the voices an engine has: those of the checkpoint, and the operator's own."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path, PurePath

from livekit_personaplex.errors import CheckpointError, ConfigError
from livekit_personaplex.model.config import PersonaPlexConfig
from livekit_personaplex.model.voice_archive import MAX_MEMBER_BYTES, read_archive
from livekit_personaplex.model.voice_files import (
    SpeechEncoder,
    read_saved_voice,
    read_spoken_voice,
)
from livekit_personaplex.model.voices import Voice, VoiceLibrary

_SAVED, _SPOKEN = ".pt", ".wav"


def load_voices(
    config: PersonaPlexConfig,
    archive: Path,
    voices_dir: Path | None,
    encode: SpeechEncoder,
) -> VoiceLibrary:
    """Read the checkpoint's voices and the operator's, whose names win.

    Where both ``NAME.pt`` and ``NAME.wav`` exist, ``NAME`` is the saved one, as in the reference,
    and the recording is called ``NAME.wav``.

    Args:
        config: Saved voices must fit its sizes.
        archive: The checkpoint's ``voices.tgz``; may be missing where ``voices_dir`` is given.
        voices_dir: Folder of the operator's ``.wav`` and ``.pt`` files, or None.
        encode: Mimi; called here, and later for recordings that have a saved form.

    Raises:
        CheckpointError: The archive is missing, broken or hostile, or a voice in it is.
        ConfigError: A file of the operator's cannot be used.
    """
    voices: dict[str, Voice] = {}
    recordings: dict[str, Callable[[], Voice]] = {}
    if voices_dir is None or archive.is_file():
        try:
            voices, recordings = _read_all(config, read_archive(archive), encode)
        except ConfigError as error:
            raise CheckpointError(f"{archive}: {error}") from error
    if voices_dir is not None:
        own_voices, own_recordings = _read_all(config, _read_folder(voices_dir), encode)
        hidden = own_voices.keys() | own_recordings.keys()
        voices = {name: voices[name] for name in voices.keys() - hidden} | own_voices
        recordings = {
            name: recordings[name] for name in recordings.keys() - hidden
        } | own_recordings
    return VoiceLibrary(voices, recordings)


def _read_all(
    config: PersonaPlexConfig, files: Iterable[tuple[str, bytes]], encode: SpeechEncoder
) -> tuple[dict[str, Voice], dict[str, Callable[[], Voice]]]:
    """Read files into voices, by every name that each can be asked for."""
    saved: dict[str, Voice] = {}
    spoken: dict[str, bytes] = {}
    for filename, content in files:
        name, suffix = PurePath(filename).stem, PurePath(filename).suffix.lower()
        if name.startswith("."):
            continue
        if suffix == _SAVED:
            saved[name] = read_saved_voice(name, content, config)
        elif suffix == _SPOKEN:
            spoken[name] = content
    voices = saved | {f"{name}{_SAVED}": voice for name, voice in saved.items()}
    recordings: dict[str, Callable[[], Voice]] = {}
    for name, content in spoken.items():
        if name in saved:
            full_name = f"{name}{_SPOKEN}"
            recordings[full_name] = partial(read_spoken_voice, full_name, content, encode)
        else:
            voices[name] = voices[f"{name}{_SPOKEN}"] = read_spoken_voice(name, content, encode)
    return voices, recordings


def _read_folder(folder: Path) -> Iterator[tuple[str, bytes]]:
    if not folder.is_dir():
        raise ConfigError(f"expected a folder of voices at {folder}, found none; check the path")
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() in (_SAVED, _SPOKEN) and path.is_file():
            if path.stat().st_size > MAX_MEMBER_BYTES:
                raise ConfigError(
                    f"{path} is larger than {MAX_MEMBER_BYTES // 2**20} MiB, too large for a voice"
                )
            yield path.name, path.read_bytes()
