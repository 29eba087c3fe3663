"""One session against an engine on the real wire, without LiveKit's adapter."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from livekit import rtc
from livekit.agents import APIConnectionError, APIError, llm
from livekit.agents.metrics import RealtimeModelMetrics

from livekit_personaplex import PersonaPlexModel, PersonaPlexSession, Sampling
from livekit_personaplex.audio import FRAME_S, FRAME_SAMPLES
from livekit_personaplex.errors import EngineDiedError, EngineError, ProtocolError
from livekit_personaplex.plugin.gate import SPEECH_TAG
from tests.fake_engine import FakeEngine, Said, silence, words
from tests.virtual_time import run_virtual, stall_loop


def piece(samples: int = 480, level: int = 0) -> rtc.AudioFrame:
    data = np.full(samples, level, dtype=np.int16).tobytes()
    return rtc.AudioFrame(data, 24_000, 1, samples)


class Call:
    """A session and everything that it emits."""

    def __init__(self, model: PersonaPlexModel) -> None:
        self.loop = asyncio.get_running_loop()
        self.session: PersonaPlexSession = model.session()
        self.log: list[object] = []
        self.times_s: list[float] = []
        self.errors: list[llm.RealtimeModelError] = []
        self.usage: list[RealtimeModelMetrics] = []
        self.speech: list[str] = []
        self.session.on("transcript_delta", self._note)
        self.session.on("error", self.errors.append)
        self.session.on("metrics_collected", self.usage.append)
        self.session.on("input_speech_started", lambda _: self.speech.append("started"))
        self.session.on("input_speech_stopped", lambda _: self.speech.append("stopped"))
        self.reader = asyncio.create_task(self._read())

    async def open(self, instructions: str = "You are Ann.") -> "Call":
        await self.session._update_session(
            instructions=instructions, chat_ctx=llm.ChatContext.empty(), tools=[]
        )
        return self

    async def talk(self, duration_s: float, *, level: int = 3_000) -> None:
        for _ in range(round(duration_s / 0.02)):
            await asyncio.sleep(0.02)
            self.session.push_audio(piece(level=level))

    @property
    def frames(self) -> list[llm.DuplexAudioFrame]:
        return [entry for entry in self.log if isinstance(entry, llm.DuplexAudioFrame)]

    @property
    def deltas(self) -> list[llm.DuplexOutputTranscriptDelta]:
        return [entry for entry in self.log if isinstance(entry, llm.DuplexOutputTranscriptDelta)]

    def _note(self, entry: object) -> None:
        self.log.append(entry)
        self.times_s.append(self.loop.time())

    async def _read(self) -> None:
        async for frame in self.session.audio_stream:
            self._note(frame)


def model_of(engine: FakeEngine, **options: object) -> PersonaPlexModel:
    return PersonaPlexModel(engine=str(engine.address), **options)  # type: ignore[arg-type]


def frame_times(call: Call) -> list[float]:
    pairs = zip(call.log, call.times_s, strict=True)
    return [time_s for entry, time_s in pairs if isinstance(entry, llm.DuplexAudioFrame)]


def test_a_session_asks_the_engine_for_what_the_agent_is(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeEngine(tmp_path) as engine:
            model = model_of(engine, voice="NATM1", sampling=Sampling(seed=5, greedy=True))
            call = await Call(model).open("You are Ann.")
            assert engine.last.request.voice == "NATM1"
            assert engine.last.request.persona == "You are Ann."
            assert engine.last.request.sampling == Sampling(seed=5, greedy=True)
            assert (call.session.session_id, call.session.seed) == ("session-1", 5)
            await call.session.aclose()

    run_virtual(scenario())


@pytest.mark.parametrize(
    ("voices", "expected"), [(["NATF0", "NATF2"], "NATF2"), (["TINY0", "TINY1"], "TINY0")]
)
def test_without_a_voice_the_engine_is_asked_which_it_has(
    tmp_path: Path, voices: list[str], expected: str
) -> None:
    async def scenario() -> None:
        async with FakeEngine(tmp_path, voices=voices) as engine:
            call = await Call(model_of(engine)).open()
            assert engine.last.request.voice == expected
            await call.session.aclose()

    run_virtual(scenario())


def test_the_models_own_persona_goes_before_the_agents_instructions(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeEngine(tmp_path) as engine:
            call = await Call(model_of(engine, persona="You are Bob.")).open("You are Ann.")
            assert engine.last.request.persona == "You are Bob."
            await call.session.aclose()

    run_virtual(scenario())


def test_every_frame_of_the_caller_brings_one_of_the_agent_and_one_comes_ahead(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with FakeEngine(tmp_path) as engine:
            call = await Call(model_of(engine)).open()
            await call.talk(1.6)
            await asyncio.sleep(0.001)
            assert len(engine.last.heard) == 20
            assert [frame.start_ms for frame in call.frames] == list(range(0, 1_601, 80))
            assert {frame.frame.samples_per_channel for frame in call.frames} == {FRAME_SAMPLES}
            first_s = frame_times(call)[1]
            assert frame_times(call)[1:] == pytest.approx(
                [first_s + k * FRAME_S for k in range(20)], abs=0.001
            )
            await call.session.aclose()

    run_virtual(scenario())


def test_time_passes_as_silence_for_a_caller_who_sends_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeEngine(tmp_path) as engine:
            model = model_of(engine)
            model.arm()
            call = await Call(model).open()
            await asyncio.sleep(4.0)
            assert len(engine.last.heard) == pytest.approx(50, abs=1)
            assert not np.concatenate(engine.last.heard).any()
            assert call.session.stats.silence_frames == len(engine.last.heard)
            await call.session.aclose()

    run_virtual(scenario())


def test_muted_and_back_nothing_bursts(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeEngine(tmp_path) as engine:
            call = await Call(model_of(engine)).open()
            await call.talk(1.0)
            await asyncio.sleep(5.0)
            await call.talk(2.0)
            gaps_s = np.diff(engine.last.heard_at_s)
            assert gaps_s.min() > 0.039
            assert gaps_s.max() < 0.161
            assert len(engine.last.heard) == pytest.approx(8.0 / FRAME_S, abs=1.5)
            await call.session.aclose()

    run_virtual(scenario())


def test_after_a_blocked_loop_the_waiting_audio_goes_before_silence(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeEngine(tmp_path) as engine:
            call = await Call(model_of(engine)).open()
            await call.talk(0.99)
            stall_loop(0.14)
            await asyncio.sleep(0.005)  # the timer runs first, as it does in a real loop
            for _ in range(7):
                call.session.push_audio(piece(level=3_000))
            await call.talk(1.0)
            assert call.session.stats.silence_frames == 0
            assert np.concatenate(engine.last.heard).all()
            await call.session.aclose()

    run_virtual(scenario())


def test_before_it_is_armed_a_model_hears_and_says_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeEngine(tmp_path, script=words("Hello there")) as engine:
            model = model_of(engine, auto_arm=False)
            call = await Call(model).open()
            await call.talk(2.0)
            assert engine.last.heard == []
            assert call.log == []
            model.arm()
            await call.talk(1.0)
            assert [delta.text for delta in call.deltas] == ["Hello", " there"]
            assert call.frames[0].start_ms == 0
            await call.session.aclose()

    run_virtual(scenario())


def test_a_model_that_is_armed_arms_its_later_sessions(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeEngine(tmp_path) as engine:
            model = model_of(engine, auto_arm=False)
            first = await Call(model).open()
            model.arm()
            await first.session.aclose()
            second = await Call(model).open("You are Bob.")
            await asyncio.sleep(1.0)
            assert len(engine.last.heard) > 10
            await second.session.aclose()

    run_virtual(scenario())


def test_talking_to_a_model_that_nobody_armed_is_warned_about_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with FakeEngine(tmp_path) as engine:
            call = await Call(model_of(engine, auto_arm=False)).open()
            await call.talk(25.0)
            await call.session.aclose()

    run_virtual(scenario())
    assert [record.levelno for record in caplog.records if "not armed" in record.message] == [
        logging.WARNING
    ]


def test_a_model_that_waits_for_somebody_to_answer_is_not_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with FakeEngine(tmp_path) as engine:
            call = await Call(model_of(engine, auto_arm=False)).open()
            call.session.expect_arm()
            await call.talk(25.0)
            await call.session.aclose()

    run_virtual(scenario())
    assert not [record for record in caplog.records if "not armed" in record.message]


def test_a_word_goes_out_just_before_its_frame_and_with_its_time(tmp_path: Path) -> None:
    script = silence(3) + words("Good morning dear caller")

    async def scenario() -> None:
        async with FakeEngine(tmp_path, script=script) as engine:
            call = await Call(model_of(engine)).open()
            await call.talk(3.0)
            assert [(delta.text, delta.start_ms) for delta in call.deltas] == [
                ("Good", 240),
                (" morning", 560),
                (" dear", 880),
                (" caller", 1_200),
            ]
            for delta in call.deltas:
                following = call.log[call.log.index(delta) + 1]
                assert isinstance(following, llm.DuplexAudioFrame)
                assert following.start_ms == delta.start_ms
                assert delta.end_ms == (delta.start_ms or 0) + 80
            await call.session.aclose()

    run_virtual(scenario())


def test_speech_that_begins_without_a_word_gets_an_empty_anchor(tmp_path: Path) -> None:
    script = silence(3) + [Said(rms=0.1)] * 4 + words("Well")

    async def scenario() -> None:
        async with FakeEngine(tmp_path, script=script) as engine:
            call = await Call(model_of(engine)).open()
            await call.talk(2.0)
            assert [(delta.text, delta.start_ms) for delta in call.deltas] == [
                ("", 240),
                ("Well", 560),
            ]
            await call.session.aclose()

    run_virtual(scenario())


def test_each_utterance_begins_without_a_space(tmp_path: Path) -> None:
    script = words("One two") + silence(15) + words("three four")

    async def scenario() -> None:
        async with FakeEngine(tmp_path, script=script) as engine:
            call = await Call(model_of(engine)).open()
            await call.talk(4.0)
            assert [delta.text for delta in call.deltas] == ["One", " two", "three", " four"]
            await call.session.aclose()

    run_virtual(scenario())


def test_an_utterance_gets_a_head_start_and_keeps_it(tmp_path: Path) -> None:
    script = silence(5) + words("Good morning dear caller") + silence(20)

    async def scenario() -> None:
        async with FakeEngine(tmp_path, script=script) as engine:
            call = await Call(model_of(engine, output_prebuffer_ms=40)).open()
            await call.talk(2.5)
            starts_s = [time_s - k * FRAME_S for k, time_s in enumerate(frame_times(call))]
            on_time_s = min(starts_s[1:])
            is_first = [
                frame.frame.userdata[SPEECH_TAG] and k == 5 for k, frame in enumerate(call.frames)
            ]
            for k in range(1, len(starts_s)):
                expected_s = on_time_s + (0.04 if is_first[k] else 0.0)
                assert starts_s[k] == pytest.approx(expected_s, abs=0.002)
            await call.session.aclose()

    run_virtual(scenario())


def test_a_long_gap_in_an_utterance_keeps_its_words_in_order(tmp_path: Path) -> None:
    """LiveKit's adapter ends a burst after 0.88 s without a frame; the next is one of its own."""

    async def scenario() -> None:
        async with FakeEngine(tmp_path, script=words("One two three four")) as engine:
            call = await Call(model_of(engine)).open()
            await call.talk(0.5)
            engine.is_deaf = True
            await call.talk(1.5)
            engine.is_deaf = False
            await call.talk(2.0)
            texts = [delta.text for delta in call.deltas]
            assert texts[:2] == ["One", " two"]
            assert not texts[2].startswith(" ")
            starts_ms = [frame.start_ms or 0 for frame in call.frames]
            assert np.diff(starts_ms).max() == 160
            await call.session.aclose()

    run_virtual(scenario())


