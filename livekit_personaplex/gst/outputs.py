"""The element's source pads: the agent's audio, and its words where somebody asks for them.

Both stand on one time line, in running time. The pad of words is sparse: a frame that adds none is
a gap, so that whatever waits for words knows how far time has come.
"""

from gi.repository import Gst

from livekit_personaplex.audio import SAMPLE_RATE_HZ
from livekit_personaplex.gst.timeline import Played, ns_from_samples
from livekit_personaplex.gst.user_track import SAMPLE_BYTES

AUDIO_CAPS = f"audio/x-raw,format=S16LE,layout=interleaved,rate={SAMPLE_RATE_HZ},channels=1"
TEXT_CAPS = "text/x-raw,format=utf8"


class Output:
    """One source pad and how far its stream has come."""

    def __init__(self, pad: Gst.Pad, caps: str, *, is_sparse: bool) -> None:
        """Take a pad of an element."""
        self.pad = pad
        self._caps = caps
        self._is_sparse = is_sparse
        self._has_begun = False
        self._has_segment = False
        self._end: int | None = None

    def forget_segment(self) -> None:
        """Begin with a new segment, after a flush."""
        self._has_segment = False

    def prepare(self, element: Gst.Element, group_id: int, position: int, stream_ns: int) -> None:
        """Push the events that have to go before data, as far as they have not been pushed."""
        if not self._has_begun:
            stream_id = self.pad.create_stream_id(element, self.pad.get_name())
            begin = Gst.Event.new_stream_start(stream_id)
            begin.set_group_id(group_id)
            if self._is_sparse:
                begin.set_stream_flags(Gst.StreamFlags.SPARSE)
            self.pad.push_event(begin)
            self.pad.push_event(Gst.Event.new_caps(Gst.Caps.from_string(self._caps)))
            self._has_begun = True
        if not self._has_segment:
            segment = Gst.Segment()
            segment.init(Gst.Format.TIME)
            segment.start = segment.position = segment.base = ns_from_samples(position)
            segment.time = stream_ns
            self.pad.push_event(Gst.Event.new_segment(segment))
            self._has_segment = True
            self._end = None

    def push(self, data: bytes, position: int, num_samples: int, *, is_gap: bool) -> Gst.FlowReturn:
        """Push a buffer that lasts `num_samples` from `position` on."""
        buffer = Gst.Buffer.new_wrapped(data)
        buffer.pts = ns_from_samples(position)
        buffer.duration = ns_from_samples(position + num_samples) - buffer.pts
        if position != self._end:
            buffer.set_flags(Gst.BufferFlags.DISCONT)
        if is_gap:
            buffer.set_flags(Gst.BufferFlags.GAP)
        self._end = position + num_samples
        return self.pad.push(buffer)

    def push_gap(self, position: int, num_samples: int) -> None:
        """Say that nothing comes for a while."""
        begin = ns_from_samples(position)
        end = ns_from_samples(position + num_samples)
        self.pad.push_event(Gst.Event.new_gap(begin, end - begin))
        self._end = position + num_samples


class Outputs:
    """The pad of audio and, from when it is asked for, the pad of words.

    Pushing is for one thread; pads come and go from any.
    """

    def __init__(self, element: Gst.Element, audio: Gst.Pad) -> None:
        """Begin with the pad of audio alone."""
        self._element = element
        self._audio = Output(audio, AUDIO_CAPS, is_sparse=False)
        self._words: Output | None = None
        self._group_id = Gst.util_group_id_next()

    def add_words(self, pad: Gst.Pad) -> None:
        """Push words to a pad from now on."""
        self._words = Output(pad, TEXT_CAPS, is_sparse=True)

    def remove_words(self) -> None:
        """Push no more words."""
        self._words = None

    def restart(self) -> None:
        """Begin with new segments, after a flush."""
        for output in self._present():
            output.forget_segment()

    def push(self, played: Played, *, stream_offset_ns: int) -> Gst.FlowReturn:
        """Push one frame to all pads.

        Args:
            played: The frame.
            stream_offset_ns: Stream time less running time, of a segment that begins here.

        Returns:
            How the audio's flow goes; that of the words where only they are wanted.
        """
        num_samples = len(played.pcm) // SAMPLE_BYTES
        stream_ns = max(0, ns_from_samples(played.position) + stream_offset_ns)
        for output in self._present():
            output.prepare(self._element, self._group_id, played.position, stream_ns)
        words_flow = self._push_words(played.words, played.position, num_samples)
        flow = self._audio.push(played.pcm, played.position, num_samples, is_gap=played.is_filler)
        return words_flow if flow == Gst.FlowReturn.NOT_LINKED else flow

    def end(self) -> None:
        """Push the end of the stream to all pads."""
        for output in self._present():
            output.prepare(self._element, self._group_id, 0, 0)
            output.pad.push_event(Gst.Event.new_eos())

    def _push_words(self, words: str, position: int, num_samples: int) -> Gst.FlowReturn:
        output = self._words
        if output is None:
            return Gst.FlowReturn.NOT_LINKED
        if words:
            return output.push(words.encode(), position, num_samples, is_gap=False)
        output.push_gap(position, num_samples)
        return Gst.FlowReturn.OK if output.pad.is_linked() else Gst.FlowReturn.NOT_LINKED

    def _present(self) -> list[Output]:
        return [self._audio] if self._words is None else [self._audio, self._words]
