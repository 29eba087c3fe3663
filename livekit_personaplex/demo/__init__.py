"""A whole call on one machine: LiveKit server, worker, engine and a caller who plays a recording.

The top room: it starts the programs the other rooms are made for and joins a call as any client
does. `make demo` runs it; the tests with real rooms start their programs with the same modules.
"""
