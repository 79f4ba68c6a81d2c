"""Traces to test with: a checked worked example and random runs that keep the contract."""
