"""This package's errors as LiveKit's: one when a call begins, another when it is under way."""

import time

from livekit.agents import APIConnectionError, APIError, llm

from livekit_personaplex.errors import EngineError


def start_error(error: Exception) -> llm.RealtimeError:
    """Give the error that makes ``AgentSession.start`` fail, with the same sentence."""
    return llm.RealtimeError(str(error))


def caption_error(error: Exception, *, label: str) -> llm.RealtimeModelError:
    """Give the event that tells of missing captions; the call goes on."""
    reason = APIError(f"captions of the caller failed: {error}", retryable=True)
    reason.__cause__ = error
    return llm.RealtimeModelError(
        timestamp=time.time(), label=label, error=reason, recoverable=True
    )


def call_error(error: Exception, *, label: str) -> llm.RealtimeModelError:
    """Give the event that ends a call: the model cannot go on."""
    reason: APIError
    if isinstance(error, EngineError):
        reason = APIConnectionError(str(error), retryable=False)
    else:
        reason = APIError(str(error), retryable=False)
    reason.__cause__ = error
    return llm.RealtimeModelError(
        timestamp=time.time(), label=label, error=reason, recoverable=False
    )
