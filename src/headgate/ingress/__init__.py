"""From a source to checked, labelled tuples."""
