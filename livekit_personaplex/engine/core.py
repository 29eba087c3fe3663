"""The synchronous heart of the engine: slots are opened, stepped in ticks, and closed.

One thread owns it. It knows nothing of sockets, clocks or callers: whoever owns it decides when a
tick runs and with which frames. Slots are stepped in groups of a fixed size; a group always runs
with the same shape, so what a conversation computes never depends on its neighbours.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from livekit_personaplex.engine.core_protocol import TickResult
from livekit_personaplex.engine.prompt_queue import PromptQueue
from livekit_personaplex.engine.replay import Replay
from livekit_personaplex.engine.sizing import EngineSizes, choose_sizes
from livekit_personaplex.engine.stages import EngineState, LiveStage, PromptStage
from livekit_personaplex.engine.staging import LiveStaging, PromptStaging
from livekit_personaplex.errors import ConfigError
from livekit_personaplex.kernels.fp8 import FP8
from livekit_personaplex.log import logger
from livekit_personaplex.model.given_words import (
    MAX_GIVEN_TOKENS,
    GivenWords,
    find_word_starts,
    lay_out_words,
)
from livekit_personaplex.model.lm_state import LmState
from livekit_personaplex.model.personaplex import PersonaPlex, load_personaplex
from livekit_personaplex.model.prompt import (
    PromptPlan,
    build_prompt,
    max_persona_tokens,
    tag_persona,
)
from livekit_personaplex.model.random_model import parse_random_name, random_personaplex
from livekit_personaplex.model.text import TextDecoder
from livekit_personaplex.sampling import Sampling
from livekit_personaplex.settings import EngineSettings
from livekit_personaplex.wire.stats import PersonaLength


class EngineCore:
    """Model, state of all slots and the stages of a tick, on one device."""

    def __init__(self, model: PersonaPlex, sizes: EngineSizes, *, speaks: bool = True) -> None:
        """Make all state and record the stages of a tick.

        Args:
            model: Loaded weights; their device and dtype are the engine's.
            sizes: Fixed sizes; the slots of a group divide the slots.
            speaks: False leaves the agent's codes undecoded: all its audio is silence.
        """
        num_slots, group_slots = sizes.num_slots, sizes.group_slots
        assert num_slots % group_slots == 0, f"{num_slots=} is no multiple of {group_slots=}"
        self.model = model
        self.sizes = sizes
        self._queue = PromptQueue(sizes.prompt_rows)
        self._num_given, self._num_said = [0] * num_slots, [0] * num_slots
        word_starts = find_word_starts(model.tokenizer, model.config.text_vocab_size)
        with torch.inference_mode():
            state = EngineState(
                lm=LmState.create(
                    model.config,
                    num_slots=num_slots,
                    capacity=model.config.temporal_config.context + sizes.prompt_rows,
                    device=model.device,
                    kv_dtype=sizes.kv_dtype,
                    word_starts=torch.from_numpy(word_starts),
                ),
                encoder=model.mimi.encoder.init_state(num_slots, model.device),
                decoder=model.mimi.decoder.init_state(num_slots, model.device),
            )
            self.state = state
            groups = range(0, num_slots, group_slots)
            stages = [
                LiveStage.create(
                    model, state.view(slice(first, first + group_slots)), speaks=speaks
                )
                for first in groups
            ]
            self._live = [
                _Group(first, LiveStaging.create(stage), Replay(stage.run, model.device))
                for first, stage in zip(groups, stages, strict=True)
            ]
            prompt = PromptStage.create(model, state, num_rows=sizes.prompt_rows)
            self._prompt = PromptStaging.create(prompt)
            self._run_prompt = Replay(prompt.run, model.device)

    @staticmethod
    def load(settings: EngineSettings) -> "EngineCore":
        """Load the model that ``settings`` name and make an engine of it. Blocks for long.

        Raises:
            CheckpointError: The model's files cannot be used.
            ConfigError: Device, voices or slots cannot be used as set.
        """
        model = load_model(settings)
        kv_dtype = FP8 if settings.kv == "fp8" else model.dtype
        sizes = choose_sizes(
            model.config, device=model.device, kv_dtype=kv_dtype, num_slots=settings.slots
        )
        logger.info(
            "engine sizes",
            extra={
                "slots": sizes.num_slots,
                "window_gb": round(sizes.slot_bytes / 1e9, 2),
                "prompt_rows": sizes.prompt_rows,
            },
        )
        return EngineCore(model, sizes)

    @property
    def num_slots(self) -> int:
        """Conversations at once."""
        return self.sizes.num_slots

    @property
    def voices(self) -> tuple[str, ...]:
        """Names of the voices."""
        return self.model.voices.names

    def prepare(self, voice: str, persona: str) -> PromptPlan:
        """Lay out a system prompt. May be called from any thread; touches no device.

        Args:
            voice: Name of a voice.
            persona: Text of the persona; empty for none.

        Raises:
            ConfigError: The voice is unknown, or the persona too long.
        """
        ids = self.model.tokenizer.encode(tag_persona(persona))
        return build_prompt(self.model.config, self.model.voices.get(voice), ids)

    def measure_persona(self, persona: str) -> PersonaLength:
        """Say how long a persona is. May be called from any thread; touches no device."""
        config = self.model.config
        return PersonaLength(
            tokens=len(self.model.tokenizer.encode(tag_persona(persona))),
            max_tokens=max_persona_tokens(config),
            window=config.temporal_config.context,
        )

    def prepare_words(self, text: str) -> GivenWords:
        """Lay out words for `say`. May be called from any thread; touches no device.

        Args:
            text: What to say; white space and control characters count as one space. Empty: the
                agent is to begin to speak, with words of its own.

        Raises:
            ConfigError: They are too many.
        """
        printable = "".join(char if char.isprintable() else " " for char in text)
        ids = self.model.tokenizer.encode(" ".join(printable.split()))
        return lay_out_words(ids, self.model.tokenizer)

    def text_decoder(self) -> TextDecoder:
        """Make the incremental text decoder of one session."""
        return TextDecoder(self.model.tokenizer)

    def open(self, slot: int, plan: PromptPlan, sampling: Sampling) -> None:
        """Give a free slot to a new conversation and queue its prompt.

        Args:
            slot: Which slot; nothing of its former conversation is left.
            plan: From ``prepare``.
            sampling: With a seed set.
        """
        with torch.inference_mode():
            self.state.lm.begin(
                slot,
                offset=plan.first_step,
                tokens=plan.tokens,
                provided=plan.provided,
                sampling=sampling,
            )
            self.state.encoder.reset(slot)
            self.state.decoder.reset(slot)
        self._num_given[slot] = self._num_said[slot] = 0
        self._queue.add(slot, plan)

    def say(self, slot: int, words: GivenWords) -> int:
        """Let a conversation say words, after those it was given before; it chooses when.

        Args:
            slot: Opened; its prompt may still wait.
            words: From ``prepare_words``.

        Returns:
            ``AgentStep.num_said`` of the step that says the last of them.

        Raises:
            ConfigError: Too many wait to be said already.
        """
        position = self._num_given[slot]
        num_waiting = position - self._num_said[slot]
        if num_waiting + len(words) > MAX_GIVEN_TOKENS:
            raise ConfigError(
                f"{num_waiting} tokens wait to be said and {len(words)} more would be over the "
                f"limit of {MAX_GIVEN_TOKENS}; say less at a time, or wait until it is said"
            )
        with torch.inference_mode():
            self.state.lm.steering.give(slot, words, position=position)
        self._num_given[slot] = position + len(words)
        return self._num_given[slot]

    def stop_saying(self, slot: int) -> None:
        """Take back the words that a conversation was given and has not said."""
        with torch.inference_mode():
            self.state.lm.steering.drop(slot)
        self._num_said[slot] = self._num_given[slot]

    def hold(self, slot: int) -> None:
        """Let a conversation say nothing until ``release``."""
        with torch.inference_mode():
            self.state.lm.steering.held[slot] = True

    def release(self, slot: int) -> None:
        """End ``hold``: the model is free to speak, or says the words that it was given."""
        with torch.inference_mode():
            self.state.lm.steering.held[slot] = False

    def close(self, slot: int) -> None:
        """Take a slot back between ticks; it may be opened again at once."""
        self._queue.drop(slot)

    def tick(self, frames: Mapping[int, NDArray[np.int16] | None]) -> TickResult:
        """Step the given slots or, with none given, run one batch of waiting prompt positions.

        Args:
            frames: For each slot to step, the user frame before this step, ``[1920]``; None for
                a session's first step, which needs none.

        Returns:
            What the slots said, or whose opening is done. Blocks until it is on the host.
        """
        with torch.inference_mode():
            if not frames:
                return TickResult([], self._advance_prompts())
            launched = [group.launch(frames) for group in self._live]
            steps = [
                step
                for group, rows in zip(self._live, launched, strict=True)
                if rows
                for step in group.staging.results(rows, group.first_slot)
            ]
        for step in steps:
            self._num_said[step.slot] = step.num_said
        return TickResult(steps, [])

    def _advance_prompts(self) -> list[int]:
        batch = self._queue.take()
        if batch is None:
            return []
        self._prompt.send(batch)
        self._run_prompt()
        self._prompt.finish()
        return [batch.slot] if batch.finishes else []

    def replay_live(self) -> None:
        """Step what the last tick stepped again, as a benchmark does. Does not wait."""
        with torch.inference_mode():
            for group in self._live:
                group.run()


@dataclass(frozen=True, slots=True)
class _Group:
    """A range of slots that is stepped as one batch."""

    first_slot: int
    staging: LiveStaging
    run: Replay

    def launch(self, frames: Mapping[int, NDArray[np.int16] | None]) -> list[int]:
        """Queue a step of the group's slots among ``frames``; returns their rows."""
        last_slot = self.first_slot + self.staging.exec_mask.shape[0]
        members = {
            slot - self.first_slot: pcm
            for slot, pcm in frames.items()
            if self.first_slot <= slot < last_slot
        }
        if members:
            self.staging.send(members)
            self.run()
            self.staging.receive()
        return list(members)


