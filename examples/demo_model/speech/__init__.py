"""Text to speech: engines, voices, and when every word and phoneme sounds."""
