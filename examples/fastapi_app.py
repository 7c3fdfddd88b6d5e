"""Jobs behind a web application: a route starts one, a link decides what it asks, a route shows what became of it.

    pip install fastapi uvicorn
    perdure worker start --app fastapi_app:app           in one terminal
    uvicorn fastapi_app:web                               in another

    curl -X POST localhost:8000/letters -H 'Content-Type: application/json' -d '{"to": "Ana", "topic": "tea"}'

The worker prints the link under which the letter can be approved; a real one would send it by mail or chat.
"""

from __future__ import annotations

import html
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal
from urllib.parse import quote
from uuid import UUID

from fastapi import FastAPI, Header, Query, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from pydantic import BaseModel

from perdure import (
    App,
    ApprovalRequest,
    Conflict,
    InvalidInput,
    JobContext,
    NotFound,
    NotPermitted,
    PerdureError,
    StoreUnreachable,
    WaitTimeout,
)

app = App()


class Letter(BaseModel):
    """What is asked for."""

    to: str
    topic: str


# -- the job --------------------------------------------------------------------------------------------------------------


def write(letter: Letter) -> str:
    """A draft; your model call goes here."""
    return f"Dear {letter.to}, let us talk about {letter.topic}."


def send(text: str) -> str:
    """Send it; your mail server goes here."""
    print(f"sent: {text}")
    return text


async def tell(request: ApprovalRequest) -> None:
    """Send the link. Its token allows to decide; it is not stored."""
    print(f"decide: http://localhost:8000/approvals/{request.id}?token={request.token}", flush=True)


@app.job
async def send_letter(ctx: JobContext, letter: Letter) -> str:
    """Draft, ask, send."""
    draft = await ctx.step("write", write, letter)
    decision = await ctx.approve(
        "send", title=f"Send this to {letter.to}?", payload=draft, notify=tell, expires_in="7d"
    )
    return await ctx.tool("send", send, decision.payload)


# -- the web application ----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """The store is open as long as the application runs."""
    async with app:
        yield


web = FastAPI(lifespan=lifespan)


@web.post("/letters", status_code=202)
async def start(
    letter: Letter, response: Response, idempotency_key: Annotated[str | None, Header()] = None
) -> dict[str, Any]:
    """Start a job. It is committed when this answers; the same Idempotency-Key is the same job."""
    job = await app.enqueue(send_letter, letter, idempotency_key=idempotency_key)
    response.headers["Location"] = f"/letters/{job.id}"
    return {"id": str(job.id), "created": job.created}


@web.get("/letters/{id}")
async def show(id: UUID, response: Response, wait: Annotated[float, Query(ge=0, le=30)] = 0) -> dict[str, Any]:
    """What became of it; with ?wait=10 the answer may take ten seconds, if it has not ended before. 202: not yet."""
    try:
        job = await app.jobs.wait(id, timeout=wait)
    except WaitTimeout:
        job = await app.jobs.get(id)
        response.status_code = 202
    return {"status": job.status, "result": job.result, "error": job.error_message}


@web.get("/approvals/{id}")
async def ask(id: UUID, token: str) -> HTMLResponse:
    """A page with two buttons. Looking decides nothing: mail scanners follow links."""
    approval = await app.approvals.get(id)
    title, payload = html.escape(approval.title), html.escape(str(approval.payload))
    forms = "".join(
        f'<form method="post" action="?answer={answer}&amp;token={quote(token)}"><button>{answer}</button></form>'
        for answer in ("approve", "deny")
    )
    return HTMLResponse(f"<!doctype html><title>{title}</title><h1>{title}</h1><pre>{payload}</pre>{forms}")


@web.post("/approvals/{id}")
async def decide(token: str, answer: Literal["approve", "deny"]) -> dict[str, Any]:
    """Decide; the token says what, and that one may. Only the first decision counts."""
    approval = await (app.approve(token=token) if answer == "approve" else app.deny(token=token))
    return {"status": approval.status}


@web.exception_handler(PerdureError)
async def refused(_: Request, error: Exception) -> JSONResponse:
    """perdure's errors as answers."""
    assert isinstance(error, PerdureError)
    codes = {NotFound: 404, NotPermitted: 403, Conflict: 409, InvalidInput: 422, StoreUnreachable: 503}
    status = next((code for cls, code in codes.items() if isinstance(error, cls)), 500)
    return JSONResponse({"code": error.code, "detail": error.message, "hint": error.hint}, status)
