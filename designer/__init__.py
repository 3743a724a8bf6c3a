"""The designer role: writing environments, judging them through the sandbox, remembering them.

A client of the sandbox and nothing more: no program runs in this process, and no model.
"""

from designer.archive import Archive, ArchiveError, Remembered
from designer.checks import GateSettings
from designer.designer import Designer
from designer.drafts import DesignRequest, Draft, GateReport, Reason
from designer.gates import Gates

__all__ = [
    "Archive",
    "ArchiveError",
    "DesignRequest",
    "Designer",
    "Draft",
    "GateReport",
    "GateSettings",
    "Gates",
    "Reason",
    "Remembered",
]
