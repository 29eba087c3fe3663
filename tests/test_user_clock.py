import numpy as np
import pytest
from numpy.typing import NDArray

from livekit_personaplex.audio import FRAME_S, FRAME_SAMPLES, SAMPLE_RATE_HZ
from livekit_personaplex.user_clock import MIN_GRACE_S, UserClock

FrameArray = NDArray[np.int16]


PERIOD = 30_000
"""The count of samples starts over after as many."""


class Call:
    """A caller and a clock: pieces of audio come at given times, silence falls due between them.

    The caller's sound is a count of samples, so that what is lost or repeated can be seen.
    """

    def __init__(self) -> None:
        self.now_s = 100.0
        self.clock = UserClock(now_s=self.now_s)
        self.sent: list[tuple[float, FrameArray]] = []
        self.num_said = 0

    def wait_until(self, when_s: float) -> None:
        while self.clock.deadline_s <= when_s:
            self.now_s = max(self.now_s, self.clock.deadline_s)
            self.sent.append((self.now_s, self.clock.fill(now_s=self.now_s)))
        self.now_s = when_s

    def wait(self, duration_s: float) -> None:
        self.wait_until(self.now_s + duration_s)

    def say(self, duration_s: float) -> None:
        """Audio of a given length arrives now."""
        num_samples = round(duration_s * SAMPLE_RATE_HZ)
        count = np.arange(self.num_said, self.num_said + num_samples) % PERIOD + 1
        self.num_said += num_samples
        for frame in self.clock.push(count.astype(np.int16), now_s=self.now_s):
            self.sent.append((self.now_s, frame))

    def talk(self, duration_s: float, *, piece_s: float = 0.02) -> None:
        """Audio arrives piece by piece, as it is spoken."""
        for _ in range(round(duration_s / piece_s)):
            self.wait(piece_s)
            self.say(piece_s)

    @property
    def heard(self) -> FrameArray:
        return np.concatenate([frame for _, frame in self.sent])

    @property
    def sound(self) -> FrameArray:
        """What was heard since the caller began to talk."""
        return self.heard[np.flatnonzero(self.heard)[0] :]

    @property
    def age_samples(self) -> int:
        """How old the newest sample is that was heard."""
        return (self.num_said - int(self.heard[-1])) % PERIOD

    @property
    def intervals_s(self) -> FrameArray:
        return np.diff([sent_s for sent_s, _ in self.sent])

    @property
    def ahead_s(self) -> float:
        """How much more time has passed for the model than for everybody else."""
        return len(self.sent) * FRAME_S - (self.sent[-1][0] - 100.0)


def is_unbroken(samples: FrameArray) -> bool:
    return bool(np.all(np.diff(samples.astype(int)) % PERIOD == 1))


@pytest.mark.parametrize("piece_s", [0.007, 0.01, 0.02, 0.05, 0.08, 0.1])
def test_audio_in_pieces_of_any_length_is_heard_whole_and_at_once(piece_s: float) -> None:
    call = Call()
    call.talk(160 * piece_s, piece_s=piece_s)
    assert is_unbroken(call.sound)
    assert call.clock.silence_frames <= 1  # before the first long piece was there
    assert call.num_said - len(call.heard) < FRAME_SAMPLES


def test_a_caller_who_says_nothing_is_heard_as_silence_in_real_time() -> None:
    call = Call()
    call.wait(60.0)
    assert len(call.sent) == pytest.approx(60.0 / FRAME_S, abs=1)
    assert not call.heard.any()
    assert call.clock.silence_frames == len(call.sent)


def test_time_does_not_slip_when_timers_are_a_little_late() -> None:
    clock = UserClock(now_s=0.0)
    now_s = 0.0
    num_sent = 0
    while now_s < 60.0:
        now_s = clock.deadline_s + 0.003
        clock.fill(now_s=now_s)
        num_sent += 1
    assert num_sent == pytest.approx(60.0 / FRAME_S, abs=1)


def test_silence_falls_due_one_frame_and_a_grace_period_after_the_last_audio() -> None:
    call = Call()
    call.talk(0.8)
    call.wait(1.0)
    gap_s = call.intervals_s[10 - 1]
    assert FRAME_S < gap_s <= FRAME_S + MIN_GRACE_S + 0.02 + 1e-6
    assert call.intervals_s[10:] == pytest.approx(FRAME_S)


