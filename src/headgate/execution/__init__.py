"""Queries at work: compiling, partitions, executors, limits."""
