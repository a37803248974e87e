"""Headgate: secure shared continuous queries over live streams."""

__version__ = "0.1.0"
