"""Multi-agent actor-critic learning on JAX."""

__version__ = "0.1.0"
