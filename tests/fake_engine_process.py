"""An engine process on a fake core: what ``serve`` does, plus something that goes wrong.

``fake_engine_process.py BEHAVIOUR ADDRESS [--exit-with-parent]``
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from livekit_personaplex.cli.log_lines import log_to_stderr
from livekit_personaplex.cli.serve import announce
from livekit_personaplex.engine.process import run_engine
from livekit_personaplex.errors import CheckpointError, PersonaPlexError
from livekit_personaplex.log import logger
from livekit_personaplex.settings import EngineSettings
from livekit_personaplex.wire.address import EngineAddress
from tests.fakes import FakeCore

STEPS_BEFORE_TROUBLE = 3


def make_core(behaviour: str) -> FakeCore:
    def raise_later(tick: int) -> None:
        if tick > STEPS_BEFORE_TROUBLE:
            raise RuntimeError("device lost")

    def hang_later(tick: int) -> None:
        if tick > STEPS_BEFORE_TROUBLE:
            time.sleep(3600)

    match behaviour:
        case "fine":
            logger.warning("a warning of the engine", extra={"slots": 2, "lk.pii.persona": "Zoe"})
            return FakeCore()
        case "no-checkpoint":
            raise CheckpointError("model.safetensors is missing")
        case "bug":
            raise RuntimeError("a bug in loading")
        case "slow":
            time.sleep(3600)
        case "tick-raises":
            return FakeCore(on_tick=raise_later)
        case "tick-hangs":
            return FakeCore(on_tick=hang_later)
    raise AssertionError(behaviour)


def main() -> int:
    behaviour, address = sys.argv[1:3]
    if behaviour == "stubborn":
        announce(EngineAddress.parse(address))
        time.sleep(3600)
    log_to_stderr()
    settings = EngineSettings.from_env(listen=EngineAddress.parse(address), tick_timeout_s=0.3)
    try:
        return run_engine(
            settings,
            lambda: make_core(behaviour),
            announce=announce,
            exit_with_parent="--exit-with-parent" in sys.argv,
        )
    except PersonaPlexError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
