"""The one facade that every exit calls."""

from headgate.service.headgate import Headgate

__all__ = ["Headgate"]
