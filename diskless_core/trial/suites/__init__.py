"""One small class a noun that gives the contract suite a configured backend. pytest collects them by their files.

They get what they need from the fixture `ground` of `diskless_core.trial.kit`. Nothing else imports them.
"""
