"""The values everything else speaks of: ops, programs, transports, costs.

Values only: frozen, no input or output, no opinion.
"""
