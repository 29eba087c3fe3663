"""The small language model: columns, layers, losses and training."""
