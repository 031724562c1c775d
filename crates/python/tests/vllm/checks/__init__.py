"""One file a promise."""
