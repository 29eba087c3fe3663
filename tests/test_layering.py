"""Who may import whom, how long things may be, and what importing the package may do."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import livekit_personaplex

PACKAGE = Path(livekit_personaplex.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
MAX_MODULE_LINES = 400
MAX_FUNCTION_LINES = 60

SHARED = {"audio", "errors", "first_word", "log", "loudness", "persona", "recognizer"} | {
    "sampling",
    "settings",
    "user_clock",
    "user_speech",
    "version",
}
MAY_USE = {
    "kernels": {"kernels"},
    "layers": {"layers", "kernels"},
    "model": {"model", "layers", "kernels"},
    "engine": {"engine", "model", "layers", "kernels", "wire"},
    "wire": {"wire"},
    "settings": {"wire"},
    "recognizer": {"wire"},
    "plugin": {"plugin", "wire"},
    "demo": {"demo", "wire"},
    "web": {"web", "demo", "plugin", "wire"},
    "gst": {"gst", "wire"},
    "bench": {"bench", "engine", "model", "layers", "kernels", "wire"},
    "doctor": {"doctor", "engine", "model", "kernels", "wire"},
    "offline": {"offline", "engine", "model", "layers", "kernels"},
    "cli": {"cli", "web", "demo", "doctor", "bench", "offline"}
    | {"engine", "model", "kernels", "wire"},
}
"""Rooms and what they may use beside the shared modules: the plugin and the demo stand on the wire;
across the process border the engine stands on model, layers and kernels."""

FORBIDDEN = {
    "kernels": {"livekit", "aiohttp"},
    "layers": {"livekit", "aiohttp"},
    "model": {"livekit", "aiohttp"},
    "engine": {"livekit"},
    "wire": {"livekit", "torch", "transformers"},
    "plugin": {"torch", "transformers"},
    "demo": {"torch", "transformers"},
    "web": {"torch", "transformers"},
    "gst": {"livekit", "torch", "transformers"},
    "offline": {"livekit", "aiohttp"},
} | {name: {"livekit", "torch", "transformers"} for name in SHARED}


def room_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else path.stem


def imports_of(path: Path) -> Iterator[str]:
    """Dotted names of everything a module imports, inside functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module is not None, f"{path}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def run_python(code: str) -> str:
    """Run code in a fresh interpreter and return what it wrote."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_uses_only_the_rooms_below_it(path: Path) -> None:
    room = room_of(path)
    if room == "__init__":
        return  # the public names; test_public_api.py says how they are resolved
    for name in imports_of(path):
        parts = name.split(".")
        if parts[0] == "livekit_personaplex":
            used = parts[1]
            assert used in SHARED or used in MAY_USE.get(room, set()), f"{path} imports {name}"
        assert parts[0] not in FORBIDDEN.get(room, set()), f"{path} imports {name}"


def test_modules_and_functions_stay_within_their_budgets() -> None:
    for path in MODULES:
        source = path.read_text(encoding="utf-8")
        assert source.count("\n") <= MAX_MODULE_LINES, path
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[1:] if ast.get_docstring(node) and node.body[1:] else node.body
                assert body[-1].end_lineno is not None
                length = body[-1].end_lineno - body[0].lineno + 1
                assert length <= MAX_FUNCTION_LINES, f"{path}: {node.name} has {length} lines"


def test_the_environment_is_read_in_settings_only() -> None:
    for path in MODULES:
        if path.name == "settings.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute):
                assert node.attr not in {"environ", "environb", "getenv"}, f"{path}: {node.attr}"


def test_the_package_writes_nothing_with_print() -> None:
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            assert not (isinstance(node, ast.Name) and node.id == "print"), path


def test_importing_the_package_and_its_plugin_loads_no_torch_and_starts_no_thread() -> None:
    code = (
        "import sys, threading, livekit_personaplex, livekit_personaplex.plugin\n"
        "[getattr(livekit_personaplex, name) for name in livekit_personaplex.__all__]\n"
        "print('torch' in sys.modules, 'transformers' in sys.modules, threading.active_count())"
    )
    assert run_python(code) == "False False 1"


def test_the_engine_side_imports_where_livekit_is_not_installed() -> None:
    modules = [
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        for path in MODULES
        if room_of(path) in {"kernels", "layers", "model", "engine", "wire", *SHARED}
        and path.stem != "__init__"
    ]
    code = (
        "import importlib, sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'livekit' or name.startswith('livekit.'):\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        "print('done')"
    )
    assert run_python(code) == "done"
