"""The broker: connections, dispatch, handlers, and the composition root. What it serves is made in the rooms below.

Composition, in the order of a start:

- `node`: one process: its plugins, the parts and the sockets, started and stopped in order.
- `contexts`, `tiering_backends`: what plugins get from the configuration, and what they make of it.
- `parts`: makes all parts, each from its settings and its neighbours, and starts them. Each is in the `part.py`
  of its room. `services` is what handlers get of them.
- `coordinators`: the coordinator shards of a node. `object_owner` checks that the objects are this cluster's.
  `shard_watch` exports figures of the shards.
- `errors`: what ends a start. `memory`, `open_files`: what the process may use.

Connections, from the outside to the inside:

- `listening` binds the sockets; `connection_limit` says how many clients may come.
- `connection`: one client. `receive_memory` and `frames` are the memory of requests that arrive.
- `apis`: the table of what is served. `dispatch`: from a frame to the handler of its API. `authorization` is asked who
  may do what.
- `handlers`: one module for each API or a few that belong together; `protocol_support` documents them.

Between brokers:

- `peer_connections`: requests to other brokers. Those of others are answered in `diskless.service`.
"""
