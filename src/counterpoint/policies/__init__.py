"""A trained team: load it, let it act, export it.

policy.py      `load` and `Policy`: observations by agent name to actions by agent name
random.py      uniformly random actions, as an algorithm that does not learn
export.py      ONNX, plain NumPy and safetensors
onnx_graph.py  an actor as an ONNX graph (no jax)
"""
