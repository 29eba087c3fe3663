"""The engines behind one worker: started and watched, or found where PERSONAPLEX_ENGINE says."""

import asyncio
from contextlib import suppress
from functools import partial

from livekit.agents import utils

from livekit_personaplex.errors import EngineError, EngineStartError, PersonaPlexError
from livekit_personaplex.log import logger
from livekit_personaplex.plugin.capacity import Capacity
from livekit_personaplex.settings import EngineEndpoint, EngineSettings
from livekit_personaplex.wire.http import fetch_stats
from livekit_personaplex.wire.supervisor import EngineState, EngineSupervisor

WATCH_INTERVAL_S = 1.0
RETRY_S = 0.5


class WorkerEngines:
    """One engine on each device of PERSONAPLEX_DEVICE, or those that run already.

    Keeps a `Capacity` up to date. An engine that dies takes its own calls with it and nothing
    else: its slots are not offered until it is back.

    Attributes:
        are_ours: They were started here.
    """

    def __init__(self, capacity: Capacity, *, answer_timeout_s: float) -> None:
        """Make them; nothing is started.

        Args:
            capacity: Told what each engine counts.
            answer_timeout_s: How long engines that run already may take to answer.
        """
        self.are_ours = False
        self._capacity = capacity
        self._answer_timeout_s = answer_timeout_s
        self._supervisors: list[EngineSupervisor] = []
        self._endpoints: dict[str, EngineEndpoint] = {}
        self._looks: dict[str, asyncio.Event] = {}

    @property
    def num_engines(self) -> int:
        """How many there should be."""
        return len(self._endpoints)

    @property
    def num_restarts(self) -> int:
        """How often one was started again."""
        return sum(supervisor.num_restarts for supervisor in self._supervisors)

    async def start(self) -> list[EngineEndpoint]:
        """Start the engines, or find them; gives where they listen once they take calls.

        Raises:
            EngineStartError: One did not start; or none that runs already answers.
            ConfigError: The environment asks for what cannot be.
        """
        found = EngineEndpoint.each_from_env()
        self.are_ours = not found
        if self.are_ours:
            await self._start_all(EngineSettings.each_from_env())
        else:
            self._endpoints = {str(endpoint.address): endpoint for endpoint in found}
        await self._reach()
        return list(self._endpoints.values())

    async def watch(self) -> None:
        """Follow every engine's counters until cancelled."""
        await asyncio.gather(*(self._watch(*item) for item in self._endpoints.items()))

    def look(self) -> None:
        """Read the counters now, not only after the interval; does not wait for them."""
        for look in self._looks.values():
            look.set()

    async def stop(self) -> None:
        """End the engines that were started here. Idempotent."""
        await asyncio.gather(*(supervisor.stop() for supervisor in self._supervisors))

    async def _start_all(self, each: list[EngineSettings]) -> None:
        names = _names([settings.device for settings in each])
        self._supervisors = [
            EngineSupervisor(
                settings,
                name="engine" if len(each) == 1 else f"engine {name}",
                on_state=partial(self._note_state, name),
            )
            for name, settings in zip(names, each, strict=True)
        ]
        starts = [asyncio.create_task(supervisor.start()) for supervisor in self._supervisors]
        try:
            addresses = await asyncio.gather(*starts)
        finally:
            await utils.aio.cancel_and_wait(*starts)
        self._endpoints = {
            name: EngineEndpoint(address=address, token=supervisor.token)
            for name, address, supervisor in zip(names, addresses, self._supervisors, strict=True)
        }

    async def _reach(self) -> None:
        """Wait until an engine answers; all are asked at least once."""
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + self._answer_timeout_s
        while True:
            errors = await asyncio.gather(*(self._ask(*item) for item in self._endpoints.items()))
            missing = [error for error in errors if error is not None]
            if len(missing) < len(errors):
                break
            if loop.time() > give_up_s:
                raise EngineStartError(
                    f"{missing[0]} (waited {self._answer_timeout_s:g} s for PERSONAPLEX_ENGINE)"
                )
            await asyncio.sleep(RETRY_S)
        for error in missing:
            logger.warning("an engine is not there yet: %s", error)

    async def _ask(self, name: str, endpoint: EngineEndpoint) -> EngineError | None:
        try:
            stats = await fetch_stats(endpoint.address, token=endpoint.token)
        except EngineError as error:
            return error
        self._capacity.update(name, stats)
        return None

    async def _watch(self, name: str, endpoint: EngineEndpoint) -> None:
        is_well = True
        look = self._looks[name] = asyncio.Event()
        while True:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(look.wait(), WATCH_INTERVAL_S)
            look.clear()
            try:
                stats = await fetch_stats(endpoint.address, token=endpoint.token)
            except PersonaPlexError as error:
                self._capacity.update(name, None)
                if is_well:
                    logger.warning("an engine takes no calls: %s", error)
                is_well = False
            else:
                self._capacity.update(name, stats)
                is_well = True

    def _note_state(self, name: str, state: EngineState) -> None:
        logger.info("engine state", extra={"engine": name, "state": state.value})
        if state is not EngineState.READY:
            self._capacity.update(name, None)


def _names(devices: list[str]) -> list[str]:
    """Give each engine a name: its device, and a number where a device has several."""
    counts = dict.fromkeys(devices, 0)
    names = []
    for device in devices:
        counts[device] += 1
        names.append(f"{device}#{counts[device]}" if devices.count(device) > 1 else device)
    return names
