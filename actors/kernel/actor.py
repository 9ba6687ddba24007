"""What the author of an actor writes against: the Actor base class and the Context it acts through."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from actors.kernel.address import Address
from actors.kernel.gate import Gate
from actors.kernel.killswitch import KillSwitch
from actors.kernel.supervision import RestartPolicy
from actors.kernel.timer import Timer
from actors.kernel.work import Outcome, Work

if TYPE_CHECKING:
    from actors.kernel.ref import Ref

M = TypeVar("M")
M_contra = TypeVar("M_contra", contravariant=True)
N = TypeVar("N")
T = TypeVar("T")

DEFAULT_POLICY = RestartPolicy()


class Context(Protocol[M_contra]):
    """All that an actor may do to the world. It belongs to one incarnation and is dead after it."""

    @property
    def address(self) -> Address:
        """The actor's own name."""
        ...

    @property
    def ref(self) -> Ref[M_contra]:
        """A handle on the actor itself, to give to others and to its work."""
        ...

    @property
    def gate(self) -> Gate:
        """The parent of the gates of all its work."""
        ...

    @property
    def killswitch(self) -> KillSwitch:
        """Cancels all its work when tripped; a child of the system's switch."""
        ...

    def resolve(self, address: Address) -> Ref[Any]:
        """Return a ref to any actor of the system; see :meth:`System.ref`."""
        ...

    async def spawn(
        self, make: Callable[[], Actor[N]], key: str, policy: RestartPolicy = DEFAULT_POLICY
    ) -> Ref[N]:
        """Start a child and return once its ``on_start`` has succeeded. Its address is ``<own address>/key``.

        A child ends with this incarnation. When it crashes over its budget and is not watched, this incarnation
        crashes, too. A child is reached by the ref returned, not by :meth:`resolve`.

        Raises:
            Conflict: a child of that key is alive.
            Rejected: the child's ``on_start`` refused.
            ActorCrashed: the child's ``on_start`` failed.

        Cancellation: the child is cancelled.
        """
        ...

    def start_work(
        self,
        fn: Callable[..., Awaitable[T]],
        *args: object,
        done: Callable[[Outcome[T]], M_contra],
        gate: Gate | None = None,
        name: str = "",
    ) -> Work:
        """Run ``fn(*args)`` beside the mailbox; ``done(outcome)`` becomes a message ahead of the control lane.

        Args:
            fn: Does the work; it learns nothing of the actor but what ``args`` say.
            *args: Passed to ``fn``.
            done: Makes the actor's message from the outcome; called in the actor, where raising is a crash.
            gate: The work's gate when ``fn`` must know it; make it with ``Gate(ctx.gate)``. Default: a new one.
            name: Shown in logs and task trees.

        Checkpoint: never. The work begins after the caller's next checkpoint, and not at all when a kill switch is
        tripped: then its outcome is ``Stopped``.
        """
        ...

    def watch(self, ref: Ref[Any]) -> None:
        """Receive ``Terminated`` once when the actor is gone; at once when it is gone already. Idempotent."""
        ...

    def unwatch(self, ref: Ref[Any]) -> None:
        """Do not receive ``Terminated`` of it, unless it is in the mailbox already. Idempotent."""
        ...

    def after(self, seconds: float, message: M_contra) -> Timer:
        """Send ``message`` to the actor itself in ``seconds``; cancelled when the incarnation ends."""
        ...

    def passivate(self) -> None:
        """End as ``passivated`` as soon as there is no mail, work, child, timer or watch. The address lives on."""
        ...


class Actor(ABC, Generic[M]):
    """State with one door. Subclass it; attributes are the state, :meth:`receive` is the only way in.

    There is no ``on_stop``: clean up in ``with`` blocks of work, and let the journal or a watcher keep the record.
    """

    async def on_start(self, ctx: Context[M]) -> None:
        """Rebuild the state before the first message. Messages wait meanwhile.

        Raises:
            Rejected: nothing lives at this address; everyone who asked gets the refusal, and no trace is left.
        """

    @abstractmethod
    async def receive(self, message: M, ctx: Context[M]) -> object:
        """Handle one message; the returned value is the reply when the message is a ``Request``.

        Nothing slower than a journal write may be awaited here; slow things are work.

        Raises:
            Rejected: the command is not acceptable now; goes to the asker and changes nothing (K6).

        Any other exception ends the incarnation. An asker gets it when it is an ``ActorsError``, else
        ``ActorCrashed``.
        """
        ...
