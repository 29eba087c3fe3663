"""The example that talks G.711 over RTP, at the other end of a real pair of UDP ports."""

import asyncio
import io
import os
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray
from safetensors.numpy import load_file

from livekit_personaplex.wire.address import EngineAddress
from livekit_personaplex.wire.client import fetch_stats
from tests.fakes import wait_until
from tests.gst_harness import PROJECT, SYSTEM_PYTHON, GStreamer

EXAMPLE = PROJECT / "examples" / "gstreamer" / "rtp_agent.py"
HEADER = struct.Struct("!BBHII")
PACKET_SAMPLES = 160
RATE_HZ = 8_000
COMFORT_NOISE, TELEPHONE_EVENT = 13, 101
LAWS = {"pcmu": ("ULAW", 0), "pcma": ("ALAW", 8)}


@dataclass
class Line:
    """A telephone's end of the line: sends what it is told, keeps every packet that comes."""

    codec: str
    to_port: int
    socket: socket.socket
    received: list[tuple[float, bytes]] = field(default_factory=list)
    number: int = 65_530  # both counters run over in mid-call
    timestamp: int = 2**32 - 4_000
    due_s: float = 0.0

    def listen(self) -> None:
        while packet := self.socket.recv(2_048):
            self.received.append((time.monotonic(), packet))

    def send_tone(self, pitch_hz: int, num_packets: int, *, lost: tuple[int, ...] = ()) -> None:
        """Send a tone at its pace; numbers and times of lost packets pass all the same."""
        times_s = np.arange(num_packets * PACKET_SAMPLES) / RATE_HZ
        tone = (9_000 * np.sin(2 * np.pi * pitch_hz * times_s)).astype(np.int16)
        for index, samples in enumerate(tone.reshape(num_packets, PACKET_SAMPLES)):
            self._let_pass(1)
            if index not in lost:
                self._send(LAWS[self.codec][1], encode(samples, self.codec), is_begin=index == 0)
            self.number += 1
            self.timestamp += PACKET_SAMPLES

    def send_other(self, payload_type: int, payload: bytes) -> None:
        self._send(payload_type, payload, is_begin=False)
        self.number += 1

    def be_silent(self, num_packets: int) -> None:
        """Send nothing for a while, as silence suppression does: time goes on, numbers do not."""
        self._let_pass(num_packets)
        self.timestamp += num_packets * PACKET_SAMPLES

    def _let_pass(self, num_packets: int) -> None:
        """Wait on a schedule of its own, so that a late packet makes no later ones late."""
        self.due_s += num_packets * 0.02
        time.sleep(max(0.0, self.due_s - time.monotonic()))

    def _send(self, payload_type: int, payload: bytes, *, is_begin: bool) -> None:
        second = payload_type | (0x80 if is_begin else 0)
        numbers = (self.number % 2**16, self.timestamp % 2**32)
        packet = HEADER.pack(0x80, second, *numbers, 7) + payload
        self.socket.sendto(packet, ("127.0.0.1", self.to_port))


def encode(samples: NDArray[np.int16], codec: str) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, RATE_HZ, subtype=LAWS[codec][0], format="RAW")
    return file.getvalue()


def decode(payload: bytes, codec: str) -> NDArray[np.int16]:
    about = {"channels": 1, "samplerate": RATE_HZ, "subtype": LAWS[codec][0], "format": "RAW"}
    samples, _ = soundfile.read(io.BytesIO(payload), dtype="int16", **about)
    return np.asarray(samples)


@contextmanager
def running_example(
    gstreamer: GStreamer, engine: EngineAddress, codec: str
) -> Iterator[tuple[Line, subprocess.Popen[str]]]:
    here, there = (socket.socket(type=socket.SOCK_DGRAM) for _ in range(2))
    with here:
        with there:
            for each in (here, there):
                each.bind(("127.0.0.1", 0))
            line = Line(codec, there.getsockname()[1], here)  # its port is free again from here on
        options = ["--engine", str(engine), "--voice", "TINY0", "--codec", codec]
        ports = ["--listen", f"127.0.0.1:{line.to_port}"]
        ports += ["--send", f"127.0.0.1:{here.getsockname()[1]}"]
        with subprocess.Popen(
            [SYSTEM_PYTHON, str(EXAMPLE), *options, *ports],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=gstreamer.environment,
        ) as process:
            listener = threading.Thread(target=line.listen)
            listener.start()
            try:
                yield line, process
            finally:
                process.kill()
                here.sendto(b"", here.getsockname())
                listener.join()


