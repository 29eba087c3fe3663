"""Run by the system's Python: one pipeline around the element, fed step by step, and a report.

``gst_child.py SCRIPT`` reads a JSON object from the file SCRIPT and writes one to standard output.
Either ``launch`` is a whole pipeline with ``appsink name=out``, or the pipeline is the element with
``properties``, and ``steps`` say what its caller and its application do.
"""

import gc
import json
import os
import sys
import threading
import time
import weakref
from pathlib import Path

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstApp", "1.0")
from gi.repository import Gst, GstApp  # noqa: E402, F401  (GstApp gives appsink its methods)

MS = 1_000_000
PIECE_SAMPLES = 480
TIMEOUT_S = 15.0


class Collector:
    """What comes out of an appsink, as it comes."""

    def __init__(self, sink):
        self.buffers = []
        self.data = []
        self.changed = threading.Condition()
        self.is_over = False
        sink.connect("eos", self._on_eos)
        sink.set_property("emit-signals", True)
        sink.connect("new-sample", self._on_sample)

    def _on_eos(self, sink):
        with self.changed:
            self.is_over = True
            self.changed.notify_all()

    def wait_over(self):
        with self.changed:
            return self.changed.wait_for(lambda: self.is_over, TIMEOUT_S)

    def _on_sample(self, sink):
        buffer = sink.emit("pull-sample").get_buffer()
        has = buffer.has_flags
        flags = [has(Gst.BufferFlags.DISCONT), has(Gst.BufferFlags.GAP)]
        with self.changed:
            self.buffers.append([buffer.pts, buffer.duration, *flags])
            self.data.append(buffer.extract_dup(0, buffer.get_size()))
            self.changed.notify_all()
        return Gst.FlowReturn.OK

    def wait(self, num_buffers):
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.buffers) >= num_buffers, TIMEOUT_S)


class Feed:
    """The caller: a pad that pushes what it is told, live or not."""

    def __init__(self, script, pipeline, element):
        self.pcm = Path(script["user"]).read_bytes() if "user" in script else b""
        self.live_latency_ms = script.get("live_latency_ms")
        self.flows = []
        self.pipeline = pipeline
        self.pad = Gst.Pad.new("feed", Gst.PadDirection.SRC)
        self.pad.set_query_function_full(self._on_query)
        nothing = Gst.PadLinkCheck.NOTHING
        linked = self.pad.link_full(element.get_static_pad("sink"), nothing)
        assert linked == Gst.PadLinkReturn.OK

    def _on_query(self, pad, parent, query):
        if query.type != Gst.QueryType.LATENCY:
            return pad.query_default(parent, query)
        is_live = self.live_latency_ms is not None
        query.set_latency(is_live, (self.live_latency_ms or 0) * MS, Gst.CLOCK_TIME_NONE)
        return True

    def begin(self, rate_hz=24_000):
        self.pad.set_active(True)
        self.pad.push_event(Gst.Event.new_stream_start("caller"))
        self.caps(rate_hz)
        self.segment("time", 1.0)

    def caps(self, rate_hz):
        caps = f"audio/x-raw,format=S16LE,layout=interleaved,channels=1,rate={rate_hz}"
        self.pad.push_event(Gst.Event.new_caps(Gst.Caps.from_string(caps)))

    def segment(self, kind, rate):
        segment = Gst.Segment()
        segment.init(getattr(Gst.Format, kind.upper()))
        segment.rate = rate
        self.pad.push_event(Gst.Event.new_segment(segment))

    def audio(self, pts_ms, first, stop, is_discont=False):
        """Push samples in pieces of 20 ms; a live source has each when it has passed."""
        for begin in range(first, stop, PIECE_SAMPLES):
            end = min(begin + PIECE_SAMPLES, stop)
            buffer = Gst.Buffer.new_wrapped(self.pcm[begin * 2 : end * 2])
            if pts_ms is not None:
                buffer.pts = round(pts_ms * MS) + (begin - first) * Gst.SECOND // 24_000
            buffer.duration = (end - begin) * Gst.SECOND // 24_000
            if is_discont and begin == first:
                buffer.set_flags(Gst.BufferFlags.DISCONT)
            if self.live_latency_ms is not None:
                self._wait_until(buffer.pts + buffer.duration)
            flow = self.pad.push(buffer)
            self.flows.append(flow.value_nick)
            if flow != Gst.FlowReturn.OK:
                return

    def gap(self, pts_ms, duration_ms):
        self.pad.push_event(Gst.Event.new_gap(round(pts_ms * MS), duration_ms * MS))

    def flush(self):
        self.pad.push_event(Gst.Event.new_flush_start())
        self.pad.push_event(Gst.Event.new_flush_stop(False))
        self.segment("time", 1.0)

    def eos(self):
        self.pad.push_event(Gst.Event.new_eos())

    def _wait_until(self, running_ns):
        while (now_ns := self.pipeline.get_current_running_time()) < running_ns:
            time.sleep((running_ns - now_ns) / Gst.SECOND)


