"""Engines: independent readings of a program. None imports another."""