def load_model(settings: EngineSettings) -> PersonaPlex:
    """Load the model that ``settings`` name. Blocks for long.

    On a GPU, what is made of it belongs to this thread, as the thread's current GPU does.

    Raises:
        CheckpointError: The model's files cannot be used.
        ConfigError: Device or voices cannot be used as set.
    """
    device = find_device(settings.device)
    dtype = {"float32": torch.float32, "bfloat16": torch.bfloat16}[settings.dtype]
    seed = parse_random_name(settings.model)
    if seed is not None:
        return random_personaplex(seed, device=device, dtype=dtype)
    return load_personaplex(
        settings.model, device=device, dtype=dtype, voices_dir=settings.voices_dir
    )


def find_device(name: str) -> torch.device:
    """Find a device; a GPU becomes the one that this thread's kernels and recordings run on.

    On a CPU this also settles how many threads compute: all cores but one. Threads that wait for
    one another spin, and where sockets and rooms want a core too, a step takes ten times as long.

    Raises:
        ConfigError: This machine does not have it.
    """
    device = torch.device(name)
    if device.type != "cuda":
        free_cores = (os.cpu_count() or 2) - 1
        torch.set_num_threads(max(1, min(torch.get_num_threads(), free_cores)))
        return device
    if not torch.cuda.is_available():
        raise ConfigError(
            f"device {name} was asked for, but this machine has no usable NVIDIA GPU; "
            "use --device cpu or check the driver"
        )
    if device.index is not None and device.index >= torch.cuda.device_count():
        raise ConfigError(
            f"device {name} was asked for, but this machine has {torch.cuda.device_count()} GPUs, "
            "which are counted from cuda:0"
        )
    device = torch.device("cuda", device.index or 0)
    torch.cuda.set_device(device)
    return device
