"""What an agent is given: ``AgentSession(llm=PersonaPlexModel(voice="NATF2"))``."""

from typing import Any

from livekit.agents import AgentSession, llm, stt

from livekit_personaplex.plugin.arming import wait_until_heard
from livekit_personaplex.plugin.gate import TagGate
from livekit_personaplex.plugin.options import PersonaPlexOptions
from livekit_personaplex.plugin.session import PersonaPlexSession
from livekit_personaplex.plugin.watchdogs import Watchdogs
from livekit_personaplex.sampling import Sampling
from livekit_personaplex.wire.protocol import FirstSpeaker


class PersonaPlexModel(llm.DuplexModel):
    """NVIDIA PersonaPlex, a speech model that listens and speaks at the same time.

    Holds options only: it can be made anywhere, also at module level, and serves any number of
    sessions. The model itself runs in the engine, which `PersonaPlexServer` starts.
    """

    def __init__(
        self,
        *,
        voice: str | None = None,
        persona: str | None = None,
        sampling: Sampling | None = None,
        auto_arm: bool = True,
        output_prebuffer_ms: int = 40,
        min_silence_ms: int = 800,
        engine: str | None = None,
        token: str | None = None,
        open_timeout_s: float = 10.0,
        greeting: str = "",
        first_speaker: FirstSpeaker = "model",
        caller_first_timeout_s: float = 10.0,
        user_stt: "stt.STT[Any] | None" = None,
        watchdogs: Watchdogs | None = None,
    ) -> None:
        """Make a model; nothing is opened.

        Args:
            voice: A voice of the engine's list. By default NATF2, or the first of an engine that
                has no NATF2.
            persona: Who the agent is, instead of ``Agent(instructions=...)``.
            sampling: How tokens are drawn; NVIDIA's settings by default.
            auto_arm: True: the model's time begins with the caller's first audio. False: it begins
                with `arm_when_heard`, the right thing in a room, or with `arm`.
            output_prebuffer_ms: Head start of each stretch of speech, against gaps in playback.
            min_silence_ms: Silence that ends the agent's utterance.
            engine: Address of the engine, ``unix:PATH`` or ``HOST:PORT``; by default the one of
                `PersonaPlexServer` or of PERSONAPLEX_ENGINE.
            token: What an engine on TCP wants to know; by default PERSONAPLEX_TOKEN.
            open_timeout_s: How long a session may take to open.
            greeting: Words that the agent begins with, said in the model's own voice.
            first_speaker: ``model``: the model decides who begins, if there is no greeting;
                ``agent``: the agent, with the greeting or words of its own; ``caller``: the agent
                waits until the caller has spoken, then says the greeting, if there is one.
            caller_first_timeout_s: How long it waits for a caller who does not speak.
            user_stt: Any LiveKit STT that streams: captions of the caller, in the room and in the
                chat history. It stays its owner's to close.
            watchdogs: When a session tells of an agent that does not speak, or does not stop, and
                of a caller who is not heard.

        Raises:
            ConfigError: A value cannot be used.
        """
        super().__init__(
            capabilities=llm.DuplexCapabilities(
                user_transcription=user_stt is not None, auto_tool_reply_generation=False
            )
        )
        self._options = PersonaPlexOptions(
            voice=voice,
            persona=persona,
            sampling=sampling or Sampling(),
            auto_arm=auto_arm,
            output_prebuffer_ms=output_prebuffer_ms,
            min_silence_ms=min_silence_ms,
            engine=engine,
            token=token,
            open_timeout_s=open_timeout_s,
            greeting=greeting,
            first_speaker=first_speaker,
            caller_first_timeout_s=caller_first_timeout_s,
            user_stt=user_stt,
            watchdogs=watchdogs or Watchdogs(),
        )
        self._is_armed = False
        self._sessions: list[PersonaPlexSession] = []

    @property
    def model(self) -> str:
        """Name in usage reports and traces."""
        return "personaplex-7b-v1"

    @property
    def provider(self) -> str:
        """Provider in usage reports and traces."""
        return "nvidia"

    @property
    def options(self) -> PersonaPlexOptions:
        """The options in use."""
        return self._options

    def for_call(self, metadata: str) -> "PersonaPlexModel":
        """Make a model for one call, with what its job metadata asks for.

        Args:
            metadata: JSON object with any of ``voice``, ``persona``, ``greeting``,
                ``first_speaker``, ``seed``, ``temperature`` and the other fields of `Sampling`;
                empty for none. It is validated, not trusted.

        Raises:
            ConfigError: The metadata is something else, or asks for what cannot be.
        """
        model = PersonaPlexModel(user_stt=self._options.user_stt)
        model._options = self._options.with_metadata(metadata)
        return model

    async def arm_when_heard(self, session: AgentSession[Any], *, timeout_s: float) -> bool:
        """Let the model's time begin as soon as a caller is there and hears it.

        What a model says before that is played late, and everything after it as well. A caller on
        the telephone, a participant of kind SIP, is there when its ``sip.callStatus`` is "active".

        Args:
            session: The session, started.
            timeout_s: How long to wait for somebody to join, and to answer.

        Returns:
            False: nobody joined or answered in time, or the session or the room was closed; then
            nothing was armed.
        """
        for waiting in self._sessions:
            waiting.expect_arm()
        is_heard = await wait_until_heard(session, timeout_s=timeout_s)
        if is_heard:
            self.arm()
        return is_heard

    def arm(self) -> None:
        """Let the model's time begin, in every session of this model, also in later ones.

        For one call's model, on that call's event loop. Idempotent.
        """
        self._is_armed = True
        for session in self._sessions:
            session.arm()

    def audio_gate(self) -> TagGate:
        """LiveKit's gate for one session; the session itself decides what is speech."""
        return TagGate()

    def session(self) -> PersonaPlexSession:
        """Make a session on the running event loop; LiveKit configures and opens it."""
        session = PersonaPlexSession(
            self, self._options, is_armed=self._is_armed, on_closed=self._sessions.remove
        )
        self._sessions.append(session)
        return session

    async def aclose(self) -> None:
        """Close the sessions that are still open. Idempotent; LiveKit never calls it."""
        for session in list(self._sessions):
            await session.aclose()
