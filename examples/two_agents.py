"""Two agents that converse: a writer asks a critic until it is content.

    python two_agents.py work critic          in one terminal
    python two_agents.py work writer          in another
    python two_agents.py "durable jobs"       in a third: send the writer a message, and print its reply

The jobs are in perdure.db, in the current directory, or where PERDURE_DATABASE_URL says. Kill either worker with kill -9 at any
time and start it again: the conversation goes on where it was, and nothing is asked, judged or answered twice.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass

from perdure import App, JobContext

app = App()


@dataclass
class Verdict:
    """What the critic says of a text."""

    good: bool
    advice: str = ""


async def judge(text: str) -> Verdict:
    """In place of a model."""
    await asyncio.sleep(0.2)
    drafts = text.count("!")
    return Verdict(True) if drafts == 3 else Verdict(False, f"say it louder than {drafts} times")


async def revise(text: str, advice: str) -> str:
    """In place of a model."""
    await asyncio.sleep(0.2)
    return f"{text}!" if advice else text


@app.agent("critic", queue="critic").on_message(str)
async def criticise(ctx: JobContext, text: str) -> Verdict:
    """A job for each text; what it returns is the reply."""
    return await ctx.step("judge", judge, text)


@app.agent("writer", queue="writer").on_message(str)
async def write(ctx: JobContext, topic: str) -> str:
    """A job for each topic. While it waits for a reply it holds no worker."""
    text = topic
    while not (verdict := await ctx.ask("critic", text, Verdict)).good:
        text = await ctx.step("revise", revise, text, verdict.advice)
    return text


async def main(words: list[str]) -> None:
    """Work as one of the agents, or send the writer a topic and wait for its reply."""
    async with app:
        if words[0] == "work":
            await app.work(queues=words[1:], lease=3)
            return
        job = await app.agents.message("writer", " ".join(words))
        print(await job.result())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
