"""Stories that show what Headgate does."""
