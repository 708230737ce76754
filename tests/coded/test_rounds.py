"""Rounds under hand-written sequences of events."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.coded.rounds import CodedRound, Round, fastest_first, make_round
from counterpoint.coded.schemes import parse_scheme

SCHEMES = ("uncoded", "replication", "stream:3", "backup", "hedge:1.5", "mds", "ldpc", "cyclic:2", "systematic")


def begin(scheme: str, num_agents: int, num_learners: int, free: int | None = None, unit: float = 1.0) -> Round:
    made = make_round(parse_scheme(scheme), num_agents, range(num_learners), lambda: unit)
    for learner in range(num_learners if free is None else free):
        made.free(learner)
    return made


def assigned(round_: Round, now: float = 0.0) -> list[tuple[int, tuple[int, ...]]]:
    return [(learner, task.agents) for learner, task in round_.assign(now)]


def test_uncoded_assigns_each_agent_once():
    made = begin("uncoded", 2, 4)
    assert assigned(made) == [(0, (0,)), (1, (1,))]
    made.completed(0)
    assert assigned(made, 100.0) == []
    assert made.timer(100.0) == math.inf
    made.completed(1)
    assert made.done


def test_backup_copies_the_agent_assigned_longest_ago():
    made = begin("backup", 3, 4)
    assert assigned(made) == [(0, (0,)), (1, (1,)), (2, (2,)), (3, (0,))]
    assert made.needed(3)
    made.completed(3)
    assert not made.needed(0), "agent 0 is known now"
    assert assigned(made, 1.0) == [(3, (1,))]
    made.completed(1)
    made.completed(2)
    assert made.done


def test_hedge_copies_after_its_delay():
    made = begin("hedge:1.5", 2, 3, unit=2.0)
    assert assigned(made, 10.0) == [(0, (0,)), (1, (1,))]
    assert made.timer(10.0) == 3.0
    made.completed(0)
    assert assigned(made, 12.9) == []
    assert assigned(made, 13.0) == [(0, (1,))]
    assert made.timer(13.0) == 3.0


def test_hedge_waits_while_the_update_time_is_unknown():
    made = begin("hedge", 1, 2, unit=math.inf)
    assigned(made)
    assert assigned(made, 1e9) == []


def test_streams_work_through_their_queues_and_skip_known_agents():
    made = begin("stream:2", 3, 2)
    assert assigned(made) == [(0, (0,)), (1, (1,))]
    made.completed(0)
    assert assigned(made) == [(0, (2,))]
    made.completed(1)
    assert assigned(made) == [], "the queue of learner 1 is 1, 0: both are known, and 2 is being computed"
    made.lost(0)
    assert assigned(made) == [(1, (2,))], "no other learner has it queued"


def test_lost_tasks_go_to_the_first_free_learner():
    made = begin("uncoded", 2, 3)
    assigned(made)
    made.lost(0)
    assert assigned(made) == [(2, (0,))]
    made.lost(2)
    made.completed(1)
    assert assigned(made) == [(1, (0,))]


def test_lost_rows_are_reassigned_only_if_needed():
    made = begin("mds", 2, 4)
    assert [learner for learner, _ in assigned(made)] == [0, 1, 2, 3]
    made.lost(0)
    made.lost(1)
    made.completed(2)
    assert assigned(made) == [], "rows 2 and 3 suffice"
    assert not made.done
    made.lost(3)
    (again,) = made.assign(0.0)
    assert again[0] == 2
    assert again[1].index in (0, 1, 3)
    made.completed(2)
    assert made.done


def test_a_busy_learner_gets_its_row_once_it_is_free():
    made = begin("cyclic:1", 2, 3, free=2)
    assert [learner for learner, _ in assigned(made)] == [0, 1]
    made.free(2)
    assert [learner for learner, _ in assigned(made)] == [2]


def test_linear_schemes_return_sums():
    assert not parse_scheme("backup+fastest-first").is_linear
    assert parse_scheme("random-sparse").is_linear
    made = begin("systematic", 2, 3)
    assert isinstance(made, CodedRound)
    assert [task.row for _, task in made.assign(0.0)][:2] == [(), ()]


def test_fastest_first_treats_unmeasured_learners_as_the_median():
    assert fastest_first(range(4), {0: 5.0, 1: 1.0, 2: 3.0}) == [1, 2, 3, 0]
    assert fastest_first(range(2), {}) == [0, 1]


@given(
    scheme=st.sampled_from(SCHEMES),
    num_agents=st.integers(2, 6),
    spare=st.integers(2, 5),
    events=st.lists(st.tuples(st.integers(0, 10), st.sampled_from(["complete", "complete", "die", "return"])), max_size=200),
)
def test_every_sequence_of_events_ends_once_live_learners_complete_their_tasks(scheme, num_agents, spare, events):
    """No learner ever has two tasks, and the round ends if live learners keep completing tasks, whichever die and return."""
    num_learners = num_agents + spare
    made = begin(scheme, num_agents, num_learners)
    dead: set[int] = set()
    now = 0.0

    def assign() -> None:
        before = set(made.running)
        tasks = made.assign(now)
        assert not before & {learner for learner, _ in tasks}
        assert not dead & {learner for learner, _ in tasks}
        assert all(0 <= agent < num_agents for _, task in tasks for agent in task.agents)

    assign()
    for number, event in events:
        now += 0.3
        learner = number % num_learners
        if event == "complete" and learner in made.running and not made.done:
            made.completed(learner)
        elif event == "die" and learner not in dead and len(dead) < num_learners - 1:
            dead.add(learner)
            made.lost(learner)
        elif event == "return" and learner in dead:
            dead.remove(learner)
            made.free(learner)
        assign()
    for _ in range(200):
        if made.done:
            break
        now += 10.0
        assign()
        assert made.running, "a learner is alive and work is left"
        made.completed(next(iter(made.running)))
    assert made.done


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_single_live_learner_completes_every_scheme(scheme):
    made = begin(scheme, 8, 15, free=1)
    for now in range(15):
        for learner, _ in made.assign(float(now)):
            made.completed(learner)
    assert made.done
