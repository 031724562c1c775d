"""The vLLM connector: ``"kv_connector_module_path": "kvferry.vllm"``."""

from .connector import KvferryConnector

__all__ = ["KvferryConnector"]
