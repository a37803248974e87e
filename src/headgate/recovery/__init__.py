"""Batches that count once: pipeline, state, tables."""
