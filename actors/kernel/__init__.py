"""Actors on trio: mailboxes, supervision, work, gates and the kill switch. Knows nothing about agents."""

from actors.kernel.actor import Actor, Context
from actors.kernel.address import Address
from actors.kernel.cell import Kind
from actors.kernel.errors import ActorCrashed, ActorStopped, AskCycle, MailboxFull, Unreachable
from actors.kernel.gate import Gate
from actors.kernel.killswitch import KillSwitch
from actors.kernel.mailbox import Bounds, Mailbox, MailboxStatistics
from actors.kernel.message import Control, Exit, Request, Stop, Terminated
from actors.kernel.ref import Ref
from actors.kernel.supervision import Escalate, Restart, RestartPolicy
from actors.kernel.system import Directory, System, SystemStatistics, open_system
from actors.kernel.timer import Timer
from actors.kernel.work import Failed, Finished, Outcome, Stopped, Work

__all__ = [
    "Actor",
    "ActorCrashed",
    "ActorStopped",
    "Address",
    "AskCycle",
    "Bounds",
    "Context",
    "Control",
    "Directory",
    "Escalate",
    "Exit",
    "Failed",
    "Finished",
    "Gate",
    "KillSwitch",
    "Kind",
    "Mailbox",
    "MailboxFull",
    "MailboxStatistics",
    "Outcome",
    "Ref",
    "Request",
    "Restart",
    "RestartPolicy",
    "Stop",
    "Stopped",
    "System",
    "SystemStatistics",
    "Terminated",
    "Timer",
    "Unreachable",
    "Work",
    "open_system",
]
