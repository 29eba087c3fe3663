"""``livekit-personaplex doctor``: what is missing on this machine, and what to do about it."""

import argparse
import json
import sys
from dataclasses import asdict

from livekit_personaplex.doctor.finding import has_failed, write_findings

DESCRIPTION = """\
Check this machine and say what to do about each thing that is wrong: Python and packages, the GPU
and how many conversations fit on it, the model's files and who may have them, voices, the LiveKit
server and its keys, ports, and what browsers need before they give a page a microphone.

It looks at the settings that a worker would use: PERSONAPLEX_MODEL, PERSONAPLEX_DEVICE,
PERSONAPLEX_SLOTS, PERSONAPLEX_KV, PERSONAPLEX_VOICES, PERSONAPLEX_ENGINE, PERSONAPLEX_METRICS,
LIVEKIT_URL, LIVEKIT_API_KEY and LIVEKIT_API_SECRET. It changes nothing and downloads nothing.

Exit code: 0 all is well (warnings do not count), 1 something keeps calls from being served.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.description = DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--persona", metavar="TEXT", help="a persona to look at too")
    parser.add_argument("--json", action="store_true", help="write the findings as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Examine this machine and tell."""
    from livekit_personaplex.doctor.examination import examine  # not for --help

    findings = examine(arguments.persona)
    is_well = not has_failed(findings)
    if arguments.json:
        document = {"ok": is_well, "findings": [asdict(finding) for finding in findings]}
        sys.stdout.write(json.dumps(document, indent=1) + "\n")
    else:
        sys.stdout.write(write_findings(findings))
        sys.stdout.write("all is well\n" if is_well else "calls cannot be served yet\n")
    return 0 if is_well else 1
