"""Figures: one module a kind, one registry."""
