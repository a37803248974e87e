"""Who sees which tuple: policies per label and view, watermarks, the dictionary of labels."""
