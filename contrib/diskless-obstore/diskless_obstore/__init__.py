"""WAL objects of Diskless in S3, through obstore."""
