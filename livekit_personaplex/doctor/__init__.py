"""Looks at a machine and says what keeps it from serving calls, and what to do about it."""