def test_a_callers_speech_is_told_with_one_stop_for_every_start(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeEngine(tmp_path) as engine:
            call = await Call(model_of(engine)).open()
            await call.talk(1.0, level=0)
            await call.talk(1.0)
            await call.talk(2.0, level=0)
            assert call.speech == ["started", "stopped"]
            await call.talk(1.0)
            assert call.speech == ["started", "stopped", "started"]
            await call.session.aclose()
            assert call.speech == ["started", "stopped", "started", "stopped"]

    run_virtual(scenario())


Break = Callable[[FakeEngine], object]


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda engine: engine.kill(), APIConnectionError),
        (lambda engine: engine.fail(EngineDiedError("the tick raised")), APIConnectionError),
        (lambda engine: engine.fail(EngineError("this session failed")), APIConnectionError),
        (lambda engine: engine.fail(ProtocolError("not a frame")), APIError),
        (lambda engine: engine.send_raw(b"nonsense"), APIError),
    ],
    ids=["killed", "died", "failed", "protocol", "nonsense"],
)
def test_an_engine_that_fails_ends_the_call_with_one_error(
    tmp_path: Path, damage: Break, expected: type[APIError]
) -> None:
    async def scenario() -> None:
        async with FakeEngine(tmp_path) as engine:
            call = await Call(model_of(engine)).open()
            await call.talk(1.0)
            pending = damage(engine)
            if asyncio.iscoroutine(pending):
                await pending
            await call.talk(1.0)
            assert len(call.errors) == 1
            assert not call.errors[0].recoverable
            assert type(call.errors[0].error) is expected
            await asyncio.wait_for(call.reader, 1.0)
            assert call.speech == ["started", "stopped"]
            await call.session.aclose()

    run_virtual(scenario())


