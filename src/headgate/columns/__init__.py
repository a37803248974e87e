"""Columns of numbers: sorting, numbering and narrow types."""
