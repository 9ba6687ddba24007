"""Hooks: programs and prompts of the agent's author that watch a run or decide in it.

A hook's input and output are JSON (sessions contract 4.8). Several hooks of one event run in order and their answers
are merged: a block wins, the last rewrite wins. What a hook says is applied by the loop, not here.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import trio
from msgspec import Struct, field

from actors.agent.messages import HookFinished, HookStarted, RunEvent

JSON = Any
OUTPUT_LIMIT = 1_000_000
"""Bytes of a hook's output that are read; more is a failure."""


class HookSpec(Struct, frozen=True, kw_only=True):
    """One hook.

    ``matcher`` is a regular expression over the whole tool name, for tool events; ``timeout`` is in seconds. A
    ``client`` hook is ``ask``, which a connected program answers.
    """

    event: str
    name: str = ""
    type: Literal["command", "builtin", "model", "client"] = "command"
    command: str = ""
    args: tuple[str, ...] = ()
    timeout: float = 60.0
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    working_dir: str = ""
    on_error: Literal["warn", "ignore", "block"] = "warn"
    matcher: str = ""
    preempt: bool = False
    model: str = ""
    prompt: str = ""
    schema: Mapping[str, JSON] | None = None
    ask: Callable[[str, Mapping[str, JSON]], Awaitable[HookResult]] | None = None

    def matches(self, event: str, tool: str) -> bool:
        """Whether the hook is for this event and, when it names tools, for this tool."""
        if self.event != event:
            return False
        return self.matcher in ("", "*") or re.fullmatch(self.matcher, tool) is not None


class HookResult(Struct, frozen=True, kw_only=True):
    """What the hooks of one event decided together."""

    blocked: bool = False
    stop: bool = False
    message: str = ""
    decision: Literal["", "allow", "deny", "ask"] = ""
    reason: str = ""
    arguments: Mapping[str, JSON] | None = None
    context: str = ""
    output: str | None = None
    prompt: str | None = None
    summary: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    warnings: tuple[str, ...] = ()


PASS = HookResult()
Builtin = Callable[[Mapping[str, JSON], Sequence[str]], HookResult]
AskModel = Callable[[HookSpec, str], Awaitable[str]]


class _Specific(Struct):
    """``hook_specific_output``."""

    permission_decision: Literal["", "allow", "deny", "ask"] = ""
    permission_decision_reason: str = ""
    updated_input: dict[str, JSON] | None = None
    updated_prompt: str | None = None
    metadata: dict[str, JSON] = field(default_factory=dict[str, JSON])
    additional_context: str = ""
    updated_tool_response: JSON = None
    summary: str = ""


class _Output(Struct):
    """What a hook may print."""

    proceed: bool = field(default=True, name="continue")
    stop_reason: str = ""
    system_message: str = ""
    decision: str = ""
    reason: str = ""
    hook_specific_output: _Specific = field(default_factory=_Specific)


class HookError(Exception):
    """A hook could not be run or answered nonsense."""


