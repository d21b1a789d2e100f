"""scikit-learn objects in files, by skops: without pickle, and only of types that the reader trusts.

``skops.io`` imports all of scikit-learn, which takes a second or two, so it is imported when a file is written or read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import skops  # noqa: F401  # so that a missing skops is reported when this module is imported

from metricgrad.strict_json import first_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from metricgrad.storage.folders import Files


def dump(part: Any) -> bytes:
    """Return an object as the bytes of a file, which was tried: some of what skops writes it cannot read."""
    from skops import io

    try:
        data: bytes = io.dumps(part)
        io.loads(data, trusted=io.get_untrusted_types(data=data))
        return data
    except Exception as error:  # skops raises errors of its own, and so may whatever lies in the part
        raise ValueError(f"estimator: skops cannot write it: {first_line(error)}") from error


OWN_TYPES = (
    "metricgrad.estimators.columns.column.Column",
    "metricgrad.estimators.columns.words.Words",
    "metricgrad.estimators.table_encoder.TableEncoder",
)
"""Types of this library that hold data alone, in a pipeline of the user's."""


def load(files: Files, name: str, trusted: Sequence[str] = ()) -> Any:
    """Return the object in a file; ``trusted``: names of types to trust besides those that skops trusts, and ours."""
    from skops import io
    from skops.io.exceptions import UntrustedTypesFoundException

    try:
        return io.loads(files[name], trusted=[*trusted, *OWN_TYPES])
    except UntrustedTypesFoundException as error:
        types = [one for one in list_untrusted_types(files[name]) if one not in OWN_TYPES]
        raise ValueError(
            f"trusted: expected {types}, if you trust whoever wrote {name}; got {list(trusted)}"
        ) from error
    except Exception as error:
        raise ValueError(f"folder: {name} cannot be read: {first_line(error)}") from error


def list_untrusted_types(data: bytes) -> list[str]:
    """Return the types in a file that skops does not trust."""
    from skops import io

    return list(io.get_untrusted_types(data=data))
