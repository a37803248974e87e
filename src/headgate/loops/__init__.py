"""Building blocks of compiled incremental loops: arrays that grow, and functions that change them tuple by tuple."""