class Run:
    """One pipeline, from its first step to its report."""

    def __init__(self, script):
        self.script = script
        self.report = {"errors": [], "eos": False, "session": None, "values": [], "said": []}
        if "launch" in script:
            self.pipeline = Gst.parse_launch(script["launch"])
            self.element = self.pipeline.get_by_name("p")
        else:
            self.pipeline, self.element = build(script)
        self.collectors = {
            name: Collector(sink)
            for name in ("out", "words")
            if (sink := self.pipeline.get_by_name(name)) is not None
        }
        self.feed = None if "launch" in script else Feed(script, self.pipeline, self.element)

    def run(self):
        for name, *arguments in self.script.get("steps", [["state", "PLAYING"], ["wait_end"]]):
            (getattr(self, name, None) or getattr(self.feed, name))(*arguments)
        self.report["stats"] = stats_of(self.element)
        self.pipeline.set_state(Gst.State.NULL)
        self.report["flows"] = self.feed.flows if self.feed is not None else []
        for name, collector in self.collectors.items():
            self.report[name] = collector.buffers
            data = collector.data
            self.report[f"{name}_data"] = [piece.hex() for piece in data]
        return self.report

    def state(self, name):
        self.report["values"].append(self.pipeline.set_state(getattr(Gst.State, name)).value_nick)

    def latency(self):
        query = Gst.Query.new_latency()
        assert self.element.get_static_pad("src").query(query)
        self.report["values"].append(list(query.parse_latency()))

    def pipeline_latency(self, latency_ms):
        self.pipeline.set_latency(latency_ms * MS)

    def wait_out(self, num_buffers):
        self.collectors["out"].wait(num_buffers)

    def wait_end(self):
        end_s = time.monotonic() + TIMEOUT_S
        while not (self.report["eos"] or self.report["errors"]) and time.monotonic() < end_s:
            self.note_messages(timeout_ns=100 * MS)

    def wait_end_of_stream(self):
        self.report["sink_eos"] = self.collectors["out"].wait_over()

    def forget_end(self):
        self.report["eos"] = False

    def note_messages(self, timeout_ns=0):
        bus = self.pipeline.get_bus()
        while (message := bus.timed_pop(timeout_ns)) is not None:
            if message.type == Gst.MessageType.EOS:
                self.report["eos"] = True
            elif message.type == Gst.MessageType.ERROR:
                error, _ = message.parse_error()
                about = [message.src.get_name(), error.domain, error.code, error.message]
                self.report["errors"].append(about)
            elif message.type == Gst.MessageType.ELEMENT:
                self.note_session(message.get_structure())

    def note_session(self, about):
        if about.get_name() == "personaplex-session":
            names = ("session", "seed", "prompt-steps", "open-ms")
            self.report["session"] = {name: about.get_value(name) for name in names}
        if about.get_name() == "personaplex-said":
            names = ("number", "complete", "reason")
            self.report["said"].append([about.get_value(name) for name in names])

    def emit(self, name, *arguments):
        self.report["values"].append(self.element.emit(name, *arguments))

    def wait_said(self, num_sayings):
        end_s = time.monotonic() + TIMEOUT_S
        while len(self.report["said"]) < num_sayings and time.monotonic() < end_s:
            self.note_messages(timeout_ns=100 * MS)

    def sleep(self, ms):
        time.sleep(ms / 1000)

    def kill(self, pid, number):
        os.kill(pid, number)

    def get(self, name):
        self.report["values"].append(self.element.get_property(name))

    def set(self, name, value):
        self.element.set_property(name, value)

    def refuse(self, name, value):
        """Set a property; note whether it was refused and its value is what it was."""
        before = self.element.get_property(name)
        try:
            self.element.set_property(name, value)
            was_refused = False
        except (TypeError, OverflowError, ValueError):
            was_refused = True
        now = self.element.get_property(name)
        self.report["values"].append(was_refused or (name != "stats" and now == before))

    def unreadable(self, name):
        try:
            self.element.get_property(name)
            self.report["values"].append(False)
        except TypeError:
            self.report["values"].append(True)

    def stall(self):
        """Push audio in another thread until it blocks; note how much was taken."""
        pushing = threading.Thread(
            target=self.feed.audio, args=(0, 0, len(self.feed.pcm) // 2), daemon=True
        )
        pushing.start()
        num_taken = -1
        while num_taken != len(self.feed.flows):
            num_taken = len(self.feed.flows)
            time.sleep(0.3)
        self.report["values"].append([num_taken, pushing.is_alive()])

    def count_left_elements(self, num_runs):
        """Open and close many elements; note how many of them still exist."""
        references = []
        for _ in range(num_runs):
            pipeline, element = build({**self.script, "words": True})
            references.append(weakref.ref(element))
            pipeline.set_state(Gst.State.PAUSED)
            pipeline.set_state(Gst.State.NULL)
            del pipeline, element
        gc.collect()
        self.report["values"].append(sum(ref() is not None for ref in references))


def build(script):
    pipeline = Gst.Pipeline.new("pipeline")
    element = Gst.ElementFactory.make("personaplex", "p")
    for name, value in script.get("properties", {}).items():
        element.set_property(name, value)
    pipeline.add(element)
    for name, pad in (("out", "src"), ("words", "text")):
        if name == "words" and not script.get("words"):
            continue
        queue = Gst.ElementFactory.make("queue", None)
        queue.set_property("max-size-buffers", script.get("queue_buffers", 200))
        sink = Gst.ElementFactory.make("appsink", name)
        sink.set_property("sync", script.get("sync", False))
        if "live_latency_ms" in script:
            sink.set_property("async", False)  # as beside a live source, which the feed is not
        pipeline.add(queue)
        pipeline.add(sink)
        assert element.link_pads(pad, queue, "sink") and queue.link(sink)
    return pipeline, element


def stats_of(element):
    counts = element.get_property("stats")
    names = [counts.nth_field_name(index) for index in range(counts.n_fields())]
    return {name: counts.get_value(name) for name in names}


if __name__ == "__main__":
    Gst.init(None)
    report = Run(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))).run()
    report["modules"] = sorted({"torch", "livekit", "transformers"} & set(sys.modules))
    sys.stdout.write(json.dumps(report) + "\n")
