"""python -m bench.retrieval: how often a search of long-term memory finds the entry that a question is about.

Entries and questions are made from lists, in Chinese, English and both; a question says it in other words than its entry, and
entries that share its names are there as well. Recall at 5 and the mean reciprocal rank (of the first 10), for words, vectors and
both, and on the same set for SQLite FTS5 and PostgreSQL tsvector, each with any word of the question.
"""

import argparse
import random
import re
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from perdure import Client
from perdure.event_loop import run
from perdure.runtime.memory_checks import new_memory
from perdure.store.open import open_store

SERVICES = [
    "checkout",
    "billing",
    "search",
    "login",
    "shipping",
    "inventory",
    "reporting",
    "gateway",
    "mailer",
    "scheduler",
    "catalog",
    "payments",
]
SERVICES_ZH = ["结算", "账单", "搜索", "登录", "物流", "库存", "报表", "网关", "邮件", "调度", "目录", "支付"]
PEOPLE = ["Ann", "Bob", "Carla", "Deng", "Emil", "Fatima", "Grace", "Hugo", "Ines", "Jun"]
PEOPLE_ZH = ["小王", "老李", "张敏", "陈工", "刘洋", "赵姐", "孙磊", "周航", "吴倩", "郑凯"]


class Topic(NamedTuple):
    """What entries and questions of one kind say; {s} is a service, {p} a person, {n} a number."""

    entry: str
    questions: tuple[str, ...]


ENGLISH = (
    Topic(
        "The outage of {s} was caused by an exhausted connection pool; raising the limit to {n} solved it.",
        ("how was the outage of {s} solved?", "why had {s} no free connections?", "{s} pool exhausted"),
    ),
    Topic(
        "{p} prefers reports about {s} as a table of at most {n} rows.",
        ("in which form does {p} like the {s} report?", "what does {p} prefer for reporting on {s}"),
    ),
    Topic(
        "Deployments of {s} happen from branch release/{n} after {p} has approved them.",
        ("who approves deploying {s}?", "which branches is {s} deployed from?"),
    ),
    Topic(
        "The backup of the {s} database runs at {n} minutes past two and is kept by {p}.",
        ("when is {s} backed up?", "who keeps the backups of the {s} database?"),
    ),
    Topic(
        "Certificates of {s} expire every {n} days; {p} renews them by hand.",
        ("who renews the certificate of {s}?", "how often do {s} certificates expire?"),
    ),
)
CHINESE = (
    Topic(
        "{s}服务的故障原因是连接池耗尽,把上限调到{n}之后恢复。",
        ("{s}服务上次的故障后来怎么恢复的?", "为什么{s}的连接不够用?", "{s} 连接池"),
    ),
    Topic("{p}希望{s}的周报用表格,不超过{n}行。", ("{p}喜欢什么样的{s}周报?", "{s}周报要几行?")),
    Topic("{s}从 release/{n} 分支部署,部署前需要{p}批准。", ("{s}部署要谁批准?", "{s}是从哪个分支部署的?")),
    Topic("{s}数据库每天凌晨两点{n}分备份,由{p}保管。", ("{s}的数据库什么时候备份?", "谁保管{s}的备份?")),
    Topic("{s}的证书{n}天过期一次,{p}手动续期。", ("{s}证书谁来续期?", "{s}的证书多久过期?")),
)
MIXED = (
    Topic(
        "{s} 的 OOM 是因为 cache 没有上限,{p} 把它设为 {n} MB。",
        ("{s} 的 OOM 怎么解决的?", "who set the cache limit of {s}?", "{s} cache 上限"),
    ),
    Topic(
        "{p} 说 {s} 的 API timeout 应该是 {n} 秒。",
        ("{s} API 的 timeout 应该多少?", "what timeout did {p} want for {s}?"),
    ),
)

Search = Callable[[str], Awaitable[list[int]]]
"""The numbers of the entries that a question finds, at most 10."""


