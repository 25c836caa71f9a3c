"""From a Produce request to committed offsets: validate, gather, upload, commit, in that order."""
