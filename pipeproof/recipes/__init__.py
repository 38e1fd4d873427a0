"""Recipes: from the order of actions to a program.

*Lowering* adds the communication that a compute-only schedule leaves out;
*issuing* says what blocks, what is posted together and what is waited for.
Verdicts turn on it: the same order runs or hangs by its recipe.
"""
