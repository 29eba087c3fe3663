"""The element ``personaplex``: pads, properties, and the session's life over the element's states.

Pad functions are functions, not methods: a method would keep the element alive for good, since its
pad belongs to it.
"""

from dataclasses import asdict
from typing import Any

from gi.repository import GObject, Gst

from livekit_personaplex.errors import PersonaPlexError
from livekit_personaplex.gst.element_errors import post_error
from livekit_personaplex.gst.outputs import AUDIO_CAPS, TEXT_CAPS
from livekit_personaplex.gst.properties import SPECIFICATIONS, Properties
from livekit_personaplex.gst.stream import Stream
from livekit_personaplex.gst.timeline import LIVE_LATENCY_NS, MAX_UNPUSHED_NS

_TEMPLATES = (
    ("sink", Gst.PadDirection.SINK, Gst.PadPresence.ALWAYS, AUDIO_CAPS),
    ("src", Gst.PadDirection.SRC, Gst.PadPresence.ALWAYS, AUDIO_CAPS),
    ("text", Gst.PadDirection.SRC, Gst.PadPresence.REQUEST, TEXT_CAPS),
)
_ACTION = GObject.SignalFlags.RUN_LAST | GObject.SignalFlags.ACTION
_OWN_EVENTS = (
    Gst.EventType.STREAM_START,
    Gst.EventType.STREAM_COLLECTION,
    Gst.EventType.CAPS,
    Gst.EventType.TAG,
    Gst.EventType.TOC,
)
"""Events about the caller's stream; the agent's is another one."""


class PersonaPlexElement(Gst.Element):
    """A conversation with a running engine: whoever is heard on ``sink`` is answered on ``src``."""

    __gtype_name__ = "GstPersonaPlex"
    __gstmetadata__ = (
        "PersonaPlex",
        "Filter/Effect/Audio",
        "Talks with whoever is heard: speech to speech by a running livekit-personaplex engine",
        "livekit-personaplex",
    )
    __gsttemplates__ = tuple(
        Gst.PadTemplate.new(name, direction, presence, Gst.Caps.from_string(caps))
        for name, direction, presence, caps in _TEMPLATES
    )
    __gproperties__ = SPECIFICATIONS
    __gsignals__ = {
        "say": (_ACTION, GObject.TYPE_INT, (str,)),
        "stop-saying": (_ACTION, None, ()),
    }

    # of the class too: GStreamer releases pads when the object's own are gone already
    stream: Stream | None = None
    text: Gst.Pad | None = None

    def __init__(self) -> None:
        """Make an element without a session; GStreamer calls this."""
        super().__init__()
        self.properties = Properties()
        self.sink = Gst.Pad.new_from_template(self.get_pad_template("sink"), "sink")
        self.sink.set_chain_function_full(_on_buffer)
        self.sink.set_event_function_full(_on_event)
        self.src = Gst.Pad.new_from_template(self.get_pad_template("src"), "src")
        self.src.set_query_function_full(_on_query)
        self.src.set_activatemode_function_full(_on_activate)
        self.add_pad(self.sink)
        self.add_pad(self.src)

    def do_set_property(self, specification: GObject.ParamSpec, value: Any) -> None:
        """Set a property."""
        self.properties[specification.name] = value

    def do_get_property(self, specification: GObject.ParamSpec) -> Any:
        """Give a property."""
        if specification.name != "stats":
            return self.properties[specification.name]
        counts = Gst.Structure.new_empty("personaplex-stats")
        if self.stream is not None:
            for name, count in asdict(self.stream.conductor.counts()).items():
                counts.set_value(name.replace("_", "-"), count)
        return counts

    def do_say(self, text: str | None) -> int:
        """Let the agent say words next, in its own voice; empty: it begins with words of its own.

        Returns:
            The number of these words, which the element message ``personaplex-said`` has as
            ``number`` when they are said (``complete``), taken back or refused (``reason``);
            -1 without a session.
        """
        stream = self.stream
        return -1 if stream is None else stream.say(text or "")

    def do_stop_saying(self) -> None:
        """Take back the words that are given and not said yet, the greeting's too."""
        if self.stream is not None:
            self.stream.stop_saying()

    def do_change_state(self, transition: Gst.StateChange) -> Gst.StateChangeReturn:
        """Open the session before data flows, and close it afterwards."""
        if transition == Gst.StateChange.READY_TO_PAUSED and not self._open():
            return Gst.StateChangeReturn.FAILURE
        if transition == Gst.StateChange.PLAYING_TO_PAUSED and self.stream is not None:
            self.stream.conductor.set_playing(False)
        result = Gst.Element.do_change_state(self, transition)
        if transition == Gst.StateChange.PAUSED_TO_PLAYING and self.stream is not None:
            self.stream.learn_pace()
            self.stream.conductor.set_playing(True)
        has_failed = result == Gst.StateChangeReturn.FAILURE
        if transition == Gst.StateChange.PAUSED_TO_READY or (
            transition == Gst.StateChange.READY_TO_PAUSED and has_failed
        ):
            self._close()
        return result

    def do_request_new_pad(
        self, template: Gst.PadTemplate, name: str | None, caps: Gst.Caps | None
    ) -> Gst.Pad | None:
        """Add the pad of the agent's words; there is one."""
        if self.text is not None:
            return None
        self.text = Gst.Pad.new_from_template(template, "text")
        self.text.set_active(True)
        self.add_pad(self.text)
        if self.stream is not None:
            self.stream.outputs.add_words(self.text)
        return self.text

    def do_release_pad(self, pad: Gst.Pad) -> None:
        """Take the pad of the agent's words away."""
        if self.stream is not None:
            self.stream.outputs.remove_words()
        self.text = None
        pad.set_active(False)
        self.remove_pad(pad)

    def _open(self) -> bool:
        try:
            options = self.properties.call_options()
            self.stream = Stream(self, self.sink, self.src, options)
        except PersonaPlexError as error:
            post_error(self, error, is_opening=True)
            return False
        if self.text is not None:
            self.stream.outputs.add_words(self.text)
        self.stream.announce()
        return True

    def _close(self) -> None:
        stream, self.stream = self.stream, None
        if stream is not None:
            stream.close()


