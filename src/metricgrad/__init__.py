"""metricgrad: train on the metric you will be evaluated on.

The public names are listed in ``__init__.pyi``. A name is imported when it is first asked for, so that the command line
answers without waiting for torch.
"""

from metricgrad import public_names as _public_names

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Import a public name when it is asked for."""
    if name == "__all__":
        return _public_names.available()
    if name not in _public_names.homes():
        raise AttributeError(f"module 'metricgrad' has no attribute {name!r}{_public_names.suggest(name)}")
    value = _public_names.load(name)
    if not _public_names.homes()[name].extra:
        globals()[name] = value  # so that the next one finds it without asking
    return value


def __dir__() -> list[str]:
    """Return the public names, for completion: those whose extra is installed, as in ``__all__``."""
    return sorted({*globals(), *_public_names.available()})
