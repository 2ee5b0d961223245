from tests.registry.fixtures import registry, shelf

__all__ = ["registry", "shelf"]
