"""examples/captions_agent.py with a recogniser that runs here.

A program for a worker.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from livekit.agents import JobContext, cli  # noqa: E402

from examples import captions_agent  # noqa: E402
from livekit_personaplex import LocalSTT, PersonaPlexServer  # noqa: E402

captions_agent.make_recognizer = LocalSTT
server = PersonaPlexServer(host="127.0.0.1", port=0)


@server.rtc_session(agent_name="personaplex")
async def talk(ctx: JobContext) -> None:
    await captions_agent.talk(ctx)


if __name__ == "__main__":
    cli.run_app(server)
