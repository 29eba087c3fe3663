"""The package's one logger. Speech, transcripts and personas go only under ``lk.pii.*`` keys."""

import logging

logger = logging.getLogger("livekit_personaplex")
