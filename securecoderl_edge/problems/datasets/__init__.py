"""Importers: one file for each format of the world, one record format out."""
