"""Decides who sees which tuple: policies per label and view, watermarks, the label dictionary."""
