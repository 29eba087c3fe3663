"""What the README shows exists and can be run."""

import importlib
import re
import shlex
from pathlib import Path

import pytest

from livekit_personaplex import settings
from livekit_personaplex.cli.main import main

PROJECT = Path(__file__).resolve().parents[1]
README = (PROJECT / "README.md").read_text(encoding="utf-8")
EXAMPLES = sorted((PROJECT / "examples").glob("*.py"))
PAGES = [PROJECT / "README.md", *sorted((PROJECT / "examples").glob("*/*.md"))]

each_page = pytest.mark.parametrize(
    "page", PAGES, ids=lambda page: str(page.relative_to(PROJECT).with_suffix(""))
)


def code_blocks(language: str, page: Path = PAGES[0]) -> list[str]:
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def test_the_readme_stays_short() -> None:
    assert README.count("\n") <= 200


def test_its_python_compiles() -> None:
    blocks = code_blocks("python")
    assert blocks
    for block in blocks:
        compile(block, "README.md", "exec")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_compile(path: Path) -> None:
    compile(path.read_text(encoding="utf-8"), str(path), "exec")


def test_its_make_targets_exist() -> None:
    makefile = (PROJECT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, flags=re.MULTILINE))
    named = set(re.findall(r"make ([a-z]+)", "".join(code_blocks("sh"))))
    assert named
    assert named <= targets


@each_page
def test_commands_and_their_options_exist(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "".join(code_blocks("sh", page)).replace("\\\n", " ").splitlines()
    commands = [shlex.split(line)[1:] for line in lines if line.startswith("livekit-personaplex ")]
    assert commands or page.parent != PROJECT
    for command in commands:
        module = importlib.import_module(f"livekit_personaplex.cli.{command[0].replace('-', '_')}")
        monkeypatch.setattr(module, "run", lambda arguments: 0)
        assert main(command) == 0, command


@each_page
def test_what_is_linked_exists(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / link).exists(), link


def test_its_files_exist() -> None:
    named = set(re.findall(r"\]\(([^)#:]+)\)", README)) | set(
        re.findall(r"^\s*([\w./]+\.(?:py|md|toml|json))\s", "".join(code_blocks("text")), re.M)
    )
    assert named
    for name in named:
        assert (PROJECT / name).exists(), name


def test_every_setting_is_in_its_table_and_no_other() -> None:
    documented = set(re.findall(r"PERSONAPLEX_[A-Z]+", README))
    known = set(re.findall(r"PERSONAPLEX_[A-Z]+", settings.__doc__ or ""))
    assert documented == known


def test_the_python_versions_are_those_of_the_package() -> None:
    project = (PROJECT / "pyproject.toml").read_text(encoding="utf-8")
    assert 'requires-python = ">=3.10,<3.14"' in project
    assert "Python 3.10 to 3.13" in README
