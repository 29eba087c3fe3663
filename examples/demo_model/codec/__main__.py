"""Runs the stage: ``python -m examples.demo_model.codec WORK``."""

from examples.demo_model.codec.stage import main

if __name__ == "__main__":
    main()
