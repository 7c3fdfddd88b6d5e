"""The checkpointer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    PendingWrite,
    get_checkpoint_id,
    get_serializable_checkpoint_metadata,
    writes_sort_key,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from perdure.integrations.in_handler import Documents, Opens, key_of, under, unescaped
from perdure.integrations.langgraph.blocking import Blocking, Closing
from perdure.model.documents import Document, DocumentRange, NewDocument
from perdure.model.errors import NotJson

CHECKPOINTS = "langgraph-checkpoints"
WRITES = "langgraph-writes"
PAGE = 20


class PerdureSaver(Closing, BaseCheckpointSaver[int]):
    """Keeps the checkpoints of graphs in perdure's database: `builder.compile(checkpointer=PerdureSaver(app))`.

    In a job it writes under the lease of the attempt: a worker that was replaced changes nothing. `ainvoke` and `invoke` both
    work; in an async handler only `ainvoke`.

    app: an App or a client; in jobs it may be left out. serde: as of each checkpointer.
    """

    def __init__(self, app: Opens | None = None, *, serde: SerializerProtocol | None = None) -> None:
        super().__init__(serde=serde)
        self._blocking = Blocking(app)
        self._documents = Documents(app)

    # -- reading -------------------------------------------------------------------------------------------------------

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """See `BaseCheckpointSaver.aget_tuple`."""
        thread, ns = _place(config)
        wanted = get_checkpoint_id(config)
        if wanted is None:
            found = await self._documents.last(under(CHECKPOINTS, thread, ns))
            return await self._tuple(found[0]) if found else None
        document = await self._documents.get(CHECKPOINTS, key_of(thread, ns, wanted))
        return None if document is None else await self._tuple(document)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """See `BaseCheckpointSaver.alist`. Those of one thread and namespace come newest first; several threads and namespaces
        come one after another."""
        wanted = None if config is None else get_checkpoint_id(config)
        until = None if before is None else get_checkpoint_id(before)
        left = limit
        async for document in self._newest_first(_within(config)):
            _, _, id = _parts(document.key)
            metadata = document.value["metadata"]
            if (wanted is not None and id != wanted) or (until is not None and id >= until):
                continue
            if filter and any(metadata.get(name) != value for name, value in filter.items()):
                continue
            if left is not None:
                if left <= 0:
                    return
                left -= 1
            yield await self._tuple(document)

    async def _newest_first(self, within: DocumentRange) -> AsyncIterator[Document]:
        while True:
            page = (await self._documents.last(within, PAGE))[::-1]
            for document in page:
                yield document
            if len(page) < PAGE:
                return
            within = within._replace(before=page[-1].key)

    async def _tuple(self, document: Document) -> CheckpointTuple:
        thread, ns, id = _parts(document.key)
        stored = document.value
        writes = [(*_write_place(write), write) for write in await self._documents.read(under(WRITES, thread, ns, id))]
        writes.sort(key=lambda found: writes_sort_key(found[3].value["path"], found[1], found[2]))
        pending: list[PendingWrite] = [
            (task, write.value["channel"], self._load(write)) for _, task, _, write in writes
        ]
        parent = stored["parent"]
        return CheckpointTuple(
            config=_config(thread, ns, id),
            checkpoint=self._load(document),
            metadata=stored["metadata"],
            parent_config=None if parent is None else _config(thread, ns, parent),
            pending_writes=pending,
        )

    def _load(self, document: Document) -> Any:
        return self.serde.loads_typed((document.value["type"], document.body or b""))

    # -- writing -------------------------------------------------------------------------------------------------------

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """See `BaseCheckpointSaver.aput`. Raises NotJson for metadata that is no JSON."""
        del new_versions  # each checkpoint is stored with all of its values
        thread, ns = _place(config)
        kind, body = self.serde.dumps_typed(checkpoint)
        value = {
            "type": kind,
            "parent": get_checkpoint_id(config),
            "metadata": get_serializable_checkpoint_metadata(config, metadata),
        }
        new = NewDocument(CHECKPOINTS, key_of(thread, ns, checkpoint["id"]), _json(value), body)
        await self._documents.change(put=[new])
        return _config(thread, ns, checkpoint["id"])

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """See `BaseCheckpointSaver.aput_writes`."""
        thread, ns = _place(config)
        id = get_checkpoint_id(config) or ""
        new = []
        for number, (channel, value) in enumerate(writes):
            place = WRITES_IDX_MAP.get(channel, number)
            kind, body = self.serde.dumps_typed(value)
            about = _json({"type": kind, "channel": channel, "path": task_path})
            new.append(NewDocument(WRITES, key_of(thread, ns, id, task_id, str(place)), about, body, keep=place >= 0))
        await self._documents.change(put=new)

    async def adelete_thread(self, thread_id: str) -> None:
        """See `BaseCheckpointSaver.adelete_thread`."""
        thread = str(thread_id)
        await self._documents.change(remove=[under(CHECKPOINTS, thread), under(WRITES, thread)])

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """See `BaseCheckpointSaver.adelete_for_runs`. It reads all checkpoints."""
        runs = set(run_ids)
        found = [
            _parts(document.key)
            async for document in self._newest_first(DocumentRange(CHECKPOINTS))
            if document.value["metadata"].get("run_id") in runs
        ]
        await self._documents.change(remove=[one for place in found for one in _all_of(*place)])

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """See `BaseCheckpointSaver.acopy_thread`."""
        new = []
        for collection in (CHECKPOINTS, WRITES):
            within = under(collection, str(source_thread_id))
            prefix = under(collection, str(target_thread_id)).first
            for document in await self._documents.read(within):
                key = prefix + document.key.removeprefix(within.first)
                new.append(NewDocument(collection, key, _json(document.value), document.body))
        await self._documents.change(put=new)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """See `BaseCheckpointSaver.aprune`. With "keep_latest" a namespace whose newest checkpoint needs earlier ones (a
        DeltaChannel) is left as it is."""
        for thread in map(str, thread_ids):
            if strategy == "delete":
                await self.adelete_thread(thread)
                continue
            of_ns: dict[str, list[str]] = {}
            needed: set[str] = set()
            async for document in self._newest_first(under(CHECKPOINTS, thread)):
                _, ns, id = _parts(document.key)
                if ns not in of_ns and document.value["metadata"].get("counters_since_delta_snapshot"):
                    needed.add(ns)
                of_ns.setdefault(ns, []).append(id)
            old = [(ns, id) for ns, ids in of_ns.items() if ns not in needed for id in ids[1:]]
            await self._documents.change(remove=[one for ns, id in old for one in _all_of(thread, ns, id)])

    # -- blocking ------------------------------------------------------------------------------------------------------

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """See `BaseCheckpointSaver.get_tuple`."""
        return self._blocking.wait(self.aget_tuple(config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """See `BaseCheckpointSaver.list`."""
        following = self.alist(config, filter=filter, before=before, limit=limit)

        async def one() -> CheckpointTuple | None:
            return await anext(following, None)

        while (found := self._blocking.wait(one())) is not None:
            yield found

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """See `BaseCheckpointSaver.put`."""
        return self._blocking.wait(self.aput(config, checkpoint, metadata, new_versions))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """See `BaseCheckpointSaver.put_writes`."""
        self._blocking.wait(self.aput_writes(config, writes, task_id, task_path))

    def delete_thread(self, thread_id: str) -> None:
        """See `BaseCheckpointSaver.delete_thread`."""
        self._blocking.wait(self.adelete_thread(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """See `BaseCheckpointSaver.delete_for_runs`."""
        self._blocking.wait(self.adelete_for_runs(run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """See `BaseCheckpointSaver.copy_thread`."""
        self._blocking.wait(self.acopy_thread(source_thread_id, target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """See `BaseCheckpointSaver.prune`."""
        self._blocking.wait(self.aprune(thread_ids, strategy=strategy))


def _place(config: RunnableConfig) -> tuple[str, str]:
    """The thread and the namespace."""
    given = config["configurable"]
    return str(given["thread_id"]), given.get("checkpoint_ns", "")


def _within(config: RunnableConfig | None) -> DocumentRange:
    if config is None:
        return DocumentRange(CHECKPOINTS)
    thread, ns = _place(config)
    named = config["configurable"].get("checkpoint_ns") is not None
    return under(CHECKPOINTS, thread, ns) if named else under(CHECKPOINTS, thread)


def _config(thread: str, ns: str, id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": id}}


def _parts(key: str) -> tuple[str, str, str]:
    thread, ns, id = map(unescaped, key.split("/"))
    return thread, ns, id


def _write_place(write: Document) -> tuple[str, str, int]:
    """The checkpoint, the task and the number of a write."""
    *_, id, task, number = write.key.split("/")
    return unescaped(id), unescaped(task), int(number)


def _all_of(thread: str, ns: str, id: str) -> tuple[DocumentRange, DocumentRange]:
    """A checkpoint and its writes."""
    key = key_of(thread, ns, id)
    return DocumentRange(CHECKPOINTS, key, f"{key}\1"), under(WRITES, thread, ns, id)


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise NotJson(f"the metadata of a checkpoint is no JSON: {error}") from None
