"""Partitions that run in Spark's tasks: what goes to a task, what a task does, and what comes back."""
