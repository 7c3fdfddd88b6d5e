"""Errors of a database whose tables are missing, of another version, or not perdure's."""

from __future__ import annotations

from perdure.model.errors.base import Conflict
from perdure.model.errors.store import StoreError


class SchemaMissing(StoreError):
    """The database has no perdure schema yet."""

    code = "schema-missing"


class ForeignDatabase(SchemaMissing):
    """The database has tables that are not perdure's; it was not changed."""

    code = "foreign-database"


class SchemaOutdated(StoreError):
    """The database's schema is older than this version of perdure needs."""

    code = "schema-outdated"


class SchemaTooNew(StoreError):
    """The database's schema is newer than this version of perdure knows, so it was not used."""

    code = "schema-too-new"


class MigrationChanged(StoreError):
    """A migration that was applied differs from the one shipped: its checksum does not match."""

    code = "migration-changed"


class RealJobs(Conflict):
    """The database has jobs that chaos did not make, or tables that are not perdure's; it was not changed."""

    code = "real-jobs"
