"""The store on PostgreSQL 14-18."""
