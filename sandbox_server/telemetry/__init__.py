"""Seeing what a server does: one id per call, logs, metrics and traces."""
