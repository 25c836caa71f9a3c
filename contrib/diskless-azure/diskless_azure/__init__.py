"""Backends of Diskless in Azure Blob Storage."""
