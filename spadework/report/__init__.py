"""The report of a run: one self-contained HTML file, readable offline."""

from spadework.report.page import write_report

__all__ = ["write_report"]
