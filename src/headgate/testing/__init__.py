"""The test kit ships with the product: what our own tests use, users can use for theirs."""

from headgate.testing.clock import ManualClock

__all__ = ["ManualClock"]