def test_an_engine_that_hangs_is_given_up(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeEngine(tmp_path) as engine:
            call = await Call(model_of(engine)).open()
            await call.talk(1.0)
            engine.is_deaf = True
            await call.talk(9.0)
            assert call.errors == []
            await call.talk(2.0)
            assert "has not heard the caller for 10 s" in str(call.errors[0].error)
            await call.session.aclose()

    run_virtual(scenario())


def test_audio_that_cannot_be_taken_ends_the_call_instead_of_going_deaf(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with FakeEngine(tmp_path) as engine:
            call = await Call(model_of(engine)).open()
            await call.talk(1.0)
            call.session.push_audio(rtc.AudioFrame(b"\0\0", -3, 1, 1))
            assert len(call.errors) == 1
            call.session.push_audio(piece())
            await call.session.aclose()

    run_virtual(scenario())
    assert "could not take the caller's audio" in caplog.text


@pytest.mark.parametrize("after_s", [0.0, 0.1, 0.5, 2.0])
def test_a_session_may_be_closed_at_any_moment(tmp_path: Path, after_s: float) -> None:
    async def scenario() -> None:
        async with FakeEngine(tmp_path, slots=1, open_s=0.3) as engine:
            model = model_of(engine)
            call = Call(model)
            opening = asyncio.create_task(call.open())
            await asyncio.sleep(after_s)
            if opening.done():
                await call.talk(0.2)
            await asyncio.gather(call.session.aclose(), call.session.aclose())
            if after_s < 0.3:
                with pytest.raises(llm.RealtimeError, match="closed while"):
                    await opening
            await asyncio.wait_for(call.reader, 1.0)
            call.session.push_audio(piece())
            await asyncio.sleep(0.5)
            assert engine.used == 0
            assert call.errors == []
            again = await Call(model).open()
            await again.session.aclose()

    run_virtual(scenario())


def test_a_session_whose_start_is_cancelled_leaves_no_slot_taken(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeEngine(tmp_path, open_s=0.3) as engine:
            call = Call(model_of(engine))
            opening = asyncio.create_task(call.open())
            await asyncio.sleep(0.1)
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
            await call.session.aclose()
            await asyncio.sleep(1.0)
            assert engine.used == 0

    run_virtual(scenario())


def test_a_full_engine_refuses_the_start_and_frees_its_slot_on_close(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeEngine(tmp_path, slots=1) as engine:
            model = model_of(engine)
            first = await Call(model).open()
            with pytest.raises(llm.RealtimeError, match="all 1 slots are taken"):
                await Call(model).open()
            await first.session.aclose()
            await (await Call(model).open()).session.aclose()

    run_virtual(scenario())


def test_an_unknown_voice_refuses_the_start_with_the_list(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeEngine(tmp_path) as engine:
            with pytest.raises(llm.RealtimeError, match="known are NATF2, NATM1"):
                await Call(model_of(engine, voice="nova")).open()

    run_virtual(scenario())


def test_without_an_engine_the_start_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PERSONAPLEX_ENGINE", raising=False)

    async def scenario() -> None:
        with pytest.raises(llm.RealtimeError, match="PersonaPlexServer"):
            await Call(PersonaPlexModel()).open()

    run_virtual(scenario())


def test_an_engine_that_is_not_there_refuses_the_start(tmp_path: Path) -> None:
    async def scenario() -> None:
        with pytest.raises(llm.RealtimeError, match="no engine answers"):
            await Call(PersonaPlexModel(engine=f"unix:{tmp_path}/none.sock")).open()

    run_virtual(scenario())


def test_the_engines_address_and_token_come_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with FakeEngine(tmp_path) as engine:
            monkeypatch.setenv("PERSONAPLEX_ENGINE", str(engine.address))
            await (await Call(PersonaPlexModel()).open()).session.aclose()
            assert len(engine.conversations) == 1

    run_virtual(scenario())


def test_instructions_may_be_repeated_but_not_changed_in_mid_call(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeEngine(tmp_path) as engine:
            call = await Call(model_of(engine)).open("You are Ann.")
            await call.session._update_instructions("You are Ann.")
            with pytest.raises(llm.RealtimeError, match="keeps it"):
                await call.session._update_instructions("You are Bob.")
            await call.talk(0.5)
            assert call.errors == []
            await call.session.aclose()

    run_virtual(scenario())


def test_a_session_that_is_reused_keeps_its_slot(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeEngine(tmp_path) as engine:
            call = await Call(model_of(engine)).open()
            await call.session._update_session()
            assert len(engine.conversations) == 1
            await call.session.aclose()

    run_virtual(scenario())


def test_tools_refuse_the_start_before_a_slot_is_taken(tmp_path: Path) -> None:
    @llm.function_tool
    async def look_up(name: str) -> str:
        """Look something up."""
        return name

    async def scenario() -> None:
        async with FakeEngine(tmp_path) as engine:
            call = Call(model_of(engine))
            with pytest.raises(llm.RealtimeError, match="cannot call tools, and was given 1"):
                await call.session._update_session(instructions="", tools=[look_up])
            assert engine.conversations == []
            assert call.session.tools.flatten() == []

    run_virtual(scenario())


def test_earlier_messages_are_said_to_be_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    history = llm.ChatContext.empty()
    history.add_message(role="user", content="My secret name is Zoe.")

    async def scenario() -> None:
        async with FakeEngine(tmp_path) as engine:
            call = Call(model_of(engine))
            await call.session._update_session(instructions="", chat_ctx=history, tools=[])
            await call.session.aclose()

    run_virtual(scenario())
    assert "they are ignored" in caplog.text
    assert "Zoe" not in caplog.text


def test_a_reply_on_request_is_refused_with_what_to_do_instead(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeEngine(tmp_path) as engine:
            call = await Call(model_of(engine)).open()
            with pytest.raises(llm.RealtimeError, match=r"Agent\(instructions"):
                call.session._generate_reply(instructions="Say hello.")
            await call.session.aclose()

    run_virtual(scenario())


def test_usage_is_reported_on_the_way_and_to_the_last_frame(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeEngine(tmp_path, script=words("Hello there")) as engine:
            call = await Call(model_of(engine)).open()
            assert call.usage[0].acquire_time >= 0 and not call.usage[0].connection_reused
            await call.talk(50.0)
            assert len(call.usage) == 1 + 2
            await call.session.aclose()
            await call.session.aclose()
            assert len(call.usage) == 1 + 3
            usage = call.usage[1:]
            stats = call.session.stats
            assert sum(u.session_duration for u in usage) == pytest.approx(50.0, abs=0.1)
            assert sum(u.input_tokens for u in usage) == stats.frames_sent * 8
            spoken = [u.output_token_details for u in usage]
            assert sum(details.audio_tokens for details in spoken) == stats.frames_received * 8
            assert sum(details.text_tokens for details in spoken) == 2
            assert {u.request_id for u in usage} == {"session-1"}
            assert usage[0].metadata is not None
            assert usage[0].metadata.model_name == "personaplex-7b-v1"

    run_virtual(scenario())


def test_stats_tell_how_long_an_answer_takes(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeEngine(tmp_path, tick_s=0.03) as engine:
            call = await Call(model_of(engine)).open()
            assert np.isnan(call.session.stats.latency_p50_ms)
            await call.talk(5.0)
            stats = call.session.stats
            assert stats.latency_p50_ms == pytest.approx(30, abs=1)
            assert stats.latency_p99_ms == pytest.approx(30, abs=1)
            assert stats.frames_received == len(call.frames)
            assert (stats.lost_frames, stats.silence_frames, stats.dropped_ms) == (0, 0, 0.0)
            await call.session.aclose()
            assert call.session.stats.frames_sent == stats.frames_sent

    run_virtual(scenario())


def test_a_session_that_is_not_open_says_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        session = PersonaPlexModel().session()
        with pytest.raises(EngineError, match="not open yet"):
            _ = session.seed
        session.push_audio(piece())
        await session.aclose()

    run_virtual(scenario())
