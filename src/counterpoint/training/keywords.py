"""The keywords of `train`, `resume` and `grid`, typed. Written by docs/make_keywords.py from the settings classes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict

from counterpoint.algos.base import Entry
from counterpoint.envs.base import World


class TrainSettings(TypedDict, total=False):
    """Settings of a run, named as on the command line; all are optional."""

    preset: str
    """Preset to start from (listed by `counterpoint presets`); other options override it."""
    algorithm: str | Entry
    """Algorithm: maddpg (critics see all agents), ddpg (critics see their own agent), matd3 (twin critics, delayed
    actors), masac (soft critics, tuned entropy), coma (one counterfactual critic), mappo and ippo (proximal policy
    optimisation with critics that see all agents or their own), or your own as my_algorithm.py:entry. Each family has
    its own defaults and options. External environments start from masac unless you choose."""
    good_policy: str
    """Algorithm of the good team."""
    adv_policy: str
    """Algorithm of the adversaries."""
    scenario: str
    """Built-in environment (listed by `counterpoint envs`)."""
    env: str | Callable[..., Any] | World
    """Your own environment instead of a scenario: PettingZoo, Gymnasium or compiled, as package.module:name or
    file.py:name, or a Gymnasium id such as CartPole-v1."""
    max_episode_len: int
    """Steps per episode (0: the environment's own limit; 25 in particle environments)."""
    num_agents: int
    """Number of agents (0: the scenario's own)."""
    num_adversaries: int
    """Number of adversaries among them (0: the scenario's own)."""
    flavour: Literal["mpe2", "openai"]
    """Rules of the particle environments: those of the maintained package or of the original of 2017."""
    actions: Literal["discrete", "continuous"]
    """Kind of actions in particle environments (see also --world-action)."""
    scenario_args: Sequence[str]
    """Further arguments of the scenario or of --env, such as N=5."""
    teams: Sequence[str] | Mapping[str, str]
    """Teams of the agents of --env, such as wolf_*=adversary (default: agents named adversary… are adversaries)."""
    num_episodes: int
    """Episodes to train for. A preset's --lr-steps and --entropy-steps stretch in proportion, unless you choose
    them."""
    batch_size: int
    """Transitions per minibatch (off-policy algorithms)."""
    buffer_size: int
    """Transitions kept for replay (off-policy algorithms)."""
    update_every: int
    """Environment steps, summed over parallel environments, between updates."""
    updates: int
    """Updates of all agents each time (off-policy algorithms)."""
    warmup: int
    """Environment steps before the first update (0: batch size × episode length, but never more than a tenth of the
    run)."""
    num_envs: int
    """Parallel environments."""
    seed: int
    """Seed of all randomness."""
    num_seeds: int
    """Seeds trained in one run: seed, seed + 1, …"""
    workers: int
    """Processes that step an external --env (0: one per environment, at most one per core)."""
    worker_timeout: float
    """Seconds without an answer after which a worker process is replaced."""
    devices: int
    """Devices to use (0: two on a CPU with at least two cores, otherwise one)."""
    lr: float
    """Adam step size of the actors."""
    critic_lr: float
    """Adam step size of the critic."""
    gamma: float
    """Discount factor."""
    num_units: int
    """Width of the hidden layers of actors and critic."""
    num_layers: int
    """Number of hidden layers."""
    recurrent: bool
    """Make the last hidden layer of the actors a gated recurrent unit, which remembers the episode."""
    share: Literal["none", "role", "all"]
    """Give every agent an actor of its own, or let the agents of a role, or all agents, share one."""
    learn_from: Literal["team", "own"]
    """Maximise the mean reward of the agent's team, or the agent's own reward."""
    standardise_rewards: bool
    """Shift and scale rewards to mean 0 and variance 1 over all rewards so far."""
    normalise_advantages: bool
    """Scale the advantages of each agent to variance 1 in each rollout."""
    clip: float
    """Largest gradient norm of a network (0: no limit)."""
    entropy_start: float
    """Initial weight of the policy's entropy in the actor's loss."""
    entropy_end: float
    """Final weight of the policy's entropy."""
    entropy_steps: int
    """Environment steps over which the weight of the entropy changes linearly."""
    td_lambda: float
    """λ of the critic's targets (0: one reward and the next value; 1: all rewards of the rollout)."""
    n_steps: int
    """Use targets of this many rewards and then the value, instead of --td-lambda (0: off)."""
    target_every: int
    """Updates after which the target becomes a copy of the critic (0: it moves by --tau at each update)."""
    tau: float
    """Fraction by which the target moves towards the critic after each update, unless it is copied."""
    critic_steps: int
    """Gradient steps of the critic on each rollout before the step of the actors."""
    epsilon_start: float
    """Initial share of uniform choice in every policy."""
    epsilon_end: float
    """Final share of uniform choice."""
    epsilon_steps: int
    """Environment steps over which the share of uniform choice changes linearly."""
    lr_steps: int
    """Updates over which the step sizes fall linearly to zero (0: they stay constant)."""
    critic_activation: Literal["relu", "silu"]
    """Activation of the critics' hidden layers. The gradient of a ReLU critic with respect to the action is piecewise
    constant; SiLU's is smooth, which lets actors come to rest precisely where the value is largest."""
    clip_by: Literal["variable", "global"]
    """Clip each array by its own norm, or all arrays of a network by their common norm."""
    minibatch: Literal["shared", "per-agent"]
    """Draw one minibatch for all agents, or one for each."""
    order: Literal["snapshot", "sequential"]
    """Update all agents from the same snapshot, or one after another."""
    init: Literal["he", "glorot"]
    """Initial hidden weights: He's, scaled for ReLU layers, or Glorot's, as in the authors' code."""
    norm: Literal["none", "layer", "batch"]
    """Normalise the hidden layers of actors and critics over their units or over the minibatch."""
    replay: Literal["uniform", "prioritised"]
    """Draw transitions uniformly, or draw those with large TD errors more often."""
    priority_exponent: float
    """Exponent of the TD error in the sampling probability, if prioritised (0: uniform)."""
    priority_beta: float
    """How much importance weights correct for prioritised sampling (1: fully)."""
    n_step: int
    """Rewards per transition: the target sums n discounted rewards before it bootstraps, fewer where an episode
    ends."""
    sequence_length: int
    """Steps of a sequence to learn from, if recurrent; a minibatch has batch size / sequence length sequences."""
    burn_in: int
    """Steps before them that only refresh the memory of actors and critics, if recurrent (0: none). What follows the
    start of an episode needs no refreshing."""
    model: str
    """Network of your own for actors and critics, as my_model.py:model."""
    temperature: float
    """Gumbel-softmax temperature."""
    estimator: Literal["soft", "straight-through", "st-temperature", "annealed", "gumbel-rao", "gapped"]
    """Gradient estimator of discrete actions in losses: soft (Gumbel-softmax), straight-through, st-temperature
    (straight-through with --estimator-temperature), annealed (straight-through, from --temperature to --estimator-
    temperature), gumbel-rao or gapped. Targets use soft or one-hot actions accordingly."""
    estimator_temperature: float
    """Softmax temperature of the estimators st-temperature, gumbel-rao and gapped, and the last one of annealed."""
    estimator_steps: int
    """Updates over which the temperature of the estimator annealed falls geometrically."""
    estimator_samples: int
    """Samples that the estimator gumbel-rao averages over."""
    estimator_gap: float
    """Lead of the drawn action over the others in the estimator gapped."""
    infer_policies: bool
    """Approximate the other agents' policies from what they do instead of knowing them; critics read log-
    probabilities."""
    infer_entropy: float
    """Weight of the entropy of the inferred policies."""
    infer_lr: float
    """Step size of the inferred policies."""
    log_actions: bool
    """Critics read log-probabilities of discrete actions instead of samples, as they always do with --infer-
    policies."""
    logit_cost: float
    """Weight of the mean squared policy output in the actor's loss."""
    world_action: Literal["soft", "one-hot"]
    """Give the environment relaxed action vectors, as the authors' code does, or sampled one-hot vectors."""
    noise: Literal["gaussian", "ou"]
    """Exploration noise of continuous agents: independent, or Ornstein-Uhlenbeck."""
    noise_start: float
    """Initial standard deviation of the exploration noise (of actions in [−1, 1])."""
    noise_end: float
    """Final standard deviation of the exploration noise."""
    noise_steps: int
    """Environment steps over which the noise decays linearly."""
    critic: Literal["joint", "attention"]
    """One critic for each agent, which reads all observations and actions, or, for many agents that share parameters,
    one that pools them by attention."""
    agents_per_sample: int
    """Agents of each set that learn from each transition of a minibatch, with --critic attention (0: all of them)."""
    gae_lambda: float
    """λ of the advantages (0: one reward and the next value; 1: all rewards of the rollout)."""
    epochs: int
    """Passes over each rollout."""
    minibatches: int
    """Parts into which each pass divides the rollout; every part is one gradient step."""
    clip_ratio: float
    """ε of the clipped policy loss: how far the probability of an action may move per rollout and still gain."""
    clip_value: float
    """ε of the clipped value loss, in units of the normalised value (0: no clipping)."""
    huber: float
    """Error at which the value loss changes from quadratic to linear (0: always quadratic)."""
    value_norm: Literal["popart", "running", "none"]
    """Normalise the critics' targets by their running moments, with the last layer rescaled (popart) or not
    (running)."""
    value_decay: float
    """Share of the running moments that remains after each rollout."""
    policy_gain: float
    """Gain of the orthogonal initial weights of the actors' last layers."""
    std_start: float
    """Initial standard deviation of continuous actions, whose range is −1 to 1; it is learnt from there."""
    alpha: float
    """Initial temperature: how much an agent's entropy counts beside its rewards."""
    tune_alpha: bool
    """Tune each agent's temperature so that its entropy approaches the target."""
    alpha_lr: float
    """Adam step size of the temperatures (0: the same as --lr)."""
    discrete_entropy: float
    """Target entropy of a discrete agent, as a fraction of the entropy of uniform choice among its legal actions."""
    continuous_entropy: float
    """Target entropy of a continuous agent per number of its action (of actions in [−1, 1])."""
    policy_delay: int
    """Critic updates per update of actors and targets."""
    target_noise: float
    """Standard deviation of the noise on continuous target actions (of actions in [−1, 1])."""
    target_noise_clip: float
    """Largest size of that noise."""
    exp_name: str
    """Name of the run's folder (empty: environment, algorithm and seed)."""
    save_dir: str
    """Folder that holds the runs."""
    save_rate: int
    """Episodes between checkpoints."""
    trust: bool
    """With the three options above and with --freeze: execute the code that the run names even though you did not make
    it on this machine."""
    plots_dir: str
    """Folder for a copy of the learning curve (empty: none)."""
    report_every: int
    """Episodes between reports: a row of metrics, an evaluation, a line of progress."""
    eval_episodes: int
    """Greedy episodes per evaluation (0: none)."""
    tensorboard: bool
    """Also write TensorBoard events to the run's folder."""
    wandb: bool
    """Also log to Weights & Biases (needs the wandb extra)."""
    learners: int
    """Number of learner processes that compute the agents' updates (0: compile everything into one program)."""
    code: str
    """Scheme: uncoded, replication, mds, random-sparse, ldpc, cyclic:2, stream:3, backup, hedge:1.5, fastest-first or
    auto."""
    ray_address: str
    """Address of the Ray cluster: auto or host:port (empty: start Ray on this machine, reachable only from here)."""
    straggle: str
    """Faults to inject into learners, such as k=2,delay=0.25, slow=1,factor=4 or crash=0.01 (see `counterpoint
    plan`)."""
    pad: float
    """Minimum seconds per agent update; learners wait, so that a few cores behave like many machines."""
    patience: float
    """Seconds without a result after which a learner is replaced."""
    min_learners: int
    """Minimum number of live learners; with fewer for longer than the patience, the run saves and stops."""
    timeline: int
    """Number of updates whose tasks are recorded in the run's `learners.csv` (0: none)."""
    freeze: Sequence[str]
    """Teams that do not learn, such as adversary=runs/tag-1, adversary=tag-1@best, adversary=tag-1@12000 (episodes),
    adversary=export/team.npz or adversary=my_policy.py:function. The other teams learn against them."""
    league: int
    """Earlier versions of the run's own policies to keep as opponents (0: no league)."""
    league_every: int
    """Updates between the versions that the league keeps (0: spread evenly over the run)."""
    league_share: float
    """Share of the episodes in which a member of the league plays one of the teams."""
    league_draw: Literal["uniform", "prioritised"]
    """Draw members of the league uniformly, or more often those against whom the other team earns little."""
    ensemble: int
    """Sub-policies per agent, one of which plays a whole episode (1: no ensemble)."""
    ensemble_teams: Sequence[str]
    """Teams that have an ensemble."""


class ResumeSettings(TypedDict, total=False):
    """Settings that may change when a run resumes."""

    lr: float
    """Adam step size of the actors."""
    lr_steps: int
    """Updates over which the step sizes fall linearly to zero (0: they stay constant)."""
    entropy_steps: int
    """Environment steps over which the weight of the entropy changes linearly."""
    save_rate: int
    """Episodes between checkpoints."""
    report_every: int
    """Episodes between reports: a row of metrics, an evaluation, a line of progress."""
    eval_episodes: int
    """Greedy episodes per evaluation (0: none)."""
    plots_dir: str
    """Folder for a copy of the learning curve (empty: none)."""
    tensorboard: bool
    """Also write TensorBoard events to the run's folder."""
    wandb: bool
    """Also log to Weights & Biases (needs the wandb extra)."""


class GridSettings(TypedDict, total=False):
    """Settings of a grid: a list spans it, with one run for each value."""

    preset: str | Sequence[str]
    """Preset to start from (listed by `counterpoint presets`); other options override it."""
    algorithm: str | Entry | Sequence[str | Entry]
    """Algorithm: maddpg (critics see all agents), ddpg (critics see their own agent), matd3 (twin critics, delayed
    actors), masac (soft critics, tuned entropy), coma (one counterfactual critic), mappo and ippo (proximal policy
    optimisation with critics that see all agents or their own), or your own as my_algorithm.py:entry. Each family has
    its own defaults and options. External environments start from masac unless you choose."""
    good_policy: str | Sequence[str]
    """Algorithm of the good team."""
    adv_policy: str | Sequence[str]
    """Algorithm of the adversaries."""
    scenario: str | Sequence[str]
    """Built-in environment (listed by `counterpoint envs`)."""
    env: str | Callable[..., Any] | World | Sequence[str | Callable[..., Any] | World]
    """Your own environment instead of a scenario: PettingZoo, Gymnasium or compiled, as package.module:name or
    file.py:name, or a Gymnasium id such as CartPole-v1."""
    max_episode_len: int | Sequence[int]
    """Steps per episode (0: the environment's own limit; 25 in particle environments)."""
    num_agents: int | Sequence[int]
    """Number of agents (0: the scenario's own)."""
    num_adversaries: int | Sequence[int]
    """Number of adversaries among them (0: the scenario's own)."""
    flavour: Literal["mpe2", "openai"] | Sequence[Literal["mpe2", "openai"]]
    """Rules of the particle environments: those of the maintained package or of the original of 2017."""
    actions: Literal["discrete", "continuous"] | Sequence[Literal["discrete", "continuous"]]
    """Kind of actions in particle environments (see also --world-action)."""
    scenario_args: Sequence[str]
    """Further arguments of the scenario or of --env, such as N=5."""
    teams: Sequence[str] | Mapping[str, str]
    """Teams of the agents of --env, such as wolf_*=adversary (default: agents named adversary… are adversaries)."""
    num_episodes: int | Sequence[int]
    """Episodes to train for. A preset's --lr-steps and --entropy-steps stretch in proportion, unless you choose
    them."""
    batch_size: int | Sequence[int]
    """Transitions per minibatch (off-policy algorithms)."""
    buffer_size: int | Sequence[int]
    """Transitions kept for replay (off-policy algorithms)."""
    update_every: int | Sequence[int]
    """Environment steps, summed over parallel environments, between updates."""
    updates: int | Sequence[int]
    """Updates of all agents each time (off-policy algorithms)."""
    warmup: int | Sequence[int]
    """Environment steps before the first update (0: batch size × episode length, but never more than a tenth of the
    run)."""
    num_envs: int | Sequence[int]
    """Parallel environments."""
    seed: int | Sequence[int]
    """Seed of all randomness."""
    num_seeds: int | Sequence[int]
    """Seeds trained in one run: seed, seed + 1, …"""
    workers: int | Sequence[int]
    """Processes that step an external --env (0: one per environment, at most one per core)."""
    worker_timeout: float | Sequence[float]
    """Seconds without an answer after which a worker process is replaced."""
    devices: int | Sequence[int]
    """Devices to use (0: two on a CPU with at least two cores, otherwise one)."""
    lr: float | Sequence[float]
    """Adam step size of the actors."""
    critic_lr: float | Sequence[float]
    """Adam step size of the critic."""
    gamma: float | Sequence[float]
    """Discount factor."""
    num_units: int | Sequence[int]
    """Width of the hidden layers of actors and critic."""
    num_layers: int | Sequence[int]
    """Number of hidden layers."""
    recurrent: bool | Sequence[bool]
    """Make the last hidden layer of the actors a gated recurrent unit, which remembers the episode."""
    share: Literal["none", "role", "all"] | Sequence[Literal["none", "role", "all"]]
    """Give every agent an actor of its own, or let the agents of a role, or all agents, share one."""
    learn_from: Literal["team", "own"] | Sequence[Literal["team", "own"]]
    """Maximise the mean reward of the agent's team, or the agent's own reward."""
    standardise_rewards: bool | Sequence[bool]
    """Shift and scale rewards to mean 0 and variance 1 over all rewards so far."""
    normalise_advantages: bool | Sequence[bool]
    """Scale the advantages of each agent to variance 1 in each rollout."""
    clip: float | Sequence[float]
    """Largest gradient norm of a network (0: no limit)."""
    entropy_start: float | Sequence[float]
    """Initial weight of the policy's entropy in the actor's loss."""
    entropy_end: float | Sequence[float]
    """Final weight of the policy's entropy."""
    entropy_steps: int | Sequence[int]
    """Environment steps over which the weight of the entropy changes linearly."""
    td_lambda: float | Sequence[float]
    """λ of the critic's targets (0: one reward and the next value; 1: all rewards of the rollout)."""
    n_steps: int | Sequence[int]
    """Use targets of this many rewards and then the value, instead of --td-lambda (0: off)."""
    target_every: int | Sequence[int]
    """Updates after which the target becomes a copy of the critic (0: it moves by --tau at each update)."""
    tau: float | Sequence[float]
    """Fraction by which the target moves towards the critic after each update, unless it is copied."""
    critic_steps: int | Sequence[int]
    """Gradient steps of the critic on each rollout before the step of the actors."""
    epsilon_start: float | Sequence[float]
    """Initial share of uniform choice in every policy."""
    epsilon_end: float | Sequence[float]
    """Final share of uniform choice."""
    epsilon_steps: int | Sequence[int]
    """Environment steps over which the share of uniform choice changes linearly."""
    lr_steps: int | Sequence[int]
    """Updates over which the step sizes fall linearly to zero (0: they stay constant)."""
    critic_activation: Literal["relu", "silu"] | Sequence[Literal["relu", "silu"]]
    """Activation of the critics' hidden layers. The gradient of a ReLU critic with respect to the action is piecewise
    constant; SiLU's is smooth, which lets actors come to rest precisely where the value is largest."""
    clip_by: Literal["variable", "global"] | Sequence[Literal["variable", "global"]]
    """Clip each array by its own norm, or all arrays of a network by their common norm."""
    minibatch: Literal["shared", "per-agent"] | Sequence[Literal["shared", "per-agent"]]
    """Draw one minibatch for all agents, or one for each."""
    order: Literal["snapshot", "sequential"] | Sequence[Literal["snapshot", "sequential"]]
    """Update all agents from the same snapshot, or one after another."""
    init: Literal["he", "glorot"] | Sequence[Literal["he", "glorot"]]
    """Initial hidden weights: He's, scaled for ReLU layers, or Glorot's, as in the authors' code."""
    norm: Literal["none", "layer", "batch"] | Sequence[Literal["none", "layer", "batch"]]
    """Normalise the hidden layers of actors and critics over their units or over the minibatch."""
    replay: Literal["uniform", "prioritised"] | Sequence[Literal["uniform", "prioritised"]]
    """Draw transitions uniformly, or draw those with large TD errors more often."""
    priority_exponent: float | Sequence[float]
    """Exponent of the TD error in the sampling probability, if prioritised (0: uniform)."""
    priority_beta: float | Sequence[float]
    """How much importance weights correct for prioritised sampling (1: fully)."""
    n_step: int | Sequence[int]
    """Rewards per transition: the target sums n discounted rewards before it bootstraps, fewer where an episode
    ends."""
    sequence_length: int | Sequence[int]
    """Steps of a sequence to learn from, if recurrent; a minibatch has batch size / sequence length sequences."""
    burn_in: int | Sequence[int]
    """Steps before them that only refresh the memory of actors and critics, if recurrent (0: none). What follows the
    start of an episode needs no refreshing."""
    model: str | Sequence[str]
    """Network of your own for actors and critics, as my_model.py:model."""
    temperature: float | Sequence[float]
    """Gumbel-softmax temperature."""
    estimator: (
        Literal["soft", "straight-through", "st-temperature", "annealed", "gumbel-rao", "gapped"]
        | Sequence[Literal["soft", "straight-through", "st-temperature", "annealed", "gumbel-rao", "gapped"]]
    )
    """Gradient estimator of discrete actions in losses: soft (Gumbel-softmax), straight-through, st-temperature
    (straight-through with --estimator-temperature), annealed (straight-through, from --temperature to --estimator-
    temperature), gumbel-rao or gapped. Targets use soft or one-hot actions accordingly."""
    estimator_temperature: float | Sequence[float]
    """Softmax temperature of the estimators st-temperature, gumbel-rao and gapped, and the last one of annealed."""
    estimator_steps: int | Sequence[int]
    """Updates over which the temperature of the estimator annealed falls geometrically."""
    estimator_samples: int | Sequence[int]
    """Samples that the estimator gumbel-rao averages over."""
    estimator_gap: float | Sequence[float]
    """Lead of the drawn action over the others in the estimator gapped."""
    infer_policies: bool | Sequence[bool]
    """Approximate the other agents' policies from what they do instead of knowing them; critics read log-
    probabilities."""
    infer_entropy: float | Sequence[float]
    """Weight of the entropy of the inferred policies."""
    infer_lr: float | Sequence[float]
    """Step size of the inferred policies."""
    log_actions: bool | Sequence[bool]
    """Critics read log-probabilities of discrete actions instead of samples, as they always do with --infer-
    policies."""
    logit_cost: float | Sequence[float]
    """Weight of the mean squared policy output in the actor's loss."""
    world_action: Literal["soft", "one-hot"] | Sequence[Literal["soft", "one-hot"]]
    """Give the environment relaxed action vectors, as the authors' code does, or sampled one-hot vectors."""
    noise: Literal["gaussian", "ou"] | Sequence[Literal["gaussian", "ou"]]
    """Exploration noise of continuous agents: independent, or Ornstein-Uhlenbeck."""
    noise_start: float | Sequence[float]
    """Initial standard deviation of the exploration noise (of actions in [−1, 1])."""
    noise_end: float | Sequence[float]
    """Final standard deviation of the exploration noise."""
    noise_steps: int | Sequence[int]
    """Environment steps over which the noise decays linearly."""
    critic: Literal["joint", "attention"] | Sequence[Literal["joint", "attention"]]
    """One critic for each agent, which reads all observations and actions, or, for many agents that share parameters,
    one that pools them by attention."""
    agents_per_sample: int | Sequence[int]
    """Agents of each set that learn from each transition of a minibatch, with --critic attention (0: all of them)."""
    gae_lambda: float | Sequence[float]
    """λ of the advantages (0: one reward and the next value; 1: all rewards of the rollout)."""
    epochs: int | Sequence[int]
    """Passes over each rollout."""
    minibatches: int | Sequence[int]
    """Parts into which each pass divides the rollout; every part is one gradient step."""
    clip_ratio: float | Sequence[float]
    """ε of the clipped policy loss: how far the probability of an action may move per rollout and still gain."""
    clip_value: float | Sequence[float]
    """ε of the clipped value loss, in units of the normalised value (0: no clipping)."""
    huber: float | Sequence[float]
    """Error at which the value loss changes from quadratic to linear (0: always quadratic)."""
    value_norm: Literal["popart", "running", "none"] | Sequence[Literal["popart", "running", "none"]]
    """Normalise the critics' targets by their running moments, with the last layer rescaled (popart) or not
    (running)."""
    value_decay: float | Sequence[float]
    """Share of the running moments that remains after each rollout."""
    policy_gain: float | Sequence[float]
    """Gain of the orthogonal initial weights of the actors' last layers."""
    std_start: float | Sequence[float]
    """Initial standard deviation of continuous actions, whose range is −1 to 1; it is learnt from there."""
    alpha: float | Sequence[float]
    """Initial temperature: how much an agent's entropy counts beside its rewards."""
    tune_alpha: bool | Sequence[bool]
    """Tune each agent's temperature so that its entropy approaches the target."""
    alpha_lr: float | Sequence[float]
    """Adam step size of the temperatures (0: the same as --lr)."""
    discrete_entropy: float | Sequence[float]
    """Target entropy of a discrete agent, as a fraction of the entropy of uniform choice among its legal actions."""
    continuous_entropy: float | Sequence[float]
    """Target entropy of a continuous agent per number of its action (of actions in [−1, 1])."""
    policy_delay: int | Sequence[int]
    """Critic updates per update of actors and targets."""
    target_noise: float | Sequence[float]
    """Standard deviation of the noise on continuous target actions (of actions in [−1, 1])."""
    target_noise_clip: float | Sequence[float]
    """Largest size of that noise."""
    exp_name: str
    """Name of the run's folder (empty: environment, algorithm and seed)."""
    save_dir: str
    """Folder that holds the runs."""
    save_rate: int | Sequence[int]
    """Episodes between checkpoints."""
    trust: bool | Sequence[bool]
    """With the three options above and with --freeze: execute the code that the run names even though you did not make
    it on this machine."""
    plots_dir: str
    """Folder for a copy of the learning curve (empty: none)."""
    report_every: int | Sequence[int]
    """Episodes between reports: a row of metrics, an evaluation, a line of progress."""
    eval_episodes: int | Sequence[int]
    """Greedy episodes per evaluation (0: none)."""
    tensorboard: bool | Sequence[bool]
    """Also write TensorBoard events to the run's folder."""
    wandb: bool | Sequence[bool]
    """Also log to Weights & Biases (needs the wandb extra)."""
    learners: int | Sequence[int]
    """Number of learner processes that compute the agents' updates (0: compile everything into one program)."""
    code: str | Sequence[str]
    """Scheme: uncoded, replication, mds, random-sparse, ldpc, cyclic:2, stream:3, backup, hedge:1.5, fastest-first or
    auto."""
    ray_address: str | Sequence[str]
    """Address of the Ray cluster: auto or host:port (empty: start Ray on this machine, reachable only from here)."""
    straggle: str | Sequence[str]
    """Faults to inject into learners, such as k=2,delay=0.25, slow=1,factor=4 or crash=0.01 (see `counterpoint
    plan`)."""
    pad: float | Sequence[float]
    """Minimum seconds per agent update; learners wait, so that a few cores behave like many machines."""
    patience: float | Sequence[float]
    """Seconds without a result after which a learner is replaced."""
    min_learners: int | Sequence[int]
    """Minimum number of live learners; with fewer for longer than the patience, the run saves and stops."""
    timeline: int | Sequence[int]
    """Number of updates whose tasks are recorded in the run's `learners.csv` (0: none)."""
    freeze: Sequence[str]
    """Teams that do not learn, such as adversary=runs/tag-1, adversary=tag-1@best, adversary=tag-1@12000 (episodes),
    adversary=export/team.npz or adversary=my_policy.py:function. The other teams learn against them."""
    league: int | Sequence[int]
    """Earlier versions of the run's own policies to keep as opponents (0: no league)."""
    league_every: int | Sequence[int]
    """Updates between the versions that the league keeps (0: spread evenly over the run)."""
    league_share: float | Sequence[float]
    """Share of the episodes in which a member of the league plays one of the teams."""
    league_draw: Literal["uniform", "prioritised"] | Sequence[Literal["uniform", "prioritised"]]
    """Draw members of the league uniformly, or more often those against whom the other team earns little."""
    ensemble: int | Sequence[int]
    """Sub-policies per agent, one of which plays a whole episode (1: no ensemble)."""
    ensemble_teams: Sequence[str]
    """Teams that have an ensemble."""
