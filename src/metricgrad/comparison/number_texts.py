"""Numbers as the report and notebooks show them."""

from __future__ import annotations


def format_value(value: float | None, sign: str = "") -> str:
    """Return three decimals, with a true minus, or a dash for what is not known; ``sign="+"`` shows a plus as well.

    >>> format_value(0.12345), format_value(-0.5, "+"), format_value(None)
    ('0.123', '−0.500', '–')
    """
    return "–" if value is None else f"{value:{sign}.3f}".replace("-", "−")


def format_interval(low: float | None, high: float | None, sign: str = "") -> str:
    """Return an interval, or nothing if it is not known.

    >>> format_interval(0.1, 0.25), format_interval(None, None)
    ('0.100 to 0.250', '')
    """
    if low is None or high is None:
        return ""
    return f"{format_value(low, sign)} to {format_value(high, sign)}"


def format_share(share: float) -> str:
    """Return a share in percent, with three digits.

    >>> format_share(0.12345)
    '12.3 %'
    """
    return f"{100 * share:.3g} %"


def format_money(amount: float) -> str:
    """Return an amount with two decimals and a true minus.

    >>> format_money(-1234.5)
    '−1,234.50'
    """
    return f"{amount:,.2f}".replace("-", "−")
