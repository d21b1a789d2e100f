"""Estimators on disk without pickle: weights as safetensors, trees as their library writes them, the rest as JSON.

scikit-learn's own parts are written by skops. Every kind of estimator has its codec, in a module of its own.

Loading runs no code from the folder: names in it are looked up in fixed tables. Needs the extra "persistence".
"""

from __future__ import annotations

from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from sklearn.utils.validation import check_is_fitted

from metricgrad import strict_json
from metricgrad.storage import folders, manifests
from metricgrad.storage.codec import Saved
from metricgrad.storage.ensembles import EnsembleCodec
from metricgrad.storage.networks import NetworkCodec
from metricgrad.storage.thresholded import ThresholdedCodec
from metricgrad.storage.trees import TreesCodec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from metricgrad.estimators.metric_boosting_classifier import MetricBoostingClassifier
    from metricgrad.estimators.metric_classifier import MetricClassifier
    from metricgrad.estimators.metric_ensemble_classifier import MetricEnsembleClassifier
    from metricgrad.estimators.thresholded_classifier import ThresholdedClassifier
    from metricgrad.storage.codec import Codec
    from metricgrad.storage.folders import Contents, Files
    from metricgrad.storage.manifests import Attributes, Manifest


def save(estimator: Any, folder: str | Path, *, overwrite: bool = False) -> Path:
    """Write a fitted estimator of this library into a new folder.

    All of it or nothing: the folder is written under another name and then renamed. Parameters that plain data cannot
    hold (a function, a module, a splitter) are named in the manifest and must be given to ``load``.

    Parameters
    ----------
    estimator : MetricClassifier, MetricBoostingClassifier, ThresholdedClassifier or MetricEnsembleClassifier
        A fitted one.
    folder : str or Path
        Where to write.
    overwrite : bool, default False
        Replace a folder that holds nothing but what an earlier ``save`` wrote.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    ValueError
        If the estimator is of another kind or cannot be written, or the folder exists.

    Examples
    --------
    >>> import tempfile
    >>> from metricgrad import MetricClassifier
    >>> model = MetricClassifier(epochs=1, random_state=0).fit([[0.0], [1.0], [2.0], [3.0]], ["no", "no", "yes", "yes"])
    >>> with tempfile.TemporaryDirectory() as place:
    ...     again = load(save(model, f"{place}/model"))
    >>> again.classes_
    array(['no', 'yes'], dtype='<U3')

    """
    place = Path(folder).resolve()
    folders.write(place, *_write(estimator), overwrite)
    return place


def pack_estimator(estimator: Any) -> Files:
    """Return the files that ``save`` would write."""
    return folders.pack_files(*_write(estimator))


def _write(estimator: Any) -> tuple[Contents, Files]:
    """Return the contents of the manifest, and the files."""
    codec = _CODECS.get(type(estimator).__name__)
    if codec is None or codec.kind is not type(estimator):
        raise ValueError(f"estimator: expected a {' or '.join(_CODECS)}, got {type(estimator).__name__}")
    check_is_fitted(estimator, "rule_")
    common = manifests.describe(estimator, codec.in_files)
    written = codec.write(estimator)
    common["versions"] |= written.versions
    return common | written.about, written.files


def load(
    folder: str | Path, model: Any = None, *, trusted: Sequence[str] = (), **parameters: Any
) -> MetricClassifier | MetricBoostingClassifier | ThresholdedClassifier | MetricEnsembleClassifier:
    """Return the estimator that ``save`` wrote; it predicts the same, bit for bit on the same machine.

    The hashes find damage, not forgery: a stranger's folder may predict anything, and forged trees may crash the parser
    of XGBoost or LightGBM, but it runs no code unless you trust its types. See SECURITY.md.

    Parameters
    ----------
    folder : str or Path
        What ``save`` wrote.
    model : nn.Module or callable, optional
        The module, or function of (inputs, outputs), if the networks were of your own making; the weights come from the
        folder.
    trusted : sequence of str, default ()
        Names of types in a classifier of yours to trust, besides those that skops trusts.
    **parameters : Any
        The other parameters that the folder does not hold (``metric=``, ``loss=``, ...); None is enough for one that
        only fitting needs.

    Returns
    -------
    MetricClassifier, MetricBoostingClassifier, ThresholdedClassifier or MetricEnsembleClassifier
        The fitted estimator.

    Raises
    ------
    ValueError
        If files are missing or changed, the format is another one, or a parameter or a trusted type is missing.

    """
    return restore_estimator(*folders.read(Path(folder)), model, trusted=trusted, **parameters)


def restore_estimator(
    manifest: Contents,
    files: Files,
    model: Any = None,
    *,
    trusted: Sequence[str] = (),
    **parameters: Any,
) -> MetricClassifier | MetricBoostingClassifier | ThresholdedClassifier | MetricEnsembleClassifier:
    """Do as ``load`` for a manifest and files that were read and verified already."""
    _, written, fitted = check_manifest(manifest, files)
    completed = manifests.complete_parameters(written, parameters if model is None else parameters | {"model": model})
    codec = _CODECS[manifest["estimator"]]
    saved = Saved(completed, fitted, cast("Manifest", manifest), files, trusted)
    return codec.restore(saved)  # type: ignore[no-any-return]


def check_manifest(manifest: Contents, files: Files) -> tuple[Any, Attributes, Attributes]:
    """Return the estimator's class, its parameters and fitted attributes, as far as the JSON files hold them."""
    try:
        strict_json.check(manifest, manifests.Manifest, folders.MANIFEST)
        codec = _CODECS[manifest["estimator"]]
        sound = cast("Manifest", manifest)
        fitted = manifests.read_attributes(sound)
        written = {key: manifests.read_parameter(key, data) for key, data in manifest["parameters"].items()}
        if unknown := written.keys() - (signature(codec.kind).parameters.keys() - {*codec.in_files}):
            kind = codec.kind.__name__
            raise ValueError(f"{folders.MANIFEST}: expected the parameters of {kind}, got {min(unknown)!r}")
        fitted |= codec.read(sound, files)
    except (AttributeError, LookupError, TypeError, ValueError, ArithmeticError, RuntimeError) as error:
        raise ValueError(
            f"folder: expected contents as mg.save writes them, got {strict_json.first_line(error)}"
        ) from error
    return codec.kind, written, fitted


_CODECS: dict[str, Codec] = {
    codec.kind.__name__: codec
    for codec in (NetworkCodec(), TreesCodec(), ThresholdedCodec(), EnsembleCodec(pack_estimator, restore_estimator))
}
