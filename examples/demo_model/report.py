"""Stage ``report``: ``WORK/report.html``, a page to listen to, with spectrograms and answers.

``python -m examples.demo_model.report WORK`` holds a few held-out calls and reads what ``measure``
saved. Everything is inside the one file.
"""

import argparse
import base64
import html
import io
import json
import struct
import wave
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from examples.demo_model.bank.bank import Bank
from examples.demo_model.lm.workshop import open_tokens
from examples.demo_model.measure import caller_track, callers_of
from examples.demo_model.measuring.card import NUMBERS
from examples.demo_model.measuring.free_run import Request, Spoken, hold_calls, open_core
from examples.demo_model.talk.calls import plan_exam
from livekit_personaplex.audio import SAMPLE_RATE_HZ
from livekit_personaplex.engine.core import find_device
from livekit_personaplex.sampling import Sampling

_FFT, _HOP, _BANDS, _FLOOR_DB = 1024, 240, 170, -80.0
_STYLE = """body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;
color:#222;background:#fff}img{width:100%;height:8rem;image-rendering:pixelated}audio{width:100%}
table{border-collapse:collapse}td,th{padding:.2rem .8rem;border-bottom:1px solid #ddd;
text-align:left}.who{color:#666}@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}
td,th{border-color:#444}.who{color:#999}}"""


def spectrogram(pcm: NDArray[np.int16]) -> NDArray[np.uint8]:
    """Give ``[bands, columns]`` grey values of the lower 8 kHz; the highest band first."""
    samples = np.pad(pcm.astype(np.float32) / 32768.0, _FFT // 2)
    frames = np.lib.stride_tricks.sliding_window_view(samples, _FFT)[::_HOP]
    power = np.abs(np.fft.rfft(frames * np.hanning(_FFT)))[:, : _FFT * 8000 // SAMPLE_RATE_HZ]
    bands = power[:, : power.shape[1] // 2 * 2].reshape(len(power), -1, 2).mean(2)[:, :_BANDS]
    level = 20.0 * np.log10(bands / (_FFT / 8) + 1e-6)
    grey = np.clip((level - _FLOOR_DB) / -_FLOOR_DB, 0.0, 1.0)
    picture: NDArray[np.uint8] = (255 * (1.0 - grey)).astype(np.uint8).T[::-1]
    return picture


def png(grey: NDArray[np.uint8]) -> bytes:
    """Write ``[height, width]`` grey values as a PNG."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        check = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)

    height, width = grey.shape
    rows = b"".join(b"\0" + row.tobytes() for row in grey)
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def wav(channels: Sequence[NDArray[np.int16]]) -> bytes:
    """Write tracks of one length as a WAV."""
    content = io.BytesIO()
    with wave.open(content, "wb") as file:
        file.setparams((len(channels), 2, SAMPLE_RATE_HZ, 0, "NONE", ""))
        file.writeframes(np.stack(channels, 1).astype("<i2").tobytes())
    return content.getvalue()


def data_url(kind: str, content: bytes) -> str:
    """Put a file into a link."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def call_section(
    request: Request, said: Spoken, asked: Sequence[tuple[float, str, tuple[str, ...]]]
) -> str:
    """Give one call: sound, both spectrograms and what was said when."""
    length = min(len(said.pcm), len(request.caller))
    agent, caller = said.pcm[:length], request.caller[:length]
    turns = [(line.start_s, "agent", line.text) for line in said.lines]
    turns += [
        (start_s, "caller", f"{kind} (should hear: {', '.join(facts) or 'anything'})")
        for start_s, kind, facts in asked
    ]
    rows = "".join(
        f"<tr><td>{start_s:.1f} s</td><td class=who>{who}</td><td>{html.escape(text)}</td></tr>"
        for start_s, who, text in sorted(turns)
    )
    pictures = "".join(
        f'<div class=who>{who}</div><img alt="spectrogram of the {who}, 0 to 8 kHz" '
        f'src="{data_url("image/png", png(spectrogram(track)))}">'
        for who, track in (("agent", agent), ("caller", caller))
    )
    sound = data_url("audio/wav", wav([agent, caller]))
    return (
        f"<h2>{html.escape(request.persona)}</h2><p class=who>Voice {html.escape(request.voice)}; "
        f'agent left, caller right.</p><audio controls src="{sound}"></audio>{pictures}'
        f"<table>{rows}</table>"
    )


def figures_section(measured: dict[str, Any]) -> str:
    """Give the table that ``measure`` made."""
    rows = "".join(
        f"<tr><td>{html.escape(name)}</td><td>{right} of {asked}</td></tr>"
        for name, (right, asked) in measured.get("table", {}).items()
    )
    for name in NUMBERS:
        if measured.get(name) is not None:
            rows += f"<tr><td>{html.escape(name)}</td><td>{measured[name]:.2f}</td></tr>"
    return f"<h2>Measured</h2><table>{rows}</table>" if rows else "<p>Not measured yet.</p>"


def page(sections: Sequence[str]) -> str:
    """Put sections into a page."""
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>The demo model</title>'
        f"<style>{_STYLE}</style><h1>The demo model</h1>{''.join(sections)}</html>\n"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Hold the calls and write the page."""
    parser = argparse.ArgumentParser(description="Write the page to listen to.")
    parser.add_argument("work", type=Path)
    parser.add_argument("--checkpoint", type=Path, help="default: WORK/checkpoint")
    parser.add_argument("--calls", type=int, default=4)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args(arguments)
    work, checkpoint = options.work, options.checkpoint or options.work / "checkpoint"
    bank, tokens = Bank.open(work / "bank"), open_tokens(work)
    core = open_core(checkpoint, find_device(options.device), slots=options.calls)
    callers = callers_of(bank, "held")
    requests, asked = [], []
    for seed in range(options.calls):
        r = np.random.default_rng([67, seed])
        caller = callers[seed % len(callers)]
        plan = plan_exam(r, bank, tokens, 375, held=True, caller=caller)
        voice = core.voices[seed % len(core.voices)]
        track = caller_track(bank, plan, seed)
        requests.append(Request(plan.persona, voice, Sampling(seed=seed), track))
        asked.append([(q.start_s, q.kind, q.facts) for q in plan.questions])
    path = work / "measured.json"
    measured = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    calls = zip(requests, hold_calls(core, requests), asked, strict=True)
    sections = [figures_section(measured), *(call_section(*call) for call in calls)]
    (work / "report.html").write_text(page(sections), encoding="utf-8")
    print(work / "report.html")


if __name__ == "__main__":
    main()
