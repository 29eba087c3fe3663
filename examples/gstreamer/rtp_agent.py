#!/usr/bin/python3
"""The agent as one end of a G.711 call over RTP: what PBXs, SBCs and softphones speak.

Hears PCMU or PCMA at 8 kHz on one UDP port and sends the same to another, 20 ms a packet, from the
first moment on. Signalling is not its business: whatever answers the call (Asterisk's ExternalMedia
or a SIP stack of yours) points the media here. Lost and late packets, silence suppression and
packets of other payload types (comfort noise, telephone events) are dealt with.

Run it with the system's Python and GStreamer, as the documentation of `livekit_personaplex.gst`
says, and ask for what it can do with --help::

    export GST_PLUGIN_PATH=$PWD/livekit_personaplex/gst
    livekit-personaplex serve --model nvidia/personaplex-7b-v1 --listen unix:/run/personaplex.sock &
    /usr/bin/python3 examples/gstreamer/rtp_agent.py --engine unix:/run/personaplex.sock \
        --listen 127.0.0.1:5004 --send 127.0.0.1:5006 --codec pcma
"""

import argparse
import signal
import sys

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstApp", "1.0")
from gi.repository import GLib, Gst, GstApp  # noqa: E402, F401  (GstApp gives appsink its methods)

CODECS = {"pcmu": ("PCMU", 0, "mulaw"), "pcma": ("PCMA", 8, "alaw")}
PIPELINE = """
udpsrc name=caller address={hear_host} port={hear_port}
    caps="application/x-rtp,media=audio,clock-rate=8000,encoding-name={name},payload={number}"
    ! rtpjitterbuffer latency={jitter_ms} ! rtp{codec}depay ! {coder}dec
    ! audioconvert ! audioresample ! personaplex name=agent
agent.src ! queue ! audioconvert ! audioresample ! {coder}enc
    ! rtp{codec}pay min-ptime=20000000 max-ptime=20000000
    ! udpsink host={send_host} port={send_port}
agent.text ! queue ! appsink name=words sync=false async=false emit-signals=true
"""
PROPERTIES = ("engine", "voice", "persona", "greeting")


def main() -> int:
    options = parse_options()
    Gst.init(None)
    pipeline = make_pipeline(options)
    loop = GLib.MainLoop()
    status = []
    bus = pipeline.get_bus()
    bus.add_signal_watch()
    bus.connect("message::error", on_error, loop, status)
    for number in (signal.SIGINT, signal.SIGTERM):
        GLib.unix_signal_add(GLib.PRIORITY_DEFAULT, number, loop.quit)
    if pipeline.set_state(Gst.State.PLAYING) != Gst.StateChangeReturn.FAILURE:
        print(f"listening on {options.listen}, sending to {options.send}", flush=True)
    loop.run()
    pipeline.set_state(Gst.State.NULL)
    return status[0] if status else 0


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Talk G.711 over RTP.")
    add = parser.add_argument
    add("--engine", default="", metavar="ADDRESS", help="default: PERSONAPLEX_ENGINE")
    add("--voice", default="", metavar="NAME", help="default: the engine's usual one")
    add("--persona", default="", metavar="TEXT", help="who the agent is")
    add("--greeting", default="", metavar="TEXT", help="words that the agent begins with")
    add("--codec", choices=CODECS, default="pcmu")
    add("--listen", default="127.0.0.1:5004", metavar="HOST:PORT", help="where the caller is heard")
    add("--send", default="127.0.0.1:5006", metavar="HOST:PORT", help="where the agent is sent to")
    add("--jitter-ms", type=int, default=60, metavar="MS", help="how late packets may be")
    return parser.parse_args()


def make_pipeline(options: argparse.Namespace) -> Gst.Pipeline:
    name, number, coder = CODECS[options.codec]
    hear_host, _, hear_port = options.listen.rpartition(":")
    send_host, _, send_port = options.send.rpartition(":")
    pipeline = Gst.parse_launch(
        PIPELINE.format(
            hear_host=hear_host,
            hear_port=int(hear_port),
            send_host=send_host,
            send_port=int(send_port),
            jitter_ms=options.jitter_ms,
            codec=options.codec,
            name=name,
            number=number,
            coder=coder,
        )
    )
    agent = pipeline.get_by_name("agent")
    for given in PROPERTIES:  # not in the text above: a persona may hold any character
        agent.set_property(given, getattr(options, given))
    caller = pipeline.get_by_name("caller").get_static_pad("src")
    caller.add_probe(Gst.PadProbeType.BUFFER, keep_payload_type, number)
    pipeline.get_by_name("words").connect("new-sample", print_words)
    return pipeline


def keep_payload_type(pad: Gst.Pad, info: Gst.PadProbeInfo, number: int) -> Gst.PadProbeReturn:
    """Leave out packets that carry something else: comfort noise, telephone events."""
    header = info.get_buffer().extract_dup(0, 2)
    is_ours = len(header) == 2 and header[1] & 0x7F == number
    return Gst.PadProbeReturn.OK if is_ours else Gst.PadProbeReturn.DROP


def print_words(sink: Gst.Element) -> Gst.FlowReturn:
    buffer = sink.emit("pull-sample").get_buffer()
    print(buffer.extract_dup(0, buffer.get_size()).decode(), end="", flush=True)
    return Gst.FlowReturn.OK


def on_error(bus: Gst.Bus, message: Gst.Message, loop: GLib.MainLoop, status: list[int]) -> None:
    error, _ = message.parse_error()
    print(f"{message.src.get_name()}: {error.message}", file=sys.stderr)
    status.append(1)
    loop.quit()


if __name__ == "__main__":
    sys.exit(main())
