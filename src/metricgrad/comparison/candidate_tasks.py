"""What is to be done on one split: its encoder, its candidates with their seeds, and the tasks for the workers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from metricgrad.comparison.candidate_runs import ALL_ROWS, CandidateTask
from metricgrad.comparison.contenders import ENSEMBLE, TrainingTask
from metricgrad.estimators.candidates import Candidate, CandidateSpec
from metricgrad.estimators.cross_fitting import FitSeeds
from metricgrad.estimators.table_encoder import TableEncoder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy as np

    from metricgrad.comparison.contenders import Contender
    from metricgrad.comparison.options import Dataset
    from metricgrad.comparison.splits import Split
    from metricgrad.comparison.temporary_models import TemporaryModels
    from metricgrad.comparison.workers import Shared
    from metricgrad.estimators.candidates import View


@dataclass(eq=False)
class SplitTasks:
    """The candidates of all contenders on one split.

    Encoder, folds, seeds and candidates are those of a ``MetricEnsembleClassifier`` with ``random_state`` that is
    fitted on the training rows.
    """

    dataset: Dataset
    contenders: dict[str, Contender]
    split: Split
    repeat: int
    random_state: int
    quick: bool
    temporary: TemporaryModels

    @cached_property
    def seeds(self) -> FitSeeds:
        """The random seeds that follow from the random state."""
        return FitSeeds.draw(self.random_state)

    @property
    def train_targets(self) -> np.ndarray:
        """The targets of the training rows."""
        found: np.ndarray = self.dataset.targets[self.split.train]
        return found

    @cached_property
    def _fitted(self) -> tuple[TableEncoder, dict[str, np.ndarray]]:
        """The encoder, fitted on the training rows, and the cross-fitted target means of these."""
        encoder = TableEncoder(columns=self.dataset.schema.columns)
        encoder.describe(self.dataset.table.frame[self.dataset.schema.inputs])
        means = encoder.fit_parts(self.dataset.features.iloc[self.split.train], self.train_targets)
        return encoder, means

    @property
    def encoder(self) -> TableEncoder:
        """The encoder, fitted on the training rows."""
        return self._fitted[0]

    @cached_property
    def _candidates_of(self) -> dict[str, list[Candidate]]:
        """The candidates of each contender but the ensemble."""
        goal = self.dataset.goal
        spec = CandidateSpec(
            metric=goal.metric,
            average=goal.average,
            rows=len(self.split.train),
            outputs=goal.labels.outputs,
            has_texts=bool(self.encoder.words_),
            quick=self.quick,
        )
        task = TrainingTask(goal, spec, self.train_targets)
        return {name: one.make(task) for name, one in self.contenders.items() if one.make is not None}

    @property
    def candidates(self) -> list[Candidate]:
        """All candidates: first those that the ensemble is chosen from, in its order, then the others."""
        chosen_from = [name for name in self._candidates_of if self.contenders[name].member]
        others = [name for name in self._candidates_of if not self.contenders[name].member]
        return [one for name in (*chosen_from, *others) for one in self._candidates_of[name]]

    def list_candidates(self, contender: str, failed: Iterable[str] = ()) -> list[str]:
        """Return the names of the candidates that a contender averages, or is chosen from; none of ``failed`` ones."""
        if contender != ENSEMBLE:
            return [one.name for one in self._candidates_of[contender]]
        members = [name for name in self._candidates_of if self.contenders[name].member and name not in failed]
        return [one.name for name in members for one in self._candidates_of[name]]

    def find_contender(self, candidate: str) -> str:
        """Return the contender that a candidate belongs to."""
        return next(name for name, own in self._candidates_of.items() if any(one.name == candidate for one in own))

    def yield_tasks(self, wanted: Iterable[str]) -> Iterator[CandidateTask]:
        """Yield the tasks of some candidates; features are encoded and shared when they are first needed."""
        wanted = set(wanted)
        shared: dict[View, tuple[Shared, Shared]] = {}
        targets = self.temporary.share_matrix(f"targets-{self.repeat}", self.train_targets)
        for place, candidate in enumerate(self.candidates):
            if candidate.name not in wanted:
                continue
            if candidate.view not in shared:
                shared[candidate.view] = self._share_view(candidate.view)
            contender = self.find_contender(candidate.name)
            features, test_features = shared[candidate.view]
            yield CandidateTask(
                contender=contender,
                candidate=candidate,
                repeat=self.repeat,
                goal=self.dataset.goal,
                seed=self.seeds.of_candidate(place),
                folds=self.split.folds_of_train,
                needs=self.contenders[contender].needs,
                features=features,
                test_features=test_features,
                targets=targets,
            )

    def _share_view(self, view: View) -> tuple[Shared, Shared]:
        """Return the training and the test rows as the candidates of a view see them; None for no test rows."""
        _, means = self._fitted
        train = self._encode_rows(self.split.train, view, means)
        test = None if self.repeat == ALL_ROWS else self._encode_rows(self.split.test, view)
        name = f"{view}-{self.repeat}"
        return (
            self.temporary.share_matrix(f"{name}-train", train),
            self.temporary.share_matrix(f"{name}-test", test),
        )

    def _encode_rows(self, rows: np.ndarray, view: View, means: dict[str, np.ndarray] | None = None) -> Any:
        """Return rows as the candidates of a view see them; ``means``: target means, if they are training rows."""
        if view == "given":
            return self.dataset.table.frame[self.dataset.schema.inputs].iloc[rows]
        return self.encoder.encode(self.dataset.features.iloc[rows], view, means)
