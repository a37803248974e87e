"""Typed values that the stages pass to each other: catalog snapshot, query, view, tuple batch, result batch."""
