"""LangGraph on perdure's database: a checkpointer and a store, in jobs and outside, and graphs as parts of jobs. Needs
`pip install "perdure[langgraph]"`.

    graph = builder.compile(checkpointer=PerdureSaver(app), store=PerdureStore(app))

    @app.job
    async def research(ctx: JobContext, question: str) -> str:
        return (await run(graph, {"question": question}))["answer"]
"""

from perdure.integrations.langgraph.checkpointer import PerdureSaver
from perdure.integrations.langgraph.run import run
from perdure.integrations.langgraph.store import PerdureStore

__all__ = ["PerdureSaver", "PerdureStore", "run"]
