"""agent.py as it is, which also writes down what LiveKit knows of each call when it has ended.

A program: a worker started with it puts ``ROOM.json`` into the folder CALL_REPORTS.
"""

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from livekit.agents import JobContext, cli  # noqa: E402

import agent  # noqa: E402
from livekit_personaplex import PersonaPlexServer  # noqa: E402

server = PersonaPlexServer(host="127.0.0.1", port=0)


async def write_report(ctx: JobContext) -> None:
    report = ctx.make_session_report().to_dict()
    path = Path(os.environ["CALL_REPORTS"]) / f"{ctx.job.room.name}.json"
    part = path.with_suffix(".part")
    part.write_text(json.dumps(report, default=str), encoding="utf-8")
    part.rename(path)


@server.rtc_session(agent_name="personaplex", on_session_end=write_report)
async def talk(ctx: JobContext) -> None:
    await agent.talk(ctx)


if __name__ == "__main__":
    cli.run_app(server)
