"""The values that stages hand to each other; they have no behaviour of a stage."""
