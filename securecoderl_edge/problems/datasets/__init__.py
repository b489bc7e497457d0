"""Importers: one file per dataset format, all to one record format."""
