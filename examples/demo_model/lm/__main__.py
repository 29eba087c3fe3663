"""Runs the stage: ``python -m examples.demo_model.lm WORK``."""

from examples.demo_model.lm.stage import parse, train

if __name__ == "__main__":
    train(parse())
