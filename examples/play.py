"""Film the team that `train.py` trained."""

import counterpoint
from counterpoint.viz import render

if __name__ == "__main__":
    team = counterpoint.load("runs/example")
    render.save(team.film(episodes=2), "example.gif")
