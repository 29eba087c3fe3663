"""Makes the callers of the behaviour tests: ``python -m examples.demo_model.behaviour_data WORK``.

Writes ``calls.json`` and ``callers.ogg`` (all that callers say, one after another, Opus) to
``tests/data/behaviour``: the tests need no text to speech.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from numpy.typing import NDArray

from examples.demo_model.bank.bank import Bank
from examples.demo_model.lm.workshop import open_tokens
from examples.demo_model.measure import asked_in, callers_of, interruption_of, murmur_of
from examples.demo_model.talk.call_rows import CallPlan
from examples.demo_model.talk.calls import plan_exam
from livekit_personaplex.audio import FRAME_SAMPLES, SAMPLE_RATE_HZ

_CALLS = {"trained": 6, "held": 4}
_FRAMES = 420
_SEED = 83


class Tape:
    """Utterances one after another, each once."""

    def __init__(self, bank: Bank) -> None:
        """Begin with nothing."""
        self._bank = bank
        self._starts: dict[int, int] = {}
        self.parts: list[NDArray[np.int16]] = []
        self._length = 0

    def place(self, utterance: int) -> list[int]:
        """Give first sample and length of an utterance on the tape."""
        if utterance not in self._starts:
            self._starts[utterance] = self._length
            self.parts.append(self._bank.audio_of(utterance))
            self._length += len(self.parts[-1])
        return [self._starts[utterance], int(self._bank.frames[utterance]) * FRAME_SAMPLES]

    def place_speech(self, utterance: int) -> list[int]:
        """Likewise, from where its speech begins."""
        first, length = self.place(utterance)
        skipped = int(self._bank.speech_s[utterance, 0] * SAMPLE_RATE_HZ)
        return [first + skipped, length - skipped]


def describe(bank: Bank, plan: CallPlan, tape: Tape, name: str) -> dict[str, Any]:
    """Give a call as the tests read it."""
    return {
        "set": name,
        "persona": plan.persona,
        "caller": [{"at": at, "tape": tape.place(utterance)} for utterance, at in plan.caller],
        "asked": [
            {
                "kind": asked.kind,
                "start_s": round(asked.start_s, 3),
                "end_s": round(asked.end_s, 3),
                "until_s": round(asked.until_s, 3),
                "facts": list(asked.facts),
            }
            for asked in asked_in(plan)
        ],
        "murmur": tape.place_speech(murmur_of(bank, plan.speaker)),
        "interruption": tape.place_speech(interruption_of(bank, plan.speaker)),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Plan the calls and write both files."""
    parser = argparse.ArgumentParser(description="Write the callers of the behaviour tests.")
    parser.add_argument("work", type=Path)
    parser.add_argument("--out", type=Path, default=Path("tests/data/behaviour"))
    options = parser.parse_args(arguments)
    bank, tokens = Bank.open(options.work / "bank"), open_tokens(options.work)
    tape = Tape(bank)
    calls = []
    for name, count in _CALLS.items():
        callers = callers_of(bank, name)
        for number in range(count):
            plan = plan_exam(
                np.random.default_rng([_SEED, number]),
                bank,
                tokens,
                _FRAMES,
                held=name == "held",
                caller=callers[number * 7 % len(callers)],
            )
            calls.append(describe(bank, plan, tape, name))
    options.out.mkdir(parents=True, exist_ok=True)
    sound = np.concatenate(tape.parts)
    path = options.out / "callers.ogg"
    soundfile.write(path, sound, SAMPLE_RATE_HZ, format="OGG", subtype="OPUS")
    content = json.dumps(calls, indent=1) + "\n"
    (options.out / "calls.json").write_text(content, encoding="utf-8")
    asked = sum(len(call["asked"]) for call in calls)
    print(f"{asked} questions, {len(sound) / SAMPLE_RATE_HZ:.0f} s, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
