"""The small Mimi: layers, losses and training."""
