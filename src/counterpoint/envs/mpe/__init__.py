"""The particle worlds, one file each.

world.py     bodies, forces, collisions and neighbours
matching.py  the least total distance between agents and places
scenario.py  what nearly all of them share: both flavours, actions, words, drawing
simple.py, spread.py, speaker_listener.py, reference.py       one team
adversary.py, push.py, tag.py, crypto.py, world_comm.py       two teams
formation.py, line.py, treasure.py                            one team, in mpe2 only
"""
