"""Work on recordings, without a clock: many conversations, or stages of them."""
