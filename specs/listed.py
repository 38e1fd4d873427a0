"""A schedule of one size, its rows in PyTorch's notation: a V of two ranks."""

from pipeproof.spec import deadlock_free, peak_activations, same_gradients, schedule


@schedule(
    placement="wave",
    grid={"p": (2,), "m": (2,), "v": (2,)},
    claims=[deadlock_free("nccl"), same_gradients(), peak_activations(4)],
)
def listed(p, m, v=2):
    """Rank 0 holds the first and the last stage, rank 1 those between."""
    return [
        "0F0,0F1,3F0,3B0,3F1,3B1,0B0,0B1",
        "1F0,2F0,1F1,2F1,2B0,1B0,2B1,1B1",
    ]
