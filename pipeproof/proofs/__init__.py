"""Proofs: certificates of what holds, and the small programs that re-check them."""