def test_audio_that_stops_in_a_frame_keeps_its_place_before_the_silence() -> None:
    call = Call()
    call.talk(0.1)
    call.wait(0.2)
    frame = call.sent[1][1]
    assert is_unbroken(frame[:480])
    assert not frame[480:].any()


@pytest.mark.parametrize("silent_s", [0.97, 0.99, 1.01, 1.03])
def test_audio_that_begins_in_a_frame_has_no_hole_after_it(silent_s: float) -> None:
    call = Call()
    call.wait(silent_s)
    call.talk(2.0)
    assert is_unbroken(call.sound)
    assert call.sound[0] == 1


def test_after_a_pause_nothing_bursts_and_nothing_is_late() -> None:
    call = Call()
    call.talk(2.0)
    call.wait(5.0)
    call.talk(2.0)
    assert call.intervals_s.min() > FRAME_S / 2
    assert abs(call.ahead_s) < FRAME_S
    assert call.age_samples < FRAME_SAMPLES


@pytest.mark.parametrize("late_s", [0.2, 0.5, 3.0])
def test_audio_that_comes_after_silence_took_its_place_is_not_played_late(late_s: float) -> None:
    call = Call()
    call.talk(1.0)
    call.wait(late_s)
    call.say(late_s)
    call.talk(2.0)
    assert abs(call.ahead_s) < FRAME_S
    assert call.age_samples < FRAME_SAMPLES
    assert call.clock.dropped_samples / SAMPLE_RATE_HZ == pytest.approx(late_s, abs=0.17)


@pytest.mark.parametrize("late_s", [0.01, 0.02, 0.035])
def test_audio_that_is_a_little_late_is_heard_whole(late_s: float) -> None:
    call = Call()
    for piece in range(500):
        due_s = 100.02 + 0.02 * piece
        is_late = piece % 14 == 13
        call.wait_until(max(call.now_s, due_s + (late_s if is_late else 0.0)))
        call.say(0.02)
    assert is_unbroken(call.heard)
    assert call.clock.silence_frames == 0


def test_after_a_stuck_process_the_newest_audio_is_heard() -> None:
    call = Call()
    call.talk(1.0)
    call.now_s += 1.5  # nobody asked for silence
    before = len(call.sent)
    call.say(1.5)
    assert len(call.sent) - before <= 2
    call.talk(1.0)
    assert call.age_samples < FRAME_SAMPLES
    assert call.clock.dropped_samples > 1.2 * SAMPLE_RATE_HZ


def test_after_a_stuck_process_silence_does_not_come_in_a_heap() -> None:
    call = Call()
    call.wait(1.0)
    call.now_s += 2.0
    before = len(call.sent)
    call.wait(0.0)
    assert len(call.sent) - before == 1
    call.wait(0.8)
    assert call.intervals_s[before:] == pytest.approx(FRAME_S)


def test_the_half_second_of_silence_at_the_end_of_a_track_moves_nothing() -> None:
    call = Call()
    call.talk(1.0)
    before = len(call.sent)
    call.clock.push(np.zeros(12_000, dtype=np.int16), now_s=call.now_s)
    call.wait(1.0)
    assert len(call.sent) - before == pytest.approx(1.0 / FRAME_S, abs=2)
    assert abs(call.ahead_s) < FRAME_S
    assert call.clock.dropped_samples == 0


def test_a_sound_card_that_runs_fast_loses_nothing() -> None:
    call = Call()
    for _ in range(3_000):
        call.wait(0.02 * (1 - 3e-4))
        call.say(0.02)
    assert is_unbroken(call.heard[call.heard < 30_000][:20_000])
    assert call.clock.dropped_samples == 0
    assert call.clock.silence_frames == 0


def test_a_sound_card_that_runs_slow_gets_no_silence() -> None:
    call = Call()
    for _ in range(3_000):
        call.wait(0.02 * (1 + 3e-4))
        call.say(0.02)
    assert call.clock.silence_frames == 0
