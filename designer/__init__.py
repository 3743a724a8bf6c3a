"""The designer role: writing environments, judging them through the sandbox, remembering them.

A client of the sandbox and nothing more: no program runs in this process, and no model.
"""

from designer.archive import Archive, Remembered
from designer.archive_schema import ArchiveError
from designer.corpus import Corpus, CorpusError
from designer.designer import Designer
from designer.drafts import DesignRequest, Draft, Exchange, Finding, GateReport, Reason
from designer.gates import Gate, Gates
from designer.lineage import LineageShares
from designer.settings import GateSettings
from designer.writing import WritingOutcome, WritingSettings

__all__ = [
    "Archive",
    "ArchiveError",
    "Corpus",
    "CorpusError",
    "DesignRequest",
    "Designer",
    "Draft",
    "Exchange",
    "Finding",
    "Gate",
    "GateReport",
    "GateSettings",
    "Gates",
    "LineageShares",
    "Reason",
    "Remembered",
    "WritingOutcome",
    "WritingSettings",
]
