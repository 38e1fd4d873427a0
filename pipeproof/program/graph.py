"""Stage graphs: which stages feed which, beyond a chain.

In a chain, stage s takes the output of stage s-1, and every microbatch stands for
itself. A graph says otherwise: a stage with several inputs (an encoder that joins
a decoder, branches that meet), sequences cut into slices that need the slice
before them, generation that feeds the last stage's output back to the first.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StageGraph:
    """``inputs[s]`` are the stages whose outputs the forward of stage s takes, in
    ascending order; a stage without inputs reads the data.

    Microbatches b k to b k + k - 1 are the ``slices`` k of one sequence. Where they
    are ``carried``, a stage's forward of a slice needs its own forward of the slice
    before (which left keys and values), and the backward that of the slice after.
    With ``feedback``, the forward of a slice on the stages without inputs takes the
    last stage's output of the slice before (a token that was just generated).
    """

    inputs: tuple[tuple[int, ...], ...]
    slices: int = 1
    carried: bool = False
    feedback: bool = False

    @property
    def outputs(self) -> tuple[tuple[int, ...], ...]:
        """The stages that take each stage's output."""
        taken: list[list[int]] = [[] for _ in self.inputs]
        for stage, inputs in enumerate(self.inputs):
            for source in inputs:
                taken[source].append(stage)
        return tuple(map(tuple, taken))

    @property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """(stage, a stage that takes its output), all of them."""
        return tuple((source, s) for s, inputs in enumerate(self.inputs) for source in inputs)

    def sources(self, stage: int, microbatch: int) -> list[tuple[int, int]]:
        """(stage, microbatch) of the outputs that a forward takes."""
        taken = [(source, microbatch) for source in self.inputs[stage]]
        if self.feedback and not taken and microbatch % self.slices:
            taken.append((len(self.inputs) - 1, microbatch - 1))
        return taken

    def targets(self, stage: int, microbatch: int) -> list[tuple[int, int]]:
        """(stage, microbatch) of the forwards that take this forward's output."""
        taken = [(target, microbatch) for target in self.outputs[stage]]
        last = stage == len(self.inputs) - 1
        if self.feedback and last and (microbatch + 1) % self.slices:
            taken += [(s, microbatch + 1) for s, own in enumerate(self.inputs) if not own]
        return taken

    def before(self, microbatch: int, backward: bool) -> int | None:
        """The slice that must have run before on the same stage, in its direction."""
        if not self.carried:
            return None
        if backward:
            return microbatch + 1 if (microbatch + 1) % self.slices else None
        return microbatch - 1 if microbatch % self.slices else None


def chain(stages: int) -> StageGraph:
    """Every stage feeds the next."""
    return StageGraph(tuple((s - 1,) if s else () for s in range(stages)))
