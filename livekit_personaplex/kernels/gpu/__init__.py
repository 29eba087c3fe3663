"""Triton kernels, each tested against the plain reference of the same name one level up."""
