import subprocess
import sys


def run_python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_using_a_plugin_name_registers_the_plugin_once_for_preload_and_log_level() -> None:
    code = (
        "from livekit_personaplex import PersonaPlexModel, PersonaPlexServer\n"
        "import livekit_personaplex.plugin\n"
        "from livekit.agents import Plugin\n"
        "print([(p.package, p.logger.name) for p in Plugin.registered_plugins])"
    )
    assert run_python(code) == "[('livekit_personaplex.plugin', 'livekit_personaplex')]"


def test_the_plugin_may_first_be_used_on_another_thread() -> None:
    code = (
        "import threading\n"
        "def use():\n"
        "    from livekit_personaplex import PersonaPlexModel\n"
        "    print(PersonaPlexModel(voice='NATF2').options.voice)\n"
        "thread = threading.Thread(target=use)\n"
        "thread.start(); thread.join()\n"
        "from livekit.agents import Plugin\n"
        "print(Plugin.registered_plugins)"
    )
    assert run_python(code).split() == ["NATF2", "[]"]


def test_importing_the_package_alone_loads_no_livekit() -> None:
    code = (
        "import sys, livekit_personaplex\n"
        "livekit_personaplex.Sampling(seed=1), livekit_personaplex.ConfigError\n"
        "print('livekit' in sys.modules)"
    )
    assert run_python(code) == "False"
