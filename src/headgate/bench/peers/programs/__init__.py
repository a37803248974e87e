"""Programs that run in another engine's environment; they cannot import Headgate."""
