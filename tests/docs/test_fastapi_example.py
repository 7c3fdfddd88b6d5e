"""The example with FastAPI: its routes, asked as a browser would, with the worker run where the test says."""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
from httpx import ASGITransport, AsyncClient

from perdure.config import load_settings
from tests.docs.support import load_example

LETTER = {"to": "Ana", "topic": "tea & <biscuits>"}


@dataclass
class Site:
    """The application, a browser, and what the worker printed."""

    module: ModuleType
    browser: AsyncClient
    capsys: pytest.CaptureFixture[str]

    async def work(self) -> str:
        """Run what is due; return what was printed."""
        await self.module.app.work(once=True)
        return self.capsys.readouterr().out

    async def start(self, **headers: str) -> str:
        """Post a letter; return where to look for it."""
        answer = await self.browser.post("/letters", json=LETTER, headers=headers)
        assert answer.status_code == 202
        return answer.headers["Location"]

    async def link(self) -> str:
        """The link that the worker sends."""
        found = re.search(r"decide: http://localhost:8000(\S+)", await self.work())
        assert found
        return found[1]


@pytest.fixture
async def site(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> AsyncIterator[Site]:
    module = load_example("fastapi_app")
    module.app.configure(load_settings({"database_url": f"sqlite:///{tmp_path}/perdure.db"}))
    transport = ASGITransport(app=module.web)
    async with (
        module.web.router.lifespan_context(module.web),
        AsyncClient(transport=transport, base_url="http://localhost:8000") as browser,
    ):
        yield Site(module, browser, capsys)


async def test_from_the_request_to_the_letter(site: Site) -> None:
    where = await site.start()
    link = await site.link()
    assert (await site.browser.get(where)).status_code == 202
    page = await site.browser.get(link)
    assert "tea &amp; &lt;biscuits&gt;" in page.text
    assert "<biscuits>" not in page.text
    assert (await site.browser.get(where)).json()["status"] == "WAITING_FOR_APPROVAL"  # looking decided nothing
    action = re.findall(r'action="([^"]+)"', page.text)[0].replace("&amp;", "&")
    decided = await site.browser.post(link.partition("?")[0] + action)
    assert (decided.status_code, decided.json()) == (200, {"status": "APPROVED"})
    assert "sent: Dear Ana" in await site.work()
    answer = await site.browser.get(where, params={"wait": 10})
    assert answer.status_code == 200
    assert answer.json() == {
        "status": "COMPLETED",
        "result": "Dear Ana, let us talk about tea & <biscuits>.",
        "error": None,
    }


async def test_a_denial_ends_it_and_counts_once(site: Site) -> None:
    where = await site.start()
    link = await site.link()
    assert (await site.browser.post(f"{link}&answer=deny")).json() == {"status": "DENIED"}
    again = await site.browser.post(f"{link}&answer=approve")
    assert (again.status_code, again.json()["code"]) == (409, "already-decided")
    assert "sent" not in await site.work()
    assert (await site.browser.get(where)).json()["status"] == "FAILED"


async def test_the_same_key_is_the_same_job(site: Site) -> None:
    first = await site.start(**{"Idempotency-Key": "k1"})
    assert await site.start(**{"Idempotency-Key": "k1"}) == first
    other = await site.browser.post("/letters", json={"to": "Bo", "topic": "tea"}, headers={"Idempotency-Key": "k1"})
    assert (other.status_code, other.json()["code"]) == (409, "idempotency-conflict")


async def test_what_is_refused(site: Site) -> None:
    await site.start()
    path = (await site.link()).partition("?")[0]
    assert (await site.browser.post(f"{path}?token=guessed&answer=approve")).status_code == 403
    assert (await site.browser.post(f"{path}?answer=approve")).status_code == 422
    missing = "00000000-0000-7000-8000-000000000000"
    assert (await site.browser.get(f"/letters/{missing}")).status_code == 404
    assert (await site.browser.get(f"/approvals/{missing}?token=x")).status_code == 404
    assert (await site.browser.post("/letters", json={"to": "Ana"})).status_code == 422
