"""Free-running calls in the product's engine, and what they are worth."""
