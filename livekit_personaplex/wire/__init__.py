"""The wire between calls and the engine: messages and the asyncio client. No torch, no livekit."""
