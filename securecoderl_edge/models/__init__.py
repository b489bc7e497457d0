"""Base models: files, architecture, weights, layers, adapters, and sampling."""