class Hooks:
    """An agent's hooks, ready to run.

    Args:
        specs: In file order.
        emit: Takes ``HookStarted`` and ``HookFinished``.
        base: Fields every input carries (``session_id``, ``cwd``).
        working_dir: Where commands run unless the hook says otherwise.
        env: Environment of commands.
        ask_model: Answers a ``model`` hook's prompt; such hooks fail without it.
    """

    def __init__(
        self,
        specs: Sequence[HookSpec],
        *,
        agent: str,
        emit: Callable[[RunEvent], None],
        base: Mapping[str, JSON],
        working_dir: Path,
        env: Mapping[str, str],
        ask_model: AskModel | None = None,
    ) -> None:
        self._specs = specs
        self._agent = agent
        self._emit = emit
        self._base = base
        self._working_dir = working_dir
        self._env = env
        self._ask_model = ask_model

    def wanted(self, event: str, tool: str = "") -> bool:
        """Whether :meth:`run` would run anything."""
        return any(spec.matches(event, tool) for spec in self._specs)

    async def run(
        self, event: str, fields: Mapping[str, JSON], *, tool: str = "", preempt: bool = False
    ) -> HookResult:
        """Run the event's hooks in order and return what they decided; the first block ends the round.

        Args:
            event: Such as ``pre_tool_use``.
            fields: The event's own input fields.
            tool: Name of the tool that matchers see.
            preempt: Run those marked ``preempt_yolo`` instead of the others.

        Cancellation: a running command and its children are killed.
        """
        merged = PASS
        for index, spec in enumerate(self._specs):
            if spec.preempt == preempt and spec.matches(event, tool):
                merged = _merged(merged, await self._run_one(spec, index, event, fields))
                if merged.blocked:
                    break
        return merged

    async def _run_one(
        self, spec: HookSpec, index: int, event: str, fields: Mapping[str, JSON]
    ) -> HookResult:
        hook_id = spec.name or f"{event}-{index}"
        self._emit(HookStarted(agent=self._agent, hook_event=event, hook_id=hook_id))
        began = trio.current_time()
        payload = msgspec.json.encode({**self._base, "hook_event_name": event, **fields})
        error = ""
        try:
            result = await self._answer(spec, payload)
        except HookError as failure:
            error = str(failure)
            result = _failed(spec, hook_id, error)
        self._emit(
            HookFinished(
                agent=self._agent,
                hook_event=event,
                hook_id=hook_id,
                duration_ms=int((trio.current_time() - began) * 1000),
                allowed=not result.blocked and result.decision != "deny",
                error=error,
                message=result.message,
            )
        )
        return result

    async def _answer(self, spec: HookSpec, payload: bytes) -> HookResult:
        with trio.move_on_after(spec.timeout):
            match spec.type:
                case "command":
                    return await self._run_command(spec, payload)
                case "model":
                    return await self._run_model(spec, payload)
                case "builtin":
                    return _run_builtin(spec, payload)
                case "client":
                    if spec.ask is None:
                        raise HookError("there is nobody to ask")
                    return await spec.ask(spec.event, msgspec.json.decode(payload))
        raise HookError(f"no answer within {spec.timeout:g} s")

    async def _run_command(self, spec: HookSpec, payload: bytes) -> HookResult:
        code, out, err = await run_command(
            [spec.command, *spec.args] if spec.args else ["/bin/sh", "-c", spec.command],
            payload,
            cwd=self._working_dir / spec.working_dir,
            env={**self._env, **spec.env},
        )
        if code == 2:
            return HookResult(blocked=True, decision="deny", message=err.strip() or out.strip())
        if code != 0:
            raise HookError(f"exit code {code}: {err.strip()[:500]}")
        return parse_output(out)

    async def _run_model(self, spec: HookSpec, payload: bytes) -> HookResult:
        if self._ask_model is None:
            raise HookError("model hooks are not available here")
        return parse_output(await self._ask_model(spec, f"{spec.prompt}\n\n{payload.decode()}"))


async def run_command(
    command: Sequence[str], stdin: bytes, *, cwd: Path, env: Mapping[str, str]
) -> tuple[int, str, str]:
    """Run a program in a process group of its own; return exit code, output and error output.

    Raises:
        HookError: it cannot be started, or prints more than :data:`OUTPUT_LIMIT`.

    Cancellation: the whole group is killed.
    """
    try:
        process = await trio.lowlevel.open_process(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=dict(env),
            start_new_session=True,
        )
    except OSError as error:
        raise HookError(f"cannot start {command[0]}: {error}") from error
    output: dict[str, bytes] = {}
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_feed, process, stdin)
            for name, stream in (("out", process.stdout), ("err", process.stderr)):
                assert stream is not None
                nursery.start_soon(_collect, stream, name, output)
            await process.wait()
            # What the hook left running in the background would hold the pipes open for ever.
            _kill_group(process.pid)
    finally:
        _kill_group(process.pid)
        # The group was just killed, so this wait is for the kernel only; it must not leave a zombie.
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 5):
            await process.wait()
    if any(len(text) > OUTPUT_LIMIT for text in output.values()):
        raise HookError(f"more than {OUTPUT_LIMIT} bytes of output")
    assert process.returncode is not None
    return process.returncode, output["out"].decode(errors="replace"), output["err"].decode(errors="replace")


