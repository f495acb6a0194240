"""Builds an extension: plan, compile, record, publish."""
