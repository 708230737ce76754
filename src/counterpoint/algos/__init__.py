"""Algorithms, one file each.

base.py         the contract: `Algorithm` computes, `Entry` answers what others ask; finds entries by name or address
offpolicy.py    what MADDPG's family shares: layout of minibatches, visibility, targets, clipping
exploration.py  how MADDPG and MATD3 act: relaxed choices and additive noise
onpolicy.py     what COMA's and MAPPO's family shares: networks over a rollout, team rewards, returns, minibatches
recurrent.py    networks that remember, for off-policy learning from sequences
sharing.py      which agents share parameters: an index from agents to sets
attention.py    a critic over the set of agents, for many agents
ensemble.py     policy ensembles, around any algorithm of MADDPG's family
inference.py    policies of other agents, inferred from what they do
league.py       opponents from the run's own past, around any algorithm
maddpg.py       MADDPG and independent DDPG
matd3.py        MATD3
masac.py        MASAC and, with --order sequential, HASAC's order of updates
coma.py         COMA
mappo.py        MAPPO and IPPO
"""
