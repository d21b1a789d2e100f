"""A comparison: its options, the splits, units of work, leaderboard and verdict."""
