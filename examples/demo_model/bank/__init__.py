"""Everything that agents and callers say, spoken once."""
