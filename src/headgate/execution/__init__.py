"""Run queries: compile them, partition their tuples, execute their blocks, enforce their limits."""
