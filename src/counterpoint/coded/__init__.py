"""Distributed learning: a controller and learners, some of which may be slow or die.

- settings.py: `Distribution`, the settings of a distributed run
- schemes.py: parses schemes, which assign agents to learners
- codes.py: linear codes, encoding and decoding
- rounds.py: state machines that assign the tasks of one update
- learner.py: computes agents' updates as pure functions
- transport.py: requests, events and the interface between controller and learners
- ray_transport.py: learners as Ray actors
- controller.py: the `update` of a distributed run
- delays.py: models of slow, paused and crashed learners, and how to parse them
- simulator.py: predicts the cost of each scheme
- planner.py: reads recorded timelines and compares all schemes
"""
