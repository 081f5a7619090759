"""Metrics, health probes and the port that serves them.

In: counts and times of the stages. Out: `/metrics`, `/live` and `/ready`.
"""
