"""One open session's data flow through the element: its audio in, its audio and words out.

The caller's streaming thread ends in the `Conductor`, and one of this element's own begins there.
Whatever ends the flow (a failed engine, a sink that takes no more, a flush, the element's state) is
told to both by halting it.
"""

from gi.repository import GObject, Gst

from livekit_personaplex.errors import PersonaPlexError
from livekit_personaplex.gst.call import CallOptions, EngineCall, Saying
from livekit_personaplex.gst.conductor import Conductor, End
from livekit_personaplex.gst.element_errors import post_error, post_stream_error
from livekit_personaplex.gst.first_speaker import CallerFirst
from livekit_personaplex.gst.input_segment import InputSegment, fault_of
from livekit_personaplex.gst.outputs import Outputs
from livekit_personaplex.gst.timeline import Pace, Played, samples_from_ns
from livekit_personaplex.gst.user_track import SAMPLE_BYTES
from livekit_personaplex.log import logger

_FATAL = (Gst.FlowReturn.ERROR, Gst.FlowReturn.NOT_LINKED, Gst.FlowReturn.NOT_NEGOTIATED)


class Stream:
    """An open session between an element's pads.

    Attributes:
        conductor: The conversation's time.
        outputs: The source pads.
    """

    def __init__(
        self, element: Gst.Element, sink: Gst.Pad, src: Gst.Pad, options: CallOptions
    ) -> None:
        """Open the session; blocks until its system prompt is done.

        Raises:
            PersonaPlexError: What `EngineCall` raises.
        """
        self._element = element
        self._sink = sink
        self._src = src
        self._segment: InputSegment | None = None
        self._flow = Gst.FlowReturn.FLUSHING
        self._has_failed = False
        self._caller_first: CallerFirst | None = None
        self.outputs = Outputs(element, src)
        self.conductor = Conductor(send=self._send, running_ns=self._running_ns, on_end=self.fail)
        try:
            self._call = EngineCall(
                options,
                on_frame=self.conductor.deliver,
                on_end=self.fail,
                on_said=self._announce_said,
            )
        except BaseException:
            self.conductor.close()
            raise
        if options.first_speaker == "caller":
            self._caller_first = CallerFirst(
                self._call.release,
                has_greeting=options.greeting != "",
                timeout_s=options.caller_first_timeout_s,
            )

    def announce(self) -> None:
        """Post an element message that names the session."""
        session = self._call.session
        about = Gst.Structure.new_empty("personaplex-session")
        about.set_value("session", session.session_id)
        about.set_value("seed", GObject.Value(GObject.TYPE_INT64, session.seed))
        about.set_value("prompt-steps", session.prompt_steps)
        about.set_value("open-ms", session.open_ms)
        self._element.post_message(Gst.Message.new_element(self._element, about))

    def say(self, text: str) -> int:
        """Let the agent say words next; gives their number. A message tells when they are said."""
        return self._call.say(text)

    def stop_saying(self) -> None:
        """Take back the words that are given and not said yet."""
        self._call.stop_saying()

    def close(self) -> None:
        """End the session; the pads are inactive already. Takes less than 2 s."""
        self.conductor.close()
        self._call.close()

    def activate(self) -> None:
        """Let data flow."""
        self._flow = Gst.FlowReturn.OK
        self._src.start_task(self._push_next)

    def deactivate(self) -> None:
        """Let no data flow any more; returns when the streaming thread has ended."""
        self._flow = Gst.FlowReturn.FLUSHING
        self.conductor.halt()
        self._src.stop_task()

    def learn_pace(self) -> None:
        """Ask upstream whether it is live, and how late its audio comes."""
        query = Gst.Query.new_latency()
        if self._sink.peer_query(query):
            is_live, min_ns, _ = query.parse_latency()
            self.note_source(is_live, min_ns)

    def note_source(self, is_live: bool, min_ns: int) -> None:
        """Remember what upstream said; that it is live, or not, is for the whole session."""
        pace = Pace.CLOCK if is_live else Pace.ENGINE
        if self.conductor.pace in (Pace.UNKNOWN, pace):
            self.conductor.set_pace(pace, source_latency_ns=min_ns)

    def take_buffer(self, buffer: Gst.Buffer) -> Gst.FlowReturn:
        """Take the caller's audio; blocks while the conversation is behind."""
        self._settle_pace()
        pcm = buffer.extract_dup(0, buffer.get_size())
        position = None
        if self._segment is not None:
            placed = self._segment.place(buffer.pts, len(pcm) // SAMPLE_BYTES)
            if placed is None:
                return self._flow_in()
            position = placed.position
            pcm = pcm[placed.first * SAMPLE_BYTES : placed.stop * SAMPLE_BYTES]
        is_discont = buffer.has_flags(Gst.BufferFlags.DISCONT)
        if self.conductor.put(position, pcm, is_discont=is_discont):
            return Gst.FlowReturn.OK
        return self._flow_in()

    def take_gap(self, pts_ns: int, duration_ns: int) -> bool:
        """Take a time in which there is nothing to hear."""
        self._settle_pace()
        if self._segment is None or Gst.CLOCK_TIME_NONE in (pts_ns, duration_ns):
            return True
        placed = self._segment.place(pts_ns, samples_from_ns(duration_ns))
        if placed is None or placed.position is None:
            return True
        return self.conductor.put_silence(placed.position, placed.stop - placed.first)

    def take_segment(self, segment: Gst.Segment) -> bool:
        """Place what follows by `segment`; one that cannot be used is an element error."""
        fault = fault_of(segment)
        if fault is not None:
            self._break(Gst.StreamError.FORMAT, fault)
            return False
        self._segment = InputSegment(segment)
        return True

    def take_end(self) -> bool:
        """Drain: what the caller's audio asked for is still played."""
        self.conductor.end_audio()
        return not self._has_failed

    def begin_flush(self) -> None:
        """Forget what waits; downstream has been told already, so that nothing hangs there."""
        self._flow = Gst.FlowReturn.FLUSHING
        self.conductor.halt()
        self._src.pause_task()

    def end_flush(self) -> None:
        """Go on with what comes next; the conversation is the same."""
        self._segment = None
        self.outputs.restart()
        self.conductor.restart()
        self._flow = Gst.FlowReturn.OK
        if self._has_failed:
            self.conductor.halt()
        self._src.start_task(self._push_next)

    def fail(self, error: PersonaPlexError) -> None:
        """End the flow, because the session ended by itself; any thread."""
        if not self._has_failed:
            self._has_failed = True
            post_error(self._element, error, is_opening=False)
            self.conductor.halt()

    def _break(self, code: Gst.StreamError, text: str) -> None:
        if not self._has_failed:
            self._has_failed = True
            post_stream_error(self._element, code, text)
            self.conductor.halt()

    def _settle_pace(self) -> None:
        if self.conductor.pace is Pace.UNKNOWN:
            self.learn_pace()
        if self.conductor.pace is Pace.UNKNOWN:
            self.conductor.set_pace(Pace.ENGINE)

    def _flow_in(self) -> Gst.FlowReturn:
        """Say how the flow goes to whoever brings audio."""
        return Gst.FlowReturn.ERROR if self._has_failed else self._flow

    def _push_next(self, *_: object) -> None:
        """Push the next frame; the streaming thread runs this again and again."""
        try:
            played = self.conductor.take()
            if isinstance(played, Played):
                offset_ns = 0 if self._segment is None else self._segment.stream_offset_ns
                flow = self.outputs.push(played, stream_offset_ns=offset_ns)
                if flow == Gst.FlowReturn.OK:
                    return
                self._end_flow(flow)
            elif played is End.END or self._has_failed:
                self.outputs.end()
        except Exception:
            logger.exception("the streaming thread of an element failed")
            self._break(Gst.StreamError.FAILED, "this element failed; see its log")
        self._src.pause_task()

    def _end_flow(self, flow: Gst.FlowReturn) -> None:
        self._flow = flow
        if flow in _FATAL:
            self._break(
                Gst.StreamError.FAILED, f"nobody takes the agent's audio: {flow.value_nick}"
            )
            self.outputs.end()
        self.conductor.halt()

    def _send(self, pcm: bytes) -> None:
        self._call.send(pcm)
        if self._caller_first is not None:
            self._caller_first.hear(pcm)

    def _announce_said(self, saying: Saying) -> None:
        about = Gst.Structure.new_empty("personaplex-said")
        about.set_value("number", saying.number)
        about.set_value("complete", saying.complete)
        about.set_value("reason", saying.reason)
        self._element.post_message(Gst.Message.new_element(self._element, about))

    def _running_ns(self) -> int | None:
        running_ns: int = self._element.get_current_running_time()
        return None if running_ns == Gst.CLOCK_TIME_NONE else running_ns
