"""System prompts with a voice from a file: for operators at their machine, never for clients."""

from pathlib import Path

from livekit_personaplex.engine.core import EngineCore
from livekit_personaplex.model.personaplex import PersonaPlex, encode_speech
from livekit_personaplex.model.prompt import PromptPlan, build_prompt, tag_persona
from livekit_personaplex.model.voice_files import read_saved_voice, read_spoken_voice
from livekit_personaplex.model.voices import Voice


def prepare_prompt(core: EngineCore, voice: str, persona: str) -> PromptPlan:
    """Lay out a system prompt like ``core.prepare``, also with a voice that is a file.

    Args:
        core: Whose model it is for.
        voice: Path of a recording or of a ``.pt`` voice; else a voice's name.
        persona: Text of the persona; empty for none.

    Raises:
        ConfigError: The voice is neither, the file cannot be used, or the persona is too long.
    """
    path = Path(voice)
    if not path.is_file():
        return core.prepare(voice, persona)
    ids = core.model.tokenizer.encode(tag_persona(persona))
    return build_prompt(core.model.config, _read_voice(core.model, path), ids)


def _read_voice(model: PersonaPlex, path: Path) -> Voice:
    content = path.read_bytes()
    if path.suffix.lower() == ".pt":
        return read_saved_voice(path.name, content, model.config)
    return read_spoken_voice(
        path.name, content, lambda frames: encode_speech(model.mimi.encoder, frames, model.device)
    )
