"""What a model's code may do without asking, and how a person is asked."""

from taskweaver_ext.approval.approval import Approval, ApprovalAnswer, ApprovalRequest, Ask
from taskweaver_ext.approval.rules import ApprovalRules, CodeToRun, ShellPolicy

__all__ = [
    "Approval",
    "ApprovalAnswer",
    "ApprovalRequest",
    "ApprovalRules",
    "Ask",
    "CodeToRun",
    "ShellPolicy",
]
