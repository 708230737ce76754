"""The nine particle worlds, one file each.

world.py     bodies, forces and collisions
scenario.py  what all nine share: both flavours, actions, words, drawing
simple.py, spread.py, speaker_listener.py, reference.py       one team
adversary.py, push.py, tag.py, crypto.py, world_comm.py       two teams
"""
