"""Building blocks of compiled incremental loops: arrays that grow, and functions that change them one tuple at a time."""
