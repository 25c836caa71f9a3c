"""The handlers of Kafka's APIs, thin: check, call, answer. `broker/apis.py` says which handler belongs to which API."""
