"""Lint: what is wrong with a checkpoint before anything is spent on it. The order of work is in `report`.

Each module looks at one subject: files, config, tokens, values, pickles, and the model's class. A check is a function
from a `checkpoint.Checkpoint` to its findings; the kinds of findings are in `findings`.
"""
