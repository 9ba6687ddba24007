"""One question to an agent that runs inside this program, with a tool written in Python.

Run it with ``python docs/examples/embedded.py``; without a key the local model answers.
"""

from datetime import UTC, datetime

import trio

from actors import Agent, open_runtime


async def current_time(zone_offset_hours: int = 0) -> str:
    """Return the time of day.

    Args:
        zone_offset_hours: Hours ahead of UTC.
    """
    now = datetime.now(UTC)
    return f"{(now.hour + zone_offset_hours) % 24:02}:{now.minute:02}"


async def main() -> None:
    clock = Agent(
        name="clock",
        instruction="Tell the time when asked.",
        tools=[current_time],
        safety="autonomous",  # run tools unasked: nobody here could be asked
    )
    async with open_runtime(agents=clock) as runtime:
        session = await runtime.create_session(title="Time")
        print(await session.ask("What time is it?"))


if __name__ == "__main__":
    trio.run(main)
