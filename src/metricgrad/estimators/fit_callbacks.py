"""scikit-learn's callbacks, which it has from version 1.9 on: the tasks of ``fit`` that they are told of.

Where scikit-learn is older, or no callbacks are set, tasks do nothing.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Self, TypeVar

    Method = TypeVar("Method", bound=Callable[..., Any])

    class CallbackSupportMixin:
        """scikit-learn's, with types."""

        def set_callbacks(self, *callbacks: Any) -> Self: ...

    def with_callbacks(method: Method) -> Method:
        """Return the method, after which callbacks are torn down."""

else:
    try:
        from sklearn.callback import CallbackSupportMixin, with_callbacks
    except ImportError:

        class CallbackSupportMixin:
            """Stands in for scikit-learn's class, which older versions lack."""

        def with_callbacks(method):
            """Return the method: there are no callbacks to tear down."""
            return method


class FitTask:
    """What callbacks are told of: the whole of ``fit``, or a part of it, such as a model or an epoch."""

    def __init__(self, estimator: Any, context: Any, X: Any, y: Any) -> None:
        self.estimator = estimator
        self.context = context
        self.X = X
        self.y = y

    @classmethod
    def begin_fit(cls, estimator: Any, X: Any, y: Any, parts: int | None = 0, sequential: bool = True) -> FitTask:
        """Return the task of a whole ``fit`` of at most so many parts, and tell the callbacks that it begins.

        ``sequential``: whether the parts are done one after the other.
        """
        has_callbacks = bool(getattr(estimator, "_skl_callbacks", ()))
        if not has_callbacks:
            return cls(None, None, None, None)
        context = estimator._init_callback_context(max_subtasks=parts, sequential_subtasks=sequential)
        return cls(estimator, context, X, y).begin()

    @property
    def is_watched(self) -> bool:
        """Whether there are callbacks."""
        return self.context is not None

    def part(self, name: str, place: int, parts: int = 0) -> FitTask:
        """Return a part of this task, which has at most so many parts of its own."""
        if not self.is_watched:
            return self
        task_id = None if self.context.sequential_subtasks else place
        context = self.context.subcontext(name, task_id, parts)
        return FitTask(self.estimator, context, self.X, self.y)

    def begin(self) -> FitTask:
        """Tell the callbacks that it begins."""
        if self.is_watched:
            self.context.call_on_fit_task_begin(estimator=self.estimator, X=self.X, y=self.y)
        return self

    def end(self, fitted: Any = None) -> bool:
        """Tell the callbacks that it ends, and return whether one of them wants to stop here.

        ``fitted``: a function that returns the attributes of the estimator as if ``fit`` stopped here; called only if a
        callback asks for the estimator.
        """
        if not self.is_watched:
            return False
        return bool(
            self.context.call_on_fit_task_end(
                estimator=self.estimator, X=self.X, y=self.y, reconstruction_attributes=fitted
            )
        )

    @contextmanager
    def passed_on(self, inner: Any) -> Iterator[None]:
        """Pass callbacks on to an estimator that is fitted as this task, if they are of those that are passed on."""
        with self.context.propagate_callback_context(inner) if self.is_watched else nullcontext():
            yield


class Steps:
    """The steps of a task, one after the other, such as epochs."""

    def __init__(self, task: FitTask, name: str) -> None:
        self.task = task
        self.name = name
        self.step = task

    def begin(self, place: int) -> None:
        """Begin the step at a place."""
        self.step = self.task.part(self.name, place).begin()

    def end(self, fitted: Any = None) -> bool:
        """End the step, and return whether to stop after it."""
        return self.step.end(fitted)
