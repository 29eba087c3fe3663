"""What the persona linter remarks on, and what it lets pass."""

import pytest

from livekit_personaplex.persona import FORMS, PersonaRemark, lint_persona

BANK = (
    "You work for First Neuron Bank which is a bank and your name is Alexis Kim. Information: The "
    "customer's transaction for $1,200 at Home Depot was declined. Verify customer identity."
)


def codes(persona: str, **options: int) -> list[str]:
    return [remark.code for remark in lint_persona(persona, **options)]


@pytest.mark.parametrize(
    "persona",
    [
        BANK,
        f"  <system> {BANK} <system>\n",
        "You enjoy having a good conversation.",
        "You enjoy having a good conversation. Have a casual talk about favourite foods.",
        "You work for Zoë's Café which is an eatery and your name is René.",
        *FORMS,
    ],
)
def test_trained_forms_pass(persona: str) -> None:
    assert lint_persona(persona) == []


@pytest.mark.parametrize(
    ("persona", "expected"),
    [
        ("", ["empty"]),
        ("<system>  <system>", ["empty"]),
        ("You are Ann.", ["untrained_form"]),
        ("You work for Acme.", ["service_form"]),
        ("The assistant is Ann and helps people.", ["untrained_form", "not_second_person"]),
        (f"{BANK} My name is Ann.", ["first_person"]),
        (f"{BANK}\n# Rules", ["markup"]),
        (f"{BANK}\n- be kind", ["markup"]),
        (f"{BANK} **Never** say {{{{name}}}}.", ["markup"]),
        (f"{BANK} <voice>calm</voice>", ["markup"]),
        (f"{BANK} See https://example.com.", ["markup"]),
        (f"{BANK} <system> {BANK}", ["system_tag"]),
        (f"{BANK} Call the lookup function when asked.", ["tools"]),
        ("You are calling a restaurant to order food.", ["untrained_form", "caller_role"]),
        (
            "You enjoy having a good conversation. Вы говорите по-русски всегда и везде.",
            ["language"],
        ),
    ],
)
def test_what_may_disappoint_is_named(persona: str, expected: list[str]) -> None:
    assert codes(persona) == expected


def test_a_hyphen_and_a_price_are_no_markup() -> None:
    assert codes(f"{BANK} Open 9-5, 3 * 4 dollars, 10 > 9, ask for #12.") == []


def test_length_is_measured_against_the_window() -> None:
    assert codes(BANK, num_tokens=400) == []
    (remark,) = lint_persona(BANK, num_tokens=1500)
    assert (remark.code, "120 s" in remark.message) == ("long", True)
    assert codes(BANK, num_tokens=60, window_steps=200) == ["long"]
    assert codes(BANK + " More about it." * 150) == ["long"]


def test_remarks_hold_nothing_of_the_persona() -> None:
    secret = "Xylophonia Quartz"
    persona = f"# {secret}\n**I am** {secret} <system> call the {secret} function " + secret * 200
    remarks = lint_persona(persona)
    assert len(remarks) > 4 and all(isinstance(remark, PersonaRemark) for remark in remarks)
    assert not any("Xylophonia" in remark.message for remark in remarks)
