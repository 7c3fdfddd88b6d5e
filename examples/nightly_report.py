"""A nightly schedule: at 03:30 in Berlin, a job adds up the orders of the day before and writes a report.

    python nightly_report.py                        # store the schedule and run a worker; start as many as you like
    perdure schedules next nightly-report           # when it fires
    perdure schedules trigger nightly-report        # a report now
    perdure schedules backfill nightly-report --from 2026-11-01 --to 2026-11-08      # those of a week

Orders are the lines `time,amount` of orders.csv, reports are report-DATE.txt, both in the current directory, as perdure.db is.
Each night has one job, however many workers run. A night on which no worker ran is made up for within 12 hours.
"""

from __future__ import annotations

import asyncio
import csv
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

from perdure import App, JobContext

BERLIN = ZoneInfo("Europe/Berlin")

app = App()


def add_up(day: date) -> list[Decimal]:
    """The amounts of the orders of a day."""
    with Path("orders.csv").open(newline="") as file:
        return [Decimal(amount) for time, amount in csv.reader(file) if datetime.fromisoformat(time).date() == day]


def write(day: date, text: str) -> None:
    """Write the report, or the same one again: a step that was killed before it was recorded runs twice."""
    Path(f"report-{day}.txt").write_text(text)


@app.job(max_retries=5)
async def report(ctx: JobContext, currency: str) -> str:
    """The day comes from the schedule, not from the clock: a late job and a backfill report on their own night."""
    assert ctx.scheduled_for is not None, "started by its schedule"
    day = ctx.scheduled_for.at.astimezone(BERLIN).date() - timedelta(days=1)
    amounts = await ctx.step("add up", add_up, day)
    text = f"{day}: {len(amounts)} orders, {sum(amounts, Decimal())} {currency}"
    await ctx.step("write", write, day, text)
    return text


async def main() -> None:
    """Storing the same schedule again changes nothing, so each start may do it."""
    async with app:
        await app.schedules.add(
            "nightly-report", report, "EUR", cron="30 3 * * *", timezone="Europe/Berlin", catch_up="12h"
        )
        await app.work()


if __name__ == "__main__":
    asyncio.run(main())
