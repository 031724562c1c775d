"""Stands in for vLLM where none is installed: the names that `kvferry.vllm` uses, and no more.

Only what the connector can see is here; how an engine calls it is in `fake/`.
"""
