"""Talk to an engine by NVIDIA's protocol with a recording: WAV in, WAV and words out.

    livekit-personaplex serve --nvidia-protocol --listen 127.0.0.1:8998    # with PERSONAPLEX_TOKEN
    python examples/headless_client.py --voice NATF2 --input question.wav --output answer.wav

It speaks in real time, listens on for a while after its last word, and writes the agent's words to
standard output as they come. NVIDIA's own server understands it as well. It needs aiohttp, numpy
and sphn, and not this package.
"""

import argparse
import asyncio
import sys

import aiohttp
import numpy as np
import sphn
from aiohttp import WSMsgType

SAMPLE_RATE_HZ = 24_000
FRAME_SAMPLES = 1_920
FRAME_S = FRAME_SAMPLES / SAMPLE_RATE_HZ
HANDSHAKE, AUDIO, TEXT, ERROR = 0, 1, 2, 5
REASONS = {
    400: "it cannot use the voice, the persona or the seed",
    401: "it needs its token",
    503: "it is full, or not ready",
}


def main() -> int:
    """Hold one conversation; gives the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--url", default="ws://localhost:8998", help="ws://any:TOKEN@HOST:PORT with a token")
    add("--voice", default="NATF2", help="name of a voice")
    add("--persona", default="", help="who the agent is")
    add("--seed", type=int, default=-1, help="one seed, one conversation; -1 for a random one")
    add("--input", required=True, help="the caller: a recording of any rate")
    add("--output", required=True, help="the agent, a WAV file")
    add("--listen-on-s", type=float, default=4.0, help="silence after the recording")
    arguments = parser.parse_args()
    try:
        asyncio.run(converse(arguments))
    except aiohttp.WSServerHandshakeError as error:
        reason = REASONS.get(error.status, error.message)
        sys.stderr.write(f"the server refused with {error.status}: {reason}\n")
        return 1
    except (aiohttp.ClientError, ConnectionError) as error:
        sys.stderr.write(f"the conversation failed: {error}\n")
        return 1
    return 0


async def converse(arguments: argparse.Namespace) -> None:
    """Say the recording, then silence; write what the agent said meanwhile."""
    spoken = read_frames(arguments.input, arguments.listen_on_s)
    query = {
        "voice_prompt": f"{arguments.voice}.pt",
        "text_prompt": arguments.persona,
        "seed": str(arguments.seed),
    }
    async with aiohttp.ClientSession() as http:
        async with http.ws_connect(f"{arguments.url}/api/chat", params=query) as ws:
            heard = await exchange(ws, spoken)
    sphn.write_wav(arguments.output, np.concatenate(heard), SAMPLE_RATE_HZ)
    sys.stdout.write("\n")


def read_frames(path: str, silence_s: float) -> np.ndarray:
    """Read a recording as frames ``[n, 1920]`` of mono at 24 kHz, with silence behind it."""
    channels, rate_hz = sphn.read(path)
    samples = channels.mean(axis=0, keepdims=True)
    if rate_hz != SAMPLE_RATE_HZ:
        samples = sphn.resample(samples, rate_hz, SAMPLE_RATE_HZ)
    num_samples = samples.shape[1] + round(silence_s * SAMPLE_RATE_HZ)
    frames = np.zeros((-(-num_samples // FRAME_SAMPLES), FRAME_SAMPLES), dtype=np.float32)
    frames.reshape(-1)[: samples.shape[1]] = samples[0]
    return frames


async def exchange(ws: aiohttp.ClientWebSocketResponse, spoken: np.ndarray) -> list[np.ndarray]:
    """Send the frames in time and take what comes; returns the agent's audio in pieces."""
    heard: list[np.ndarray] = []
    is_ready = asyncio.Event()
    listening = asyncio.create_task(listen(ws, is_ready, heard))
    speaking = asyncio.create_task(speak(ws, is_ready, spoken))
    await asyncio.wait({listening, speaking}, return_when=asyncio.FIRST_COMPLETED)
    if not speaking.done():
        speaking.cancel()
        await listening  # raises the server's reason, if it gave one
        raise ConnectionError("the server ended it early")
    await ws.close()
    await asyncio.gather(listening, speaking)
    return heard


async def listen(
    ws: aiohttp.ClientWebSocketResponse, is_ready: asyncio.Event, heard: list[np.ndarray]
) -> None:
    """Take what comes until the end; words go to standard output."""
    stream = sphn.OpusStreamReader(SAMPLE_RATE_HZ)
    async for message in ws:
        if message.type is not WSMsgType.BINARY:
            continue
        kind, payload = message.data[0], message.data[1:]
        if kind == HANDSHAKE:
            is_ready.set()
        elif kind == AUDIO:
            heard.append(stream.append_bytes(payload))
        elif kind == TEXT:
            sys.stdout.write(payload.decode())
            sys.stdout.flush()
        elif kind == ERROR:
            raise ConnectionError(payload.decode())


async def speak(
    ws: aiohttp.ClientWebSocketResponse, is_ready: asyncio.Event, frames: np.ndarray
) -> None:
    """Send one frame every 80 ms, from the handshake on."""
    stream = sphn.OpusStreamWriter(SAMPLE_RATE_HZ)
    await is_ready.wait()
    loop = asyncio.get_running_loop()
    begin_s = loop.time()
    for index, frame in enumerate(frames):
        await asyncio.sleep(begin_s + (index + 1) * FRAME_S - loop.time())
        await ws.send_bytes(bytes([AUDIO]) + stream.append_pcm(frame))


if __name__ == "__main__":
    sys.exit(main())
