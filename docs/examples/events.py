"""Watch a run event by event, and say something to the agent while it works.

Run it with ``python docs/examples/events.py``.
"""

import trio

from actors import Agent, open_runtime
from actors.agent.messages import RunEnded, TextDelta, ToolStarted


async def main() -> None:
    writer = Agent(name="writer", instruction="Write short stories.")
    async with open_runtime(agents=writer) as runtime:
        session = await runtime.create_session(title="A story")
        async with session.run("Tell me a story.") as events:
            async for event in events:
                match event:
                    case TextDelta(text=text):
                        print(text, end="", flush=True)
                    case ToolStarted(call=call):
                        print(f"\n> {call.name} {call.arguments}")
                    case RunEnded(reason=reason):
                        print(f"\n({reason})")
                    case _:
                        pass


if __name__ == "__main__":
    trio.run(main)
