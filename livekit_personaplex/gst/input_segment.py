"""From the caller's timestamps to places on the time line."""

from dataclasses import dataclass

from gi.repository import Gst

from livekit_personaplex.gst.timeline import ns_from_samples, samples_from_ns


@dataclass(frozen=True, slots=True)
class Placed:
    """The part of some audio that lies inside its segment.

    Attributes:
        position: Its running time in samples; None when it has no timestamp and simply goes on.
        first: First of the samples that lie inside.
        stop: One after the last.
    """

    position: int | None
    first: int
    stop: int


class InputSegment:
    """The segment that timestamps of the caller's audio belong to."""

    def __init__(self, segment: Gst.Segment) -> None:
        """Take a segment in time format that runs forward at rate 1."""
        self._segment = segment

    @property
    def stream_offset_ns(self) -> int:
        """Stream time less running time."""
        begin = self._segment.start
        running_ns = self._segment.to_running_time(Gst.Format.TIME, begin)
        return int(self._segment.to_stream_time(Gst.Format.TIME, begin) - running_ns)

    def place(self, pts_ns: int, num_samples: int) -> Placed | None:
        """Find the place of some audio; None when all of it lies outside."""
        if pts_ns == Gst.CLOCK_TIME_NONE:
            return Placed(None, 0, num_samples)
        end_ns = pts_ns + ns_from_samples(num_samples)
        is_inside, begin_ns, stop_ns = self._segment.clip(Gst.Format.TIME, pts_ns, end_ns)
        if not is_inside:
            return None
        running_ns = self._segment.to_running_time(Gst.Format.TIME, begin_ns)
        first = samples_from_ns(begin_ns - pts_ns)
        return Placed(samples_from_ns(running_ns), first, samples_from_ns(stop_ns - pts_ns))


def fault_of(segment: Gst.Segment) -> str | None:
    """Say what is wrong with a segment for a conversation; None when nothing is."""
    if segment.format != Gst.Format.TIME:
        return "expected audio with times, got a segment in another format; put a parser before it"
    if segment.rate != 1.0:
        return f"a conversation runs forward at rate 1, got a segment at rate {segment.rate:g}"
    return None
