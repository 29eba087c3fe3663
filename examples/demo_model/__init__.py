"""A small trained model in the big one's layout, made of synthetic speech alone.

The stages run in this order: tokens, bank, codec, renumber, lm, export, measure, report.
"""