def make(seed: int) -> tuple[list[str], list[tuple[str, int]]]:
    """The entries, and the questions, each with the number of its entry."""
    chance = random.Random(seed)
    entries: list[str] = []
    questions: list[tuple[str, int]] = []
    for topics, services, people in (
        (ENGLISH, SERVICES, PEOPLE),
        (CHINESE, SERVICES_ZH, PEOPLE_ZH),
        (MIXED, SERVICES, PEOPLE),
    ):
        for topic in topics:
            for service in services:
                words = {"s": service, "p": chance.choice(people), "n": str(chance.randint(2, 900))}
                questions += [(question.format(**words), len(entries)) for question in topic.questions]
                entries.append(topic.entry.format(**words))
    for n in range(1000 - len(entries)):  # what no question is about
        service, person = chance.choice(SERVICES + SERVICES_ZH), chance.choice(PEOPLE + PEOPLE_ZH)
        entries.append(
            chance.choice(
                (
                    f"Meeting {n}: {person} reported on the plans for {service}.",
                    f"会议{n}:{person}介绍了{service}的计划。",
                    f"Ticket {n} about {service} was closed by {person}.",
                    f"{person}在第{n}周休假,{service}由同事负责。",
                )
            )
        )
    return entries, questions


async def measured(name: str, search: Search, questions: list[tuple[str, int]]) -> None:
    """Print the figures of one way to search."""
    hits = 0
    reciprocal = 0.0
    for question, wanted in questions:
        found = await search(question)
        if wanted in found:
            rank = found.index(wanted) + 1
            hits += rank <= 5
            reciprocal += 1 / rank
    print(f"{name:<22} recall@5 {hits / len(questions):.3f}   MRR {reciprocal / len(questions):.3f}")


def any_word(question: str) -> str:
    """A query of FTS5 that is satisfied by any word."""
    return " OR ".join(f'"{word}"' for word in re.findall(r"\w+", question))


async def main(postgres: str | None) -> None:
    """All ways, on one set."""
    entries, questions = make(1)
    print(f"{len(entries)} entries, {len(questions)} questions")
    with TemporaryDirectory() as folder:
        store = await open_store(f"sqlite:///{Path(folder) / 'memory.db'}")
        await store.schema.migrate()
        await store.memories.change_memories(
            new=[new_memory(text, scope="tenant", created_by="bench") for text in entries]
        )
        client = Client(store)
        numbers = {text: number for number, text in enumerate(entries)}
        for mode in ("text", "vector", "hybrid"):

            async def search(question: str, mode: str = mode) -> list[int]:
                return [numbers[hit.entry.text] for hit in await client.memory.search(question, 10, mode=mode)]

            await measured(f"perdure, {mode}", search, questions)
        await store.close()

    fts = sqlite3.connect(":memory:")
    fts.execute("create virtual table entries using fts5(text)")
    fts.executemany("insert into entries (rowid, text) values (?, ?)", enumerate(entries))

    async def fts5(question: str) -> list[int]:
        rows = fts.execute(
            "select rowid from entries where entries match ? order by rank limit 10", (any_word(question),)
        )
        return [row[0] for row in rows]

    await measured("SQLite FTS5", fts5, questions)
    if postgres is not None:
        await tsvector(postgres, entries, questions)


async def tsvector(url: str, entries: list[str], questions: list[tuple[str, int]]) -> None:
    """PostgreSQL's own full text, with any word of the question."""
    import asyncpg

    connection = await asyncpg.connect(url)
    await connection.execute("create temporary table entries (no int, words tsvector)")
    for configuration in ("simple", "english"):
        await connection.execute("truncate entries")
        await connection.executemany(
            f"insert into entries values ($1, to_tsvector('{configuration}', $2))", [*enumerate(entries)]
        )
        sql = f"""select no from entries,
            cast(replace(cast(plainto_tsquery('{configuration}', $1) as text), '&', '|') as tsquery) q
            where words @@ q order by ts_rank(words, q) desc, no limit 10"""

        async def search(question: str, sql: str = sql) -> list[int]:
            return [row["no"] for row in await connection.fetch(sql, question)]

        await measured(f"PostgreSQL {configuration}", search, questions)
    await connection.close()


if __name__ == "__main__":
    ap = argparse.ArgumentParser(prog="python -m bench.retrieval")
    ap.add_argument(
        "--postgres", metavar="URL", help="a database for a temporary table; without it tsvector is left out"
    )
    run(main(ap.parse_args().postgres))
