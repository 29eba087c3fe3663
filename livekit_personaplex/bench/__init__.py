"""Measuring an engine. Runs where the engine runs; the paced mode only needs the wire."""
