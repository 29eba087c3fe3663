"""A LiveKit worker with its engines: it takes as many calls as they have slots.

``run`` is where engines start, because every way to run a worker comes through it:
``python agent.py start|dev|console`` and ``python -m livekit.agents start agent.py``.
"""

import asyncio
from collections.abc import Callable, Set
from typing import Any

from livekit.agents import NOT_GIVEN, AgentServer, JobRequest, NotGivenOr, utils
from livekit.agents.worker import ServerEnvOption

from livekit_personaplex.log import logger
from livekit_personaplex.plugin.capacity import Capacity
from livekit_personaplex.plugin.engines import WorkerEngines
from livekit_personaplex.plugin.worker_metrics import WorkerMetrics
from livekit_personaplex.settings import (
    EngineEndpoint,
    exported_to_jobs,
    has_multiprocess_metrics,
    worker_metrics_port,
)

FULL_LOAD = 0.7
"""What LiveKit is told as load when every slot is taken; with fewer, so much less. Its server gives
no calls to workers that all have its target load or more, 0.7 by default: told the plain share, it
would leave one slot in four empty."""
REPORT_INTERVAL_S = 0.1
MAX_LOOKS = 20
"""How often engines are asked for the slot of a job that ended, one report after the other."""


class PersonaPlexServer(AgentServer):
    """`AgentServer` whose load is by the share of its engines' slots that are in use.

    Starts an engine of its own on each device of PERSONAPLEX_DEVICE, made from PERSONAPLEX_MODEL
    and the other variables that `livekit_personaplex.settings` lists, and starts it again when it
    dies. With PERSONAPLEX_ENGINE set it uses the engines named there instead. LiveKit sends no
    calls while there is no engine to take them.
    """

    def __init__(self, *, engine_timeout_s: float = 30.0, **options: Any) -> None:
        """Make a server; nothing is started.

        Args:
            engine_timeout_s: How long the engines that PERSONAPLEX_ENGINE names may take until
                one of them answers.
            **options: Those of `AgentServer`, except load and load threshold. With
                ``prometheus_port``, by default PERSONAPLEX_METRICS, its ``/metrics`` has those
                of the worker and of the engines that it started; not so in the multi-process
                mode of Prometheus's client (``prometheus_multiproc_dir``), of which LiveKit shows
                nothing but what jobs and other processes write into that folder.

        Raises:
            ConfigError: The environment asks for what cannot be.
        """
        options.setdefault("prometheus_port", worker_metrics_port())
        # Job processes that wait for a call; to start one takes 0.4 s, to keep one 10 MB.
        options.setdefault("num_idle_processes", ServerEnvOption(dev_default=1, prod_default=2))
        # A plain threshold holds in dev mode too, where LiveKit's own default takes any load.
        super().__init__(load_fnc=self._get_effective_load, load_threshold=FULL_LOAD, **options)
        self._capacity = Capacity()
        self._engines = WorkerEngines(self._capacity, answer_timeout_s=engine_timeout_s)
        self._metrics = WorkerMetrics(self._capacity, self._engines, load=self._taken_share)
        self._on_request: Callable[[JobRequest], Any] | None = None
        self._starting: asyncio.Task[list[EngineEndpoint]] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._has_begun = False

    async def run(self, *, devmode: bool = False, unregistered: bool = False) -> None:
        """Start the engines, wait until they take calls, then serve until the server is closed.

        Raises:
            EngineStartError: There is no engine, or one does not start; nothing was registered.
            ConfigError: The environment asks for what cannot be.
        """
        if not self._can_begin(unregistered=unregistered):
            await super().run(devmode=devmode, unregistered=unregistered)
            return  # not reached: it says what is missing, before an engine loads for minutes
        if self._prometheus_port is not None and self._has_multiprocess_metrics():
            logger.warning(
                "the port of metrics shows neither this worker's slots nor its engines in the "
                "multi-process mode of Prometheus's client; unset PROMETHEUS_MULTIPROC_DIR"
            )
        self._stopping = None
        self._starting = asyncio.create_task(self._engines.start(), name="engines start")
        try:
            endpoints = await self._starting
            self._starting = None
            self._on_request = on_request = self._request_fnc
            self._request_fnc = self._answer
            self._has_begun = True
            watchers = [asyncio.create_task(self._engines.watch(), name="engines watcher")]
            if not unregistered:
                watchers.append(asyncio.create_task(self._report_load(), name="load reporter"))
            try:
                with exported_to_jobs(endpoints), self._metrics.shown():
                    await super().run(devmode=devmode, unregistered=unregistered)
            finally:
                self._request_fnc = on_request
                await utils.aio.cancel_and_wait(*watchers)
        finally:
            self._starting = None
            await self._stop_engines()

    async def drain(self, timeout: NotGivenOr[int | None] = NOT_GIVEN) -> None:
        """Take no more calls, and wait for those that run."""
        if self._has_begun:  # a signal may come while engines are starting
            await super().drain(timeout)

    async def aclose(self) -> None:
        """End the jobs that still run, then the engines. Idempotent."""
        if self._starting is not None:
            self._starting.cancel()
        if self._has_begun:
            await super().aclose()
        await self._stop_engines()

    def _can_begin(self, *, unregistered: bool) -> bool:
        has_server = bool(self._ws_url and self._api_key and self._api_secret)
        return self._entrypoint_fnc is not None and (unregistered or has_server)

    def _has_multiprocess_metrics(self) -> bool:
        return bool(self._prometheus_multiproc_dir) or has_multiprocess_metrics()

    # the engines

    async def _stop_engines(self) -> None:
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._engines.stop(), name="engines stop")
        # whoever shuts down cancels every task: this one ends all the same
        await asyncio.shield(self._stopping)

    # capacity

    def _get_effective_load(self) -> float:
        """Replaces LiveKit's estimate, which cannot know how many calls fit."""
        return FULL_LOAD * self._taken_share()

    def _taken_share(self) -> float:
        return self._capacity.load(self._active_ids())

    async def _report_load(self) -> None:
        """Tell LiveKit when the load changes, which is told every 2.5 s otherwise.

        A caller who comes before LiveKit knows of a freed slot gets no agent: nobody asks again.
        """
        told, num_jobs, num_looks = self._taken_share(), 0, 0
        while True:
            await asyncio.sleep(REPORT_INTERVAL_S)
            num_jobs_before, num_jobs = num_jobs, len(self._active_ids())
            if num_jobs < num_jobs_before:
                num_looks = MAX_LOOKS
            if num_looks > 0 and self._capacity.num_used > num_jobs:
                num_looks -= 1
                self._engines.look()
            if (share := self._taken_share()) != told:
                told = share
                await self._refresh_worker_load()
                await self._update_worker_status()

    def _active_ids(self) -> Set[str]:
        return {info.job.id for info in self.active_jobs}

    async def _answer(self, request: JobRequest) -> None:
        if not self._capacity.reserve(request.id, self._active_ids()):
            logger.info("no slot is free: a call is left to other workers")
            await request.reject(terminate=False)
            return
        try:
            if self._on_request is None:
                await request.accept()
            else:
                await self._on_request(request)
        finally:
            self._capacity.release(request.id)
