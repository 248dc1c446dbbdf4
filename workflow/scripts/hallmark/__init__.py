"""Hallmark: builds every deployable form of a model, measures each, and releases only what passes."""

__version__ = "0.1.0"
