"""The end of data: retention, trimming, and the deletion of WAL objects that hold nothing alive."""
