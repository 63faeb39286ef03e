"""Experiments on many machines: a plan of who gets HAKMEM, and the verdict from Prometheus' data."""
