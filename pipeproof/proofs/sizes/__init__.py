"""Proofs for all sizes, of definitions that are loops.

Everything is said of one rank ``s`` and, where ranks talk, of a neighbour: linear
forms in the sizes, the rank and loop indices. A property becomes obligations that
no values of these unknowns violate; z3 decides them (linear integer arithmetic).
"""
