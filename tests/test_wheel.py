"""The wheel as people install it: what it holds, and that LiveKit finds the plugin in it."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[1]
TINY16 = Path(__file__).parent / "data" / "tiny16" / "checkpoint"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel's content, as pip would lay it."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder],
        cwd=PROJECT,
        check=True,
        capture_output=True,
        timeout=120,
    )
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def run(installed: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python where the installed folder goes before the working tree."""
    ours = {name: v for name, v in os.environ.items() if not name.startswith("PERSONAPLEX_")}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=installed.parent,
        env={**ours, "PYTHONPATH": str(installed), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_it_holds_the_package_and_the_plugins_name_and_nothing_else(installed: Path) -> None:
    tops = {path.name for path in installed.iterdir() if not path.name.endswith(".dist-info")}
    assert tops == {"livekit_personaplex", "livekit"}
    files = {path.relative_to(installed / "livekit") for path in installed.glob("livekit/**/*.py")}
    assert files == {Path("plugins/personaplex/__init__.py")}, "the namespace belongs to nobody"
    assert (installed / "livekit_personaplex" / "py.typed").is_file()


def test_the_plugin_has_livekits_name_beside_livekits_own_packages(installed: Path) -> None:
    code = (
        "import livekit.agents, livekit_personaplex\n"
        "from livekit.plugins import personaplex\n"
        "assert personaplex.PersonaPlexModel is livekit_personaplex.PersonaPlexModel\n"
        "print(livekit_personaplex.__file__, personaplex.__file__)"
    )
    done = run(installed, "-c", code)
    assert done.returncode == 0, done.stderr
    for path in done.stdout.split():
        assert path.startswith(str(installed)), "the working tree was imported"


def test_livekit_finds_it_when_it_downloads_files_and_tells_what_it_says(installed: Path) -> None:
    done = run(installed, "-m", "livekit.agents", "download-files", PERSONAPLEX_MODEL="/nowhere")
    assert done.returncode == 1, done.stderr
    assert "livekit.plugins.personaplex" in done.stderr
    told = "files for livekit_personaplex.plugin: expected a model folder or a hub id"
    assert told in done.stderr and "Traceback" not in done.stderr


def test_it_holds_the_page_and_the_library_that_set_up_installed(installed: Path) -> None:
    static = installed / "livekit_personaplex" / "web" / "static"
    ours = PROJECT / "livekit_personaplex" / "web" / "static"
    assert (static / "index.html").is_file()
    vendor = {path.name for path in (ours / "vendor").glob("*")}
    assert {path.name for path in (static / "vendor").glob("*")} == vendor
    assert not vendor or {"livekit-client.esm.mjs", "livekit-client.LICENSE"} <= vendor


def test_its_command_is_there(installed: Path) -> None:
    (entry_points,) = installed.glob("*.dist-info/entry_points.txt")
    assert "livekit-personaplex = livekit_personaplex.cli.main:main" in entry_points.read_text()
    done = run(installed, "-m", "livekit_personaplex.cli.main", "--version")
    assert done.returncode == 0 and done.stdout.startswith("livekit-personaplex ")
