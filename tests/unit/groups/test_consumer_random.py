"""Random lives of a group of the consumer protocol: no partition has two owners, epochs rise, and it comes to rest."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from diskless_core.groups.consumer.model import ConsumerGroupState
from tests.unit.groups.consumer_script import Consumer, ConsumerScript, settle

NAMES = st.sampled_from("abc")
TOPICS = ("t", "u", "v")
SUBSCRIPTIONS = st.sets(st.sampled_from(TOPICS), min_size=1).map(lambda names: tuple(sorted(names)))


class GroupLife(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.script = ConsumerScript()
        self.consumers = {}
        self.group_epoch = 0
        self.epochs = {}
        for topic in TOPICS[:2]:
            self.script.topics.create(topic, 3)

    @rule(name=NAMES, topics=SUBSCRIPTIONS, assignor=st.sampled_from([None, "range", "uniform"]))
    def begin(self, name, topics, assignor):
        self.consumers.setdefault(name, Consumer(self.script, name, topics, {"server_assignor": assignor}))

    @rule(name=NAMES)
    def heartbeat(self, name):
        if name in self.consumers:
            self.consumers[name].beat()

    @rule(name=NAMES)
    def give_up(self, name):
        if name in self.consumers:
            self.consumers[name].give_up()

    @rule()
    def everybody_heartbeats(self):
        for consumer in self.consumers.values():
            consumer.beat()

    @rule(name=NAMES)
    def lose_an_answer(self, name):
        if name in self.consumers:
            self.consumers[name].beat_in_vain()

    @rule(name=NAMES, topics=SUBSCRIPTIONS)
    def subscribe_to_something_else(self, name, topics):
        consumer = self.consumers.get(name)
        if consumer is not None:
            consumer.topics = topics
            consumer.missed_answer = True  # so that it says everything again
            consumer.beat()

    @rule(name=NAMES)
    def leave(self, name):
        consumer = self.consumers.pop(name, None)
        if consumer is not None and consumer.epoch > 0 and name in self.script.group.members:
            self.script.beat(name, -1)

    @rule(name=NAMES)
    def fail(self, name):
        """The process is gone, and its session with it."""
        self.consumers.pop(name, None)
        self._fence(name)

    @rule(name=NAMES)
    def time_out(self, name):
        """The process is there still, and has noticed by itself that it is out."""
        self._fence(name)
        if name in self.consumers:
            self.consumers[name].lose_everything()

    def _fence(self, name):
        if self.script.group is not None and name in self.script.group.members:
            self.script.fence(name)

    @rule()
    def restart(self):
        self.script.restart()

    @rule(topic=st.sampled_from(TOPICS))
    def grow(self, topic):
        if topic not in self.script.topics.ids:
            self.script.topics.create(topic, 2)
        elif self.script.topics.counts[topic] < 6:
            self.script.topics.counts[topic] += 1

    @rule(topic=st.sampled_from(TOPICS))
    def delete(self, topic):
        if topic in self.script.topics.ids:
            self.script.topics.delete(topic)

    @rule()
    def come_to_rest(self):
        group = self.script.group
        if group is None or set(group.members) - set(self.consumers) or not self.consumers:
            return
        settle(*self.consumers.values())
        group = self.script.group
        assert group.state is ConsumerGroupState.STABLE
        topics = self.script.topics
        for name, consumer in self.consumers.items():
            assert consumer.owned == group.target_of(name)
        owned = {one for consumer in self.consumers.values() for one in consumer.owned}
        subscribed = {name for consumer in self.consumers.values() for name in consumer.topics if name in topics.ids}
        assert owned == {
            one for name in subscribed for one in self.script.partitions(name, *range(topics.counts[name]))
        }

    @invariant()
    def no_partition_has_two_owners(self):
        owners = [one for consumer in self.consumers.values() for one in consumer.owned]
        assert len(owners) == len(set(owners))
        group = self.script.group
        if group is not None:
            coordinated = [one for current in group.current.values() for one in (*current.assigned, *current.revoking)]
            assert len(coordinated) == len(set(coordinated))

    @invariant()
    def epochs_never_go_back(self):
        group = self.script.group
        if group is None:
            return
        assert group.epoch >= self.group_epoch
        assert group.target_epoch <= group.epoch
        self.group_epoch = group.epoch
        epochs = {name: current.epoch for name, current in group.current.items()}
        assert all(epoch >= self.epochs.get(name, 0) for name, epoch in epochs.items())
        self.epochs = epochs


GroupLife.TestCase.settings = settings(max_examples=250, stateful_step_count=40, deadline=None)
TestGroupLife = GroupLife.TestCase