async def _feed(process: trio.Process, data: bytes) -> None:
    assert process.stdin is not None
    async with process.stdin:
        try:
            await process.stdin.send_all(data)
        except trio.BrokenResourceError:
            return  # a hook need not read its input


async def _collect(stream: trio.abc.ReceiveStream, name: str, output: dict[str, bytes]) -> None:
    chunks: list[bytes] = []
    size = 0
    async with stream:
        async for chunk in stream:
            if size <= OUTPUT_LIMIT:
                chunks.append(bytes(chunk))
            size += len(chunk)
    output[name] = b"".join(chunks)


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def parse_output(text: str) -> HookResult:
    """Return what a hook printed means; plain text is context for the model.

    Raises:
        HookError: it is a JSON object of another shape.
    """
    text = text.strip()
    if not text.startswith("{"):
        return HookResult(context=text)
    try:
        output = msgspec.json.decode(text, type=_Output)
    except msgspec.DecodeError as error:
        raise HookError(f"unusable output: {error}") from error
    specific = output.hook_specific_output
    updated = specific.updated_tool_response
    blocked = output.decision == "block"
    return HookResult(
        blocked=blocked,
        stop=not output.proceed,
        message=output.reason or output.stop_reason or output.system_message,
        decision=specific.permission_decision or ("deny" if blocked else ""),
        reason=specific.permission_decision_reason or output.reason,
        arguments=specific.updated_input,
        context=specific.additional_context,
        output=updated
        if updated is None or isinstance(updated, str)
        else msgspec.json.encode(updated).decode(),
        prompt=specific.updated_prompt,
        summary=specific.summary,
        metadata={key: str(value) for key, value in specific.metadata.items()},
        warnings=(output.system_message,) if output.system_message else (),
    )


def _failed(spec: HookSpec, hook_id: str, error: str) -> HookResult:
    match spec.on_error:
        case "block":
            return HookResult(blocked=True, decision="deny", message=f"hook {hook_id} failed: {error}")
        case "warn":
            return HookResult(warnings=(f"hook {hook_id} failed: {error}",))
        case "ignore":
            return PASS


_RANK = {"": 0, "allow": 1, "ask": 2, "deny": 3}


def _merged(old: HookResult, new: HookResult) -> HookResult:
    decides = new if _RANK[new.decision] >= _RANK[old.decision] else old
    return HookResult(
        blocked=old.blocked or new.blocked,
        stop=old.stop or new.stop,
        message=new.message or old.message,
        decision=decides.decision,
        reason=decides.reason,
        arguments=old.arguments if new.arguments is None else new.arguments,
        context="\n".join(text for text in (old.context, new.context) if text),
        output=old.output if new.output is None else new.output,
        prompt=old.prompt if new.prompt is None else new.prompt,
        summary=new.summary or old.summary,
        metadata={**old.metadata, **new.metadata},
        warnings=old.warnings + new.warnings,
    )


def _run_builtin(spec: HookSpec, payload: bytes) -> HookResult:
    builtin = BUILTINS.get(spec.command or spec.name)
    if builtin is None:
        raise HookError(
            f"no builtin hook named {spec.command or spec.name!r}; known: {', '.join(sorted(BUILTINS))}"
        )
    fields: dict[str, JSON] = msgspec.json.decode(payload)
    return builtin(fields, spec.args)


def _block(fields: Mapping[str, JSON], args: Sequence[str]) -> HookResult:
    return HookResult(
        blocked=True, decision="deny", message=" ".join(args) or f"{fields['hook_event_name']} is blocked"
    )


def _allow(_: Mapping[str, JSON], args: Sequence[str]) -> HookResult:
    return HookResult(decision="allow", reason=" ".join(args))


def _ask(_: Mapping[str, JSON], args: Sequence[str]) -> HookResult:
    return HookResult(decision="ask", reason=" ".join(args))


def _context(_: Mapping[str, JSON], args: Sequence[str]) -> HookResult:
    return HookResult(context=" ".join(args))


BUILTINS: Mapping[str, Builtin] = {
    "allow": _allow,
    "ask": _ask,
    "block": _block,
    "context": _context,
}
"""Hooks that need no program; ``args`` is their text."""
