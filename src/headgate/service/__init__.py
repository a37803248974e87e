"""The facade that every interface calls."""

from headgate.service.headgate import Headgate

__all__ = ["Headgate"]
