"""Three releases of the code of one kind: the second calls a step with another argument, the third takes what either recorded.
The second brings a new kind."""

from perdure import App, Backoff, JobContext
from tests.crash.kill_points import write_mark


def register(app: App, release: int) -> None:
    """Add the handlers of a release."""

    @app.job(name="report", max_retries=20, backoff=Backoff(base=0, cap=0))
    async def report(ctx: JobContext) -> str:
        def do(what: str) -> str:
            write_mark("effects", f"{ctx.job_id} {ctx.attempt} {what}")
            return what

        calls = ctx.options(on_change="keep") if release == 3 else ctx
        found = await calls.step("search", lambda _: do("search"), 1 if release == 1 else 2)
        await ctx.sleep("nap", 1)
        return f"{found} {await ctx.step('write', do, 'write')}"

    if release > 1:

        @app.job(name="translate", max_retries=20, backoff=Backoff(base=0, cap=0))
        async def translate(ctx: JobContext) -> str:
            return await ctx.step("translate", str, "translate")