@pytest.mark.parametrize("codec", LAWS)
def test_a_telephone_call_over_rtp_is_held_both_ways(
    gstreamer: GStreamer, tiny_engine: EngineAddress, codec: str
) -> None:
    with running_example(gstreamer, tiny_engine, codec) as (line, process):
        wait_until(lambda: len(line.received) >= 10)  # the agent does not wait to be called
        line.due_s = time.monotonic()
        line.send_tone(440, 50, lost=(25,))
        line.send_other(COMFORT_NOISE, b"\x40")
        line.be_silent(25)
        line.send_other(TELEPHONE_EVENT, b"\x05\x0a\x00\xa0")
        line.send_tone(880, 25)
        line.be_silent(25)
        process.send_signal(signal.SIGTERM)
        words, log = process.communicate(timeout=20.0)
    assert process.returncode == 0, log
    assert len(words.split()) > 3
    check_agent_side(line)
    check_caller_side(newest_recording(tiny_engine))
    wait_until(lambda: asyncio.run(fetch_stats(tiny_engine)).used == 0)


def check_agent_side(line: Line) -> None:
    """Assert that the agent's packets are one unbroken G.711 stream at its own pace."""
    headers = [HEADER.unpack(packet[: HEADER.size]) for _, packet in line.received]
    assert {(first, second & 0x7F, source) for first, second, _, _, source in headers} == {
        (0x80, LAWS[line.codec][1], headers[0][4])
    }
    assert {len(packet) for _, packet in line.received} == {HEADER.size + PACKET_SAMPLES}
    numbers, times = ([header[at] for header in headers] for at in (2, 3))
    assert {(b - a) % 2**16 for a, b in zip(numbers, numbers[1:], strict=False)} == {1}
    assert {(b - a) % 2**32 for a, b in zip(times, times[1:], strict=False)} == {PACKET_SAMPLES}
    took_s = line.received[-1][0] - line.received[0][0]
    assert took_s == pytest.approx(0.02 * len(headers), abs=0.5)
    spoken = b"".join(packet[HEADER.size :] for _, packet in line.received)
    assert decode(spoken, line.codec).std() > 100


def check_caller_side(frames: NDArray[np.int16]) -> None:
    """Assert that both tones were heard in their time, with the lost packet as a short hole."""
    pieces = frames.reshape(-1, 480).astype(np.float64)  # 20 ms
    is_loud = np.sqrt(np.mean(np.square(pieces), axis=1)) > 2_000
    first, last = np.flatnonzero(is_loud)[[0, -1]]
    assert last - first + 1 == pytest.approx(100, abs=10)  # a busy machine has jitter of its own
    assert is_loud.sum() == pytest.approx(49 + 25, abs=5)
    assert not is_loud[first + 55 : last - 30].any()
    assert pitch_hz(pieces[first + 2 : first + 22]) == pytest.approx(440, abs=10)
    assert pitch_hz(pieces[last - 21 : last - 1]) == pytest.approx(880, abs=10)


def pitch_hz(pieces: NDArray[np.float64]) -> float:
    samples = pieces.reshape(-1)
    return float(np.argmax(np.abs(np.fft.rfft(samples)))) * 24_000 / len(samples)


def newest_recording(engine: EngineAddress) -> NDArray[np.int16]:
    """What the session that ended last has heard, ``[N, 1920]``."""
    folder = Path(engine.unix_path).with_name("recordings")
    newest = max(folder.glob("*.safetensors"), key=os.path.getmtime)
    return load_file(newest)["frames"]


def test_the_example_says_what_is_wrong(gstreamer: GStreamer) -> None:
    done = subprocess.run(
        [SYSTEM_PYTHON, str(EXAMPLE), "--engine", "unix:/nowhere/e.sock"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env=gstreamer.environment,
    )
    assert done.returncode == 1
    assert "agent: no engine answers at unix:/nowhere/e.sock" in done.stderr
