"""What a persona should look like: the forms that PersonaPlex was trained with, as a linter.

The model was trained with short personas in the second person, of three forms. Others work less
well, and some not at all, so this gives remarks, not errors. Plain strings: no torch, no livekit;
the remarks never repeat the persona's text, so they can be logged.

Source: NVIDIA/personaplex README, "Prompting Guide".
"""

import re
from dataclasses import dataclass
from typing import Literal

WINDOW_STEPS = 3_000
"""Of the real model: 240 s."""
STEPS_PER_S = 12.5
CHARACTERS_PER_TOKEN = 3.6
"""Of English personas, about; used where no tokenizer is at hand."""
LONG_TOKENS = 400
"""Longer ones were rare in training, and leave less of the window to the conversation."""

FORMS = (
    "You work for X which is a Y and your name is Z. Information: ...",
    "You enjoy having a good conversation. ...",
    "You are a wise and friendly teacher. Answer questions or provide advice in a clear and "
    "engaging way.",
)
"""What was trained with, to show to people."""

RemarkCode = Literal[
    "empty",
    "untrained_form",
    "service_form",
    "not_second_person",
    "first_person",
    "caller_role",
    "markup",
    "system_tag",
    "long",
    "tools",
    "language",
]


@dataclass(frozen=True, slots=True)
class PersonaRemark:
    """Something about a persona that may disappoint.

    Attributes:
        code: Which rule.
        message: What is the matter and what to do; holds nothing of the persona.
    """

    code: RemarkCode
    message: str


_TAG = "<system>"
_SERVICE = re.compile(r"you work for .+ which is an? .+ and your name is .+", re.I | re.S)
_OTHER_FORMS = re.compile(r"you enjoy having a good conversation|you are a wise and friendly", re.I)
_RULES: tuple[tuple[RemarkCode, re.Pattern[str], str], ...] = (
    (
        "first_person",
        re.compile(r"\b(I am|I'm|my name is|I work)\b", re.I),
        "it speaks in the first person; the model was trained with 'You ...', 'your name is ...'",
    ),
    (
        "caller_role",
        re.compile(
            r"\byou (are calling|want to (order|book|buy)|are an? (customer|caller))\b", re.I
        ),
        "it makes the agent the one who calls; the model was trained to be called, and falls back "
        "into that role",
    ),
    (
        "markup",
        re.compile(
            r"^\s*(#{1,6}\s|[-*+]\s|\d+[.)]\s|>|\|)|\*\*|__|`|\{\{|\{%|</?(?!system>)[a-z][^>]*>|https?://",
            re.I | re.M,
        ),
        "it has markup (headings, lists, tags, templates or links), which the model takes for "
        "words; write plain sentences",
    ),
    (
        "tools",
        re.compile(
            r"\b(call|use|invoke)\b.{0,30}\b(tools?|functions?|api)\b|\btransfer the call", re.I
        ),
        "it asks for tools; the model can only talk",
    ),
)


def lint_persona(
    persona: str, *, num_tokens: int | None = None, window_steps: int = WINDOW_STEPS
) -> list[PersonaRemark]:
    """Look at a persona.

    Args:
        persona: As it is given to a model or an ``Agent``.
        num_tokens: Its length, if a tokenizer is at hand; estimated otherwise.
        window_steps: Of the model.

    Returns:
        Remarks, the weightiest first; none for a persona of a trained form.
    """
    text = persona.strip()
    if text.startswith(_TAG) and text.endswith(_TAG) and len(text) >= 2 * len(_TAG):
        text = text.removeprefix(_TAG).removesuffix(_TAG).strip()
    if not text:
        return [
            PersonaRemark("empty", f"there is no persona; begin with one of: {'; '.join(FORMS)}")
        ]
    tokens = round(len(text) / CHARACTERS_PER_TOKEN) if num_tokens is None else num_tokens
    remarks = [*_lint_length(tokens, window_steps), *_lint_form(text)]
    if _TAG in text:
        message = f"it has {_TAG} inside; the tags are put around it, leave them out"
        remarks.append(PersonaRemark("system_tag", message))
    remarks += [PersonaRemark(code, told) for code, rule, told in _RULES if rule.search(text)]
    letters = [char for char in text if char.isalpha()]
    if sum(not char.isascii() for char in letters) > 0.2 * len(letters):
        remarks.append(PersonaRemark("language", "it is not in English, the model's only language"))
    return remarks


def _lint_length(tokens: int, window_steps: int) -> list[PersonaRemark]:
    if tokens <= min(LONG_TOKENS, window_steps // 4):
        return []
    rest_s = max(0, window_steps - tokens) / STEPS_PER_S
    message = (
        f"it has about {tokens} tokens of the model's window of {window_steps} steps: the model "
        f"begins to forget it after {rest_s:.0f} s of talk; keep what callers ask for most"
    )
    return [PersonaRemark("long", message)]


def _lint_form(text: str) -> list[PersonaRemark]:
    if _OTHER_FORMS.match(text) or _SERVICE.match(text):
        return []
    if text.lower().startswith("you work for"):
        message = f"it is nearly the trained form; write it as: {FORMS[0]}"
        return [PersonaRemark("service_form", message)]
    message = f"it has none of the trained forms; the nearest to yours may be: {'; '.join(FORMS)}"
    remarks = [PersonaRemark("untrained_form", message)]
    if not re.search(r"\byou(r|'re)?\b", text, re.I):
        told = "it does not speak to the model; write 'You ...' and 'your name is ...'"
        remarks.append(PersonaRemark("not_second_person", told))
    return remarks
