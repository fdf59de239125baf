"""Statistics: arrays and counts in, numbers out; no records."""
