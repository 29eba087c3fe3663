"""The element's time, without GStreamer: what is heard, what is played, and when."""

import random

import numpy as np
import pytest

from livekit_personaplex.audio import FRAME_BYTES, FRAME_SAMPLES
from livekit_personaplex.gst.agent_track import MAX_WAITING_FRAMES, AgentTrack
from livekit_personaplex.gst.timeline import (
    FRAME_NS,
    LIVE_LATENCY_NS,
    MAX_BEHIND_FRAMES,
    Pace,
    Timeline,
    ns_from_samples,
    samples_from_ns,
)
from livekit_personaplex.gst.user_track import MAX_DRIFT_SAMPLES, UserTrack
from livekit_personaplex.wire.protocol import AgentFrame

LOUD = np.full(FRAME_SAMPLES, 9_000, dtype=np.int16).tobytes()
QUIET = bytes(FRAME_BYTES)
SOURCE_NS = 50_000_000


def caller(num_samples: int, *, seed: int = 0) -> bytes:
    samples = np.random.default_rng(seed).integers(-3_000, 3_000, num_samples, dtype=np.int16)
    return samples.tobytes()


def agent_frame(step: int, *, words: str = "", pcm: bytes = LOUD) -> AgentFrame:
    return AgentFrame(step=step, pcm=pcm, text=words, tokens=(0,) * 9)


def begun_track(start: int = 0) -> UserTrack:
    track = UserTrack()
    track.start = start
    return track


def live_timeline() -> Timeline:
    timeline = Timeline()
    timeline.pace = Pace.CLOCK
    timeline.source_latency_ns = SOURCE_NS
    timeline.is_playing = True
    return timeline