def register() -> tuple[str, Gst.Rank, type[PersonaPlexElement]]:
    """Register the type; gives what the plugin loader looks for."""
    GObject.type_register(PersonaPlexElement)
    return ("personaplex", Gst.Rank.NONE, PersonaPlexElement)


def _on_buffer(pad: Gst.Pad, element: PersonaPlexElement, buffer: Gst.Buffer) -> Gst.FlowReturn:
    stream = element.stream
    return Gst.FlowReturn.FLUSHING if stream is None else stream.take_buffer(buffer)


def _on_event(pad: Gst.Pad, element: PersonaPlexElement, event: Gst.Event) -> bool:
    stream = element.stream
    if stream is None:
        return False
    if event.type in _OWN_EVENTS:
        return True
    if event.type == Gst.EventType.SEGMENT:
        return stream.take_segment(event.parse_segment().copy())
    if event.type == Gst.EventType.GAP:
        return stream.take_gap(*event.parse_gap())
    if event.type == Gst.EventType.EOS:
        return stream.take_end()
    if event.type == Gst.EventType.FLUSH_STOP:
        is_taken = bool(pad.event_default(element, event))
        stream.end_flush()
        return is_taken
    is_taken = bool(pad.event_default(element, event))
    if event.type == Gst.EventType.FLUSH_START:
        stream.begin_flush()
    return is_taken


def _on_query(pad: Gst.Pad, element: PersonaPlexElement, query: Gst.Query) -> bool:
    if query.type != Gst.QueryType.LATENCY:
        return bool(pad.query_default(element, query))
    if not element.sink.peer_query(query):
        return False
    is_live, min_ns, max_ns = query.parse_latency()
    if element.stream is not None:
        element.stream.note_source(is_live, min_ns)
    if is_live:
        if max_ns != Gst.CLOCK_TIME_NONE:
            max_ns += LIVE_LATENCY_NS + MAX_UNPUSHED_NS
        query.set_latency(True, min_ns + LIVE_LATENCY_NS, max_ns)
    return True


def _on_activate(
    pad: Gst.Pad, element: PersonaPlexElement, mode: Gst.PadMode, is_active: bool
) -> bool:
    stream = element.stream
    if mode != Gst.PadMode.PUSH or stream is None:
        return False
    if is_active:
        stream.activate()
    else:
        stream.deactivate()
    return True
