"""The zoo: known schedules, each a small function with its paper and its claims."""
