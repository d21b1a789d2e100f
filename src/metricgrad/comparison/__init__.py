"""``compare`` and what follows from it; its dependencies come with the extra ``app``.

``run_comparison.py`` runs a comparison: ``options.py`` says what is asked for, ``splits.py`` divides the rows,
``candidate_runs.py`` cross-fits the candidates, ``contender_outcomes.py`` makes contenders of them, ``leaderboard.py``
and ``verdict.py`` rank them, and ``shipping.py`` fits the model that ships.
"""
