"""The test kit, which ships with the product: users can use what our own tests use."""

from headgate.testing.clock import ManualClock

__all__ = ["ManualClock"]
