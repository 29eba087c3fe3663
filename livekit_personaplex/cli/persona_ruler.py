"""The length of personas, by the model's own vocabulary and window."""

from livekit_personaplex.errors import PersonaPlexError
from livekit_personaplex.web.persona_length import PersonaRuler


def find_ruler(model: str) -> PersonaRuler:
    """Make a ruler that counts as an engine does; one that estimates where that is not possible.

    Blocks while the model's code is imported, for some seconds. An engine has loaded the same model
    before, so that nothing is downloaded.

    Args:
        model: Model folder or hub id.
    """
    from livekit_personaplex.model.config import load_config
    from livekit_personaplex.model.hub import resolve_model
    from livekit_personaplex.model.prompt import max_persona_tokens, tag_persona
    from livekit_personaplex.model.text import TextTokenizer

    try:
        folder = resolve_model(model)
        config = load_config(folder)
        tokenizer = TextTokenizer(folder / config.tokenizer_name)
    except PersonaPlexError:  # a model made of random numbers has no files
        return PersonaRuler()
    return PersonaRuler(
        window=config.temporal_config.context,
        max_tokens=max_persona_tokens(config),
        count_tokens=lambda persona: len(tokenizer.encode(tag_persona(persona))),
    )
