"""The report: what it is drawn from, and the page."""
