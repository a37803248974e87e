"""From results to subscribers: the filter that decides, and the sinks."""