@pytest.mark.parametrize("seed", range(5))
def test_any_cut_of_the_callers_audio_gives_the_same_frames(seed: int) -> None:
    pcm = caller(5 * FRAME_SAMPLES + 77, seed=seed)
    cuts = sorted(random.Random(seed).sample(range(1, len(pcm) // 2), k=20))
    track = begun_track(start=123)
    for begin, end in zip([0, *cuts], [*cuts, len(pcm) // 2], strict=True):
        track.put(123 + begin, pcm[2 * begin : 2 * end])
    frames = [track.take_frame() for _ in range(6)]
    assert b"".join(frames) == pcm + bytes(6 * FRAME_BYTES - len(pcm))
    assert track.num_waiting_samples == track.num_late_samples == 0


def test_a_hole_is_silence_and_takes_no_room() -> None:
    track = begun_track()
    track.put(0, caller(100))
    an_hour = 3_600 * 24_000
    track.put(an_hour, caller(100, seed=1))
    assert track.num_waiting_samples == 200 and track.num_left_samples == an_hour + 100
    assert track.take_frame() == caller(100) + bytes(FRAME_BYTES - 200)
    assert track.take_frame() == QUIET


def test_times_that_are_a_little_off_make_no_seam_and_others_do() -> None:
    track = begun_track()
    track.put(0, caller(500))
    track.put(500 + MAX_DRIFT_SAMPLES, caller(500, seed=1))
    track.put(1_000 - MAX_DRIFT_SAMPLES, caller(400, seed=2))
    assert track.take_frame()[:2_800] == caller(500) + caller(500, seed=1) + caller(400, seed=2)
    exact = begun_track()
    exact.put(0, caller(500))
    exact.put(510, caller(500, seed=1), max_drift_samples=0)
    assert exact.take_frame()[:2_020] == caller(500) + bytes(20) + caller(500, seed=1)


def test_what_comes_after_its_frame_was_cut_or_twice_is_not_heard() -> None:
    track = begun_track()
    track.put(0, caller(1_000))
    track.take_frame()
    track.put(FRAME_SAMPLES - 300, caller(800, seed=1), max_drift_samples=0)
    track.put(FRAME_SAMPLES + 400, caller(200, seed=2), max_drift_samples=0)
    assert track.num_late_samples == 300 + 100
    heard = caller(800, seed=1)[600:] + caller(200, seed=2)[200:]
    assert track.take_frame() == heard + bytes(FRAME_BYTES - len(heard))


def test_the_agents_delay_is_bounded_and_its_words_are_all_kept() -> None:
    track = AgentTrack()
    for step in range(MAX_WAITING_FRAMES + 2):
        track.put(agent_frame(step, words=f" {step}"))
    assert len(track) == MAX_WAITING_FRAMES and track.num_dropped == 2
    assert track.take() == (LOUD, " 0 1 2")
    assert track.take() == (LOUD, " 3")


def test_delay_is_given_back_where_the_agent_is_quiet() -> None:
    track = AgentTrack()
    track.put(agent_frame(0, pcm=QUIET))
    assert track.take() == (QUIET, "")  # nothing waits behind it: it is played
    for step, (words, pcm) in enumerate([("", QUIET), ("oh", QUIET), ("", LOUD), ("", QUIET)]):
        track.put(agent_frame(step, words=words, pcm=pcm))
    assert [track.take() for _ in range(4)] == [(QUIET, "oh"), (LOUD, ""), (QUIET, ""), None]
    assert track.num_dropped == 1


def test_without_a_clock_a_step_needs_both_sides() -> None:
    timeline = Timeline()
    timeline.pace = Pace.ENGINE
    timeline.begin(70)
    timeline.user.put(70, caller(FRAME_SAMPLES + 10))
    assert timeline.due_in_ns(None) is None
    timeline.agent.put(agent_frame(0, words="hi"))
    assert timeline.due_in_ns(None) == 0
    played, heard = timeline.step(None)
    assert (played.position, played.pcm, played.words) == (70, LOUD, "hi")
    assert heard == caller(FRAME_SAMPLES + 10)[:FRAME_BYTES]
    timeline.agent.put(agent_frame(1))
    assert timeline.due_in_ns(None) is None  # its caller's frame is not complete
    timeline.has_ended = True
    assert timeline.due_in_ns(None) == 0
    played, heard = timeline.step(None)
    assert played.pcm == LOUD[:20] and heard[20:] == bytes(FRAME_BYTES - 20)
    assert timeline.is_exhausted and timeline.due_in_ns(None) is None


def test_with_a_clock_a_step_is_due_when_the_callers_frame_must_have_come() -> None:
    timeline = live_timeline()
    now_ns = 7 * FRAME_NS + 5_000_000
    due_ns = 7 * FRAME_NS + SOURCE_NS + LIVE_LATENCY_NS
    assert timeline.due_in_ns(now_ns) == due_ns - now_ns
    assert timeline.due_in_ns(due_ns) == 0  # the grid was chosen once
    timeline.is_playing = False
    assert timeline.due_in_ns(due_ns) is None
    assert timeline.due_in_ns(None) is None


def test_a_late_answer_is_filled_in_and_played_next() -> None:
    timeline = live_timeline()
    timeline.begin(0)
    timeline.agent.put(agent_frame(0, words="a"))
    due_ns = SOURCE_NS + LIVE_LATENCY_NS
    steps = [timeline.step(due_ns)[0], timeline.step(due_ns + FRAME_NS)[0]]
    timeline.agent.put(agent_frame(1, words="b"))
    steps.append(timeline.step(due_ns + 2 * FRAME_NS)[0])
    assert [step.position for step in steps] == [0, FRAME_SAMPLES, 2 * FRAME_SAMPLES]
    assert [step.is_filler for step in steps] == [False, True, False]
    assert [step.words for step in steps] == ["a", "", "b"]
    assert (timeline.num_played, timeline.num_fillers) == (3, 1)


@pytest.mark.parametrize("num_missed", [MAX_BEHIND_FRAMES - 1, MAX_BEHIND_FRAMES])
def test_time_that_this_process_was_stuck_for_is_left_out(num_missed: int) -> None:
    timeline = live_timeline()
    timeline.begin(0)
    timeline.user.put(0, caller(10 * FRAME_SAMPLES))
    skipped = num_missed if num_missed >= MAX_BEHIND_FRAMES else 0
    late_ns = SOURCE_NS + LIVE_LATENCY_NS + num_missed * FRAME_NS + 1
    played, heard = timeline.step(late_ns)
    assert played.position == skipped * FRAME_SAMPLES
    assert heard == caller(10 * FRAME_SAMPLES)[skipped * FRAME_BYTES :][:FRAME_BYTES]
    assert timeline.num_skipped == skipped
    assert timeline.user.num_late_samples == skipped * FRAME_SAMPLES


@pytest.mark.parametrize("drift_ppm", [-1_000, 1_000])
def test_a_caller_whose_clock_drifts_is_heard_in_time(drift_ppm: int) -> None:
    timeline = live_timeline()
    piece, piece_ns = caller(480), 20_000_000 * (1_000_000 + drift_ppm) // 1_000_000
    seams = 0
    for index in range(3_000):
        begin_ns = index * piece_ns
        came_ns = begin_ns + SOURCE_NS + index % 5 * 1_000_000
        while (due_ns := timeline.due_in_ns(came_ns)) is not None and due_ns <= 0:
            timeline.step(came_ns + due_ns)
        before = timeline.user.end
        timeline.hear(samples_from_ns(begin_ns), piece, is_discont=False)
        seams += before is not None and timeline.user.end != before + 480
    assert timeline.num_skipped == 0
    lost_by_seams = max(0, -drift_ppm) * 60 * 24_000 // 1_000_000
    assert timeline.user.num_late_samples <= lost_by_seams
    assert seams in (5, 6)  # 60 ms in steps of just above 10


def test_after_a_flush_time_begins_where_the_next_audio_does() -> None:
    timeline = live_timeline()
    assert timeline.due_in_ns(0) is not None
    timeline.restart()
    assert timeline.due_in_ns(40 * FRAME_NS) is None
    timeline.begin(3 * FRAME_SAMPLES + 5)
    assert timeline.user.start == 3 * FRAME_SAMPLES


def test_samples_and_times_convert_without_drift() -> None:
    for num_samples in (0, 1, 1_919, 24_000 * 3_600 * 24 + 1):
        assert samples_from_ns(ns_from_samples(num_samples)) == num_samples
        assert samples_from_ns(ns_from_samples(num_samples) + 1) == num_samples
    assert ns_from_samples(24_000 * 3_600) == 3_600 * 10**9
