"""Text to values and back: one module a format, and where the text comes from."""
