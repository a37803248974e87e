"""Programs that run in another engine's environment; nothing of Headgate can be imported there."""
