"""A comparison: splits, one unit of work, the leaderboard and the verdict."""
