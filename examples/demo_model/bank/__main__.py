"""Runs the stage: ``python -m examples.demo_model.bank WORK``."""

from examples.demo_model.bank.making import main

if __name__ == "__main__":
    main()
